/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets the trace of threads go on that a trigger has paused (daemon/backend/pt/pauses.h). For that
 * each tracing event that can be paused has an event of the CPU time in its group, off as long as
 * nobody is paused. While somebody is, it fires for each thread of the group that runs, and its
 * sample says who is traced again. It is opened before whatever pauses, so a thread that inherits
 * the one has the other.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

STAILQ_HEAD(resume_sets, resume_set);

struct event_base;
struct pausable;
struct pt_events;
struct pt_pauses;
struct pt_resume;
struct stopper;

/* For the events, if they do not have it: 0, -ENOMEM. Once they are open. The loop. */
int pt_resume_new(struct event_base *base, struct stopper *stopper,
		  struct pt_events *events) _must_check_;
/* The events are to be closed, and what there is beside them in front of them. */
void pt_resume_free(struct pt_resume *resume, struct resume_sets *ret);
void resume_sets_close(struct resume_sets *sets);

/* For whoever pauses them; borrowed: it ends with the events. */
struct pausable *pt_resume_pausable(struct pt_resume *resume);
/* Who is paused, as far as is known now. The loop. */
const struct pt_pauses *pt_resume_pauses(struct pt_events *events);

/* Switches the events as they are to be by now. Any thread. */
void pt_resume_switch(struct pt_events *events);
