// SPDX-License-Identifier: Apache-2.0
/*
 * What a unit's recording takes to grow: a process that comes into it costs its own threads, not
 * those of all. When the unit is started again, those of its old processes are given back.
 */
#include "daemon/backend/pt/choice.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "daemon/backend/pt/attr.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/base/closer.h"

static int list_self(void *arg, pid_t **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(**ret));
	assert_non_null(*ret);
	(*ret)[0] = getpid();
	*ret_n = 1;
	return 0;
}

static int list_child(void *arg, pid_t **ret, size_t *ret_n)
{
	const struct member *child = arg;
	int r = list_self(NULL, ret, ret_n);

	(*ret)[0] = child->pid;
	return r;
}

/* Those that a new choice would open. */
static uint64_t counted(const struct target *target)
{
	struct pt_choice *choice;
	uint64_t n;

	assert_int_equal(pt_choice_new(target, &choice), 0);
	assert_true(choice->grows);
	choice->phase = PT_PHASE_COUNT;
	choice->job.run(&choice->job);
	assert_int_equal(choice->job.result, 0);
	n = choice->budget.threads;
	choice->job.free(&choice->job);
	return n;
}

static void test_growth(void **state)
{
	const struct pt_attr_spec spec = {0};
	struct member self = {.pid = getpid(), .to_ns = UINT64_MAX}, child = {.to_ns = UINT64_MAX};
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct event_base *base = event_base_new();
	struct targets targets = {0};
	struct pt_recording rec = {.cgroup = 1};
	size_t fds;
	struct target unit = {.targets = &targets,
			      .scope = TARGET_UNIT,
			      .cgroup.ino = 1,
			      .children = true,
			      .backend = &backend_pt,
			      .recording = &rec};
	int r;

	for (int k = 0; k < PT_EVENT_KINDS; k++)
		pt_attr_sideband(&spec, 0, &attrs[k]);
	assert_int_equal(closer_new(base, &targets.closer), 0);
	r = pt_events_open(attrs, NULL, true, 0, targets.closer, list_self, NULL, NULL,
			   &rec.events);
	TAILQ_INIT(&unit.members);
	TAILQ_INSERT_TAIL(&unit.members, &self, link);
	unit.n_members = 1;
	if (r == 0) {
		pt_events_use(rec.events);
		fds = pt_events_fds(rec.events);
		assert_int_equal(counted(&unit), 0);
		child.pid = fork();
		assert_true(child.pid >= 0);
		if (!child.pid) {
			(void)pause();
			_exit(0);
		}
		TAILQ_INSERT_TAIL(&unit.members, &child, link);
		unit.n_members = 2;
		assert_int_equal(counted(&unit), 1);
		assert_int_equal(pt_events_grow(rec.events, NULL, list_child, &child, NULL), 0);
		assert_int_equal(counted(&unit), 0);
		(void)kill(child.pid, SIGKILL);
		(void)waitpid(child.pid, NULL, 0);
		assert_int_equal(counted(&unit), 0);
		assert_int_equal(pt_events_fds(rec.events), 2 * fds);
		/* It is started again; somebody else's may have those of other processes, too. */
		unit.cgroup.ino = 2;
		rec.shares = true;
		assert_int_equal(counted(&unit), 0);
		rec.shares = false;
		pt_events_use(rec.events);
		assert_int_equal(counted(&unit), 0);
		assert_false(pt_events_leave(rec.events));
		assert_int_equal(pt_events_fds(rec.events), 2 * fds);
		/* A new process has the number of an old one. */
		assert_true(counted(&unit) > 0);
		assert_int_equal(pt_events_fds(rec.events), fds);
		assert_int_equal(pt_events_grow(rec.events, NULL, list_self, NULL, NULL), 0);
		assert_int_equal(pt_events_fds(rec.events), 2 * fds);
	}
	(void)pt_events_put(rec.events);
	(void)closer_free(targets.closer);
	event_base_free(base);
	if (r == -EACCES || r == -EPERM || r == -ENOBUFS)
		skip();
	assert_int_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
