// SPDX-License-Identifier: Apache-2.0
/*
 * Pieces of work on no thread and on several: each is done once, by a worker that there is, waited
 * for in any order.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/base/workers.h"

#define PIECES 5000u

struct piece {
	struct work work; /* first */
	unsigned int n, done;
	unsigned int worker;
};

static struct piece pieces[PIECES];
static atomic_uint at_once[WORKERS_MAX], clashes;

static void run(struct work *work, unsigned int worker)
{
	struct piece *p = (struct piece *)work;

	/* a context belongs to one worker */
	if (atomic_fetch_add(&at_once[worker], 1))
		atomic_fetch_add(&clashes, 1);
	p->done += p->n;
	p->worker = worker;
	atomic_fetch_sub(&at_once[worker], 1);
}

static void submit(struct workers *w, unsigned int i)
{
	pieces[i] = (struct piece){.work.run = run, .n = i + 1};
	workers_submit(w, &pieces[i].work);
}

static void run_all(unsigned int threads)
{
	_cleanup_(workers_freep) struct workers *w = NULL;

	assert_int_equal(workers_new(threads, &w), 0);
	assert_int_equal(workers_count(w), threads > WORKERS_MAX ? WORKERS_MAX
					   : threads             ? threads
								 : 1);
	for (unsigned int i = 0; i < PIECES; i++)
		submit(w, i);
	/* the last first */
	workers_wait(w, &pieces[PIECES - 1].work);
	for (unsigned int i = 0; i < PIECES; i++) {
		workers_wait(w, &pieces[i].work);
		assert_int_equal(pieces[i].done, i + 1);
		assert_true(pieces[i].worker < workers_count(w));
	}
	/* some at a time, and one that is handed in again */
	for (unsigned int i = 0; i < PIECES; i++) {
		submit(w, i);
		if (i >= 3)
			workers_wait(w, &pieces[i - 3].work);
		if (i % 7 == 3) {
			workers_submit(w, &pieces[i - 3].work);
			workers_wait(w, &pieces[i - 3].work);
			assert_int_equal(pieces[i - 3].done, 2 * (i - 2));
		}
	}
	for (unsigned int i = PIECES - 3; i < PIECES; i++)
		workers_wait(w, &pieces[i].work);
	assert_int_equal(clashes, 0);
}

static void test_no_threads(void **state)
{
	(void)state;
	run_all(0);
}

static void test_threads(void **state)
{
	(void)state;
	for (unsigned int n = 1; n <= 4; n++)
		run_all(n);
	run_all(WORKERS_MAX + 3);
}

/* A piece that the thread has begun, since the caller has not; it ends when it is told to. */
struct busy {
	struct work work; /* first */
	sem_t begun, go;
	unsigned int worker;
	bool blocked;
};

static void be_busy(struct work *work, unsigned int worker)
{
	struct busy *b = (struct busy *)work;
	sigset_t now;

	(void)pthread_sigmask(SIG_SETMASK, NULL, &now);
	b->blocked = sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGINT) == 1 &&
		     sigismember(&now, SIGSYS) == 0;
	b->worker = worker;
	(void)sem_post(&b->begun);
	while (sem_wait(&b->go) < 0)
		;
}

static void busy_begin(struct workers *w, struct busy *b)
{
	*b = (struct busy){.work.run = be_busy};
	assert_int_equal(sem_init(&b->begun, 0, 0), 0);
	assert_int_equal(sem_init(&b->go, 0, 0), 0);
	workers_submit(w, &b->work);
	while (sem_wait(&b->begun) < 0)
		;
}

static void busy_end(struct workers *w, struct busy *b)
{
	(void)sem_post(&b->go);
	workers_wait(w, &b->work);
	(void)sem_destroy(&b->begun);
	(void)sem_destroy(&b->go);
}

/* Signals are for the caller; but for the one by which the sandbox answers. */
static void test_signals(void **state)
{
	_cleanup_(workers_freep) struct workers *w = NULL;
	sigset_t before, after;
	struct busy b;

	(void)state;
	(void)pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(workers_new(2, &w), 0);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
	busy_begin(w, &b);
	busy_end(w, &b);
	assert_true(b.blocked);
	assert_int_equal(b.worker, 0);
}

/*
 * While the only thread is busy, who waits does what it waits for, and that before what came
 * earlier.
 */
static void test_caller_helps(void **state)
{
	_cleanup_(workers_freep) struct workers *w = NULL;
	struct busy b;

	(void)state;
	assert_int_equal(workers_new(2, &w), 0);
	busy_begin(w, &b);
	for (unsigned int i = 0; i < 4; i++)
		submit(w, i);
	workers_wait(w, &pieces[2].work);
	assert_int_equal(pieces[2].done, 3);
	assert_int_equal(pieces[2].worker, 1);
	assert_int_equal(pieces[0].done + pieces[1].done + pieces[3].done, 0);
	workers_wait(w, &pieces[3].work);
	submit(w, 4);
	for (unsigned int i = 0; i < 5; i++) {
		workers_wait(w, &pieces[i].work);
		assert_int_equal(pieces[i].done, i + 1);
		assert_int_equal(pieces[i].worker, 1);
	}
	busy_end(w, &b);
	assert_int_equal(clashes, 0);
}

struct noted {
	struct work work; /* first */
	unsigned int n, *order, *next;
	sem_t *all;
};

static void note(struct work *work, unsigned int worker)
{
	struct noted *p = (struct noted *)work;

	(void)worker;
	p->order[(*p->next)++] = p->n;
	if (*p->next == 4)
		(void)sem_post(p->all);
}

/* What has time is done after what came later than it and has not; by the caller before. */
static void test_later(void **state)
{
	_cleanup_(workers_freep) struct workers *w = NULL;
	static const unsigned int want[2][4] = {{2, 3, 0, 1}, {0, 1, 3, 2}};
	unsigned int order[4], next;
	struct noted p[4];
	struct busy b;
	sem_t all;

	(void)state;
	assert_int_equal(sem_init(&all, 0, 0), 0);
	assert_int_equal(workers_new(2, &w), 0);
	for (unsigned int by_caller = 0; by_caller < 2; by_caller++) {
		next = 0;
		busy_begin(w, &b);
		for (unsigned int i = 0; i < 4; i++) {
			p[i] = (struct noted){.work = {.run = note, .later = i < 2},
					      .n = i,
					      .order = order,
					      .next = &next,
					      .all = &all};
			workers_submit(w, &p[i].work);
		}
		if (by_caller)
			workers_wait(w, &p[3].work);
		else
			(void)sem_post(&b.go);
		while (!by_caller && sem_wait(&all) < 0)
			;
		busy_end(w, &b);
		for (unsigned int i = 0; i < 4; i++)
			workers_wait(w, &p[i].work);
		for (unsigned int i = 0; i < 4; i++)
			assert_int_equal(order[i], want[by_caller][i]);
	}
	(void)sem_destroy(&all);
}

/* Time goes to who used it: a thread that waited has none of what another one worked. */
static void test_cpu_time(void **state)
{
	_cleanup_(workers_freep) struct workers *w = NULL;
	uint64_t before, idle;
	struct busy b;

	(void)state;
	assert_int_equal(workers_new(3, &w), 0);
	busy_begin(w, &b);
	idle = workers_cpu_ns(w, b.worker);
	before = workers_cpu_ns(w, 2);
	assert_true(before > 0);
	while (workers_cpu_ns(w, 2) < before + 20000000)
		;
	/* it falls asleep, and sleeps */
	assert_true(workers_cpu_ns(w, b.worker) - idle < 10000000);
	busy_end(w, &b);
}

/* Threads that never had anything to do end, too. */
static void test_idle(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 200; i++) {
		struct workers *w;

		assert_int_equal(workers_new(i % 5, &w), 0);
		assert_null(workers_free(w));
	}
	assert_null(workers_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_threads),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_caller_helps),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_cpu_time),
		cmocka_unit_test(test_idle),
	};

	(void)alarm(600); /* a piece that nobody does */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
