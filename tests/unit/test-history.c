// SPDX-License-Identifier: Apache-2.0
/* The reader of side-band records, with a callback that ends what is being read. Needs the sanitizers to be sharp. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/closer.h"
#include "daemon/history.h"

struct scene {
	struct event_base *base;
	struct closer *closer;
	struct history *history;
	struct history_follow *follow;
	bool stop_all;
	pid_t child;
	int go; /* the child waits for its end */
	unsigned int exits;
};

static void on_record(void *arg, const struct history_record *record)
{
	struct scene *s = arg;

	if (record->header->type != PERF_RECORD_EXIT || record->pid != (uint32_t)s->child)
		return;
	s->exits++;
	/* As a target does that has exited. */
	s->follow = history_follow_free(s->follow, s->closer);
	if (s->stop_all)
		history_stop(s->history);
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
	assert_int_equal(history_new(s->base, s->closer, on_record, s, &s->history), 0);
}

static void let_it_end(struct scene *s)
{
	const struct timeval limit = {.tv_sec = 20};
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
	(void)history_follow_free(s->follow, s->closer);
	(void)history_free(s->history);
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
	r = history_follow_open(dirfd, 0, false, NULL, &s->follow);
	(void)close(dirfd);
	if (r == -EACCES || r == -EPERM || r == -ENOENT)
		return false;
	assert_int_equal(r, 0);
	assert_int_equal(history_follow_begin(s->history, s->follow), 0);
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
	r = history_start(s.history);
	if (r == -EACCES || r == -EPERM || r == -ENOENT) {
		(void)close(s.go);
		end(&s);
		skip();
	}
	assert_int_equal(r, 0);
	s.stop_all = true;
	let_it_end(&s);
	assert_false(history_running(s.history));
	end(&s);
}

static void test_not_begun(void **state)
{
	atomic_bool cancel = true;
	struct scene s;
	struct history_follow *follow = NULL;
	int dirfd = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);

	begin(&s);
	assert_int_equal(history_follow_open(dirfd, 0, false, &cancel, &follow), -ECANCELED);
	if (history_follow_open(dirfd, 0, false, NULL, &follow) == 0)
		follow = history_follow_free(follow, s.closer);
	assert_null(follow);
	(void)close(dirfd);
	(void)close(s.go);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_by_its_own_record),
		cmocka_unit_test(test_machine_stopped_by_a_record),
		cmocka_unit_test(test_not_begun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
