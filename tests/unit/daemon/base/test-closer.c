// SPDX-License-Identifier: Apache-2.0
/* The closer's end: each job is done once, whether the thread had done it or not. */
#include "daemon/base/closer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <event2/event.h>

#include "tests/unit/cmocka_names.h"

#define JOBS 4
#define STEP_US 1000

static atomic_uint calls[JOBS];

static void count(void *data)
{
	atomic_fetch_add(&calls[*(size_t *)data], 1);
}

static void test_end(void **state)
{
	struct event_base *base = event_base_new();
	struct closer *closer = NULL;

	assert_non_null(base);
	assert_int_equal(closer_new(base, &closer), 0);
	for (size_t i = 0; i < JOBS; i++)
		closer_call(closer, count, &i, sizeof(i), 1);
	/*
	 * The thread has done the first ones, and the loop, which does not run, has not heard of
	 * that.
	 */
	while (atomic_load(&calls[0]) == 0)
		(void)usleep(STEP_US);
	closer_stop(closer);
	for (size_t i = 0; i < JOBS; i++)
		assert_int_equal(atomic_load(&calls[i]), 1);
	assert_int_equal(closer_waiting(closer), 0);
	/* Without a thread at once. */
	closer_call(closer, count, &(size_t){0}, sizeof(size_t), 1);
	assert_int_equal(atomic_load(&calls[0]), 2);
	(void)closer_free(closer);
	event_base_free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
