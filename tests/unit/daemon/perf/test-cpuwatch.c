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
static struct cpuwatch_reading last[4];
static uint64_t away[4];
static struct cpuwatch watch;
static struct cpuwatch_change changes[8];

static int fresh(void **state)
{
	for (size_t i = 0; i < 4; i++) {
		last[i] = (struct cpuwatch_reading){.at_ns = 100 * S,
						    .lived_ns = 5 * S + i * 1000,
						    .goes_on = true};
		away[i] = 0;
	}
	watch = (struct cpuwatch){
		.cpus = cpus, .last = last, .away_ns = away, .n = 4, .seen_ns = 100 * S};
	return 0;
}

/* Those that lived for so long since, and the ones that do not go on. */
static size_t look(uint64_t now_s, const uint64_t *lived_s, unsigned int dead, const int *online,
		   size_t n_online)
{
	struct cpuwatch_reading now[4];

	for (size_t i = 0; i < 4; i++)
		now[i] = (struct cpuwatch_reading){.at_ns = now_s * S,
						   .lived_ns = 5 * S + i * 1000 + lived_s[i] * S,
						   .goes_on = !(dead & (1u << i))};
	return cpuwatch_compare(&watch, now_s * S, now, online, n_online, changes, 8);
}

static void test_nothing(void **state)
{
	const uint64_t lived[] = {10, 10, 10, 10};
	const int online[] = ALL;

	assert_int_equal(look(110, lived, 0, online, 4), 0);
	assert_int_equal(watch.seen_ns, 110 * S);
}

/* It was away between two looks: its event says when it ended. */
static void test_bounced(void **state)
{
	const uint64_t lived[] = {10, 10, 7, 10};
	const int online[] = ALL;

	assert_int_equal(look(110, lived, 1 << 2, online, 4), 1);
	assert_int_equal(changes[0].cpu, 2);
	assert_int_equal(changes[0].since_ns, 107 * S);
}

/* While it is away nothing is missed; it is since the last look that found it so. */
static void test_away(void **state)
{
	const uint64_t before[] = {10, 10, 7, 10}, after[] = {15, 15, 7, 15};
	const int without[] = {0, 1, 3}, online[] = ALL;

	assert_int_equal(look(110, before, 1 << 2, without, 3), 0);
	assert_int_equal(look(115, after, 1 << 2, online, 4), 1);
	assert_int_equal(changes[0].cpu, 2);
	assert_int_equal(changes[0].since_ns, 110 * S);
}

/* A suspend takes all but one. */
static void test_suspended(void **state)
{
	const uint64_t lived[] = {20, 12, 12, 12};
	const int online[] = ALL;

	assert_int_equal(look(120, lived, 0xe, online, 4), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(changes[i].since_ns, 112 * S);
	/* No more than there is room for. */
	assert_int_equal(cpuwatch_compare(&watch, 120 * S, last, online, 4, changes, 0), 0);
}

static void test_new(void **state)
{
	const uint64_t lived[] = {10, 10, 10, 10};
	const int more[] = {0, 1, 2, 3, 9};

	assert_int_equal(look(110, lived, 0, more, 5), 1);
	assert_int_equal(changes[0].cpu, 9);
	assert_int_equal(changes[0].since_ns, 100 * S);
}

/*
 * An event's time goes slower than the clock, by what others do with the CPU's events: as long as
 * it goes on, it lives.
 */
static void test_slow(void **state)
{
	const uint64_t once[] = {10, 7, 10, 2}, twice[] = {20, 11, 15, 3};
	const int online[] = ALL;

	assert_int_equal(look(110, once, 0, online, 4), 0);
	assert_int_equal(look(120, twice, 0, online, 4), 0);
	assert_int_equal(watch.seen_ns, 120 * S);
	/* When it ends, not since more than the last look that found it alive. */
	assert_int_equal(look(130, twice, 1 << 3, online, 4), 1);
	assert_int_equal(changes[0].cpu, 3);
	assert_int_equal(changes[0].since_ns, 120 * S);
}

/* The real one, on this machine, where nothing changes. */
static void test_real(void **state)
{
	struct cpuwatch real = CPUWATCH_INIT;

	if (cpuwatch_open(&real) < 0)
		skip();
	assert_true(cpuwatch_is_open(&real));
	for (size_t i = 0; i < real.n; i++)
		assert_true(real.last[i].goes_on);
	cpuwatch_close(&real);
	assert_false(cpuwatch_is_open(&real));
	assert_int_equal(cpuwatch_look(&real, changes, 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing, fresh),
		cmocka_unit_test_setup(test_bounced, fresh),
		cmocka_unit_test_setup(test_away, fresh),
		cmocka_unit_test_setup(test_suspended, fresh),
		cmocka_unit_test_setup(test_new, fresh),
		cmocka_unit_test_setup(test_slow, fresh),
		cmocka_unit_test(test_real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
