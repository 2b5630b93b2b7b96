// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of side-band records, with a callback that ends what is being read. Needs the
 * sanitizers to be sharp.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/closer.h"
#include "daemon/target/sideband_events.h"

struct scene {
	struct event_base *base;
	struct closer *closer;
	struct sideband_events *events;
	struct sideband_follow *follow;
	bool stop_all;
	pid_t child;
	int go; /* the child waits for its end */
	unsigned int exits;
};

static void on_record(void *arg, const struct sideband_record *record)
{
	struct scene *s = arg;

	if (record->header->type != PERF_RECORD_EXIT || record->pid != (uint32_t)s->child)
		return;
	s->exits++;
	/* As a target does that has exited. */
	s->follow = sideband_follow_free(s->follow, s->closer);
	if (s->stop_all)
		sideband_events_stop(s->events);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
	fail_msg("no record within 20 s");
}

static void begin(struct scene *s)
{
	int ends[2];

	*s = (struct scene){0};
	assert_int_equal(pipe(ends), 0);
	s->child = fork();
	assert_true(s->child >= 0);
	if (s->child == 0) {
		char c;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(ends[1]);
		_exit(read(ends[0], &c, 1) < 0);
	}
	(void)close(ends[0]);
	s->go = ends[1];
	s->base = event_base_new();
	assert_non_null(s->base);
	assert_int_equal(closer_new(s->base, &s->closer), 0);
	assert_int_equal(sideband_events_new(s->base, s->closer, on_record, s, &s->events), 0);
}

static void let_it_end(struct scene *s)
{
	const struct timeval limit = {.tv_sec = 300};
	struct event *late = evtimer_new(s->base, on_late, NULL);
	int status;

	assert_int_equal(event_add(late, &limit), 0);
	(void)close(s->go);
	assert_int_equal(waitpid(s->child, &status, 0), s->child);
	while (s->exits == 0)
		assert_true(event_base_loop(s->base, EVLOOP_ONCE) >= 0);
	event_free(late);
}

static void end(struct scene *s)
{
	(void)sideband_follow_free(s->follow, s->closer);
	(void)sideband_events_free(s->events);
	(void)closer_free(s->closer);
	event_base_free(s->base);
}

static bool follow_child(struct scene *s)
{
	char path[32];
	int r, dirfd;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)s->child);
	dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(dirfd >= 0);
	r = sideband_follow_open(dirfd, 0, false, NULL, &s->follow);
	(void)close(dirfd);
	if (r == -EACCES || r == -EPERM || r == -ENOENT)
		return false;
	assert_int_equal(r, 0);
	assert_int_equal(sideband_follow_begin(s->events, s->follow), 0);
	return true;
}

/* The event that brought the record is the one that the callback closes. */
static void test_closed_by_its_own_record(void **state)
{
	struct scene s;

	begin(&s);
	if (!follow_child(&s)) {
		(void)close(s.go);
		end(&s);
		skip();
	}
	let_it_end(&s);
	assert_null(s.follow);
	end(&s);
}

static void test_machine_stopped_by_a_record(void **state)
{
	struct scene s;
	int r;

	begin(&s);
	r = sideband_events_start(s.events);
	if (r == -EACCES || r == -EPERM || r == -ENOENT) {
		(void)close(s.go);
		end(&s);
		skip();
	}
	assert_int_equal(r, 0);
	s.stop_all = true;
	let_it_end(&s);
	assert_false(sideband_events_running(s.events));
	end(&s);
}

static void test_not_begun(void **state)
{
	atomic_bool cancel = true;
	struct scene s;
	struct sideband_follow *follow = NULL;
	int dirfd = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);

	begin(&s);
	assert_int_equal(sideband_follow_open(dirfd, 0, false, &cancel, &follow), -ECANCELED);
	if (sideband_follow_open(dirfd, 0, false, NULL, &follow) == 0)
		follow = sideband_follow_free(follow, s.closer);
	assert_null(follow);
	(void)close(dirfd);
	(void)close(s.go);
	end(&s);
}

/* ---- a ring that nobody watches, for want of memory */

static bool no_memory;
static unsigned int refused;

static void *allocate(size_t n)
{
	refused += no_memory;
	return no_memory ? NULL : malloc(n);
}

static void *name_itself(void *arg)
{
	const int go = (int)(intptr_t)arg;
	char c;

	(void)!read(go, &c, 1);
	(void)prctl(PR_SET_NAME, "late");
	(void)!read(go, &c, 1);
	_exit(0);
}

/* Its first thread ends at the first byte, its second names itself at the next. */
_Noreturn static void two_threads(int go, int ready)
{
	pthread_t second;
	char c = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pthread_create(&second, NULL, name_itself, (void *)(intptr_t)go) != 0)
		_exit(1);
	(void)!write(ready, &c, 1);
	(void)!read(ready, &c, 1);
	pthread_exit(NULL);
}

static void on_comm(void *arg, const struct sideband_record *record)
{
	struct scene *s = arg;

	s->exits += record->header->type == PERF_RECORD_COMM && record->pid == (uint32_t)s->child;
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	*(bool *)arg = true;
}

static void test_unwatched(void **state)
{
	const struct timeval limit = {.tv_sec = 300}, moment = {.tv_usec = 300000};
	struct event *late, *soon;
	bool over = false, skipped;
	struct scene s = {0};
	int go[2], ready[2];
	char c = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, go), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ready), 0);
	s.child = fork();
	assert_true(s.child >= 0);
	if (s.child == 0)
		two_threads(go[1], ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	s.base = event_base_new();
	assert_non_null(s.base);
	assert_int_equal(closer_new(s.base, &s.closer), 0);
	assert_int_equal(sideband_events_new(s.base, s.closer, on_comm, &s, &s.events), 0);
	skipped = !follow_child(&s);
	if (!skipped) {
		late = evtimer_new(s.base, on_late, NULL);
		soon = evtimer_new(s.base, on_time, &over);
		assert_int_equal(event_add(late, &limit), 0);
		/* The rings were watched by the first thread's events. */
		no_memory = true;
		assert_int_equal(write(ready[0], &c, 1), 1);
		while (refused == 0)
			assert_true(event_base_loop(s.base, EVLOOP_ONCE) >= 0);
		assert_int_equal(event_add(soon, &moment), 0);
		while (!over)
			assert_true(event_base_loop(s.base, EVLOOP_ONCE) >= 0);
		no_memory = false;
		assert_int_equal(write(go[0], &c, 1), 1);
		while (s.exits == 0)
			assert_true(event_base_loop(s.base, EVLOOP_ONCE) >= 0);
		event_free(late);
		event_free(soon);
	}
	(void)kill(s.child, SIGKILL);
	(void)waitpid(s.child, NULL, 0);
	for (size_t i = 0; i < 2; i++) {
		(void)close(go[i]);
		(void)close(ready[i]);
	}
	end(&s);
	if (skipped)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_by_its_own_record),
		cmocka_unit_test(test_machine_stopped_by_a_record),
		cmocka_unit_test(test_not_begun),
		cmocka_unit_test(test_unwatched),
	};

	event_set_mem_functions(allocate, realloc, free);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
