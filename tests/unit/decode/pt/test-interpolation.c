// SPDX-License-Identifier: Apache-2.0
/* Times between two stamps: by the instructions, never over what is not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/pt/interpolation.h"

#define EVENT(k, t, n) {.kind = PTFLOW_##k, .time = (t), .insns = (n)}
#define MAX 1024u
#define N(a) (sizeof(a) / sizeof((a)[0]))

static void expect_times(const struct ptflow_event *events, const uint64_t *times,
			 const char *marks, size_t n)
{
	assert_int_equal(strlen(marks), n);
	for (size_t i = 0; i < n; i++) {
		if (events[i].time != times[i] || events[i].interpolated != (marks[i] == '~'))
			fail_msg("event %zu: time %llu%s, not %llu%s", i,
				 (unsigned long long)events[i].time,
				 events[i].interpolated ? " ~" : "", (unsigned long long)times[i],
				 marks[i] == '~' ? " ~" : "");
	}
}

static void test_by_instructions(void **state)
{
	struct interpolation s = {.max = MAX};
	struct ptflow_event e[] = {EVENT(ENABLE, 100, 0), EVENT(CALL, 100, 10),
				   EVENT(CALL, 100, 25),  EVENT(RET, 100, 50),
				   EVENT(JUMP, 300, 100), EVENT(RET, 300, 110)};
	static const uint64_t times[] = {100, 120, 150, 200, 300, 300};

	/* the last one waits for the next stamp */
	assert_int_equal(interpolation_events(&s, e, N(e)), 5);
	expect_times(e, times, ".~~~..", N(e));
	/* which the end of the flow is */
	interpolation_end(&s, e + 5, 1, 350, 150);
	assert_int_equal(e[5].time, 310);
	assert_true(e[5].interpolated);
	assert_false(s.on);
}

/* Where the thread was not traced, and where something is missing, no time is spread. */
static void test_gaps(void **state)
{
	struct interpolation s = {.max = MAX};
	struct ptflow_event e[] = {
		EVENT(CALL, 90, 1), /* of what is not known to be on */
		EVENT(ENABLE, 100, 2),  EVENT(CALL, 100, 10),    EVENT(DISABLE, 100, 12),
		EVENT(ENABLE, 500, 12), EVENT(CALL, 500, 20),    EVENT(DISABLE, 600, 92),
		EVENT(ENABLE, 700, 92), EVENT(CALL, 700, 95),    EVENT(OVERFLOW, 800, 96),
		EVENT(RESYNC, 900, 96), EVENT(RET, 900, 99),     EVENT(DESYNC, 950, 99),
		EVENT(CALL, 960, 99),   EVENT(RESYNC, 1000, 99), EVENT(CALL, 1000, 109),
		EVENT(CALL, 1010, 119),
	};
	static const uint64_t times[] = {90,  100, 100, 100, 500, 510, 600, 700, 700,
					 800, 900, 900, 950, 960, 1000, 1005, 1010};

	assert_int_equal(interpolation_events(&s, e, N(e)), N(e));
	expect_times(e, times, ".....~.........~.", N(e));
}

/* The end is another block's begin: if that is not known, or nothing was executed, times stay. */
static void test_unknown_end(void **state)
{
	struct ptflow_event e[] = {EVENT(ENABLE, 100, 0), EVENT(CALL, 100, 10)};
	struct interpolation s = {.max = MAX};

	assert_int_equal(interpolation_events(&s, e, 2), 1);
	interpolation_end(&s, e + 1, 1, 0, 20);
	assert_int_equal(e[1].time, 100);
	assert_int_equal(interpolation_events(&s, e, 2), 1);
	interpolation_end(&s, e + 1, 1, 200, 0);
	assert_int_equal(e[1].time, 100);
	assert_false(e[1].interpolated);
	/* a trace without times */
	e[0].time = e[1].time = 0;
	assert_int_equal(interpolation_events(&s, e, 2), 2);
}

enum { MANY = 6000 };

static void make(struct ptflow_event *e, uint64_t seed)
{
	uint64_t time = 1000, insns = 0, r = seed * 2654435761u + 1;
	bool on = false;

	for (size_t i = 0; i < MANY; i++) {
		r = r * 6364136223846793005u + 1442695040888963407u;
		insns += r >> 60;
		/* now and then nothing tells the time for long */
		if ((r >> 40) % (i / 1500 % 2 ? 900 : 4) == 0)
			time += (r >> 50) & 1023;
		if (!on || (r >> 33) % 50 == 0) {
			e[i] = (struct ptflow_event)EVENT(ENABLE, time, insns);
			e[i].kind = on ? PTFLOW_OVERFLOW : PTFLOW_ENABLE;
			on = !on;
		} else {
			e[i] = (struct ptflow_event)EVENT(CALL, time, insns);
		}
	}
}

/*
 * The result does not depend on the pieces in which the events come; times are in order, and within
 * their stamps.
 */
static void test_pieces(void **state)
{
	struct ptflow_event *whole = calloc(MANY, sizeof(*whole)),
			    *parts = calloc(MANY, sizeof(*parts)),
			    *first = calloc(MANY, sizeof(*first));
	size_t marked = 0;

	assert_true(whole && parts && first);
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct interpolation s = {.max = MAX};
		size_t at = 0, end = 0, n;
		uint64_t r = seed + 7;

		make(whole, seed);
		memcpy(parts, whole, MANY * sizeof(*whole));
		memcpy(first, whole, MANY * sizeof(*whole));
		n = interpolation_events(&s, whole, MANY);
		assert_true(MANY - n <= MAX);
		interpolation_end(&s, whole + n, MANY - n, whole[MANY - 1].time + 10,
				  whole[MANY - 1].insns + 10);
		s = (struct interpolation){.max = MAX};
		while (end < MANY) {
			r = r * 6364136223846793005u + 1442695040888963407u;
			end += 1 + (r >> 33) % 700;
			if (end > MANY)
				end = MANY;
			at += interpolation_events(&s, parts + at, end - at);
			assert_true(end - at <= MAX);
		}
		interpolation_end(&s, parts + at, end - at, first[MANY - 1].time + 10,
				  first[MANY - 1].insns + 10);
		for (size_t i = 0; i < MANY; i++) {
			assert_int_equal(parts[i].time, whole[i].time);
			assert_int_equal(parts[i].interpolated, whole[i].interpolated);
			assert_true(whole[i].time >= first[i].time);
			assert_true(i == 0 || whole[i].time >= whole[i - 1].time);
			assert_true(whole[i].interpolated || whole[i].time == first[i].time);
			marked += whole[i].interpolated;
		}
	}
	assert_true(marked > MANY);
	free(whole);
	free(parts);
	free(first);
}

static void expect_rounded(uint64_t from, struct ptflow_event *e, const uint64_t *times, size_t n)
{
	interpolation_round(from, e, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(e[i].time, times[i]);
}

static void test_rounded(void **state)
{
	/* a mean distance of 1000: steps of 512 */
	struct ptflow_event e[] = {EVENT(CALL, 100100, 1), EVENT(CALL, 100700, 2),
				   EVENT(RET, 100701, 3),  EVENT(RET, 101000, 4),
				   EVENT(RET, 101000, 5),  EVENT(RET, 106000, 6)};
	static const uint64_t times[] = {100001, 100512, 100513, 100514, 100514, 105632};
	/* a step goes into less than 64 of what they are apart: as they are */
	struct ptflow_event fine[] = {EVENT(CALL, 10, 1), EVENT(CALL, 11, 2), EVENT(RET, 189, 3)};
	static const uint64_t same[] = {10, 11, 189};

	expect_rounded(100000, e, times, N(e));
	expect_rounded(0, fine, same, N(fine));
	/* nothing to round, and times that stand still */
	interpolation_round(7, e, 0);
	expect_rounded(101000, e + 3, times + 3, 1);
}

/*
 * Whatever the times: in order, none later, what was apart stays apart, none by more than the mean
 * distance.
 */
static void test_rounded_any(void **state)
{
	srand(11);
	for (unsigned int round = 0; round < 2000; round++) {
		const uint64_t from = (uint64_t)rand() << (round % 30);
		const size_t n = 1 + (size_t)rand() % 40;
		uint64_t exact[40], at = from, mean;
		struct ptflow_event e[40] = {0};

		for (size_t i = 0; i < n; i++) {
			at += (uint64_t)(rand() % 4 ? rand() : 0) >> (rand() % 31);
			exact[i] = e[i].time = at;
		}
		interpolation_round(from, e, n);
		mean = (at - from) / n;
		for (size_t i = 0; i < n; i++) {
			const uint64_t before = i ? e[i - 1].time : from,
				       was = i ? exact[i - 1] : from;

			assert_true(e[i].time <= exact[i] && e[i].time >= before);
			assert_true((e[i].time == before) == (exact[i] == was));
			assert_true(exact[i] - e[i].time <= mean);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_instructions),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_unknown_end),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_rounded),
		cmocka_unit_test(test_rounded_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
