/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "decode/base/clockmap.h"

#define S 1000000000ull

static struct clock_map *make(const struct clock_bracket *b, size_t n)
{
	struct clock_map *m;

	assert_int_equal(clock_map_new(CLOCK_SOURCE_MONOTONIC_RAW, &m), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(clock_map_add(m, &b[i]), 0);
	clock_map_finish(m);
	return m;
}

static void without_brackets_time_stays(void **state)
{
	_cleanup_(clock_map_freep) struct clock_map *m = make(NULL, 0);

	assert_false(clock_map_known(m));
	assert_int_equal(clock_map_monotonic(m, 12345), 12345);
	assert_null(clock_map_nearest(m, 1));
}

static void one_bracket_is_an_offset(void **state)
{
	const struct clock_bracket b = {.source = 10 * S, .monotonic = 12 * S, .width = 400};
	_cleanup_(clock_map_freep) struct clock_map *m = make(&b, 1);

	assert_true(clock_map_known(m));
	assert_int_equal(clock_map_monotonic(m, 10 * S), 12 * S);
	assert_int_equal(clock_map_monotonic(m, 11 * S), 13 * S);
	assert_int_equal(clock_map_monotonic(m, 9 * S), 11 * S);
	assert_int_equal(clock_map_error(m), 201);
}

static void realtime_of_the_nearest(void **state)
{
	const struct clock_bracket b[] = {
		{.source = 10 * S, .monotonic = 12 * S, .realtime = 1000 * S, .width = 400},
		{.source = 11 * S, .monotonic = 13 * S, .realtime = 2001 * S, .width = 300},
	};
	_cleanup_(clock_map_freep) struct clock_map *m = make(b, 2), *none = make(NULL, 0);
	uint64_t doubt;

	assert_int_equal(clock_map_realtime(m, 10 * S, &doubt), 1000 * S);
	assert_int_equal(doubt, 400);
	assert_int_equal(clock_map_realtime(m, 9 * S, &doubt), 999 * S);
	assert_int_equal(doubt, S / 1000 + 400);
	assert_int_equal(clock_map_realtime(m, 11 * S - 1000, &doubt), 2001 * S - 1000);
	assert_int_equal(clock_map_realtime(m, 12 * S, &doubt), 2002 * S);
	assert_int_equal(doubt, S / 1000 + 300);
	assert_int_equal(clock_map_realtime(m, UINT64_MAX, &doubt), 0);
	assert_int_equal(clock_map_realtime(none, 10 * S, &doubt), 0);
}

/* MONOTONIC is slewed by 100 ppm, then by 200: inside, at the seams, before and after. */
static void slewing_is_followed(void **state)
{
	const struct clock_bracket b[] = {
		{.source = 12 * S, .monotonic = 102 * S + 300000, .width = 100},
		{.source = 10 * S, .monotonic = 100 * S, .width = 100},
		{.source = 11 * S, .monotonic = 101 * S + 100000, .width = 100},
	};
	_cleanup_(clock_map_freep) struct clock_map *m = make(b, 3);

	assert_int_equal(clock_map_monotonic(m, 10 * S), 100 * S);
	assert_int_equal(clock_map_monotonic(m, 10 * S + S / 2), 100 * S + S / 2 + 50000);
	assert_int_equal(clock_map_monotonic(m, 11 * S), 101 * S + 100000);
	assert_int_equal(clock_map_monotonic(m, 11 * S + S / 2), 101 * S + S / 2 + 200000);
	assert_int_equal(clock_map_monotonic(m, 12 * S), 102 * S + 300000);
	assert_int_equal(clock_map_monotonic(m, 13 * S), 103 * S + 500000);
	assert_int_equal(clock_map_monotonic(m, 9 * S), 99 * S - 100000);
	assert_true(clock_map_error(m) >= 50000); /* the bend shows in the stated error */
	assert_int_equal(clock_map_nearest(m, 11 * S + S / 4)->source, 11 * S);
	assert_int_equal(clock_map_nearest(m, 11 * S + 3 * S / 4)->source, 12 * S);
}

static void time_never_runs_backwards(void **state)
{
	struct clock_bracket b[50];
	_cleanup_(clock_map_freep) struct clock_map *m = NULL;
	uint64_t last = 0;

	for (uint64_t i = 0; i < 50; i++)
		b[i] = (struct clock_bracket){.source = (i + 1) * 7777777,
					      .monotonic = (i + 1) * 7777000 + i * i};
	m = make(b, 50);
	for (uint64_t t = 0; t < 60 * 7777777ull; t += 9973) {
		uint64_t mono = clock_map_monotonic(m, t);

		assert_true(mono >= last);
		last = mono;
	}
}

static void contradictions_are_dropped(void **state)
{
	const struct clock_bracket b[] = {
		{.source = 10 * S, .monotonic = 100 * S},
		{.source = 11 * S, .monotonic = 99 * S},
		{.source = 12 * S, .monotonic = 0},
		{.source = 13 * S, .monotonic = 103 * S},
		{.source = 13 * S, .monotonic = 104 * S},
	};
	_cleanup_(clock_map_freep) struct clock_map *m = make(b, 5);

	assert_int_equal(clock_map_dropped(m), 3);
	assert_int_equal(clock_map_monotonic(m, 11 * S), 101 * S);
}

static void far_times_do_not_wrap(void **state)
{
	const struct clock_bracket b[] = {
		{.source = 10 * S, .monotonic = S},
		{.source = 11 * S, .monotonic = 2 * S},
	};
	_cleanup_(clock_map_freep) struct clock_map *m = make(b, 2);

	assert_int_equal(clock_map_monotonic(m, 1), 0);
	assert_int_equal(clock_map_monotonic(m, 1ull << 62), (1ull << 62) - 9 * S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_brackets_time_stays),
		cmocka_unit_test(one_bracket_is_an_offset),
		cmocka_unit_test(realtime_of_the_nearest),
		cmocka_unit_test(slewing_is_followed),
		cmocka_unit_test(time_never_runs_backwards),
		cmocka_unit_test(contradictions_are_dropped),
		cmocka_unit_test(far_times_do_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
