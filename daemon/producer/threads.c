// SPDX-License-Identifier: Apache-2.0
/*
 * The threads of a producer in a pid namespace of its own: the numbers that it has written mean
 * other threads here. The files read are "stat", "status" and the list of threads, none of which
 * waits for a lock of the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/producer/producer_internal.h"

/*
 * What the loop reads in WINDOW_MS, of all producers: 512 files take it 10 ms. One producer has its
 * threads read once in that time, and only if there are not more than THREADS_MAX. Who comes after
 * these has causes of a thread that is not known. The threads are kept: another cause of the same
 * one takes a look at that one only.
 */
#define LOOP_WINDOW_MS 200
#define LOOP_FILES_MAX 512u
#define LOOP_THREADS_MAX 256u
#define LOOK_FILES 4u /* for one thread: to be sure that the process is the same takes some, too */

void producer_threads_fini(struct producer_threads *t)
{
	free(t->tids);
	free(t->inner);
	*t = (struct producer_threads){0};
}

int producer_threads_read(const struct producer *p, uint64_t max, struct producer_threads *ret)
{
	_cleanup_(producer_threads_fini) struct producer_threads t = {0};
	_cleanup_(proc_close) struct proc proc = PROC_INIT;
	struct proc_stat stat;
	int r;

	if (proc_open(p->pid, -1, &proc) != 0 || proc.start_time != p->start_time)
		return -ESRCH;
	/* asked for first: the list of very many threads takes long, too */
	r = proc_stat_read(proc.dirfd, &stat);
	if (r < 0)
		return r;
	if (stat.threads > max)
		return -E2BIG;
	r = proc_tasks_read(proc.dirfd, &t.tids, &t.n);
	if (r < 0)
		return r;
	t.inner = calloc(t.n, sizeof(*t.inner));
	if (!t.inner)
		return -ENOMEM;
	/* more may have come since */
	for (size_t i = 0; i < t.n && i < max; i++)
		if (proc_thread_nspid(proc.dirfd, t.tids[i], &t.inner[i]) != 0)
			t.inner[i] = 0;
	*ret = t;
	t = (struct producer_threads){0};
	return 0;
}

uint32_t producer_threads_find(const struct producer_threads *t, uint32_t inner)
{
	for (size_t i = 0; inner && i < t->n; i++)
		if ((uint32_t)t->inner[i] == inner)
			return (uint32_t)t->tids[i];
	return 0;
}

static bool within_window(uint64_t since, uint64_t now)
{
	return since && now - since < LOOP_WINDOW_MS * 1000000ULL;
}

static unsigned int files_left(struct producers *ps, uint64_t now)
{
	if (!within_window(ps->files_since_ns, now)) {
		ps->files_since_ns = now;
		ps->files_read = 0;
	}
	return ps->files_read < LOOP_FILES_MAX ? LOOP_FILES_MAX - ps->files_read : 0;
}

/* Whether a thread that was read before still is that one: both numbers may be another's by now. */
static bool thread_is_still(struct producer *p, uint32_t here, uint32_t inner, uint64_t now)
{
	_cleanup_(proc_close) struct proc proc = PROC_INIT;
	pid_t found;

	if (files_left(p->ps, now) < LOOK_FILES)
		return false;
	p->ps->files_read += LOOK_FILES;
	return proc_open(p->pid, -1, &proc) == 0 && proc.start_time == p->start_time &&
	       proc_thread_nspid(proc.dirfd, (pid_t)here, &found) == 0 && (uint32_t)found == inner;
}

static void threads_renew(struct producer *p, uint64_t now)
{
	unsigned int left = files_left(p->ps, now);
	int r;

	producer_threads_fini(&p->threads);
	p->threads_ns = now;
	r = producer_threads_read(p, left < LOOP_THREADS_MAX ? left : LOOP_THREADS_MAX,
				  &p->threads);
	p->ps->files_read += LOOK_FILES + (unsigned int)p->threads.n;
	if (r < 0)
		log_debug("threads of pid %d are not known: %s", (int)p->pid, strerror(-r));
}

uint32_t producer_tid_here(struct producer *p, uint32_t tid)
{
	uint64_t now = io_now_ns();
	uint32_t here;

	if (tid == 0 || tid >= PID_LIMIT)
		return 0;
	if (p->nspid == p->pid)
		return tid;
	here = producer_threads_find(&p->threads, tid);
	if (within_window(p->threads_ns, now) || (here && thread_is_still(p, here, tid, now)))
		return here;
	threads_renew(p, now);
	return producer_threads_find(&p->threads, tid);
}
