/* SPDX-License-Identifier: Apache-2.0 */
/* What decode/summary*.c share; nobody else includes it. */
#pragma once

#include "decode/summary.h"

#define TOP_WAITS 10u
#define KEPT_WAITS 64u /* more than are shown: a place's sums are right while it is among these */
#define TOP_STACKS 10u
#define RECENT_WAITS 256u
#define MAX_HANDOVERS 32u
#define MAX_LOSS_KINDS 64u
#define MAX_MARKS 16u

struct thread_sums {
	uint64_t on_ns, off_ns, samples;
};

struct stack_sums {
	uint64_t ns;
	uint64_t samples;
};

/* Who had to let go first, before the one that ended the wait could do so. */
struct wait_holder {
	uint32_t tid, stack, handovers; /* handovers 0: nobody but who ended the wait */
	const char *name;
};

/* All waits with one stack (of one thread, if their stack is not known): the longest of them, how many, how long in all. */
struct wait_place {
	struct summary_wait longest; /* times cut to the window */
	struct wait_holder holder;
	uint64_t count, total_ns;
};

struct window {
	uint64_t from, to;
	struct thread_sums *threads;
	uint32_t max_threads;
	struct stack_sums *stacks;
	uint32_t max_stacks;
	struct wait_place waits[KEPT_WAITS]; /* longest first */
	uint32_t n_waits;
};

struct loss {
	char kind[64];
	uint64_t events, count, ns;
};

struct mark {
	char name[64];
	uint64_t ts;
};

struct summary {
	const struct stacktab *st;
	struct window all, focus;
	bool has_focus;
	struct summary_wait recent[RECENT_WAITS]; /* the last ones that a thread ended; a ring */
	uint32_t n_recent;
	struct loss losses[MAX_LOSS_KINDS];
	uint32_t n_losses;
	struct mark marks[MAX_MARKS];
	uint32_t n_marks;
};

/* The part of [from, to) that is in the window, in ns. */
static inline uint64_t window_overlap(const struct window *v, uint64_t from, uint64_t to)
{
	if (from < v->from)
		from = v->from;
	if (to > v->to)
		to = v->to;
	return to > from ? to - from : 0;
}
