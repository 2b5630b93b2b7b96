// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler of snapshots: one event of the loop does all that follows from what happened, in
 * one order. Only here a waiter is called, a snapshot is freed, and one that waits is started.
 */
#include "daemon/snapshot/snapshot_internal.h"

static void clean_up(struct snapshots *s)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry)
		snapshot_clean_up(n);
}

/* Each is called once, and may create or forget, but frees nothing. */
static void call_waiters(struct snapshots *s)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &s->all, entry) {
		snapshot_done_fn done = n->done;

		if (!done || !snapshot_has_ended(n))
			continue;
		n->done = NULL;
		done(n, n->done_arg);
	}
}

/*
 * Of those that left nothing on the disk the newest are remembered, so that clients can ask for
 * their error.
 */
static void forget_oldest(struct snapshots *s)
{
	unsigned remembered = 0;
	struct snapshot *n;

	TAILQ_FOREACH_REVERSE(n, &s->all, snapshot_list, entry)
	if (snapshot_has_ended(n) && !n->on_disk && !n->deleted && ++remembered > s->c.remembered)
		n->deleted = true;
}

static void free_deleted(struct snapshots *s)
{
	struct snapshot *n, *next;

	for (n = TAILQ_FIRST(&s->all); n; n = next) {
		next = TAILQ_NEXT(n, entry);
		if (n->deleted && !n->deadline)
			snapshot_free(n);
	}
}

/* One that can start now, or NULL. */
static struct snapshot *next_to_copy(struct snapshots *s)
{
	struct snapshot *n;

	if (s->copying)
		return NULL;
	TAILQ_FOREACH(n, &s->all, entry)
		if (n->state == SNAPSHOT_FREEZING && snapshot_is_ready(n))
			return n;
	return NULL;
}

/* Per user: who is at the limit does not hold up the others. */
static struct snapshot *next_to_decode(struct snapshots *s)
{
	struct snapshot *n;

	if (s->n_slots >= s->c.config->snapshots_running)
		return NULL;
	TAILQ_FOREACH(n, &s->all, entry)
		if (n->state == SNAPSHOT_COPIED &&
		    quota_charge(s->c.quota, n->creator, QUOTA_SNAPSHOTS_RUNNING, 1,
				 &n->running) == 0)
			return n;
	return NULL;
}

static void start_next(struct snapshots *s)
{
	struct snapshot *n;

	if (s->stopping)
		return;
	/* The moment waits for nobody's turn. */
	TAILQ_FOREACH(n, &s->all, entry)
		if (n->state == SNAPSHOT_QUEUED)
			snapshot_freeze(n);
	while ((n = next_to_copy(s)) != NULL)
		snapshot_copy(n);
	while ((n = next_to_decode(s)) != NULL)
		snapshot_decode(n);
	TAILQ_FOREACH(n, &s->all, entry)
		if (n->state == SNAPSHOT_COPIED && !n->reported)
			snapshot_report(n);
}

static void on_schedule(evutil_socket_t fd, short what, void *arg)
{
	struct snapshots *s = arg;

	clean_up(s);
	call_waiters(s);
	forget_oldest(s);
	free_deleted(s);
	start_next(s);
}

int snapshots_schedule_init(struct snapshots *s)
{
	s->schedule = event_new(s->c.base, -1, 0, on_schedule, s);
	return s->schedule ? 0 : -ENOMEM;
}

void snapshots_schedule(struct snapshots *s)
{
	event_active(s->schedule, EV_TIMEOUT, 0);
}
