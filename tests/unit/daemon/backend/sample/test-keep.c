// SPDX-License-Identifier: Apache-2.0
/* How large a ring has to be to reach back as far as is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/backend/sample/keep.h"

#define MIB ((size_t)1 << 20)
#define S UINT64_C(1000000000)

static void test_size(void **state)
{
	/* Enough, with half of it to spare. */
	assert_int_equal(keep_size(4 * MIB, 10 * S, 5 * S), 4 * MIB);
	assert_int_equal(keep_size(4 * MIB, 15 * S, 10 * S), 4 * MIB);
	/* The next power of two that is. */
	assert_int_equal(keep_size(4 * MIB, 14 * S, 10 * S), 8 * MIB);
	assert_int_equal(keep_size(4 * MIB, 2 * S, 10 * S), 32 * MIB);
	/* Not all at once, however little there is; never more than a ring can have. */
	assert_int_equal(keep_size(4 * MIB, 0, 10 * S), 64 * MIB);
	assert_int_equal(keep_size(4 * MIB, 1, 600 * S), 64 * MIB);
	assert_int_equal(keep_size(512 * MIB, 1, 600 * S), 1024 * MIB);
	assert_int_equal(keep_size(1024 * MIB, 1, 600 * S), 1024 * MIB);
	assert_int_equal(keep_size(4 * MIB, UINT64_MAX / 2, 600 * S), 4 * MIB);
}

/* Nobody asked for anything. */
static void test_none(void **state)
{
	assert_int_equal(keep_ring_bytes(NULL, STACKS_FP), 0);
	assert_null(keep_short(NULL));
	keep_restart(NULL);
	keep_surveyed(NULL);
	keep_refused(NULL, "");
	keep_stop(NULL);
	assert_null(keep_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_size),
					   cmocka_unit_test(test_none)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
