// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/copier.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/io.h"

struct list {
	struct copier_job *first, **last;
	unsigned n;
};

struct copier {
	struct event *event;
	int eventfd;
	pthread_t thread;
	bool started;
	bool hurries;
	/* below: under the lock */
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct list queue, finished;
	bool stop;
	uint64_t running_since; /* 0: idle */
};

static void list_init(struct list *l)
{
	l->first = NULL;
	l->last = &l->first;
	l->n = 0;
}

static void list_append(struct list *l, struct copier_job *job)
{
	job->next = NULL;
	*l->last = job;
	l->last = &job->next;
	l->n++;
}

static struct copier_job *list_pop(struct list *l)
{
	struct copier_job *job = l->first;

	if (!job)
		return NULL;
	l->first = job->next;
	if (!l->first)
		l->last = &l->first;
	l->n--;
	return job;
}

static void *run(void *arg)
{
	struct copier *c = arg;

	/*
	 * The unit has the daemon run before others: the loop, and who is in a hurry. A copy takes
	 * its time from no one.
	 */
	if (!c->hurries && getpriority(PRIO_PROCESS, 0) < 0)
		(void)setpriority(PRIO_PROCESS, 0, 0);
	(void)pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		struct copier_job *job = list_pop(&c->queue);
		const uint64_t one = 1;

		if (!job) {
			(void)pthread_cond_wait(&c->work, &c->lock);
			continue;
		}
		c->running_since = io_now_ns();
		(void)pthread_mutex_unlock(&c->lock);
		job->run(job);
		(void)pthread_mutex_lock(&c->lock);
		c->running_since = 0;
		list_append(&c->finished, job);
		/* cannot fail: the counter would have to reach 2^64 */
		if (write(c->eventfd, &one, sizeof(one)) < 0)
			continue;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void on_finished(evutil_socket_t fd, short what, void *arg)
{
	struct copier *c = arg;
	struct copier_job *job;
	uint64_t n;

	if (read(c->eventfd, &n, sizeof(n)) < 0)
		return;
	for (;;) {
		(void)pthread_mutex_lock(&c->lock);
		job = list_pop(&c->finished);
		(void)pthread_mutex_unlock(&c->lock);
		if (!job)
			return;
		job->submitted = false;
		job->done(job); /* may submit it again, or free it */
	}
}

static int new_thread(struct event_base *base, const char *name, bool hurries, struct copier **ret)
{
	_cleanup_(copier_freep) struct copier *c = calloc(1, sizeof(*c));
	sigset_t all, old;
	int r;

	if (!c)
		return -ENOMEM;
	c->hurries = hurries;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->work, NULL);
	list_init(&c->queue);
	list_init(&c->finished);
	c->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->eventfd < 0)
		return -errno;
	c->event = event_new(base, c->eventfd, EV_READ | EV_PERSIST, on_finished, c);
	if (!c->event || event_add(c->event, NULL) < 0)
		return -ENOMEM;
	/* signals are the loop's */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&c->thread, NULL, run, c);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return -r;
	c->started = true;
	(void)pthread_setname_np(c->thread, name);
	*ret = take_ptr(c);
	return 0;
}

int copier_new(struct event_base *base, struct copier **ret)
{
	return new_thread(base, "tracerd-copier", false, ret);
}

int copier_new_hurried(struct event_base *base, struct copier **ret)
{
	return new_thread(base, "tracerd-hurry", true, ret);
}

static unsigned int left;

/* False: it did not end in time. */
static bool join(struct copier *c, uint64_t deadline_ns)
{
	const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
				       .tv_nsec = (long)(deadline_ns % 1000000000u)};

	(void)pthread_mutex_lock(&c->lock);
	c->stop = true;
	(void)pthread_cond_signal(&c->work);
	(void)pthread_mutex_unlock(&c->lock);
	if (deadline_ns == UINT64_MAX)
		return pthread_join(c->thread, NULL) == 0;
	return pthread_clockjoin_np(c->thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

bool copier_leave(struct copier *c, uint64_t deadline_ns)
{
	struct copier_job *job;

	if (c->started && !join(c, deadline_ns)) {
		/* What it still touches stays: the lock, the eventfd, the job. */
		(void)pthread_detach(c->thread);
		event_free(c->event);
		left++;
		return false;
	}
	while ((job = list_pop(&c->queue)) != NULL)
		job->submitted = false;
	while ((job = list_pop(&c->finished)) != NULL)
		job->submitted = false;
	if (c->event)
		event_free(c->event);
	close_fdp(&c->eventfd);
	(void)pthread_cond_destroy(&c->work);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
	return true;
}

unsigned int copiers_left(void)
{
	return left;
}

void copier_free(struct copier *c)
{
	if (c)
		(void)!copier_leave(c, UINT64_MAX);
}

void copier_submit(struct copier *c, struct copier_job *job)
{
	assert(!job->submitted);
	job->submitted = true;
	(void)pthread_mutex_lock(&c->lock);
	list_append(&c->queue, job);
	(void)pthread_cond_signal(&c->work);
	(void)pthread_mutex_unlock(&c->lock);
}

bool copier_withdraw(struct copier *c, struct copier_job *job)
{
	struct copier_job **p;
	bool found = false;

	(void)pthread_mutex_lock(&c->lock);
	for (p = &c->queue.first; *p && *p != job; p = &(*p)->next)
		;
	if (*p) {
		*p = job->next;
		if (!*p)
			c->queue.last = p;
		c->queue.n--;
		job->submitted = false;
		found = true;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return found;
}

uint64_t copier_stuck_ns(struct copier *c)
{
	uint64_t since;

	(void)pthread_mutex_lock(&c->lock);
	since = c->running_since;
	(void)pthread_mutex_unlock(&c->lock);
	return since ? io_now_ns() - since : 0;
}

unsigned copier_queued(struct copier *c)
{
	unsigned n;

	(void)pthread_mutex_lock(&c->lock);
	n = c->queue.n;
	(void)pthread_mutex_unlock(&c->lock);
	return n;
}
