/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the sums that answer "what was it?" without a viewer: time on and off CPU by thread, the
 * heaviest stacks, the longest waits (one a stack; those that a thread ended, and the others) and
 * who ended them, losses by kind. All of it twice: for the whole recording and, if one was set, for
 * a window of it (the slow moment). If that is a region of the program, also for the region's
 * thread alone. Where every call is known, the functions with the most time. And the program's
 * regions: by name, and the slowest ones. It refuses to know how the timeline came to its
 * intervals.
 *
 * The answer is one JSON object of at most SUMMARY_MAX_JSON bytes: names are shortened, then
 * stacks and lists, until it fits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/waitfor.h"
#include "decode/base/off_cpu.h"
#include "decode/base/stacktab.h"

struct json_object;
struct summary;

#define SUMMARY_MAX_JSON (40u * 1024u)

struct summary_wait {
	uint32_t thread; /* index, as below */
	uint32_t tid;
	const char *name; /* texts must live as long as the summary */
	uint64_t begin, end;
	enum off_cpu state;
	uint32_t stack;
	const char *call; /* the system call that it was in; NULL: none, or not known */
	uint32_t fd;	/* and its descriptor; UINT32_MAX: it has none */
	const char *fd_kind; /* "pipe", "socket", ...; NULL: not known */
	uint64_t goroutine; /* of a Go program; 0: none, or not known */
	bool open;	/* it had not ended when the recording did */
	bool brief;	/* too short for a stack of its own */
	/* it began before what is recorded, or known: it was at least that long */
	bool since_before;
	bool uncertain; /* records were lost during it, or its end is not recorded */
	uint32_t instead_tid; /* who ran instead of who was preempted */
	const char *instead;  /* NULL: it was not, or that is not known */
	bool woken;	/* what follows is known */
	bool woken_by_irq;
	uint64_t woken_at; /* it waited for a CPU from then on; not before begin; 0: not known */
	uint32_t behind_tid; /* who had the CPU until it got that */
	const char *behind;  /* NULL: not known, or nobody */
	uint32_t futex; /* which it waits for; 0: none, or not known */
	uint32_t waker_tid;
	const char *waker_name;
	uint32_t waker_stack;
	/* the system call that the waker was in; NULL: none, or not known */
	const char *waker_call;
	enum waitfor is_for; /* the summary's own: what the functions that it waits in say */
};

/*
 * `stepped`: times are the stepper's. Threads and functions are ranked by instructions, and their
 * times left out.
 */
int summary_new(const struct stacktab *st, bool stepped, struct summary **ret) _must_check_;
struct summary *summary_free(struct summary *s);
DEFINE_CLEANUP(struct summary *, summary_free)

/* The window, MONOTONIC; must be set before the first interval. */
void summary_focus(struct summary *s, uint64_t from, uint64_t to);

/*
 * `thread` is an index that the caller gives out from 0 on. Intervals that cross the window's
 * edges are cut there; waits are ranked by the part inside. 0 or -ENOMEM.
 */
int summary_on_cpu(struct summary *s, uint32_t thread, uint64_t from, uint64_t to);
int summary_off_cpu(struct summary *s, uint32_t thread, uint64_t from, uint64_t to);
int summary_sample(struct summary *s, uint32_t thread, uint64_t ts, uint32_t stack,
		   uint64_t weight_ns);
void summary_wait(struct summary *s, const struct summary_wait *w);
int summary_loss(struct summary *s, const char *kind, uint64_t count, uint64_t ns);
int summary_mark(struct summary *s, const char *name, uint64_t ts);
/* Between the two times it is not known who ran and who waited; in order of time, not touching. */
void summary_incomplete(struct summary *s, uint64_t from, uint64_t to);

/* ---- calls that are known exactly */

/* The function of a frame (decode/base/stacktab.h) is called. 0 or -ENOMEM. */
int summary_called(struct summary *s, uint32_t thread, uint32_t frame, uint64_t ts);
/*
 * It was the innermost one; `outside`: but not in the trace (a system call, off the CPU). 0 or
 * -ENOMEM.
 */
int summary_ran(struct summary *s, uint32_t thread, uint32_t frame, uint64_t from, uint64_t to,
		bool outside);
/* A call is over; `own_insns` without those of what it called. */
void summary_returned(struct summary *s, uint32_t thread, uint32_t frame, uint64_t begin,
		      uint64_t end, uint64_t own_insns);

/* ---- regions of the program */

/* The window is this region, of a thread that follows when it is known; `name` is borrowed. */
void summary_focus_region(struct summary *s, const char *name, uint32_t tid, uint64_t over_ns);
void summary_focus_thread(struct summary *s, uint32_t thread);

/* The thread begins a region, and none is open on it: its waits are kept from here on. */
void summary_watch(struct summary *s, uint32_t thread);

/*
 * A goroutine did not run: what it was in and where, who ended that and where. Texts are borrowed;
 * NULL: not known.
 */
struct summary_pause {
	const char *state, *stack, *by, *by_stack;
	uint64_t begin, ns;
};

struct summary_region {
	uint32_t thread;
	uint32_t name_id; /* equal for equal names */
	const char *name;
	const char *fiber; /* NULL: on the thread's own stack */
	uint64_t begin, end, self_ns;
	bool cpu_known; /* the next two are */
	uint64_t on_ns, off_ns;
	struct summary_pause pause; /* the longest of a goroutine; ns 0: there is none */
	bool own_waits; /* what the thread waited for in that time, it waited for in this region */
};
int summary_region(struct summary *s, const struct summary_region *r);

/* ---- goroutines of Go programs */

/* All that began with one function. Counts and times add up; `function` is borrowed. */
struct summary_goroutines {
	uint32_t pid;
	const char *function; /* "": not known */
	uint64_t count, running_ns, runnable_ns, longest_runnable_ns, waiting_ns, syscall_ns;
	bool off_known; /* switches are recorded */
	uint64_t off_cpu_ns;
};
void summary_goroutines(struct summary *s, const struct summary_goroutines *g);

struct summary_thread {
	uint32_t pid, tid;
	const char *name;
	/* they are recorded: else only its samples tell of its time, and nothing of its waits */
	bool switches;
};

/* All threads have exited: the summary's end is the last one's, not the recording's. */
void summary_exited(struct summary *s);
/*
 * The recording of them was suspended so long before the freeze: that is the summary's end. `why`
 * is borrowed.
 */
void summary_suspended(struct summary *s, const char *why, uint64_t ns);

/*
 * Makes the object; `threads` is asked for each index below `n_threads`. -ENOMEM, or 0.
 */
int summary_to_json(struct summary *s, uint64_t from, uint64_t to, uint32_t n_threads,
		    void (*threads)(void *arg, uint32_t index, struct summary_thread *ret),
		    void *arg, struct json_object **ret) _must_check_;
