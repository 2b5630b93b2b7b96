// SPDX-License-Identifier: Apache-2.0
/*
 * Purges: removed snapshots leave the disk on the copier thread, again and again until nothing is
 * left.
 */
#include "daemon/snapshot/snapshot_internal.h"

#include <errno.h>
#include <stdlib.h>

/* How soon a removed one that somebody holds is looked at again. */
#define PURGE_EVERY_S 1

/* One purge on its way over the copier. */
struct purge {
	LIST_ENTRY(purge) entry;
	struct copier_job job;
	struct snapshots *s; /* not owned */
	struct spool_purge *trees;
};

static void purge_free(struct purge *p)
{
	LIST_REMOVE(p, entry);
	spool_purge_end(p->trees);
	free(p);
}

static void purge_run(struct copier_job *job)
{
	struct purge *p = (struct purge *)((char *)job - offsetof(struct purge, job));

	spool_purge_run(p->trees);
}

static void purge_done(struct copier_job *job)
{
	struct purge *p = (struct purge *)((char *)job - offsetof(struct purge, job));

	purge_free(p);
}

void snapshots_purge(struct snapshots *s)
{
	const struct timeval again = {.tv_sec = PURGE_EVERY_S};
	struct purge *p = calloc(1, sizeof(*p));
	uint64_t bytes;

	/* also for what this one leaves or cannot begin */
	if (spool_removing(s->c.spool, &bytes) > 0)
		(void)evtimer_add(s->purge_again, &again);
	if (p)
		p->trees = spool_purge_begin(s->c.spool);
	if (!p || !p->trees) {
		free(p);
		return;
	}
	p->s = s;
	p->job.run = purge_run;
	p->job.done = purge_done;
	LIST_INSERT_HEAD(&s->purges, p, entry);
	copier_submit(s->c.copier, &p->job);
}

static void on_purge_again(evutil_socket_t fd, short what, void *arg)
{
	snapshots_purge(arg);
}

int snapshots_purge_init(struct snapshots *s)
{
	LIST_INIT(&s->purges);
	s->purge_again = evtimer_new(s->c.base, on_purge_again, s);
	return s->purge_again ? 0 : -ENOMEM;
}

void snapshots_purge_fini(struct snapshots *s)
{
	struct purge *p;

	while ((p = LIST_FIRST(&s->purges)) != NULL)
		purge_free(p);
	if (s->purge_again)
		event_free(s->purge_again);
}
