/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how a thread's waits are drawn: the leaf "off CPU: ...", who ran instead, who ended it. A
 * wait whose switch brought no stack stands alone and says so: no other stack is its.
 * It must not know events and their order (decode/timeline/timeline.c).
 */
#pragma once

#include "decode/summary/summary.h"
#include "decode/timeline/sched.h"
#include "decode/timeline/slices.h"
#include "decode/timeline/timeline.h"

struct wait_waker {
	bool known;
	bool in_irq;
	uint64_t at; /* MONOTONIC */
	struct sched_task task;
	uint32_t stack;
	uint32_t call; /* the system call that it was in, a writer's name; 0 = none, or not known */
	uint64_t flow; /* 0: the waker has no track */
};

struct wait {
	uint64_t begin, end; /* MONOTONIC */
	enum off_cpu state;
	uint32_t stack; /* 0 = not known */
	bool stack_later; /* of what is not short it comes yet */
	uint32_t call;	/* the system call that it is in, a writer's name; 0 = none, or not known */
	uint32_t fd;	/* and its descriptor; TL_NO_FD */
	uint32_t fd_kind; /* what that is, a writer's name; 0 = not known, or no descriptor */
	uint32_t futex; /* which one it waits for; 0 = none, or not known */
	uint64_t goroutine; /* in which the thread left the CPU; 0 = none, or not known */
	struct sched_task other;  /* who ran instead, when it began */
	struct sched_task before; /* who had the CPU until it ended */
	struct wait_waker waker;
	bool lost_within;    /* records were lost during it */
	bool begin_unknown;  /* it began before the recording, or where records were lost */
	/* the next thing known shows the thread running: how long it was is not known */
	bool end_unrecorded;
	bool cut;	     /* it goes on where too little is recorded to say how */
	bool brief;	     /* too short for a stack of its own */
	/* how long it was, of one that began before the recording; 0 = not known */
	uint64_t whole_ns;
};

/* What the waits of one thread need; embedded in the thread. */
struct waits {
	struct wait current;
	bool waiting; /* `current` has not ended */
	/* nor is it drawn: its stack may come yet, and nobody may ever tell of its end */
	bool hidden;
	uint64_t goroutine; /* whose stack the lane shows; 0 = nobody's, or not known */
	/*
	 * what the lane shows is of a wait before, which ended here, and nothing was seen since; 0:
	 * it was seen later
	 */
	uint64_t unseen;
};

/*
 * Of a short preemption that has ended: the lane shows what the thread was in before, and it goes
 * on there; not if it was in another goroutine.
 */
bool waits_goes_on(const struct waits *s);

struct wait_drawer;

/* Waits shorter than `min_ns` were recorded without stacks. */
int wait_drawer_new(struct slices *slices, struct writer *w, struct summary *summary,
		    uint64_t min_ns, struct wait_drawer **ret) _must_check_;
struct wait_drawer *wait_drawer_free(struct wait_drawer *d);
DEFINE_CLEANUP(struct wait_drawer *, wait_drawer_free)

/*
 * A wait begins. The lane must already show the wait's stack, if it has one. If it has none, the
 * lane's frames end, unless they are known to be there (`exact`: every call and return is
 * recorded).
 */
void waits_begin(struct wait_drawer *d, struct waits *s, struct lane *l, const struct wait *w,
		 bool exact);

/*
 * A wait begins that is held back. When its stack has come, or its end, and the lane shows the
 * stack, it is drawn. One that ends before that is drawn without.
 */
void waits_begin_hidden(struct waits *s, const struct wait *w);
void waits_show(struct wait_drawer *d, struct waits *s, struct lane *l, uint32_t stack, bool exact);

/* The current wait ends at `ts`; there must be one. `who` names the thread for the summary. */
struct wait_who {
	uint32_t tid, name;
	uint32_t index; /* the summary's */
};
void waits_end(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
	       struct wait_who who);

/* No more is known of a wait that was held back than that it began: nothing is drawn. */
void waits_drop(struct wait_drawer *d, struct waits *s, struct wait_who who);
/* How it left the CPU, a writer's name. */
uint32_t waits_state(const struct wait_drawer *d, const struct wait *w);

/* The recording, or the thread, ends inside a wait. */
void waits_abandon(struct wait_drawer *d, struct waits *s, struct lane *l, uint64_t ts,
		   struct wait_who who);
