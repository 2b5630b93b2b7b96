/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how a thread's waits are drawn: the leaf "off CPU: ...", who ran instead, who ended it, and
 * where in the stack the leaf stands when the switch brought no stack. Then the wait is put off
 * until the next evidence: it is drawn on what the stacks before and after it share.
 * It refuses to know events and their order (decode/timeline.c).
 */
#pragma once

#include "decode/sched.h"
#include "decode/slices.h"
#include "decode/summary.h"
#include "decode/timeline.h"

struct wait_waker {
	bool known;
	bool in_irq;
	struct sched_task task;
	uint32_t stack;
	uint64_t flow; /* 0: the waker has no track */
};

struct wait {
	uint64_t begin, end; /* MONOTONIC */
	enum tl_wait state;
	uint32_t stack; /* 0 = not known */
	struct sched_task other;
	struct wait_waker waker;
	bool ended;
	bool lost_within;    /* records were lost during it */
	bool begin_unknown;  /* it began before the recording, or where records were lost */
	bool end_unrecorded; /* the next thing known shows the thread running */
};

#define WAITS_PUT_OFF_MAX 64u

/* What the waits of one thread need; embedded in the thread. */
struct waits {
	struct wait current;
	bool waiting;	      /* `current` has not ended */
	bool drawn;	      /* ... and its leaf is on the lane */
	struct wait *put_off; /* in order; the last one may be a copy of a `current` that is not drawn */
	uint32_t n_put_off, max_put_off;
};

struct wait_drawer;

int wait_drawer_new(struct slices *slices, struct writer *w, struct summary *summary,
		    const struct stacktab *st, struct wait_drawer **ret) _must_check_;
struct wait_drawer *wait_drawer_free(struct wait_drawer *d);
DEFINE_CLEANUP(struct wait_drawer *, wait_drawer_free)

void waits_fini(struct waits *s);

/*
 * A wait begins. The lane must already show the wait's stack, if it has one (`known`), and stays
 * as it is until the wait is drawn if it has none.
 */
int waits_begin(struct wait_drawer *d, struct waits *s, struct lane *l, const struct wait *w, bool known);

/* The current wait ends at `ts`; there must be one. `who` names the thread for the summary. */
struct wait_who {
	uint32_t tid, name;
	uint32_t index; /* the summary's */
};
int waits_end(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts, struct wait_who who);

/*
 * Draws what was put off, now that `stack` is the next thing known of the thread (STACKTAB_ROOT:
 * nothing is). A current wait that was put off is drawn open.
 */
void waits_settle(struct wait_drawer *d, struct waits *s, struct lane *l, uint32_t stack,
		  struct wait_who who);

/* The recording, or the thread, ends inside a wait. */
void waits_abandon(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
		   struct wait_who who);
