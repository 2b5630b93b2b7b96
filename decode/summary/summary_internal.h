/* SPDX-License-Identifier: Apache-2.0 */
/* What decode/summary*.c share; nobody else includes it. */
#pragma once

#include "common/base/hashmap.h"
#include "decode/summary/summary.h"

#define TOP_WAITS 10u /* of each enum waits_kind */
#define KEPT_WAITS 64u /* more than are shown: a place's sums are right while it is among these */
#define TOP_STACKS 10u
#define TOP_FUNCTIONS 20u
#define RECENT_WAITS 4096u
#define KEPT_BACK 256u
#define RETRY_NS 100000u /* a thread that runs no longer than that waits on for the same lock */
#define MAX_LOSS_KINDS 64u
#define MAX_MARKS 16u

struct thread_sums {
	uint64_t on_ns, off_ns, samples;
	uint64_t calls, insns, traced_ns, outside_ns; /* where calls are known exactly */
};

/* A function of which every call is known. */
struct function_sums {
	uint64_t calls, insns, max_ns;
	/* it ran; it had left the trace: a system call, off the CPU */
	uint64_t self_ns, outside_ns;
};

struct stack_sums {
	uint64_t ns;
	uint64_t samples;
};

/* Who had to let go first, before the one that ended the wait could do so. */
struct wait_holder {
	uint32_t tid, stack, handovers; /* handovers 0: nobody but who ended the wait */
	bool of_gil; /* nor is it known, of the lock of CPython's interpreter */
	/* that lock's holder: how long it ran, or was preempted, in the wait; 0: of another lock */
	uint64_t ran_ns;
	bool cut; /* it may have been handed on before that, too: not so much is remembered */
	const char *name;
	/*
	 * Of all that had it since the wait began, who had it longest; 0 ns: the first one, or it
	 * is not known.
	 */
	struct {
		uint32_t tid, stack;
		const char *name;
		uint64_t ns;
	} longest;
};

/*
 * All waits with one stack (of one thread, if the stack or callers in it are not known): the
 * longest of them, how many, how long in all.
 */
struct wait_place {
	struct summary_wait longest; /* in the window: the rest of it may be outside */
	uint64_t inside_ns;	     /* of that */
	struct wait_holder holder;
	uint64_t count, total_ns; /* of whole waits */
};

/*
 * Idle threads sleep in many places, longer than any wait that matters; a timer ends most of these,
 * and no thread.
 */
enum waits_kind {
	WAITS_FOR_THREAD,
	WAITS_OTHER, /* an interrupt ended it, or it is not known who did, or nobody has */
	N_WAITS_KINDS,
};

struct waits_ranking {
	struct wait_place places[KEPT_WAITS]; /* longest first */
	uint32_t n;
};

struct window {
	uint64_t from, to;
	uint64_t not_known_ns;			/* of it, records of some CPUs are missing */
	uint64_t not_known_from, not_known_to; /* the first such time */
	struct thread_sums *threads;
	uint32_t max_threads;
	struct stack_sums *stacks;
	uint32_t max_stacks;
	struct function_sums *functions; /* by frame */
	uint32_t max_functions;
	struct waits_ranking waits[N_WAITS_KINDS];
	/* the CPU quota was used up: of all threads, what is in the window */
	uint64_t throttled_waits, throttled_ns;
};

struct loss {
	char kind[64];
	uint64_t events, count, ns;
};

struct mark {
	char name[64];
	uint64_t ts;
};

#define TOP_GOROUTINES 10u
#define TOP_REGION_NAMES 20u
#define TOP_REGIONS 10u
#define REGION_WAITS 2u
#define WATCHED_WAITS 32u
#define MAX_WATCHED 4096u

struct region_sums {
	const char *name;
	uint64_t count, total_ns, self_ns, max_ns;
};

struct slow_region {
	struct summary_region region;
	struct wait_place waits[REGION_WAITS]; /* longest first */
	uint32_t n_waits;
};

/* The waits of a thread that may be within regions which are still open, in order of time. */
struct watched {
	struct summary_wait waits[WATCHED_WAITS];
	uint32_t n;
};

struct regions_sums {
	struct region_sums *names;
	uint32_t n_names, max_names;
	struct hashmap by_name; /* name_id -> index + 1 */
	struct slow_region slowest[TOP_REGIONS]; /* slowest first */
	uint32_t n_slowest;
	struct watched **watched; /* by thread */
	uint32_t max_watched, n_watched;
	uint64_t count;
};

/* The region that the focus is. */
struct focus_region {
	const char *name; /* NULL: it is none */
	uint32_t tid;
	uint64_t over_ns;
	bool thread_known;
	uint32_t thread;
	struct window own; /* of that thread alone */
};

/* When a thread ran or was preempted, and in what functions it was. */
struct gil_span {
	uint64_t from, to;
	uint32_t thread;
};

struct gil_sight {
	uint64_t ts, ns;
	uint32_t thread, stack;
};

struct gil {
	bool seen; /* somebody has waited for it */
	uint64_t since, until; /* what is between is known */
	/* the last one of each thread may grow yet, and is not among the spans */
	struct gil_span *spans, *last;
	struct gil_sight *sights;
	uint32_t n_spans, max_spans, max_last, n_sights, max_sights;
};

/* The caller's answer to who a thread is. */
struct summary_threads {
	void (*ask)(void *arg, uint32_t index, struct summary_thread *ret);
	void *arg;
	uint32_t n;
};

struct summary {
	const struct stacktab *st;
	bool stepped;
	struct window all, focus;
	bool has_focus;
	bool exited;
	const char *suspended; /* why; NULL: it was not */
	uint64_t suspended_ns;
	struct focus_region region;
	struct regions_sums regions;
	/* those that ran, or were to run, longest first */
	struct summary_goroutines goroutines[TOP_GOROUTINES];
	uint32_t n_goroutines;
	uint64_t goroutines_omitted; /* functions */
	struct summary_wait recent[RECENT_WAITS]; /* the last ones that a thread ended; a ring */
	struct {
		struct summary_wait wait; /* tid 0: none */
		/* nor did it do anything since but be preempted; not before its end */
		uint64_t until;
	} kept_back[KEPT_BACK]; /* by thread: one that a timer ended, and that may go on */
	uint32_t n_recent;
	struct gil gil;
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

/* Whether what that thread does belongs to the region that the focus is. */
static inline bool is_focus_thread(const struct summary *s, uint32_t thread)
{
	return s->region.thread_known && s->region.thread == thread;
}

/* Makes element `i` of an array exist, zeroed. -ENOMEM or 0. */
int summary_grow(void **array, uint32_t *max, uint32_t i, size_t size);

static inline int summary_reach(void **array, uint32_t *max, uint32_t i, size_t size)
{
	return i < *max ? 0 : summary_grow(array, max, i, size);
}

/* In decode/summary/waits.c: whether one ranks before the other. */
bool summary_wait_before(const struct wait_place *a, const struct wait_place *b);
/* No more waits come. */
void summary_waits_finish(struct summary *s);
/* And the wait, with who held it up; false if no part of it is in [from, to). */
bool summary_wait_within(const struct summary *s, const struct summary_wait *w, uint64_t from,
			 uint64_t to, struct wait_place *ret);

/* In decode/summary/gil.c. Nothing is kept before the first wait. */
void summary_gil_begin(struct gil *g, uint64_t now);
void summary_gil_active(struct gil *g, uint32_t thread, uint64_t from, uint64_t to);
/* What it did last was in a wait for the lock, if it began that not before `since`. */
void summary_gil_inactive(struct gil *g, uint32_t thread, uint64_t since);
void summary_gil_sight(struct gil *g, uint32_t thread, uint64_t ts, uint32_t stack, uint64_t ns);
/* Says who held it in each of the waits that are shown. 0 or -ENOMEM. */
int summary_gil_finish(struct summary *s, const struct summary_threads *threads);
void summary_gil_fini(struct gil *g);

/*
 * In decode/summary/calls.c: the `max` frames with the most time, or instructions, into `ret`; how
 * many.
 */
uint32_t summary_functions_top(const struct window *v, bool by_insns, uint32_t *ret, uint32_t max);

/* In decode/summary/regions.c. */
void summary_regions_wait(struct summary *s, const struct summary_wait *w);
void summary_regions_fini(struct regions_sums *r);
/* The `max` names with the longest regions into `ret`, by index; how many. */
uint32_t summary_regions_top(const struct regions_sums *r, uint32_t *ret, uint32_t max);
