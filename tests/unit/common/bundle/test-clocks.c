// SPDX-License-Identifier: Apache-2.0
/*
 * Brackets of clocks: what is noticed, what is kept, and that a converted time is right within its
 * stated error.
 */
#include "common/bundle/clocks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define S 1000000000ULL

static struct clocks c;

static int setup(void **state)
{
	memset(&c, 0, sizeof(c));
	return 0;
}

/*
 * At second `s`: MONOTONIC runs `ppm` faster than RAW; the wall clock and the sleep are as given.
 */
static struct clocks_bracket at(uint64_t s, int ppm, uint64_t slept, int64_t step)
{
	struct clocks_bracket b = {.raw = 100 * S + s * S, .width_ns = 100};

	b.monotonic = 200 * S + s * S + s * 1000 * (uint64_t)ppm;
	b.boottime = b.monotonic + slept;
	b.realtime = b.boottime + 1700000000 * S + (uint64_t)step;
	b.tsc = (s + 5) * 2596122136ULL;
	return b;
}

static void add(struct clocks_bracket b)
{
	clocks_add(&c, &b);
}

static void test_conversion(void **state)
{
	uint64_t m, e;

	assert_int_equal(clocks_raw_to_monotonic(&c, 1, &m, &e), -ENODATA);
	add(at(0, 37, 0, 0));
	assert_int_equal(clocks_raw_to_monotonic(&c, 101 * S, &m, &e), 0);
	assert_true(m >= 201 * S - e && m <= 201 * S + 37000 + e);
	assert_true(e >= 37000);
	for (uint64_t s = 1; s < 10; s++)
		add(at(s, 37, 0, 0));
	assert_int_equal(clocks_raw_to_monotonic(&c, 103 * S + S / 2, &m, &e), 0);
	assert_true(m + e >= 203 * S + S / 2 + 129500 && m <= 203 * S + S / 2 + 129500 + e);
	assert_true(e < 2000);
	/* outside the error grows */
	assert_int_equal(clocks_raw_to_monotonic(&c, 120 * S, &m, &e), 0);
	assert_true(m + e >= 220 * S + 740000 && m <= 220 * S + 740000 + e);
	assert_true(e > 1000000);
	assert_int_equal(clocks_raw_to_monotonic(&c, 0, &m, &e), 0);
	/* the TSC only where it can be used */
	assert_int_equal(clocks_tsc_to_monotonic(&c, 8 * 2596122136ULL, &m, &e), -ENODATA);
	c.tsc_usable = true;
	assert_int_equal(clocks_tsc_to_monotonic(&c, 8 * 2596122136ULL, &m, &e), 0);
	assert_true(m + e >= 203 * S + 111000 && m <= 203 * S + 111000 + e);
}

static void test_events(void **state)
{
	struct json_object *gaps, *gap;

	add(at(0, 10, 0, 0));
	add(at(1, 10, 0, 0));
	assert_int_equal(c.n_events, 0);
	add(at(2, 10, 60 * S, 0));
	assert_int_equal(c.n_events, 1);
	assert_int_equal(c.events[0].kind, CLOCK_EVENT_SUSPEND);
	assert_int_equal(c.events[0].amount_ns, 60 * S);
	add(at(3, 10, 60 * S, -3600 * (int64_t)S));
	assert_int_equal(c.n_events, 2);
	assert_int_equal(c.events[1].kind, CLOCK_EVENT_STEP);
	assert_true(c.events[1].amount_ns == -3600 * (int64_t)S);
	assert_int_equal(c.suspends, 1);
	assert_int_equal(c.steps, 1);
	/* one gap, between the brackets around it; none of before `from` */
	gaps = json_object_new_array();
	clocks_add_suspends(&c, 0, gaps);
	assert_int_equal(json_object_array_length(gaps), 1);
	gap = json_object_array_get_idx(gaps, 0);
	for (size_t i = 0; i < c.n_events; i++)
		if (c.events[i].kind == CLOCK_EVENT_SUSPEND)
			for (size_t k = 1; k < c.n_brackets; k++)
				if (c.brackets[k].monotonic == c.events[i].monotonic) {
					assert_int_equal(json_object_get_uint64(
								 json_object_object_get(gap,
											"from_ns")),
							 c.brackets[k - 1].raw);
					assert_int_equal(json_object_get_uint64(
								 json_object_object_get(gap,
											"to_ns")),
							 c.brackets[k].raw);
				}
	clocks_add_suspends(&c, UINT64_MAX, gaps);
	assert_int_equal(json_object_array_length(gaps), 1);
	json_object_put(gaps);
	for (unsigned i = 0; i < 3 * CLOCKS_MAX_EVENTS; i++)
		add(at(4 + i, 10, 60 * S, (int64_t)(i + 1) * (int64_t)S));
	assert_int_equal(c.n_events, CLOCKS_MAX_EVENTS);
}

static void test_bounds(void **state)
{
	struct json_object *o;
	static struct clocks back;

	for (unsigned i = 0; i < 10 * CLOCKS_MAX_BRACKETS; i++) {
		add(at(i, 10, 0, 0));
		assert_true(c.n_brackets <= CLOCKS_MAX_BRACKETS);
	}
	assert_true(c.brackets[0].raw == at(0, 10, 0, 0).raw); /* the oldest stays, thinned */
	for (size_t i = 1; i < c.n_brackets; i++)
		assert_true(c.brackets[i].raw > c.brackets[i - 1].raw);
	clocks_forget(&c, c.brackets[100].monotonic + 1);
	assert_true(c.n_brackets > 0);
	o = clocks_to_json(&c, c.brackets[3].monotonic);
	assert_int_equal(clocks_from_json(o, &back), 0);
	assert_int_equal(back.n_brackets, c.n_brackets - 3);
	assert_true(back.brackets[0].raw == c.brackets[3].raw);
	json_object_put(o);
	clocks_forget(&c, UINT64_MAX);
	assert_int_equal(c.n_brackets, 1);
	o = json_tokener_parse("{\"brackets\":[{\"monotonic\":1}]}");
	assert_int_equal(clocks_from_json(o, &back), -EPROTO);
	json_object_put(o);
	o = json_tokener_parse("{\"brackets\":{}}");
	assert_int_equal(clocks_from_json(o, &back), -EPROTO);
	json_object_put(o);
}

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * S + (uint64_t)t.tv_nsec;
}

static void test_back(void **state)
{
	uint64_t raw, last = 0, m, e;
	size_t segment = 7;

	assert_int_equal(clocks_monotonic_to_raw(&c, 5, &segment), 5);
	for (uint64_t s = 0; s < 10; s++)
		add(at(s, s < 5 ? 37 : -80, 0, 0));
	/* the other way round it is the same time, to the rounding; and in any order */
	for (uint64_t t = 200 * S; t < 208 * S; t += S / 7) {
		raw = clocks_monotonic_to_raw(&c, t, &segment);
		assert_int_equal(clocks_raw_to_monotonic(&c, raw, &m, &e), 0);
		assert_true(m + 1 >= t && m <= t + 1);
		assert_true(raw > last);
		last = raw;
	}
	raw = clocks_monotonic_to_raw(&c, 201 * S, &segment);
	assert_true(raw > 101 * S - 40000 && raw < 101 * S);
	/* beside the brackets it goes on without a jump */
	assert_int_equal(clocks_monotonic_to_raw(&c, c.brackets[9].monotonic + 5, &segment),
			 c.brackets[9].raw + 5);
	assert_int_equal(clocks_monotonic_to_raw(&c, 200 * S - 5, &segment), 100 * S - 4);
	raw = clocks_monotonic_to_raw(&c, 150 * S, &segment);
	assert_int_equal(clocks_raw_to_monotonic(&c, raw, &m, &e), 0);
	assert_true(m + 1 >= 150 * S && m <= 150 * S + 1);
	assert_int_equal(clocks_monotonic_to_raw(&c, 1, &segment), 0);
}

static void test_this_machine(void **state)
{
	const struct timespec nap = {.tv_nsec = 50000000};
	uint64_t raw, before, after, m, e;

	c.tsc_usable = clocks_tsc_usable();
	clocks_take(&c);
	(void)nanosleep(&nap, NULL);
	before = now(CLOCK_MONOTONIC);
	raw = now(CLOCK_MONOTONIC_RAW);
	after = now(CLOCK_MONOTONIC);
	(void)nanosleep(&nap, NULL);
	clocks_take(&c);
	assert_int_equal(clocks_raw_to_monotonic(&c, raw, &m, &e), 0);
	/* a reader that was put to sleep in the middle has a wide bracket: the error says it */
	assert_true(m + e >= before && m <= after + e);
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void)
{
	const struct CMUnitTest tests[] = {T(test_conversion), T(test_events), T(test_bounds),
					   T(test_back), T(test_this_machine)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
