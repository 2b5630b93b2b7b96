// SPDX-License-Identifier: GPL-2.0-only
/*
 * What happens at a context switch, a wake-up, a fork, a tick of the sampling clock and before a
 * freeze, for the threads that somebody records, and what those that sleep are in. Owns nothing:
 * filters come from the daemon, records go to the output events of the groups, and a cpu on which a
 * target runs again after a pause is reported through `wake`.
 *
 * Works with clang 14; a loop or a call that an old verifier might not like is avoided.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "daemon/backend/sample/bpf/filter.h"
#include "daemon/backend/sample/bpf/kernel.bpf.h"

const volatile struct filter_constants constants = {.have_prev_state = 1, .n_cpus = 1};

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct filter_entry);
} tgids SEC(".maps");

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct filter_entry);
} tids SEC(".maps");

/* By enum filter_use. */
struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, FILTER_USES);
	__type(key, __u32);
	__type(value, __u32);
} uses SEC(".maps");

static __attribute__((always_inline)) int is_used(__u32 use)
{
	const __u32 *is = bpf_map_lookup_elem(&uses, &use);

	return is && *is;
}

struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(map_flags, MAP_F_MMAPABLE);
	__uint(max_entries, 1); /* grown to the number of cpus before loading */
	__type(key, __u32);
	__type(value, struct filter_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* groups x 2 x cpus */
	__type(key, __u32);
	__type(value, __u32);
} outputs SEC(".maps");

struct {
	__uint(type, MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wake SEC(".maps");

#include "daemon/backend/sample/bpf/ring.bpf.h"
#include "daemon/backend/sample/bpf/unwind.bpf.h"
#include "daemon/backend/sample/bpf/kept.bpf.h"
#include "daemon/backend/sample/bpf/task.bpf.h"
#include "daemon/backend/sample/bpf/python.bpf.h"
#include "daemon/backend/sample/bpf/goroutine.bpf.h"
#include "daemon/backend/sample/bpf/emit.bpf.h"

static __attribute__((always_inline)) struct filter_entry *filter_find(__u32 tgid, __u32 tid)
{
	struct filter_entry *e;

	if (!tid)
		return 0;
	if (is_used(FILTER_USE_THREADS)) {
		e = bpf_map_lookup_elem(&tids, &tid);
		if (e)
			return e;
	}
	return bpf_map_lookup_elem(&tgids, &tgid);
}

/* The same where that of another thread is known: mostly both are of one process. */
static __attribute__((always_inline)) struct filter_entry *
filter_find_beside(__u32 tgid, __u32 tid, struct filter_entry *e, __u32 its_tgid, __u32 its_tid)
{
	if (tid && its_tid && tgid == its_tgid && !is_used(FILTER_USE_THREADS))
		return e;
	return filter_find(tgid, tid);
}

/*
 * The stack of `task` is unwound, for the groups of `e` that want that; NULL: it is to be copied,
 * or found by frame pointers.
 */
static __attribute__((always_inline)) struct unwind_state *
unwind_for(const struct filter_entry *e, struct task_struct *task, __u32 tgid, __u32 *mask)
{
	struct unwind_state *s;

	*mask = e->unwind & ~(__u32)e->no_stacks;
	s = *mask && task->mm && !is_in_exec(task) ? unwind(task, tgid, UNWIND_SWITCH_FRAMES) : 0;
	if (!s)
		*mask = 0;
	else
		python_frames(s, task, tgid, PYTHON_SWITCH_FRAMES);
	return s;
}

/*
 * The event of who leaves a CPU. Who takes the stacks of waits later gets it without, if the stack
 * can be kept. Returns the time for who comes to it: that of the switch, or, if a record of this
 * one has taken the time when it was written, one behind that.
 */
static __attribute__((always_inline)) __u64 emit_out(void *ctx, const struct filter_entry *e,
						     struct task_struct *task, __u32 tgid,
						     struct tracerd_sched_event *ev,
						     struct filter_cpu *c, __u64 now)
{
	__u32 later = is_in_exec(task) ? 0 : e->later & ~(__u32)e->no_stacks, mask = 0;
	/* Nobody may want it now. */
	const int again = later && later == (e->unwind & ~(__u32)e->no_stacks) && task->mm &&
			  !(task->flags & PF_EXITING) && !python_process_of(tgid) &&
			  kept_again(tgid, 0);
	struct unwind_state *s = again ? 0 : unwind_for(e, task, tgid, &mask);

	/* Where it could not be unwound those who copy it do so now. */
	if (!again)
		later &= s ? mask : ~(__u32)e->unwind;
	if (!e->later || !kept_begin(ctx, task, again, s, later, ev, now))
		later = 0;
	emit_goroutine(ctx, e, goroutine_of(task, tgid), ev, c, 0,
		       later | (plain_of(e, task) & ~mask), now);
	if (later) {
		ev->flags |= SCHEDEV_STACK_LATER;
		emit(ctx, e, FILTER_OUTPUT_PLAIN, ev, c, ~later, 0, EVERY_GROUP, now);
		ev->flags &= ~SCHEDEV_STACK_LATER;
	}
	emit_stack(ctx, e, s, mask, ev, c, later, plain_of(e, task), now);
	return (later | (plain_of(e, task) & ~mask)) == groups_of(e) ? now : bpf_ktime_get_ns();
}

/*
 * The stack that was kept, and behind it what in the kernel had the thread wait: it has not run
 * since, so that is still there. NULL: it cannot be had.
 */
static __attribute__((always_inline)) struct unwind_state *with_kernel(const struct filter_kept *k,
								       struct task_struct *task)
{
	__u32 zero = 0;
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	__u64 n = k->n;
	long bytes;

	if (!s)
		return 0;
	MASK(n, 127);
	bpf_probe_read_kernel(s->out.addrs, (__u32)n * 8, k->addrs);
	bytes = bpf_get_task_stack(task, &s->out.addrs[n + 1], FILTER_KERNEL_FRAMES * 8, 0);
	if (bytes <= 0)
		return 0;
	s->out.addrs[n] = SCHEDEV_KERNEL_HEAD | (__u64)bytes / 8;
	s->n = (__u32)n + 1 + (__u32)bytes / 8;
	s->n_python = 0; /* those are among the kept */
	return s;
}

/*
 * Of who comes to it: with the stack of the wait that ends, where it was a long one. That is for
 * those to whom it was promised when the wait began, whatever else is wanted now; and it has ended
 * for all.
 */
static __attribute__((always_inline)) void emit_in(void *ctx, const struct filter_entry *e,
						   struct task_struct *task,
						   struct tracerd_sched_event *ev,
						   struct filter_cpu *c, __u64 now, __u64 in_ns)
{
	__u32 pid = (__u32)task->pid, done = 0;
	struct filter_kept *k = bpf_map_lookup_elem(&kept, &pid);

	if (k) {
		const __u32 later = k->later;
		const __u32 kernel = constants.unwind && !(k->ev.flags & SCHEDEV_PREEMPT)
					     ? e->kernel & later
					     : 0;
		const __u64 ns = kept_end(k, task, now);

		if (ns && (ns >= (__u64)e->wait_min_us * 1000 || (later & ~(__u32)e->later))) {
			struct unwind_state *s = kernel ? with_kernel(k, task) : 0;

			k->ev = *ev;
			k->ev.flags = SCHEDEV_ADDRESSES | SCHEDEV_WAITED;
			k->ev.state = (__u32)(ns >> 32);
			k->ev.call = (__u32)ns;
			if (s) {
				s->out.ev = k->ev;
				emit_unwound(ctx, e, kernel, s, ev->cpu, c);
			}
			emit_kept(ctx, e, s ? later & ~kernel : later, k, ev->cpu, c);
			done = later;
		}
	}
	emit(ctx, e, FILTER_OUTPUT_PLAIN, ev, c, done, 0, EVERY_GROUP, in_ns);
}

static __attribute__((always_inline)) void other_fill(struct tracerd_sched_event *ev,
						      const struct task_struct *other)
{
	const __u64 *comm;
	__u64 words[2];

	ev->other_pid = tgid_of(other);
	ev->other_tid = tid_of(other);
	/* 0 is the idle task; one that this namespace does not see is "other" for everybody. */
	if (!ev->other_tid && other->pid)
		ev->other_pid = ev->other_tid = SCHEDEV_MASKED_ID;
	ev->other_uid = other->cred->uid.val;
	/* As two words, which costs a tenth of a call that copies them. */
	comm = (const __u64 *)other->comm;
	words[0] = comm[0];
	words[1] = comm[1];
	__builtin_memcpy(ev->other_comm, words, sizeof(words));
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	struct tracerd_sched_event ev;
	struct filter_entry *from, *to;
	struct filter_cpu *c;
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 now, in_ns;
	__u32 prev_tgid = tgid_of(prev), prev_tid = tid_of(prev);
	__u32 next_tgid = tgid_of(next), next_tid = tid_of(next);

	from = filter_find(prev_tgid, prev_tid);
	to = filter_find_beside(next_tgid, next_tid, from, prev_tgid, prev_tid);
	c = bpf_map_lookup_elem(&cpus, &cpu);
	if (!c)
		return 0;
	if (!from) {
		/* Keeps clang from merging the tests into an "or" of pointers, which is refused. */
		barrier();
		if (!to) {
			/* What ran here may have been forgotten while it ran. */
			if (c->running)
				c->running = 0;
			return 0;
		}
	}
	now = in_ns = bpf_ktime_get_ns();
	/* Only for those whose ticks pass the clocks must run. */
	if (to && to->clocks) {
		c->running = 1;
		if (c->want_wake) {
			c->want_wake = 0;
			bpf_ringbuf_output(&wake, &cpu, sizeof(cpu), 0);
		}
	} else {
		c->last_ns = now;
		c->running = 0;
	}

	__builtin_memset(&ev, 0, sizeof(ev));
	ev.magic = SCHEDEV_MAGIC;
	ev.cpu = cpu;
	if (from && from->waits[0] != FILTER_NO_GROUP) {
		__u32 state;

		ev.pid = prev_tgid;
		ev.tid = prev_tid;
		state = constants.have_prev_state ? (__u32)ctx[3] : state_of(prev);
		ev.kind = SCHEDEV_OUT;
		ev.state = task_state_abi(prev, state);
		if ((ctx[0] & 1) || !state) {
			ev.flags = is_throttled(prev) ? SCHEDEV_PREEMPT | SCHEDEV_THROTTLED
						      : SCHEDEV_PREEMPT;
			ev.state = 0;
		} else {
			ev.call = call_of(prev);
			if (SCHEDEV_CALL_HAS_FD(ev.call))
				ev.flags = file_kind(prev, (ev.call >> SCHEDEV_CALL_BITS) - 1);
		}
		other_fill(&ev, next);
		in_ns = emit_out(ctx, from, prev, prev_tgid, &ev, c, now);
	}
	if (to && to->waits[0] != FILTER_NO_GROUP) {
		ev.kind = SCHEDEV_IN;
		ev.flags = 0;
		ev.state = 0;
		ev.call = 0;
		ev.pid = next_tgid;
		ev.tid = next_tid;
		other_fill(&ev, prev);
		emit_in(ctx, to, next, &ev, c, now, in_ns);
	}
	return 0;
}

/*
 * Whether the current task itself wakes somebody, or an interrupt that came while it ran. The
 * count of preemption says it, but is no symbol that a program can link to on every kernel. So: an
 * interrupt that came in the kernel runs on its own stack, and `ctx` lies on the stack of whoever
 * calls; one that came in user space runs on the task's stack, and then the saved registers
 * are no system call's. Returns flags.
 */
static __attribute__((always_inline)) __u16 irq_flags(void *ctx, struct task_struct *waker)
{
	if (!waker->pid)
		/* the idle task wakes nobody by itself */
		return SCHEDEV_IRQ_KNOWN | SCHEDEV_IN_IRQ;
#ifdef __TARGET_ARCH_x86
	{
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs((void *)waker);

		if (ctx < waker->stack || ctx >= (void *)regs)
			return SCHEDEV_IRQ_KNOWN | SCHEDEV_IN_IRQ;
		/* Who is at its end, or a thread of the kernel's, runs nothing in user space. */
		if ((waker->flags & (PF_KTHREAD | PF_EXITING)) || (long)regs->orig_ax >= 0)
			return SCHEDEV_IRQ_KNOWN;
		return SCHEDEV_IRQ_KNOWN | SCHEDEV_IN_IRQ;
	}
#endif
	return 0;
}

/* Which groups want no stack of who wakes `task`: the wait is a short one, or begins only. */
static __attribute__((always_inline)) __u32 wakes_early(const struct filter_entry *e,
							const struct task_struct *task, __u64 now)
{
	__u32 pid = (__u32)task->pid;
	struct filter_kept *k = e->later ? bpf_map_lookup_elem(&kept, &pid) : 0;

	if (!k || (kept_is_now(k, task) && now - k->out_ns >= (__u64)e->wait_min_us * 1000))
		return 0;
	return e->later;
}

/*
 * The event of a wait that `waker`, the current task, of process `tgid`, ends, with its stack, to
 * the groups that are not in `early`, which have it.
 */
static __attribute__((always_inline)) void emit_waker(void *ctx, const struct filter_entry *e,
						      struct task_struct *waker, __u32 tgid,
						      struct tracerd_sched_event *ev,
						      struct filter_cpu *c, __u32 early, __u64 now)
{
	const __u32 plain = plain_of(e, waker);
	__u32 mask = e->unwind & ~(__u32)e->no_stacks, pid = (__u32)waker->pid;
	struct unwind_state *s = 0;
	struct filter_kept *k = 0;

	if (mask && waker->mm && !is_in_exec(waker) && !python_process_of(tgid) &&
	    kept_again(tgid, 1))
		k = bpf_map_lookup_elem(&woke, &pid);
	if (k) {
		k->ev = *ev;
		k->ev.flags |= SCHEDEV_ADDRESSES;
		emit_kept(ctx, e, mask & ~early, k, ev->cpu, c);
	} else {
		s = unwind_for(e, waker, tgid, &mask);
	}
	emit_stack(ctx, e, s, mask, ev, c, early, plain, now);
	if (s)
		woke_keep(waker, s);
}

SEC("tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	struct task_struct *wakee = (struct task_struct *)ctx[0];
	struct task_struct *waker;
	struct tracerd_sched_event ev;
	struct filter_entry *e;
	struct filter_cpu *c;
	__u64 now;
	__u32 cpu = bpf_get_smp_processor_id();

	e = filter_find(tgid_of(wakee), tid_of(wakee));
	if (!e || e->waits[0] == FILTER_NO_GROUP)
		return 0;

	now = bpf_ktime_get_ns();
	__builtin_memset(&ev, 0, sizeof(ev));
	ev.magic = SCHEDEV_MAGIC;
	ev.kind = SCHEDEV_WAKEUP;
	ev.cpu = cpu;
	ev.pid = tgid_of(wakee);
	ev.tid = tid_of(wakee);
	waker = (struct task_struct *)bpf_get_current_task_btf();
	other_fill(&ev, waker);
	ev.flags = irq_flags(ctx, waker);
	if (!(ev.flags & SCHEDEV_IN_IRQ))
		ev.call = call_of(waker);
	c = bpf_map_lookup_elem(&cpus, &cpu);
	if (!c)
		return 0;
	/* An interrupt's "waker" is whoever it interrupted: his stack says nothing. */
	if (!(ev.flags & SCHEDEV_IN_IRQ) &&
	    filter_find_beside(ev.other_pid, ev.other_tid, e, ev.pid, ev.tid)) {
		const __u32 early = wakes_early(e, wakee, now);

		if (early)
			emit(ctx, e, FILTER_OUTPUT_PLAIN, &ev, c, ~early, 0, EVERY_GROUP, now);
		if (early == groups_of(e))
			return 0;
		ev.flags |= SCHEDEV_WAKER_TARGET;
		emit_waker(ctx, e, waker, ev.other_pid, &ev, c, early, now);
		return 0;
	}
	emit(ctx, e, FILTER_OUTPUT_PLAIN, &ev, c, 0, 0, EVERY_GROUP, now);
	return 0;
}

static __attribute__((always_inline)) void fork_python(__u32 from, __u32 to)
{
	struct python_process *process = bpf_map_lookup_elem(&py_processes, &from), its;

	if (!process)
		return;
	__builtin_memset(&its, 0, sizeof(its));
	its.runtime = process->runtime;
	its.generation = process->generation;
	its.layout = process->layout;
	bpf_map_update_elem(&py_processes, &to, &its, UPDATE_ANY);
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx[0];
	struct task_struct *child = (struct task_struct *)ctx[1];
	__u32 from = tgid_of(parent), to = tgid_of(child);
	struct filter_entry *e, copy;

	if (from == to)
		return 0;
	e = bpf_map_lookup_elem(&tgids, &from);
	if (!e || !(e->flags & FILTER_INHERIT))
		return 0;
	copy = *e;
	bpf_map_update_elem(&tgids, &to, &copy, UPDATE_ANY);
	/* It has the same mappings until the daemon knows of it. */
	if (e->unwind) {
		struct unwind_process *process = bpf_map_lookup_elem(&uw_processes, &from),
				      its = {0};

		if (process) {
			its.first = process->first;
			its.n = process->n;
			its.generation = process->generation;
			its.hotspot = process->hotspot;
			its.made_start = process->made_start;
			its.made_end = process->made_end;
			bpf_map_update_elem(&uw_processes, &to, &its, UPDATE_ANY);
		}
		fork_python(from, to);
	}
	return 0;
}

/*
 * Instead of the sample, a record with the stack of the thread that was interrupted, or with none,
 * see plain_of(). False: the sample is it.
 */
static __attribute__((always_inline)) int clock_record(struct clock_tick *ctx,
						       const struct filter_entry *e, __u32 mask,
						       __u32 cpu, struct filter_cpu *c)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	const __u64 ip = ctx->regs[TICK_IP];
	struct unwind_state *s = 0;
	__u32 zero = 0;

	if (is_in_exec(task) || (!task->mm && (e->copies & mask))) {
		s = bpf_map_lookup_elem(&uw_states, &zero);
		if (s)
			s->n = 0;
	} else if (e->unwind & mask) {
		s = unwind(task, tgid_of(task), UNWIND_SAMPLE_FRAMES);
	}
	if (!s)
		return 0;
	python_frames(s, task, tgid_of(task), PYTHON_FRAMES_MAX);
	__builtin_memset(&s->out.ev, 0, sizeof(s->out.ev));
	s->out.ev.magic = SCHEDEV_MAGIC;
	s->out.ev.kind = SCHEDEV_SAMPLE;
	s->out.ev.flags = SCHEDEV_ADDRESSES | (ctx->regs[TICK_CS] & 3 ? 0 : SCHEDEV_IN_KERNEL);
	s->out.ev.cpu = cpu;
	s->out.ev.pid = tgid_of(task);
	s->out.ev.tid = tid_of(task);
	__builtin_memcpy(s->out.ev.other_comm, &ip, sizeof(ip));
	emit_unwound(ctx, e, mask, s, cpu, c);
	return 1;
}

/* A tick's goroutine, for the groups in `mask`. */
static __attribute__((always_inline)) void clock_goroutine(void *ctx, const struct filter_entry *e,
							   const struct task_struct *task,
							   __u32 mask, __u32 cpu,
							   struct filter_cpu *c)
{
	struct tracerd_sched_event ev;

	__builtin_memset(&ev, 0, sizeof(ev));
	ev.magic = SCHEDEV_MAGIC;
	ev.cpu = cpu;
	ev.pid = tgid_of(task);
	ev.tid = tid_of(task);
	emit_goroutine(ctx, e, goroutine_of(task, ev.pid), &ev, c, ~mask, 0, 0);
}

/* Which of the entry's groups has the clock that ticks: a bit, or 0. */
static __attribute__((always_inline)) __u32 clock_group(const struct filter_entry *e,
							const struct clock_tick *ctx)
{
	const __u32 group = FILTER_CLOCK_GROUP(ctx->sample_period);
	__u32 found = 0;

#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++)
		if (e->waits[i] == group)
			found = 1u << i;
	return found;
}

/*
 * A tick of a machine-wide clock: one of a thread of the group's own passes. 0 drops the sample
 * before anything of it is collected.
 */
SEC("perf_event")
int on_clock(struct clock_tick *ctx)
{
	const struct task_struct *task = (const struct task_struct *)bpf_get_current_task_btf();
	struct filter_entry *e = filter_find(tgid_of(task), tid_of(task));
	__u32 cpu = bpf_get_smp_processor_id(), group;
	struct filter_cpu *c;

	if (!e || !e->clocks)
		return 0;
	group = clock_group(e, ctx) & e->clocks;
	if (!group)
		return 0;
	/* It may have been armed while it ran, and never leave the cpu. */
	c = bpf_map_lookup_elem(&cpus, &cpu);
	if (!c)
		return 1;
	if (!c->running)
		c->running = 1;
	clock_goroutine(ctx, e, task, group, cpu, c);
	return !clock_record(ctx, e, group, cpu, c);
}

/* The clock of a cgroup, whose threads are all recorded. */
SEC("perf_event")
int on_own_clock(struct clock_tick *ctx)
{
	const struct task_struct *task = (const struct task_struct *)bpf_get_current_task_btf();
	struct filter_entry *e = filter_find(tgid_of(task), tid_of(task));
	__u32 cpu = bpf_get_smp_processor_id(), group;
	struct filter_cpu *c;

	if (!e)
		return task->mm != 0;
	group = clock_group(e, ctx);
	c = bpf_map_lookup_elem(&cpus, &cpu);
	if (!c)
		return 1;
	clock_goroutine(ctx, e, task, group, cpu, c);
	return !clock_record(ctx, e, group, cpu, c);
}

/*
 * Another program is in the process's memory: what was mapped before is no more. It begins in user
 * space after this, and the daemon hears of its mappings later.
 */
SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	const struct task_struct *task = (struct task_struct *)ctx[0];
	__u32 tgid = tgid_of(task), old = (__u32)ctx[1];
	struct unwind_process *process = bpf_map_lookup_elem(&uw_processes, &tgid);
	struct python_process *python = bpf_map_lookup_elem(&py_processes, &tgid);
	struct go_process *go = bpf_map_lookup_elem(&go_processes, &tgid);

	if (process)
		process->n = 0;
	if (go)
		go->gone = 1;
	if (python)
		python->runtime = 0;
	/* It has the number of its process's first thread now. */
	if (old != (__u32)task->pid) {
		bpf_map_delete_elem(&kept, &old);
		bpf_map_delete_elem(&woke, &old);
	}
	return 0;
}

/* It keeps nothing from here on: kept_begin(). */
SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	const struct task_struct *task = (struct task_struct *)ctx[0];
	__u32 pid = (__u32)task->pid;

	bpf_map_delete_elem(&kept, &pid);
	bpf_map_delete_elem(&woke, &pid);
	return 0;
}

/*
 * Attached to nothing: the daemon has it run on a CPU (BPF_PROG_TEST_RUN), as an interrupt of what
 * runs there.
 */
SEC("raw_tp/tracerd_stack")
int on_stack(void *ctx)
{
	const struct task_struct *task = (const struct task_struct *)bpf_get_current_task_btf();
	__u32 tgid = tgid_of(task), tid = tid_of(task), cpu = bpf_get_smp_processor_id();
	struct filter_entry *e = filter_find(tgid, tid);
	struct filter_cpu *c = bpf_map_lookup_elem(&cpus, &cpu);
	struct tracerd_sched_event ev;

	if (!c || !e || !(e->flags & FILTER_STACKS))
		return 0;
	__builtin_memset(&ev, 0, sizeof(ev));
	ev.magic = SCHEDEV_MAGIC;
	ev.kind = SCHEDEV_STACK;
	ev.cpu = cpu;
	ev.pid = tgid;
	ev.tid = tid;
	emit(ctx, e, FILTER_OUTPUT_STACK, &ev, c, 0, plain_of(e, task), 0, 0);
	return 0;
}

/*
 * The threads that sleep, of those that somebody records, when the daemon reads the iterator. Who
 * sleeps is in the kernel, and the registers with which it went there are on its stack; nothing is
 * stopped.
 */
SEC("iter/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct filter_entry *e;
	struct filter_task out;
	__u32 state;

	if (!task || (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)))
		return 0;
	state = state_of(task);
	if (!state || (state & TASK_DEAD_BIT) || is_in_exec(task))
		return 0;
	__builtin_memset(&out, 0, sizeof(out));
	out.pid = tgid_of(task);
	out.tid = tid_of(task);
	e = filter_find(out.pid, out.tid);
	if (!e)
		return 0;
	out.state = task_state_abi(task, state);
	out.switches = task->nvcsw + task->nivcsw;
	out.call = call_of(task);
	if (SCHEDEV_CALL_HAS_FD(out.call))
		out.flags = file_kind(task, (out.call >> SCHEDEV_CALL_BITS) - 1);
	if (bpf_probe_read_kernel(out.regs, sizeof(out.regs),
				  (void *)bpf_task_pt_regs((void *)task)) < 0)
		return 0;
	if (constants.unwind && e->kernel) {
		const long bytes = bpf_get_task_stack(task, out.kernel, sizeof(out.kernel), 0);

		out.n_kernel = bytes > 0 ? (__u16)((__u64)bytes / 8) : 0;
	}
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
