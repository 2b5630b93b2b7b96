// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/base/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct worker {
	struct workers *pool;
	pthread_t thread;
	unsigned int index;
	bool running;
};

struct queue {
	struct work *first, **last;
};

struct workers {
	pthread_mutex_t lock;
	pthread_cond_t submitted, finished;
	struct queue now, later;
	unsigned int idle;	   /* workers that wait for something to do */
	const struct work *wanted; /* the caller waits until this is done */
	bool stop;
	unsigned int n;
	struct worker workers[WORKERS_MAX];
};

static void queue_add(struct queue *q, struct work *work)
{
	work->next = NULL;
	*q->last = work;
	q->last = &work->next;
}

static struct work *queue_take(struct queue *q)
{
	struct work *work = q->first;

	if (!work)
		return NULL;
	q->first = work->next;
	if (!q->first)
		q->last = &q->first;
	return work;
}

/* This one, if nobody has begun it. */
static struct work *queue_take_this(struct queue *q, struct work *wanted)
{
	for (struct work **p = &q->first; *p; p = &(*p)->next) {
		if (*p != wanted)
			continue;
		*p = wanted->next;
		if (!*p)
			q->last = p;
		return wanted;
	}
	return NULL;
}

/* Does it, without the lock, and wakes the caller if it waits for it. */
static void perform(struct workers *w, struct work *work, unsigned int worker)
{
	(void)pthread_mutex_unlock(&w->lock);
	work->run(work, worker);
	(void)pthread_mutex_lock(&w->lock);
	work->done = true;
	if (w->wanted == work)
		(void)pthread_cond_signal(&w->finished);
}

static void *worker_main(void *arg)
{
	struct worker *self = arg;
	struct workers *w = self->pool;

	(void)pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct work *work = queue_take(&w->now);

		if (!work)
			work = queue_take(&w->later);
		if (work) {
			perform(w, work, self->index);
			continue;
		}
		w->idle++;
		(void)pthread_cond_wait(&w->submitted, &w->lock);
		w->idle--;
	}
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int start(struct worker *self)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	/* the sandbox answers denied calls by this one; where it is blocked they would kill */
	(void)sigdelset(&all, SIGSYS);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_create(&self->thread, NULL, worker_main, self);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	self->running = r == 0;
	return -r;
}

int workers_new(unsigned int threads, struct workers **ret)
{
	_cleanup_(workers_freep) struct workers *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->submitted, NULL);
	(void)pthread_cond_init(&w->finished, NULL);
	w->now.last = &w->now.first;
	w->later.last = &w->later.first;
	for (unsigned int i = 0; i + 1 < threads && i + 1 < WORKERS_MAX; i++) {
		int r;

		w->workers[i] = (struct worker){.pool = w, .index = i};
		r = start(&w->workers[i]);
		if (r < 0)
			return r;
		w->n++;
	}
	*ret = take_ptr(w);
	return 0;
}

struct workers *workers_free(struct workers *w)
{
	if (!w)
		return NULL;
	(void)pthread_mutex_lock(&w->lock);
	w->stop = true;
	(void)pthread_cond_broadcast(&w->submitted);
	(void)pthread_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i < WORKERS_MAX; i++)
		if (w->workers[i].running)
			(void)pthread_join(w->workers[i].thread, NULL);
	(void)pthread_cond_destroy(&w->submitted);
	(void)pthread_cond_destroy(&w->finished);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

unsigned int workers_count(const struct workers *w)
{
	return w->n + 1;
}

void workers_submit(struct workers *w, struct work *work)
{
	work->done = false;
	(void)pthread_mutex_lock(&w->lock);
	queue_add(work->later ? &w->later : &w->now, work);
	if (w->idle)
		(void)pthread_cond_signal(&w->submitted);
	(void)pthread_mutex_unlock(&w->lock);
}

/*
 * What the caller does while it waits: first of what has time, so that the threads can go on with
 * what has not.
 */
static struct work *take_for(struct workers *w, struct work *wanted)
{
	struct work *work = wanted->later ? queue_take_this(&w->later, wanted) : NULL;

	if (!work)
		work = queue_take(&w->later);
	if (!work)
		work = queue_take_this(&w->now, wanted);
	return work ? work : queue_take(&w->now);
}

void workers_wait(struct workers *w, struct work *work)
{
	(void)pthread_mutex_lock(&w->lock);
	while (!work->done) {
		struct work *other = take_for(w, work);

		if (other) {
			perform(w, other, w->n);
			continue;
		}
		w->wanted = work;
		(void)pthread_cond_wait(&w->finished, &w->lock);
		w->wanted = NULL;
	}
	(void)pthread_mutex_unlock(&w->lock);
}

uint64_t workers_cpu_ns(const struct workers *w, unsigned int worker)
{
	clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
	struct timespec ts;

	if ((worker < w->n && pthread_getcpuclockid(w->workers[worker].thread, &clock) != 0) ||
	    clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
