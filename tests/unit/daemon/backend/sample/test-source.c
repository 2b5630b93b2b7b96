// SPDX-License-Identifier: Apache-2.0
/* Since when a target is whole, by what its present and its former rings have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/backend/sample/source.h"

/* It changed over at 100; its last switch to the former rings came before 105. */
static const struct source changed[] = {
	{.from_ns = 100, .to_ns = UINT64_MAX, .end_ns = UINT64_MAX},
	{.from_ns = 10, .to_ns = 100, .end_ns = 105},
};

static void whole(uint64_t present_ns, uint64_t former_ns, uint64_t expected_ns,
		  size_t expected_used)
{
	const uint64_t oldest[] = {present_ns, former_ns};
	size_t used;

	assert_int_equal(sources_complete_ns(changed, oldest, 2, &used), expected_ns);
	assert_int_equal(used, expected_used);
}

static void test_changed(void **state)
{
	/* Nothing lost; or, of shared rings, only what was there before the target. */
	whole(0, 0, 10, 2);
	whole(50, 5, 10, 2);
	/* The former rings lost some of it; others wrote there since. */
	whole(0, 40, 40, 2);
	whole(0, 102, 102, 2);
	whole(0, 500, 105, 2);
	whole(100, 500, 105, 2);
	/* The present ones lost some themselves: the former ones add nothing. */
	whole(300, 0, 300, 1);
	whole(300, 500, 300, 1);
	/* Switches of a moment are in the former ones only. */
	whole(103, 0, 105, 1);
}

static void test_alone(void **state)
{
	const struct source alone = {.from_ns = 100, .to_ns = UINT64_MAX, .end_ns = UINT64_MAX};
	const struct source ended = {.from_ns = 100, .to_ns = 200, .end_ns = 200};
	const uint64_t early = 50, late = 150, after = 900;

	assert_int_equal(sources_complete_ns(NULL, NULL, 0, NULL), 0);
	assert_int_equal(sources_complete_ns(&alone, &early, 1, NULL), 100);
	assert_int_equal(sources_complete_ns(&alone, &late, 1, NULL), 150);
	/* A target that has ended loses nothing but what it had. */
	assert_int_equal(sources_complete_ns(&ended, &late, 1, NULL), 150);
	assert_int_equal(sources_complete_ns(&ended, &after, 1, NULL), 200);
}

/* What rings lose before the target comes, and after its recording has ended, is others'. */
static void test_lost(void **state)
{
	const struct source armed = {.lost_at = 10, .lost_end = UINT64_MAX},
			    ended = {.lost_at = 10, .lost_end = 12};

	(void)state;
	assert_int_equal(source_lost(&armed, 10), 0);
	assert_int_equal(source_lost(&armed, 25), 15);
	assert_int_equal(source_lost(&ended, 25), 2);
	/* one that was counted before it came */
	assert_int_equal(source_lost(&ended, 7), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed),
					   cmocka_unit_test(test_alone),
					   cmocka_unit_test(test_lost)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
