// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/closer.h"

#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/base/copier.h"

struct closing {
	struct copier_job job; /* first */
	LIST_ENTRY(closing) link;
	struct closer *closer; /* back pointer */
	size_t n_fds;
	void (*fn)(void *data);
	bool ran; /* the thread's, until that has ended */
	alignas(max_align_t) unsigned char data[];
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

	closing->fn(closing->data);
	closing->ran = true;
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
		/* The thread may have run it, and the loop not heard of that any more. */
		if (!closing->ran)
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

void closer_call(struct closer *closer, void (*fn)(void *data), void *data, size_t size,
		 size_t n_fds)
{
	struct closing *closing = closer->thread ? malloc(sizeof(*closing) + size) : NULL;

	if (!closing) {
		fn(data);
		return;
	}
	*closing = (struct closing){.job = {.run = closing_run, .done = closing_done},
				    .closer = closer,
				    .n_fds = n_fds,
				    .fn = fn};
	memcpy(closing->data, data, size);
	closer->waiting += n_fds;
	LIST_INSERT_HEAD(&closer->closings, closing, link);
	copier_submit(closer->thread, &closing->job);
}

static void close_one(void *data)
{
	(void)close_fd(*(int *)data);
}

void closer_close_fd(struct closer *closer, int fd)
{
	if (fd >= 0)
		closer_call(closer, close_one, &fd, sizeof(fd), 1);
}

size_t closer_waiting(const struct closer *closer)
{
	return closer->waiting;
}

struct copier *closer_thread(const struct closer *closer)
{
	return closer->thread;
}
