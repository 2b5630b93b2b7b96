// SPDX-License-Identifier: Apache-2.0
#include "common/base/printf_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What follows the '%' in `format`, read both ways; how many of its bytes belong to it. */
static size_t read_both(const char *format, struct printf_spec *ret)
{
	const char *end = format + strlen(format);
	struct printf_spec other;
	size_t n;

	memset(ret, 0xcd, sizeof(*ret));
	n = (size_t)(printf_spec_read(format, NULL, ret) - format);
	assert_int_equal(printf_spec_read(format, end, &other) - format, n);
	assert_int_equal(other.conversion, ret->conversion);
	assert_int_equal(other.width, ret->width);
	assert_int_equal(other.precision, ret->precision);
	return n;
}

static void test_whole(void **state)
{
	struct printf_spec s;

	(void)state;
	assert_int_equal(read_both("-+ #0'12.34lld rest", &s), 14);
	assert_true(s.minus && s.plus && s.space && s.alt && s.zero && s.has_precision);
	assert_false(s.width_is_value || s.precision_is_value);
	assert_int_equal(s.width, 12);
	assert_int_equal(s.precision, 34);
	assert_int_equal(s.length, PRINTF_LENGTH_LL);
	assert_int_equal(s.conversion, 'd');
	assert_int_equal(read_both("*.*s", &s), 4);
	assert_true(s.width_is_value && s.precision_is_value && s.has_precision);
	assert_int_equal(read_both(".f", &s), 2);
	assert_true(s.has_precision && s.precision == 0);
}

static void test_lengths(void **state)
{
	static const struct {
		const char *text;
		enum printf_length length;
	} cases[] = {{"d", PRINTF_LENGTH_NONE}, {"hhd", PRINTF_LENGTH_HH},
		     {"hd", PRINTF_LENGTH_H},   {"ld", PRINTF_LENGTH_L},
		     {"lld", PRINTF_LENGTH_LL}, {"jd", PRINTF_LENGTH_J},
		     {"zd", PRINTF_LENGTH_Z},   {"td", PRINTF_LENGTH_T},
		     {"Ld", PRINTF_LENGTH_LD}};
	struct printf_spec s;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(read_both(cases[i].text, &s), strlen(cases[i].text));
		assert_int_equal(s.length, cases[i].length);
		assert_int_equal(s.conversion, 'd');
	}
}

/* A stranger's numbers, and ends in the middle. */
static void test_broken(void **state)
{
	static const char cut[] = "5d", *const ends[] = {"",  "-",  "5", "*", ".",   ".5", ".*",
							 "l", "ll", "h", "C", "1$d", "m"};
	struct printf_spec s;

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		assert_true(read_both(ends[i], &s) <= strlen(ends[i]));
		assert_int_equal(s.conversion, 0);
	}
	(void)read_both("99999999999999999999999.99999999999999999999999d", &s);
	assert_int_equal(s.width, PRINTF_SPEC_MAX);
	assert_int_equal(s.precision, PRINTF_SPEC_MAX);
	/* the end is the end, whatever follows it */
	(void)printf_spec_read(cut, cut + 1, &s);
	assert_int_equal(s.conversion, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
