// SPDX-License-Identifier: Apache-2.0
/* Sets of processes' numbers, and that one of them has been given to somebody else. */
#include "common/base/pids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_set(void **state)
{
	pid_t seen[] = {9, 3, 7}, more[] = {7, 1, 9, 8};
	struct pid_set set = {0};

	assert_int_equal(pid_set_keep_new(&set, seen, 3), 3);
	assert_int_equal(pid_set_add(&set, seen, 3), 0);
	assert_int_equal(pid_set_add(&set, seen, 0), 0);
	assert_int_equal(pid_set_keep_new(&set, more, 4), 2);
	assert_int_equal(more[0], 1);
	assert_int_equal(more[1], 8);
	assert_int_equal(pid_set_add(&set, more, 2), 0);
	assert_int_equal(set.n, 5);
	for (size_t i = 1; i < set.n; i++)
		assert_true(set.v[i - 1] < set.v[i]);
	assert_true(pids_have(set.v, set.n, 8));
	assert_false(pids_have(set.v, set.n, 2));
	assert_false(pids_have(NULL, 0, 2));
	pid_set_fini(&set);
	assert_int_equal(set.n, 0);
}

static void test_reused(void **state)
{
	const pid_t child = fork();
	struct pid_set set = {0};
	pid_t now[2];

	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	/* both are among them; one has ended, and nobody has its number; nobody is left */
	assert_int_equal(pid_set_add(&set, (pid_t[]){getpid(), child}, 2), 0);
	now[0] = child;
	now[1] = getpid();
	assert_false(pid_set_is_reused(&set, now, 2));
	now[0] = getpid();
	assert_false(pid_set_is_reused(&set, now, 1));
	/* one is not among them and lives */
	assert_true(pid_set_is_reused(&set, NULL, 0));
	pid_set_fini(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_set),
					   cmocka_unit_test(test_reused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
