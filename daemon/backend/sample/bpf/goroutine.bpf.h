/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads which goroutine a thread of a Go program runs, from its own memory, where offsets say that
 * the daemon has checked. Included by sched.bpf.c, whose declarations it uses.
 *
 * The runtime's g of a thread is that of whatever runs: the scheduler's (g0) and a signal handler's
 * (gsignal) have the thread, too, and that has the goroutine of a user. The thread must be the one
 * that is asked for, by its own number: what is read in another place, or before the runtime has
 * set the thread up, is not believed.
 */
#pragma once

#include "daemon/backend/sample/bpf/goroutine.h"

#define GO_STATUS_SCAN 0x1000u /* of whatever else it does */
/*
 * runnable, running, in a system call, waiting, its stack is being copied, preempted: it has gone
 * or come but for some instructions
 */
#define GO_STATUS_ALIVE (1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 8 | 1u << 9)

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, GO_PROCESSES);
	__type(key, __u32);
	__type(value, struct go_process);
} go_processes SEC(".maps");

inline_ int go_word(__u64 addr, __u64 *ret)
{
	return bpf_probe_read_user(ret, sizeof(*ret), (void *)addr) != 0;
}

inline_ __u32 go_read(const struct go_layout *l, __u64 thread_pointer, __u32 tid, __u64 *ret)
{
	__u64 g = 0, m = 0, procid = 0, user = 0;
	__u32 status = 0;

	if (!thread_pointer)
		return GO_NO_THREAD;
	if (go_word(thread_pointer - l->below, &g))
		return GO_NO_READ;
	if (!g)
		return GO_NO_THREAD;
	if (go_word(g + l->m, &m) || (m && go_word(m + l->procid, &procid)))
		return GO_NO_READ;
	if ((__u32)procid != tid || procid >> 32)
		return GO_NO_THREAD;
	if (go_word(m + l->curg, &user))
		return GO_NO_READ;
	if (!user)
		return GO_NONE;
	if (bpf_probe_read_user(&status, sizeof(status), (void *)(user + l->status)) ||
	    go_word(user + l->goid, ret))
		return GO_NO_READ;
	status &= ~GO_STATUS_SCAN;
	return *ret && status < 32 && (GO_STATUS_ALIVE >> status & 1) ? GO_FOUND : GO_NONE;
}

/*
 * Of `task`, which is the current one or the one that has just been switched away from: 0, it runs
 * none, or it is not known.
 */
inline_ __u64 goroutine_of(const struct task_struct *task, __u32 tgid)
{
#ifdef __TARGET_ARCH_x86
	struct go_process *process;
	__u64 id = 0;
	__u32 why;

	if (!constants.goroutines || !is_used(FILTER_USE_GO) || !task->mm)
		return 0;
	process = bpf_map_lookup_elem(&go_processes, &tgid);
	if (!process || process->gone)
		return 0;
	why = go_read(&process->layout, task->thread.fsbase, own_tid(task), &id);
	if (why >= GO_WHYS)
		return 0;
	__sync_fetch_and_add(&process->whys[why], 1);
	return why == GO_FOUND ? id : 0;
#else
	return 0;
#endif
}
