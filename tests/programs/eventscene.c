// SPDX-License-Identifier: Apache-2.0
/*
 * A program that plays one scene with every kind of event, and measures it by itself: for the test of how
 * events look in a trace (tests/system/events-trace.py). It says "ready" when the daemon has taken it in,
 * plays when it reads a line, prints "NAME TID BEGIN-BEFORE BEGIN-AFTER END-BEFORE END-AFTER" (ns of MONOTONIC) for
 * its regions and "done", and ends with its input.
 *
 * The region "serve" waits for a lock that the other thread holds, working, for HOLD_MS.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tracerd.h>

#define HOLD_MS 40
#define FIBER 7

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meet;
static uint64_t hand_over, request;
static tracerd_region on_fiber;
static volatile uint64_t sink;

static uint64_t now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A region, and what the clock was around its begin and its end. */
struct timed {
	const char *name;
	tracerd_region region;
	uint64_t t[4];
};

static void timed_begin(struct timed *r, const char *name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	r->name = name;
	r->t[0] = now();
	r->region = tracerd_region_begin_with(tracerd_intern(name), task, args, n_args);
	r->t[1] = now();
}

static void timed_end(struct timed *r, const tracerd_arg *args, size_t n_args)
{
	r->t[2] = now();
	tracerd_region_end_with(r->region, args, n_args);
	r->t[3] = now();
}

static void timed_tell(const struct timed *r)
{
	(void)printf("%s %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", r->name, (int)gettid(), r->t[0],
		r->t[1], r->t[2], r->t[3]);
}

/* Works for so long; a function to be found in the stacks. */
static __attribute__((noinline)) void work_hard(unsigned ms)
{
	uint64_t end = now() + ms * UINT64_C(1000000);

	while (now() < end)
		for (int i = 0; i < 10000; i++)
			sink = sink * 31 + (uint64_t)i;
}

static __attribute__((noinline)) void wait_for_the_lock(void)
{
	(void)pthread_mutex_lock(&lock);
	(void)pthread_mutex_unlock(&lock);
}

static void *worker(void *arg)
{
	struct timed hold, part;
	(void)arg;

	(void)pthread_barrier_wait(&meet); /* 1: play, now that it is recorded */
	tracerd_thread_name(tracerd_intern("scene worker"));
	timed_begin(&hold, "hold", 0, NULL, 0);
	(void)pthread_mutex_lock(&lock);
	(void)pthread_barrier_wait(&meet); /* 2: the lock is held */
	work_hard(HOLD_MS);
	(void)pthread_mutex_unlock(&lock);
	timed_end(&hold, NULL, 0);
	(void)pthread_barrier_wait(&meet); /* 3: it was waited for */

	timed_begin(&part, "answer", request, NULL, 0);
	tracerd_flow_end(tracerd_intern("hand-over"), hand_over);
	timed_end(&part, NULL, 0);

	/* the fiber goes on here, and its region ends here */
	tracerd_fiber_switch(FIBER, tracerd_intern("parser"));
	tracerd_log(TRACERD_DEBUG, "still %s", "there");
	tracerd_region_end(on_fiber);
	tracerd_fiber_switch(0, 0);
	(void)pthread_barrier_wait(&meet); /* 4: output is in order */
	(void)pthread_barrier_wait(&meet);
	timed_tell(&hold);
	timed_tell(&part);
	(void)pthread_barrier_wait(&meet); /* 5: told */
	(void)pthread_barrier_wait(&meet); /* 6: the end */
	return NULL;
}

static void play(void)
{
	const uint64_t size = UINT64_MAX;
	const tracerd_arg args[] = {
		tracerd_text(tracerd_intern("path"), "/index \"x\"\xff\x1b", 12),
		tracerd_u64(tracerd_intern("size"), size),
		tracerd_i64(tracerd_intern("delta"), -5),
		tracerd_f64(tracerd_intern("share"), 0.1),
		{.key = tracerd_intern("at"), .type = TRACERD_POINTER, .value.u64 = 0x7fff1234},
	};
	const tracerd_arg more[] = {tracerd_u64(tracerd_intern("status"), 200)};
	struct timed serve, parse;
	tracerd_task task, query;

	(void)pthread_barrier_wait(&meet); /* 1 */
	(void)pthread_barrier_wait(&meet); /* 2 */
	tracerd_counter(tracerd_intern("queue"), -3);
	tracerd_counter_f64(tracerd_intern("load"), 0.75);
	task = tracerd_task_begin_with(tracerd_intern("request"), 0, more, 1);
	request = task.id;

	timed_begin(&serve, "serve", task.id, args, 5);
	timed_begin(&parse, "parse", 0, NULL, 0);
	tracerd_instant_with(tracerd_intern("tick\x1b[31m"), 0, more, 1);
	tracerd_log(TRACERD_WARNING, "read %d bytes of %s, %.1f %%", 12, "/etc/\xfe", 99.5);
	timed_end(&parse, more, 1);
	hand_over = tracerd_flow_begin(tracerd_intern("hand-over"));
	wait_for_the_lock();
	timed_end(&serve, more, 1); /* slow: the trigger */

	query = tracerd_task_begin(tracerd_intern("query"), task.id);
	tracerd_task_end(query);
	tracerd_fiber_switch(FIBER, tracerd_intern("parser"));
	on_fiber = tracerd_region_begin(tracerd_intern("coroutine"));
	tracerd_fiber_switch(0, 0);
	(void)pthread_barrier_wait(&meet); /* 3 */
	(void)pthread_barrier_wait(&meet); /* 4 */
	tracerd_task_end(task);
	(void)tracerd_region_begin(tracerd_intern("left open"));
	timed_tell(&serve);
	timed_tell(&parse);
	(void)fflush(stdout);
	(void)pthread_barrier_wait(&meet);
	(void)pthread_barrier_wait(&meet); /* 5 */
	(void)printf("done\n");
	(void)fflush(stdout);
}

int main(void)
{
	char line[16];
	pthread_t t;

	if (tracerd_start(NULL) < 0 || pthread_barrier_init(&meet, NULL, 2) != 0 ||
		pthread_create(&t, NULL, worker, NULL) != 0)
		return 1;
	for (int i = 0; i < 2000 && !tracerd_enabled(); i++)
		(void)usleep(10000);
	if (!tracerd_enabled())
		return 1;
	tracerd_thread_name(tracerd_intern("scene main"));
	(void)printf("ready\n");
	(void)fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	play();
	while (fgets(line, sizeof(line), stdin))
		continue;
	(void)pthread_barrier_wait(&meet); /* 6 */
	(void)pthread_join(t, NULL);
	return 0;
}
