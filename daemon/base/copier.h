/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread for work that may block: copying rings, fsync, removing trees. Its only interface is a
 * queue of jobs and an eventfd that brings them back to the loop.
 *
 * The owner embeds a job. run() is called on the thread, then done() on the loop; from submit to
 * done() the job's memory must stay. run() watches a flag of its own to be cancelled. A job that
 * hangs keeps later ones waiting, see copier_stuck_ns().
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct copier;

struct copier_job {
	void (*run)(struct copier_job *job);
	void (*done)(struct copier_job *job);
	struct copier_job *next; /* the copier's */
	bool submitted;		 /* the copier's: from submit to done() */
};

int copier_new(struct event_base *base, struct copier **ret) _must_check_;
/* For what cannot be had later: it has the priority of the loop. */
int copier_new_hurried(struct event_base *base, struct copier **ret) _must_check_;

/*
 * Waits for the running job, drops queued ones and calls no done() any more: owners free their jobs
 * after this. For the daemon's end only.
 */
void copier_free(struct copier *c);
DEFINE_CLEANUP(struct copier *, copier_free)
/*
 * The same, but it waits until a time (io_now_ns()) only. False: the thread still runs its job, and
 * is left to it with all that is the job's; the program then ends by _exit().
 */
bool copier_leave(struct copier *c, uint64_t deadline_ns) _must_check_;
/* Threads that were left. */
unsigned int copiers_left(void);

void copier_submit(struct copier *c, struct copier_job *job);
/*
 * Takes back a job whose run() has not begun: neither that nor done() is called. False: it is too
 * late.
 */
bool copier_withdraw(struct copier *c, struct copier_job *job);

/* For how long the running job has run; 0 when idle. For status and the watchdog. */
uint64_t copier_stuck_ns(struct copier *c);
unsigned copier_queued(struct copier *c);
