/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records to the groups that want them: with a stack to their output events, without one to their
 * rings. Included by sched.bpf.c, whose declarations it uses.
 */
#pragma once

static __attribute__((always_inline)) __u64 output_of(__u32 group, __u32 out, __u32 cpu)
{
	return ((__u64)(group * FILTER_OUTPUTS_PER_GROUP + out) * constants.n_cpus + cpu) &
	       0xffffffffu;
}

/* The event with the addresses of `s`, in which it already is, to the groups in `mask`. */
static __attribute__((always_inline)) void emit_unwound(void *ctx, const struct filter_entry *e,
							__u32 mask, struct unwind_state *s,
							__u32 cpu, struct filter_cpu *c)
{
	__u64 n = s->n + s->n_python;

	MASK(n, UNWIND_WORDS - 1);
#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++) {
		if (!(mask & (1u << i)) || e->waits[i] == FILTER_NO_GROUP)
			continue;
		if (bpf_perf_event_output(ctx, &outputs,
					  output_of(e->waits[i], FILTER_OUTPUT_PLAIN, cpu), &s->out,
					  sizeof(s->out.ev) + n * 8))
			c->drops++;
	}
}

/* The same of a stack that was kept. */
static __attribute__((always_inline)) void emit_kept(void *ctx, const struct filter_entry *e,
						     __u32 mask, struct filter_kept *k, __u32 cpu,
						     struct filter_cpu *c)
{
	__u64 n = k->n;

	MASK(n, 127);
#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++) {
		if (!(mask & (1u << i)) || e->waits[i] == FILTER_NO_GROUP)
			continue;
		if (bpf_perf_event_output(ctx, &outputs,
					  output_of(e->waits[i], FILTER_OUTPUT_PLAIN, cpu), &k->ev,
					  sizeof(k->ev) + n * 8))
			c->drops++;
	}
}

/* All that take switches and wake-ups. */
static __attribute__((always_inline)) __u32 groups_of(const struct filter_entry *e)
{
	__u32 mask = 0;

#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++)
		if (e->waits[i] != FILTER_NO_GROUP)
			mask |= 1u << i;
	return mask;
}

#define EVERY_GROUP ((1u << FILTER_ENTRY_GROUPS) - 1)

/*
 * To the groups that are not in `done`, to those in `plain` without a stack; what has none goes to
 * their rings for that with the time `now`, if they have some, of those in `may`: another program
 * may be writing to them, or the next record goes to the other ring.
 */
static __attribute__((always_inline)) void emit(void *ctx, const struct filter_entry *e, __u32 kind,
						struct tracerd_sched_event *ev,
						struct filter_cpu *c, __u32 done, __u32 plain,
						__u32 may, __u64 now)
{
	const __u32 ringed = may & ~done & (kind == FILTER_OUTPUT_PLAIN ? EVERY_GROUP : plain);
	__u32 zero = 0;
	struct filter_record *next = now && ringed ? bpf_map_lookup_elem(&ring_next, &zero) : 0;

	if (next) {
		next->time = now;
		next->ev = *ev;
		done |= (__u32)ring_emit(*(const __u64 *)e->waits, ringed);
	}
#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++) {
		__u32 group = e->waits[i], out = kind;

		if (group == FILTER_NO_GROUP)
			break;
		if (done & (1u << i))
			continue;
		if (plain & (1u << i))
			out = FILTER_OUTPUT_PLAIN;
		if (bpf_perf_event_output(ctx, &outputs, output_of(group, out, ev->cpu), ev,
					  sizeof(*ev)))
			c->drops++;
	}
}

/*
 * The record of a goroutine that is written next: the stack of all functions together has 512
 * bytes.
 */
struct {
	__uint(type, MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tracerd_sched_event);
} goroutine_next SEC(".maps");

/*
 * Goroutine `id`, in which the thread of `ev` is seen, to the groups that are not in `done`: in
 * front of the record in which it is seen, which `plain` have without a stack.
 */
static __attribute__((always_inline)) void emit_goroutine(void *ctx, const struct filter_entry *e,
							  __u64 id,
							  const struct tracerd_sched_event *ev,
							  struct filter_cpu *c, __u32 done,
							  __u32 plain, __u64 now)
{
	__u32 zero = 0;
	struct tracerd_sched_event *goroutine = id ? bpf_map_lookup_elem(&goroutine_next, &zero)
						   : 0;

	if (!goroutine)
		return;
	__builtin_memset(goroutine, 0, sizeof(*goroutine));
	goroutine->magic = SCHEDEV_MAGIC;
	goroutine->kind = SCHEDEV_GOROUTINE;
	goroutine->pid = ev->pid;
	goroutine->tid = ev->tid;
	goroutine->cpu = ev->cpu;
	goroutine->state = (__u32)(id >> 32);
	goroutine->call = (__u32)id;
	emit(ctx, e, FILTER_OUTPUT_PLAIN, goroutine, c, done, 0, plain, now);
}

/*
 * Which groups get events of the task without its stack: who wants it so, all within an exec, and,
 * of who has exited so far that it has no memory any more, who copies. Kernels (6.1.y of 2025)
 * write 8 bytes more than they say then, over the record before.
 */
static __attribute__((always_inline)) __u32 plain_of(const struct filter_entry *e,
						     const struct task_struct *task)
{
	if (is_in_exec(task))
		return (1u << FILTER_ENTRY_GROUPS) - 1;
	return e->no_stacks | (task->mm ? 0 : e->copies);
}

/* An event with that stack, to the groups that are not in `done`, to those in `plain` without. */
static __attribute__((always_inline)) void
emit_stack(void *ctx, const struct filter_entry *e, struct unwind_state *s, __u32 mask,
	   struct tracerd_sched_event *ev, struct filter_cpu *c, __u32 done, __u32 plain, __u64 now)
{
	if (s) {
		s->out.ev = *ev;
		s->out.ev.flags |= SCHEDEV_ADDRESSES;
		emit_unwound(ctx, e, mask & ~done, s, ev->cpu, c);
	}
	emit(ctx, e, FILTER_OUTPUT_STACK, ev, c, mask | done, plain, EVERY_GROUP, now);
}
