// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/readers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/base/copier.h"

#define LEAVE_NS 1000000000u

/* A thread, and the job that it has. */
struct reader {
	struct copier_job task; /* first */
	LIST_ENTRY(reader) link; /* while it hangs, or has come back from that */
	struct readers *readers;
	struct copier *thread;
	struct reader_job *job; /* NULL: idle */
};

struct readers {
	struct event_base *base;
	struct reader *current;
	LIST_HEAD(, reader) hanging, back;
	size_t n_hanging;
	TAILQ_HEAD(, reader_job) queue;
	struct event *patience; /* with the current job */
	struct event *turn;	/* there may be a job to begin, or a thread to end */
};

static const struct timeval patience = {.tv_sec = READERS_PATIENCE_S};

static void kick(struct readers *readers)
{
	event_active(readers->turn, EV_TIMEOUT, 0);
}

static size_t hanging_of(const struct readers *readers, uid_t uid)
{
	const struct reader *reader;
	size_t n = 0;

	LIST_FOREACH(reader, &readers->hanging, link)
		n += reader->job->uid == uid;
	return n;
}

bool readers_may(const struct readers *readers, uid_t uid)
{
	return hanging_of(readers, uid) < READERS_HANGING_UID &&
	       readers->n_hanging < READERS_HANGING;
}

size_t readers_hanging(const struct readers *readers)
{
	return readers->n_hanging;
}

static void task_run(struct copier_job *task)
{
	struct reader_job *job = ((struct reader *)task)->job;

	job->run(job);
}

static void task_done(struct copier_job *task)
{
	struct reader *reader = (struct reader *)task;
	struct readers *readers = reader->readers;
	struct reader_job *job = reader->job;

	reader->job = NULL;
	if (job->is_hanging) {
		job->is_hanging = false;
		LIST_REMOVE(reader, link);
		readers->n_hanging--;
		/* Its thread cannot be ended here, in a callback of its own. */
		LIST_INSERT_HEAD(&readers->back, reader, link);
	} else {
		(void)event_del(readers->patience);
	}
	kick(readers);
	job->done(job);
}

static int reader_new(struct readers *readers, struct reader **ret)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return -ENOMEM;
	r = copier_new(readers->base, &reader->thread);
	if (r < 0) {
		free(reader);
		return r;
	}
	reader->task = (struct copier_job){.run = task_run, .done = task_done};
	reader->readers = readers;
	*ret = reader;
	return 0;
}

static void reader_free(struct reader *reader)
{
	copier_free(reader->thread);
	free(reader);
}

static struct reader_job *next_job(const struct readers *readers)
{
	struct reader_job *job;

	TAILQ_FOREACH(job, &readers->queue, link)
		if (job->patient || readers_may(readers, job->uid))
			return job;
	return NULL;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct readers *readers = arg;
	struct reader *reader;
	struct reader_job *job;

	while ((reader = LIST_FIRST(&readers->back)) != NULL) {
		LIST_REMOVE(reader, link);
		reader_free(reader);
	}
	if (readers->current->job || !(job = next_job(readers)))
		return;
	TAILQ_REMOVE(&readers->queue, job, link);
	readers->current->job = job;
	job->risks_last = hanging_of(readers, job->uid) + 1 >= READERS_HANGING_UID;
	if (!job->patient)
		(void)event_add(readers->patience, &patience);
	copier_submit(readers->current->thread, &readers->current->task);
}

static void on_patience(evutil_socket_t fd, short what, void *arg)
{
	struct readers *readers = arg;
	struct reader *reader = readers->current, *other;
	struct reader_job *job = reader->job;
	int r;

	if (!job)
		return;
	r = reader_new(readers, &other);
	if (r < 0) {
		log_warning(
			"a process of uid %u hangs who reads it, and there is no other thread: %s",
			(unsigned int)job->uid, strerror(-r));
		(void)event_add(readers->patience, &patience);
		return;
	}
	log_notice(
		"a process of uid %u has not been read within %d s, and others are read meanwhile: its memory map is locked, a file system "
		"under it does not answer, or the machine is busy",
		(unsigned int)job->uid, READERS_PATIENCE_S);
	readers->current = other;
	LIST_INSERT_HEAD(&readers->hanging, reader, link);
	readers->n_hanging++;
	job->is_hanging = true;
	kick(readers);
	if (job->hangs)
		job->hangs(job);
}

void readers_submit(struct readers *readers, struct reader_job *job)
{
	job->is_hanging = false;
	TAILQ_INSERT_TAIL(&readers->queue, job, link);
	kick(readers);
}

int readers_new(struct event_base *base, struct readers **ret)
{
	_cleanup_(readers_freep) struct readers *readers = calloc(1, sizeof(*readers));
	int r;

	if (!readers)
		return -ENOMEM;
	readers->base = base;
	TAILQ_INIT(&readers->queue);
	readers->patience = evtimer_new(base, on_patience, readers);
	readers->turn = evtimer_new(base, on_turn, readers);
	if (!readers->patience || !readers->turn)
		return -ENOMEM;
	r = reader_new(readers, &readers->current);
	if (r < 0)
		return r;
	*ret = take_ptr(readers);
	return 0;
}

static void leave(struct reader *reader, uint64_t deadline)
{
	struct reader_job *job = reader->job;

	/* Its memory stays, as the thread's may need it. */
	if (!copier_leave(reader->thread, job && !job->patient ? deadline : UINT64_MAX))
		return;
	free(reader);
	if (job)
		job->done(job);
}

struct readers *readers_free(struct readers *readers)
{
	uint64_t deadline = io_now_ns() + LEAVE_NS;
	struct reader_job *job;
	struct reader *reader;

	if (!readers)
		return NULL;
	if (readers->current)
		leave(readers->current, deadline);
	while ((reader = LIST_FIRST(&readers->hanging)) != NULL) {
		LIST_REMOVE(reader, link);
		leave(reader, deadline);
	}
	while ((reader = LIST_FIRST(&readers->back)) != NULL) {
		LIST_REMOVE(reader, link);
		reader_free(reader);
	}
	while ((job = TAILQ_FIRST(&readers->queue)) != NULL) {
		TAILQ_REMOVE(&readers->queue, job, link);
		job->done(job);
	}
	if (readers->patience)
		event_free(readers->patience);
	if (readers->turn)
		event_free(readers->turn);
	free(readers);
	return NULL;
}
