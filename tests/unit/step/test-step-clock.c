// SPDX-License-Identifier: Apache-2.0
/* Ticks and nanoseconds of a stepped recording, and the text of its log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "step/clock.h"
#include "step/insn_log.h"

static void test_times_differ_and_grow(void **state)
{
	uint64_t ticks[1000];
	struct step_clock c;

	(void)state;
	step_clock_init(&c, false);
	for (size_t i = 0; i < ARRAY_SIZE(ticks); i++)
		ticks[i] = step_clock_now(&c);
	step_clock_settle(&c);
	for (size_t i = 1; i < ARRAY_SIZE(ticks); i++)
		assert_true(step_clock_ns(&c, ticks[i]) > step_clock_ns(&c, ticks[i - 1]));
	assert_true(step_clock_ratio(&c) > 0 && step_clock_ratio(&c) < 256);
}

/*
 * Where that is wanted the clock is MONOTONIC_RAW, between what it was before and after; and again.
 */
static void test_raw(void **state)
{
	uint64_t before = clock_raw_ns(), ticks[2], after;
	struct step_clock c;

	(void)state;
	step_clock_init(&c, true);
	assert_false(c.perf_clock);
	ticks[0] = step_clock_now(&c);
	while (clock_raw_ns() < before + 5000000)
		;
	ticks[1] = step_clock_now(&c);
	for (unsigned int again = 0; again < 2; again++) {
		step_clock_settle(&c);
		after = clock_raw_ns();
		for (size_t i = 0; i < 2; i++) {
			assert_true(step_clock_ns(&c, ticks[i]) + 1000000 > before);
			assert_true(step_clock_ns(&c, ticks[i]) < after + 1000000);
		}
	}
}

/* perf's own way of rounding: whole and rest apart, so that nothing overflows. */
static void test_conversion(void **state)
{
	const struct step_clock c = {.tsc = true,
				     .conv = {.shift = 31,
					      .mult = 827186432,
					      .zero = UINT64_C(18446744073371773507)}};

	(void)state;
	assert_true(step_clock_ns(&c, UINT64_C(0x28f2695af54b)) == UINT64_C(17341479429832));
	assert_int_equal(step_clock_ratio(&c), 26);
}

static void test_log(void **state)
{
	struct insn_log *l = calloc(1, sizeof(*l));
	char text[128] = "";

	(void)state;
	assert_non_null(l);
	l->fd = io_memfd("log");
	assert_true(l->fd >= 0);
	assert_int_equal(insn_log_add(l, 1, 0), 0);
	assert_int_equal(insn_log_add(l, 4194303, UINT64_C(0xffffffffff600000)), 0);
	assert_int_equal(insn_log_flush(l), 0);
	assert_true(pread(l->fd, text, sizeof(text) - 1, 0) > 0);
	assert_string_equal(text, "1 0\n4194303 ffffffffff600000\n");
	/* more than is buffered */
	for (unsigned int i = 0; i < 100000; i++)
		assert_int_equal(insn_log_add(l, 77, i), 0);
	assert_int_equal(insn_log_flush(l), 0);
	assert_true(lseek(l->fd, 0, SEEK_END) > 65536);
	l->fd = close_fd(l->fd);
	assert_int_equal(insn_log_add(l, 1, 1), 0); /* no log: nothing to do */
	free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times_differ_and_grow),
		cmocka_unit_test(test_raw),
		cmocka_unit_test(test_conversion),
		cmocka_unit_test(test_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
