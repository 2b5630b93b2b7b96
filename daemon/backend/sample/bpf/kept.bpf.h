/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stacks of waits, which are kept until it is known whether the wait is long enough for somebody to want them. Included by
 * sched.bpf.c, whose declarations it uses.
 *
 * A thread has its place in the map from its first wait to its exit. The map is preallocated: nothing may allocate while the run
 * queue is locked.
 */
#pragma once

#include "daemon/backend/sample/bpf/unwind.bpf.h"

#define PF_EXITING 0x00000004u
#define F_USER_STACK (1ULL << 8)

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, FILTER_KEPT_MAX);
	__type(key, __u32); /* the machine's number of the thread, which it keeps to its end */
	__type(value, struct filter_kept);
} kept SEC(".maps");

/* What a new place begins with: too large for the stack. */
struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_kept);
} kept_new SEC(".maps");

inline_ struct filter_kept *kept_place(__u32 pid)
{
	struct filter_kept *k = bpf_map_lookup_elem(&kept, &pid), *empty;
	__u32 zero = 0;

	if (k)
		return k;
	empty = bpf_map_lookup_elem(&kept_new, &zero);
	if (!empty || bpf_map_update_elem(&kept, &pid, empty, UPDATE_ANY))
		return 0;
	return bpf_map_lookup_elem(&kept, &pid);
}

/* Whether `k` is of the wait that the thread is in. One that was disarmed meanwhile has left a CPU unseen. */
inline_ int kept_is_now(const struct filter_kept *k, const struct task_struct *task)
{
	return k->out_ns && k->switches == task->nvcsw + task->nivcsw;
}

/*
 * The wait begins in which `task`, the current one, leaves: its stack was unwound, or is read by frame pointers here (NULL), if
 * somebody takes it later, or else put out at once. False: there is no room for it, or the thread is at its end.
 */
inline_ int kept_begin(void *ctx, const struct task_struct *task, const struct unwind_state *s, __u32 later,
		       const struct tracerd_sched_event *ev, __u64 now)
{
	struct filter_kept *k;
	long bytes;
	__u64 n = FILTER_KEPT_NOTHING;

	if (task->flags & PF_EXITING)
		return 0;
	k = kept_place((__u32)task->pid);
	if (!k)
		return 0;
	k->begun++;
	barrier();
	if (later && s) {
		n = s->n + s->n_python;
		MASK(n, 127);
		bpf_probe_read_kernel(k->addrs, (__u32)n * 8, s->out.addrs);
	} else if (later) {
		bytes = bpf_get_stack(ctx, k->addrs, sizeof(k->addrs), F_USER_STACK);
		n = bytes > 0 ? (__u64)bytes / 8 : 0;
	}
	k->n = (__u32)n;
	k->ev = *ev;
	k->later = later;
	k->switches = task->nvcsw + task->nivcsw;
	k->out_ns = now;
	barrier();
	k->done = k->begun;
	return later != 0;
}

/* It ends. How long it was; 0: its stack is not kept. */
inline_ __u64 kept_end(struct filter_kept *k, const struct task_struct *task, __u64 now)
{
	const __u64 ns = kept_is_now(k, task) && k->n != FILTER_KEPT_NOTHING && now > k->out_ns ? now - k->out_ns : 0;

	k->begun++;
	barrier();
	k->out_ns = 0;
	barrier();
	k->done = k->begun;
	return ns;
}
