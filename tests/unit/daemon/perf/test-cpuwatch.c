// SPDX-License-Identifier: Apache-2.0
/* Since when events on CPUs miss what runs there, when CPUs go and come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/perf/cpuwatch.h"

#define S UINT64_C(1000000000)
#define ALL {0, 1, 2, 3}

static int cpus[] = ALL;
static struct cpuwatch_reading begun[4];
static uint64_t away[4];
static struct cpuwatch watch;
static struct cpuwatch_change changes[8];

static int fresh(void **state)
{
	for (size_t i = 0; i < 4; i++) {
		begun[i] = (struct cpuwatch_reading){.before_ns = 100 * S, .after_ns = 100 * S, .lived_ns = 5 * S + i * 1000};
		away[i] = 0;
	}
	watch = (struct cpuwatch){.cpus = cpus, .begun = begun, .away_ns = away, .n = 4, .seen_ns = 100 * S};
	return 0;
}

static size_t look(uint64_t now_s, const uint64_t *lived_s, const int *online, size_t n_online)
{
	struct cpuwatch_reading now[4];

	for (size_t i = 0; i < 4; i++)
		now[i] = (struct cpuwatch_reading){
			.before_ns = now_s * S, .after_ns = now_s * S, .lived_ns = begun[i].lived_ns + lived_s[i] * S};
	return cpuwatch_compare(&watch, now_s * S, now, online, n_online, changes, 8);
}

static void test_nothing(void **state)
{
	const uint64_t lived[] = {10, 10, 10, 10};
	const int online[] = ALL;

	assert_int_equal(look(110, lived, online, 4), 0);
	assert_int_equal(watch.seen_ns, 110 * S);
}

/* It was away between two looks: its event says when it ended. */
static void test_bounced(void **state)
{
	const uint64_t lived[] = {10, 10, 7, 10};
	const int online[] = ALL;

	assert_int_equal(look(110, lived, online, 4), 1);
	assert_int_equal(changes[0].cpu, 2);
	assert_int_equal(changes[0].since_ns, 107 * S);
}

/* While it is away nothing is missed; it is since the last look that found it so. */
static void test_away(void **state)
{
	const uint64_t before[] = {10, 10, 7, 10}, after[] = {15, 15, 7, 15};
	const int without[] = {0, 1, 3}, online[] = ALL;

	assert_int_equal(look(110, before, without, 3), 0);
	assert_int_equal(look(115, after, online, 4), 1);
	assert_int_equal(changes[0].cpu, 2);
	assert_int_equal(changes[0].since_ns, 110 * S);
}

/* A suspend takes all but one. */
static void test_suspended(void **state)
{
	const uint64_t lived[] = {20, 12, 12, 12};
	const int online[] = ALL;

	assert_int_equal(look(120, lived, online, 4), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(changes[i].since_ns, 112 * S);
	/* No more than there is room for. */
	assert_int_equal(cpuwatch_compare(&watch, 120 * S, begun, online, 4, changes, 0), 0);
}

static void test_new(void **state)
{
	const uint64_t lived[] = {10, 10, 10, 10};
	const int more[] = {0, 1, 2, 3, 9};

	assert_int_equal(look(110, lived, more, 5), 1);
	assert_int_equal(changes[0].cpu, 9);
	assert_int_equal(changes[0].since_ns, 100 * S);
}

/* Who reads them waited for a CPU meanwhile: between two of them, and within one, when it was opened and now. */
static void test_late(void **state)
{
	const int online[] = ALL;
	struct cpuwatch_reading now[4] = {
		{.before_ns = 110 * S, .after_ns = 110 * S, .lived_ns = begun[0].lived_ns + 10 * S},
		{.before_ns = 111 * S, .after_ns = 111 * S, .lived_ns = begun[1].lived_ns + 11 * S},
		{.before_ns = 111 * S, .after_ns = 114 * S, .lived_ns = begun[2].lived_ns + 13 * S},
		{.before_ns = 114 * S, .after_ns = 114 * S, .lived_ns = begun[3].lived_ns + 12 * S},
	};

	begun[3].after_ns = 102 * S;
	assert_int_equal(cpuwatch_compare(&watch, 114 * S, now, online, 4, changes, 8), 0);
	/* But more than could have been waited is missing, and it may have ended long before. */
	now[3].lived_ns -= S;
	assert_int_equal(cpuwatch_compare(&watch, 114 * S, now, online, 4, changes, 8), 1);
	assert_int_equal(changes[0].cpu, 3);
	assert_int_equal(changes[0].since_ns, 109 * S);
}

/* The clocks of the events and of the system drift apart in weeks. */
static void test_drift(void **state)
{
	const uint64_t lived[] = {999, 999, 999, 999};
	const int online[] = ALL;

	assert_int_equal(look(1100, lived, online, 4), 0);
}

/* The real one, on this machine, where nothing changes. */
static void test_real(void **state)
{
	struct cpuwatch real = CPUWATCH_INIT;

	if (cpuwatch_open(&real) < 0)
		skip();
	assert_true(cpuwatch_is_open(&real));
	cpuwatch_close(&real);
	assert_false(cpuwatch_is_open(&real));
	assert_int_equal(cpuwatch_look(&real, changes, 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing, fresh), cmocka_unit_test_setup(test_bounced, fresh),
		cmocka_unit_test_setup(test_away, fresh),    cmocka_unit_test_setup(test_suspended, fresh),
		cmocka_unit_test_setup(test_new, fresh),     cmocka_unit_test_setup(test_late, fresh),
		cmocka_unit_test_setup(test_drift, fresh),   cmocka_unit_test(test_real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
