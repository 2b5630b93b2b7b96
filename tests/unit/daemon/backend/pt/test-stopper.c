// SPDX-License-Identifier: Apache-2.0
/*
 * Stopping the events of many threads, which are those of a clock here: the loop does not wait for
 * it.
 */
#include "daemon/backend/pt/stopper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "common/base/procfs.h"
#include "daemon/backend/pt/attr.h"
#include "daemon/backend/pt/events.h"
#include "daemon/base/closer.h"
#include "daemon/base/copier.h"

/* Each takes two events on each CPU. */
#define THREADS ((STOPPER_AT_ONCE_FDS / 2) + 1)
#define ALARM_S 120

struct fixture {
	struct event_base *base;
	struct closer *closer;
	struct stopper *stopper;
	struct pt_events *events;
	size_t n_wanted; /* threads, this one first */
	pthread_t threads[THREADS];
	pid_t tids[THREADS];
	pthread_barrier_t begun;
	pthread_mutex_t end;
	unsigned int told;
};

struct begin {
	struct fixture *f;
	size_t i;
};

static void *sleeper(void *arg)
{
	const struct begin begin = *(struct begin *)arg;

	begin.f->tids[begin.i] = (pid_t)syscall(SYS_gettid);
	(void)pthread_barrier_wait(&begin.f->begun);
	(void)pthread_mutex_lock(&begin.f->end);
	(void)pthread_mutex_unlock(&begin.f->end);
	return NULL;
}

static int list(void *arg, pid_t **ret, size_t *ret_n)
{
	const struct fixture *f = arg;

	*ret = malloc(f->n_wanted * sizeof(**ret));
	assert_non_null(*ret);
	memcpy(*ret, f->tids, f->n_wanted * sizeof(**ret));
	*ret_n = f->n_wanted;
	return 0;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct begin begins[THREADS];

	assert_non_null(f);
	f->base = event_base_new();
	assert_int_equal(closer_new(f->base, &f->closer), 0);
	assert_int_equal(stopper_new(f->base, &f->stopper), 0);
	f->tids[0] = (pid_t)syscall(SYS_gettid);
	(void)pthread_barrier_init(&f->begun, NULL, THREADS);
	(void)pthread_mutex_init(&f->end, NULL);
	(void)pthread_mutex_lock(&f->end);
	for (size_t i = 1; i < THREADS; i++) {
		begins[i] = (struct begin){f, i};
		assert_int_equal(pthread_create(&f->threads[i], NULL, sleeper, &begins[i]), 0);
	}
	(void)pthread_barrier_wait(&f->begun);
	(void)alarm(ALARM_S);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)pt_events_put(f->events);
	closer_stop(f->closer);
	(void)stopper_free(f->stopper);
	(void)closer_free(f->closer);
	event_base_free(f->base);
	(void)pthread_mutex_unlock(&f->end);
	for (size_t i = 1; i < THREADS; i++)
		(void)pthread_join(f->threads[i], NULL);
	(void)pthread_barrier_destroy(&f->begun);
	(void)pthread_mutex_destroy(&f->end);
	free(f);
	(void)alarm(0);
	return 0;
}

static void open_events(struct fixture *f, size_t n_threads)
{
	const struct pt_attr_spec spec = {0};
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	int r;

	f->n_wanted = n_threads;
	pt_attr_sideband(&spec, 0, &attrs[PT_EVENT_SIDE]);
	attrs[PT_EVENT_TRACE] =
		(struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
					 .size = sizeof(attrs[0]),
					 .config = PERF_COUNT_SW_TASK_CLOCK,
					 .disabled = 1,
					 .exclude_kernel = 1,
					 .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED};
	r = pt_events_open(attrs, NULL, true, 0, f->closer, list, f, NULL, &f->events);
	if (r == -EACCES || r == -EPERM || r == -ENOBUFS)
		skip();
	assert_int_equal(r, 0);
	pt_events_use(f->events);
}

/* How long this thread has run while its events were enabled. */
static uint64_t enabled_ns(const struct fixture *f)
{
	const struct eventset *set = &f->events->first->sets[PT_EVENT_TRACE];
	struct {
		uint64_t value, enabled_ns;
	} now;
	uint64_t sum = 0;

	for (size_t cpu = 0; cpu < set->n_cpus; cpu++) {
		assert_int_equal(read(set->fds[cpu], &now, sizeof(now)), sizeof(now));
		sum += now.enabled_ns;
	}
	return sum;
}

static void assert_traced(const struct fixture *f, bool is)
{
	const uint64_t before = enabled_ns(f);

	assert_int_equal(enabled_ns(f) > before, is);
}

static void on_stopped(void *arg)
{
	struct fixture *f = arg;

	f->told++;
	(void)event_base_loopbreak(f->base);
}

/* What the thread was told to do it has done. */
static void await(struct fixture *f)
{
	const unsigned int told = f->told;

	/* Behind all else; its answer must not be taken for another one's. */
	if (!stopper_stop(f->stopper, f->events, on_stopped, f))
		return;
	while (f->told == told)
		assert_true(event_base_loop(f->base, EVLOOP_ONCE) >= 0);
}

static void test_few(void **state)
{
	struct fixture *f = *state;

	open_events(f, 1);
	assert_traced(f, true);
	pt_events_freeze(f->events);
	assert_null(stopper_stop(f->stopper, f->events, on_stopped, f));
	assert_traced(f, false);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	assert_traced(f, true);
	assert_int_equal(f->told, 0);
}

static void test_many(void **state)
{
	struct fixture *f = *state;

	open_events(f, THREADS);
	assert_traced(f, true);
	/* Like one that takes for ever to stop a CPU. */
	(void)pthread_mutex_lock(&f->events->switching);
	pt_events_freeze(f->events);
	assert_non_null(stopper_stop(f->stopper, f->events, on_stopped, f));
	assert_int_equal(pt_events_fds(f->events),
			 THREADS * pt_events_cpus(f->events) * PT_EVENT_KINDS);
	assert_int_equal(pt_events_blind_ns(f->events), 0);
	assert_traced(f, true);
	(void)pthread_mutex_unlock(&f->events->switching);
	while (!f->told)
		assert_true(event_base_loop(f->base, EVLOOP_ONCE) >= 0);
	assert_traced(f, false);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	await(f);
	assert_traced(f, true);
	assert_int_equal(f->events->n_gaps, pt_events_cpus(f->events));
	assert_true(pt_events_blind_ns(f->events) > 0);
}

/* Whoever wanted it does not any more when its turn comes. */
static void test_given_up(void **state)
{
	struct fixture *f = *state;
	struct stopping *stopping;

	open_events(f, THREADS);
	(void)pthread_mutex_lock(&f->events->switching);
	pt_events_freeze(f->events);
	stopping = stopper_stop(f->stopper, f->events, on_stopped, f);
	assert_non_null(stopping);
	stopping_forget(stopping);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	(void)pthread_mutex_unlock(&f->events->switching);
	await(f);
	assert_int_equal(f->told, 1); /* await() itself */
	assert_traced(f, true);
	assert_int_equal(f->events->n_gaps, 0);
}

/*
 * Two snapshots: the events hold still until both are done, and a CPU goes on with the copy of the
 * last one.
 */
static void test_two(void **state)
{
	struct fixture *f = *state;
	size_t cpus;

	open_events(f, THREADS);
	cpus = pt_events_cpus(f->events);
	pt_events_freeze(f->events);
	await(f);
	pt_events_freeze(f->events);
	await(f);
	for (size_t cpu = 0; cpu < cpus; cpu++)
		assert_int_equal(pt_events_resume_cpu(f->events, cpu), 0);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	for (size_t cpu = 0; cpu < cpus; cpu++)
		assert_true(pt_events_resume_cpu(f->events, cpu) > 0);
	assert_traced(f, true);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	await(f);
	assert_int_equal(f->events->n_gaps, cpus);
}

static void test_end(void **state)
{
	struct fixture *f = *state;

	open_events(f, THREADS);
	assert_true(pt_events_leave(f->events));
	await(f);
	assert_traced(f, false);
	/* For good. */
	pt_events_freeze(f->events);
	pt_events_thaw(f->events);
	stopper_go_on(f->stopper, f->events);
	await(f);
	assert_traced(f, false);
	assert_int_equal(f->events->n_gaps, 0);
	/* Its last user goes while the thread has it. */
	(void)pthread_mutex_lock(&f->events->switching);
	assert_non_null(stopper_stop(f->stopper, f->events, on_stopped, f));
	(void)pthread_mutex_unlock(&f->events->switching);
	f->events = pt_events_put(f->events);
}

/* How many threads of ours have this name. */
static size_t count_named(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	size_t n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir)) != NULL) {
		_cleanup_close_ int fd =
			openat(dirfd(dir), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		char comm[PROC_COMM_MAX];

		n += fd >= 0 && proc_comm_read(fd, comm, sizeof(comm)) >= 0 &&
		     strcmp(comm, name) == 0;
	}
	(void)closedir(dir);
	return n;
}

/* A moment waits for it, as it does for what sets aside. */
static void test_hurry(void **state)
{
	struct event_base *base = event_base_new();
	struct copier *hurried = NULL;
	struct stopper *stopper = NULL;

	(void)state;
	assert_int_equal(copier_new_hurried(base, &hurried), 0);
	assert_int_equal(count_named("tracerd-hurry"), 1);
	assert_int_equal(stopper_new(base, &stopper), 0);
	assert_int_equal(count_named("tracerd-hurry"), 2);
	(void)stopper_free(stopper);
	copier_free(hurried);
	event_base_free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_few, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test(test_hurry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
