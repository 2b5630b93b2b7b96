// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/stopper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/backend/pt/events.h"
#include "daemon/backend/pt/resume.h"
#include "daemon/base/copier.h"

struct stopping {
	struct copier_job job; /* first */
	LIST_ENTRY(stopping) link;
	struct pt_events *events; /* referenced */
	void (*run)(struct pt_events *events);
	void (*fn)(void *arg); /* NULL: nobody waits */
	void *arg;
};

struct stopper {
	struct copier *thread;
	LIST_HEAD(, stopping) stoppings;
};

int stopper_new(struct event_base *base, struct stopper **ret)
{
	struct stopper *stopper = calloc(1, sizeof(*stopper));
	int r;

	if (!stopper)
		return -ENOMEM;
	r = copier_new_hurried(base, &stopper->thread); /* a moment waits for it */
	if (r < 0) {
		free(stopper);
		return r;
	}
	LIST_INIT(&stopper->stoppings);
	*ret = stopper;
	return 0;
}

static void stopping_free(struct stopping *stopping)
{
	LIST_REMOVE(stopping, link);
	(void)pt_events_put(stopping->events);
	free(stopping);
}

struct stopper *stopper_free(struct stopper *stopper)
{
	if (!stopper)
		return NULL;
	copier_free(stopper->thread);
	while (!LIST_EMPTY(&stopper->stoppings))
		stopping_free(LIST_FIRST(&stopper->stoppings));
	free(stopper);
	return NULL;
}

static void stopping_run(struct copier_job *job)
{
	struct stopping *stopping = (struct stopping *)job;

	stopping->run(stopping->events);
}

static void stopping_done(struct copier_job *job)
{
	struct stopping *stopping = (struct stopping *)job;

	if (stopping->fn)
		stopping->fn(stopping->arg);
	stopping_free(stopping);
}

static struct stopping *call(struct stopper *stopper, struct pt_events *events,
			     void (*run)(struct pt_events *events), void (*fn)(void *arg),
			     void *arg)
{
	struct stopping *stopping =
		pt_events_fds(events) > STOPPER_AT_ONCE_FDS ? malloc(sizeof(*stopping)) : NULL;

	if (!stopping) {
		run(events);
		return NULL;
	}
	*stopping = (struct stopping){.job = {.run = stopping_run, .done = stopping_done},
				      .events = pt_events_ref(events),
				      .run = run,
				      .fn = fn,
				      .arg = arg};
	LIST_INSERT_HEAD(&stopper->stoppings, stopping, link);
	copier_submit(stopper->thread, &stopping->job);
	return stopping;
}

struct stopping *stopper_stop(struct stopper *stopper, struct pt_events *events,
			      void (*fn)(void *arg), void *arg)
{
	return call(stopper, events, pt_events_stop, fn, arg);
}

void stopper_go_on(struct stopper *stopper, struct pt_events *events)
{
	(void)call(stopper, events, pt_events_go_on, NULL, NULL);
}

void stopper_switch_resumes(struct stopper *stopper, struct pt_events *events)
{
	(void)call(stopper, events, pt_resume_switch, NULL, NULL);
}

void stopping_forget(struct stopping *stopping)
{
	if (stopping)
		stopping->fn = NULL;
}
