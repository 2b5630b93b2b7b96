/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stacks of waits, which are kept until it is known whether the wait is long enough for
 * somebody to want them, and the stacks with which threads have last ended the long wait of another
 * one, which are often the next ones, too. Included by sched.bpf.c, whose declarations it uses.
 *
 * A thread has its place in a map from its first wait, or the first one that it ends, to its exit.
 * The maps are preallocated: nothing may allocate while the run queue is locked.
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

/* Of who wakes: the addresses, and by what they were found. */
struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, FILTER_WOKE_MAX);
	__type(key, __u32);
	__type(value, struct filter_kept);
} woke SEC(".maps");

/* What a new place begins with: too large for the stack. */
struct {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_kept);
} kept_new SEC(".maps");

inline_ struct filter_kept *kept_place(void *map, __u32 pid)
{
	struct filter_kept *k = bpf_map_lookup_elem(map, &pid), *empty;
	__u32 zero = 0;

	if (k)
		return k;
	empty = bpf_map_lookup_elem(&kept_new, &zero);
	if (!empty || bpf_map_update_elem(map, &pid, empty, UPDATE_ANY))
		return 0;
	return bpf_map_lookup_elem(map, &pid);
}

/*
 * Whether `k` is of the wait that the thread is in. One that was disarmed meanwhile has left a CPU
 * unseen.
 */
inline_ int kept_is_now(const struct filter_kept *k, const struct task_struct *task)
{
	return k->out_ns && k->switches == task->nvcsw + task->nivcsw;
}

/* By what `s` was found, so that it need not be found again: kept_again(). */
inline_ void kept_prove(struct filter_kept *k, const struct unwind_state *s)
{
	__u64 n = s->n_words;

	k->generation = 0;
	if (!s->proved || s->n_python)
		return;
	MASK(n, FILTER_KEPT_WORDS - 1);
	if (n != s->n_words)
		return;
	k->pc = s->saved[16];
	k->sp = s->saved[19];
	k->bp = s->saved[4];
	k->n_words = (__u16)n;
	k->why = (__u16)s->why;
	k->span = s->span;
	bpf_probe_read_kernel(k->word_at, (__u32)n * sizeof(*k->word_at), s->word_at);
	bpf_probe_read_kernel(k->words, (__u32)n * sizeof(*k->words), s->words);
	k->generation = s->generation;
}

/*
 * Whether the words are what they were: of a stack that is a window, as most are, and of a larger
 * one.
 */
inline_ int words_again(struct unwind_state *s, const struct filter_kept *k)
{
	__u64 n = k->span;

	MASK(n, UNWIND_WINDOW / 8 - 1);
	if (n != k->span || bpf_probe_read_user(s->window, (__u32)n * 8, (void *)k->sp))
		return 0;
	for (__u32 i = 0; i < FILTER_KEPT_WORDS; i++) {
		__u64 at;

		if (i >= k->n_words)
			break;
		at = k->word_at[i];
		MASK(at, UNWIND_WINDOW / 8 - 1);
		if (s->window[at] != k->words[i])
			return 0;
	}
	return 1;
}

inline_ int far_words_again(struct unwind_state *s, const struct filter_kept *k)
{
	__u64 word;

	s->window_at = NOWHERE;
	for (__u32 i = 0; i < FILTER_KEPT_WORDS; i++) {
		if (i >= k->n_words)
			break;
		if (stack_word(s, k->sp + (__u64)k->word_at[i] * 8, &word) || word != k->words[i])
			return 0;
	}
	return 1;
}

/* The addresses of `s`: so many. */
inline_ __u32 kept_copy(struct filter_kept *k, const struct unwind_state *s)
{
	__u64 n = s->n + s->n_python;

	MASK(n, 127);
	bpf_probe_read_kernel(k->addrs, (__u32)n * 8, s->out.addrs);
	kept_prove(k, s);
	return (__u32)n;
}

/*
 * `s` is the stack of `task`, the current one, which ends a wait. One that would have to be unwound
 * again is not worth it.
 */
inline_ void woke_keep(const struct task_struct *task, const struct unwind_state *s)
{
	struct filter_kept *k;

	if (!s->proved || s->n_python || (task->flags & PF_EXITING))
		return;
	k = kept_place(&woke, (__u32)task->pid);
	if (k)
		k->n = kept_copy(k, s);
}

/*
 * Whether the current thread, of process `tgid`, waits where it waited last, or wakes where it woke
 * last: unwinding would read the same words, which are the same, and so find the same addresses.
 * Looking is several times faster. It counts as a stack that was unwound. A function of its own,
 * which the verifier checks once. What Python's functions are is said elsewhere.
 */
__attribute__((noinline)) int kept_again(__u32 tgid, __u32 wakes)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 zero = 0, pid = (__u32)task->pid, why;
	struct unwind_process *process;
	const struct pt_regs *regs;
	struct unwind_state *s;
	struct filter_kept *k;

	if (!constants.unwind || (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)))
		return 0;
	k = wakes ? bpf_map_lookup_elem(&woke, &pid) : bpf_map_lookup_elem(&kept, &pid);
	process = bpf_map_lookup_elem(&uw_processes, &tgid);
	if (!k || !k->generation || !process || !process->n || k->generation != process->generation)
		return 0;
	s = bpf_map_lookup_elem(&uw_states, &zero);
	regs = (const struct pt_regs *)bpf_task_pt_regs((void *)task);
	if (!s || regs->cs != CODE_64_CS || k->pc != regs->ip || k->sp != regs->sp ||
	    k->bp != regs->bp)
		return 0;
	if (!(k->span < UNWIND_WINDOW / 8 ? words_again(s, k) : far_words_again(s, k)))
		return 0;
	why = k->why;
	if (why < UNWIND_WHYS)
		__sync_fetch_and_add(&process->whys[why], 1);
	return 1;
}

/*
 * The wait begins in which `task`, the current one, leaves: its stack is kept_again(), was unwound,
 * or is read by frame pointers here (NULL), if somebody takes it later, or else put out at once.
 * False: there is no room for it, or the thread is at its end.
 */
inline_ int kept_begin(void *ctx, const struct task_struct *task, int again,
		       const struct unwind_state *s, __u32 later,
		       const struct tracerd_sched_event *ev, __u64 now)
{
	struct filter_kept *k;
	long bytes;
	__u64 n = FILTER_KEPT_NOTHING;

	if (task->flags & PF_EXITING)
		return 0;
	k = kept_place(&kept, (__u32)task->pid);
	if (!k)
		return 0;
	k->begun++;
	barrier();
	if (!again)
		k->generation = 0;
	if (again) {
		n = k->n;
	} else if (later && s) {
		n = kept_copy(k, s);
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
	const __u64 ns = kept_is_now(k, task) && k->n != FILTER_KEPT_NOTHING && now > k->out_ns
				 ? now - k->out_ns
				 : 0;

	k->begun++;
	barrier();
	k->out_ns = 0;
	barrier();
	k->done = k->begun;
	return ns;
}
