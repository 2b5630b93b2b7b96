// SPDX-License-Identifier: Apache-2.0
/* Ticks to nanoseconds: fitted to two moments, anchored at one, rounded as perf rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/bundle/timeconv.h"

/* perf's own rounding: whole and rest apart, so that nothing overflows. */
static void test_rounding(void **state)
{
	const struct timeconv c = {.shift = 31,
				   .mult = 827186432,
				   .zero = UINT64_C(18446744073371773507)};

	(void)state;
	assert_true(timeconv_ns(&c, UINT64_C(0x28f2695af54b)) == UINT64_C(17341479429832));
}

static void test_fit(void **state)
{
	/* 2.6 GHz, 100 s apart, booted long ago */
	const struct timeconv_moment first = {UINT64_C(26) << 40, 500000000000},
				     last = {first.ticks + 260000000000, 600000000000};
	struct timeconv c = timeconv_fit(&first, &last, &last);

	(void)state;
	assert_true(timeconv_ns(&c, last.ticks) == last.ns);
	/* 32 bits of the pace are 25 ns in 100 s. */
	assert_in_range(timeconv_ns(&c, first.ticks), first.ns - 50, first.ns + 50);
	assert_in_range(timeconv_ns(&c, first.ticks + 26000), first.ns + 10000 - 50,
			first.ns + 10000 + 50);
	c = timeconv_fit(&first, &last, &first);
	assert_true(timeconv_ns(&c, first.ticks) == first.ns);
}

/* A crystal's ticks are longer than a nanosecond, a processor's shorter. */
static void test_paces(void **state)
{
	static const uint64_t hz[] = {1000, 24000000, 1000000000, 5000000000};

	(void)state;
	for (size_t i = 0; i < sizeof(hz) / sizeof(hz[0]); i++) {
		const struct timeconv_moment first = {1000, 7},
					     last = {1000 + hz[i] * 10, 7 + 10000000000};
		const struct timeconv c = timeconv_fit(&first, &last, &first);

		assert_in_range(timeconv_ns(&c, 1000 + hz[i]), 7 + 1000000000 - 10,
				7 + 1000000000 + 10);
	}
}

static void test_clocks_that_go_back(void **state)
{
	const struct timeconv_moment first = {5000, 7000}, same = first, back = {4000, 8000};
	struct timeconv c = timeconv_fit(&first, &same, &same);

	(void)state;
	assert_true(timeconv_ns(&c, 5010) == 7010);
	c = timeconv_fit(&first, &back, &back);
	assert_true(timeconv_ns(&c, 4010) == 8010);
	/* Far before the anchor: modulo 2^64, as perf computes. */
	assert_true(timeconv_ns(&c, 0) == 4000);
}

static void test_anchor(void **state)
{
	const struct timeconv_moment now = {UINT64_C(1) << 50, 12345};
	const struct timeconv c = timeconv_anchor(10, 512, &now);

	(void)state;
	assert_true(timeconv_ns(&c, now.ticks) == 12345);
	assert_true(timeconv_ns(&c, now.ticks + 200) == 12445);
}

static void test_now_goes_on(void **state)
{
	uint64_t width;
	const struct timeconv_moment a = timeconv_now(&width), b = timeconv_now(&width);

	(void)state;
#ifdef __x86_64__
	assert_true(a.ns > 0 && b.ns >= a.ns);
	assert_true(width < UINT64_MAX);
#else
	assert_true(a.ns == 0 && b.ns == 0);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounding), cmocka_unit_test(test_fit),
		cmocka_unit_test(test_paces),    cmocka_unit_test(test_clocks_that_go_back),
		cmocka_unit_test(test_anchor),   cmocka_unit_test(test_now_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
