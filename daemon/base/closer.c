// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/closer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/perf/eventset.h"
#include "daemon/base/copier.h"

/* What the loop itself closes: some tenths of a millisecond. */
#define AT_ONCE_FDS 32
#define AT_ONCE_BYTES (1u << 20)

struct closing {
	struct copier_job job; /* first */
	LIST_ENTRY(closing) link;
	struct closer *closer; /* back pointer */
	struct eventset sets[CLOSER_SETS];
	size_t n_sets, n_fds;
	int fd; /* -1 */
};

struct closer {
	struct copier *thread;
	LIST_HEAD(, closing) closings;
	size_t waiting;
};

int closer_new(struct event_base *base, struct closer **ret)
{
	struct closer *closer = calloc(1, sizeof(*closer));
	int r;

	if (!closer)
		return -ENOMEM;
	r = copier_new(base, &closer->thread);
	if (r < 0) {
		free(closer);
		return r;
	}
	*ret = closer;
	return 0;
}

static void closing_run(struct copier_job *job)
{
	struct closing *closing = (struct closing *)job;

	for (size_t i = 0; i < closing->n_sets; i++)
		eventset_close(&closing->sets[i]);
	closing->fd = close_fd(closing->fd);
}

static void closing_done(struct copier_job *job)
{
	struct closing *closing = (struct closing *)job;

	closing->closer->waiting -= closing->n_fds;
	LIST_REMOVE(closing, link);
	free(closing);
}

void closer_stop(struct closer *closer)
{
	struct closing *closing;

	if (!closer)
		return;
	copier_free(closer->thread);
	closer->thread = NULL;
	while ((closing = LIST_FIRST(&closer->closings)) != NULL) {
		closing_run(&closing->job);
		closing_done(&closing->job);
	}
}

struct closer *closer_free(struct closer *closer)
{
	if (!closer)
		return NULL;
	closer_stop(closer);
	free(closer);
	return NULL;
}

static void submit(struct closer *closer, struct closing *closing)
{
	closing->job = (struct copier_job){.run = closing_run, .done = closing_done};
	closing->closer = closer;
	closer->waiting += closing->n_fds;
	LIST_INSERT_HEAD(&closer->closings, closing, link);
	copier_submit(closer->thread, &closing->job);
}

void closer_close_fd(struct closer *closer, int fd)
{
	struct closing *closing = fd >= 0 && closer->thread ? calloc(1, sizeof(*closing)) : NULL;

	if (!closing) { /* or there is no memory: it takes its time */
		(void)close_fd(fd);
		return;
	}
	closing->fd = fd;
	closing->n_fds = 1;
	submit(closer, closing);
}

void closer_close(struct closer *closer, struct eventset *sets, size_t n)
{
	struct closing *closing = NULL;
	size_t fds = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		fds += sets[i].n_fds;
		bytes += sets[i].ring_bytes;
	}
	if (closer->thread && (fds > AT_ONCE_FDS || bytes > AT_ONCE_BYTES))
		closing = calloc(1, sizeof(*closing));
	for (size_t i = 0; i < n; i++) {
		if (closing)
			closing->sets[i] = sets[i];
		else
			eventset_close(&sets[i]); /* or there is no memory: it takes its time */
		sets[i] = (struct eventset){0};
	}
	if (!closing)
		return;
	closing->n_sets = n;
	closing->n_fds = fds;
	closing->fd = -1;
	submit(closer, closing);
}

size_t closer_waiting(const struct closer *closer)
{
	return closer->waiting;
}

struct copier *closer_thread(const struct closer *closer)
{
	return closer->thread;
}
