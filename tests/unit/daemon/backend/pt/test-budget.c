// SPDX-License-Identifier: Apache-2.0
/*
 * What a PT recording may take: it fits, it is made to fit, and each refusal with its alternative.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/backend/pt/budget.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)

static struct pt_budget budget_make(uint64_t threads, uint64_t cpus)
{
	return (struct pt_budget){
		.threads = threads,
		.cpus = cpus,
		.aux_bytes = 4 * MIB,
		.aux_min = 16 * KIB,
		.total_bytes = 128 * MIB,
		.fds_left = 20000,
		.locked_left = UINT64_MAX,
	};
}

static void test_fits(void **state)
{
	struct pt_budget b = budget_make(4, 8);
	char why[300] = "";

	(void)state;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_FITS);
	assert_true(b.aux_bytes == 4 * MIB);
	/* a tracing event and a dummy for each thread and CPU */
	assert_int_equal(pt_budget_fds(&b), 64);
	assert_string_equal(why, "");
}

static void test_shrinks(void **state)
{
	struct pt_budget b = budget_make(1, 64);
	char why[300] = "";

	(void)state;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_FITS);
	assert_true(b.aux_bytes == 2 * MIB);

	/* As much as the kernel lets a user lock, and no more. */
	b = budget_make(1, 2);
	b.locked_left = 3 * MIB;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_FITS);
	assert_true(b.aux_bytes == 1 * MIB);
	assert_true(pt_budget_bytes(&b) <= 3 * MIB);
}

static void test_descriptors(void **state)
{
	struct pt_budget b = budget_make(1000, 64);
	char why[300] = "";

	(void)state;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_FDS);
	assert_non_null(strstr(why, "128000 descriptors"));
	assert_non_null(strstr(why, "--backend sample"));
	assert_non_null(strstr(why, "LimitNOFILE="));
}

static void test_memory(void **state)
{
	struct pt_budget b = budget_make(1, 256);
	char why[300] = "";

	(void)state;
	b.total_bytes = 1 * MIB;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_MEMORY);
	assert_non_null(strstr(why, "4096 KiB"));
	assert_non_null(strstr(why, "pt_total_mib"));
	assert_non_null(strstr(why, "--backend sample"));
}

static void test_locked(void **state)
{
	struct pt_budget b = budget_make(1, 2);
	char why[300] = "";

	(void)state;
	b.locked_left = 256 * KIB;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_LOCKED);
	assert_non_null(strstr(why, "LimitMEMLOCK="));
	assert_non_null(strstr(why, "--backend sample"));
}

/* Where the rings are there already only descriptors count. */
static void test_growing(void **state)
{
	struct pt_budget b = budget_make(10, 64);
	char why[300] = "";

	(void)state;
	b.aux_min = b.aux_bytes;
	b.total_bytes = b.locked_left = UINT64_MAX;
	assert_int_equal(pt_budget_fit(&b, why, sizeof(why)), PT_BUDGET_FITS);
	assert_true(b.aux_bytes == 4 * MIB);
}

static void test_limits(void **state)
{
	struct pt_budget b = budget_make(1, 1);

	(void)state;
	b.fds_left = b.locked_left = 0;
	pt_budget_limits(&b);
	assert_true(b.fds_left > 0);
	assert_true(b.locked_left > 0);
}

static void test_side_ring(void **state)
{
	(void)state;
	assert_true(pt_side_ring_bytes(16 * KIB) == 128 * KIB);
	assert_true(pt_side_ring_bytes(4 * MIB) == 1 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fits),        cmocka_unit_test(test_shrinks),
		cmocka_unit_test(test_descriptors), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_locked),      cmocka_unit_test(test_growing),
		cmocka_unit_test(test_limits),      cmocka_unit_test(test_side_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
