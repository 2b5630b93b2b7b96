// SPDX-License-Identifier: Apache-2.0
/* Who leaves a unit by a list of its processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/target/target_internal.h"

#define LISTED_NS 2000
#define NOW_NS 3000

static void begin(struct target *target, struct targets *targets, struct member *members, size_t n)
{
	*targets = (struct targets){0};
	*target = (struct target){.targets = targets, .n_members = n, .n_living = n};
	TAILQ_INIT(&target->members);
	for (size_t i = 0; i < n; i++) {
		members[i].target = target;
		members[i].to_ns = UINT64_MAX;
		TAILQ_INSERT_TAIL(&target->members, &members[i], link);
	}
}

static void test_leave(void **state)
{
	struct member members[] = {
		{.pid = 10, .from_ns = 1000},
		{.pid = 20, .from_ns = 1000},
		/*
		 * Their forks were heard of before the list came, which was read when they were not
		 * there.
		 */
		{.pid = 30, .from_ns = LISTED_NS},
		{.pid = 40, .from_ns = NOW_NS + 1},
	};
	const pid_t pids[] = {10, 50};
	struct targets targets;
	struct target target;

	begin(&target, &targets, members, ARRAY_SIZE(members));
	assert_true(members_leave(&target, pids, ARRAY_SIZE(pids), LISTED_NS, NOW_NS, UINT64_MAX));
	assert_int_equal(members[0].to_ns, UINT64_MAX);
	assert_int_equal(members[1].to_ns, NOW_NS);
	assert_int_equal(members[2].to_ns, UINT64_MAX);
	assert_int_equal(members[3].to_ns, UINT64_MAX);
	assert_int_equal(target.n_living, 3);
}

static void test_end(void **state)
{
	struct member members[] = {{.pid = 10, .from_ns = 1000}, {.pid = 20, .from_ns = 1000}};
	struct targets targets;
	struct target target;

	begin(&target, &targets, members, ARRAY_SIZE(members));
	member_end(&members[0], 1001);
	member_end(&members[0], 2000);
	assert_int_equal(members[0].to_ns, 1001);
	/* Never before it began. */
	member_end(&members[1], 999);
	assert_int_equal(members[1].to_ns, 1000);
	assert_int_equal(target.n_living, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
