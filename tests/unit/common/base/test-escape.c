// SPDX-License-Identifier: Apache-2.0
#include "common/base/escape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/cleanup.h"

static void check(const char *src, size_t len, const char *want)
{
	char out[256];

	memset(out, 0xcd, sizeof(out));
	assert_int_equal(escape_text(out, sizeof(out), src, len), strlen(want));
	assert_string_equal(out, want);
}

static void test_plain_text_is_kept(void **state)
{
	(void)state;
	check("", 0, "");
	check("nginx: worker (3)", 17, "nginx: worker (3)");
	check("a\\b", 3, "a\\b");
	check("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82", 15,
	      "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82");
}

static void test_controls_are_escaped(void **state)
{
	(void)state;
	check("a\nb\tc", 5, "a\\x0ab\\x09c");
	check("\x1b[2J", 4, "\\x1b[2J");
	check("\0z", 2, "\\x00z");
	check("\x7f", 1, "\\x7f");
	check("\xc2\x9b", 2, "\\xc2\\x9b"); /* C1: CSI in one character */
}

static void test_invisible_is_escaped(void **state)
{
	(void)state;
	check("\xe2\x80\xae", 3, "\\xe2\\x80\\xae"); /* right-to-left override */
	check("\xe2\x81\xa6", 3, "\\xe2\\x81\\xa6"); /* isolate */
	check("\xe2\x80\x8b", 3, "\\xe2\\x80\\x8b"); /* zero width space */
	check("\xef\xbb\xbf", 3, "\\xef\\xbb\\xbf"); /* byte order mark */
	check("\xf3\xa0\x81\x81", 4, "\\xf3\\xa0\\x81\\x81"); /* tag A */
}

static void test_what_is_no_utf8_is_escaped(void **state)
{
	(void)state;
	check("\x80", 1, "\\x80");
	check("\xc0\xaf", 2, "\\xc0\\xaf"); /* overlong slash */
	check("\xe0\x80\xaf", 3, "\\xe0\\x80\\xaf");
	check("\xed\xa0\x80", 3, "\\xed\\xa0\\x80"); /* surrogate */
	check("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"); /* past U+10FFFF */
	check("\xe2\x82", 2, "\\xe2\\x82"); /* cut short */
	check("\xc3(", 2, "\\xc3(");
}

static void test_cuts_at_a_character(void **state)
{
	char out[8];

	(void)state;
	assert_int_equal(escape_text(out, 0, "x", 1), 0);
	assert_int_equal(escape_text(out, 1, "x", 1), 0);
	assert_string_equal(out, "");
	/* three bytes and the end do not fit into what is left */
	assert_int_equal(escape_text(out, 4, "a\xe2\x82\xac", 4), 1);
	assert_string_equal(out, "a");
	assert_int_equal(escape_text(out, 5, "a\xe2\x82\xac", 4), 4);
	assert_int_equal(escape_text(out, 5, "ab\n", 3), 2);
	assert_string_equal(out, "ab");
}

/* Whatever the bytes, the result must need no escaping any more. */
static void test_any_pair_of_bytes_comes_out_clean(void **state)
{
	(void)state;
	for (unsigned int a = 0; a < 256; a++)
		for (unsigned int b = 0; b < 256; b++) {
			char in[2] = {(char)a, (char)b}, once[16], twice[16];
			size_t n = escape_text(once, sizeof(once), in, 2);

			assert_int_equal(n, strlen(once));
			assert_int_equal(escape_text(twice, sizeof(twice), once, n), n);
			assert_string_equal(once, twice);
		}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_text_is_kept),
		cmocka_unit_test(test_controls_are_escaped),
		cmocka_unit_test(test_invisible_is_escaped),
		cmocka_unit_test(test_what_is_no_utf8_is_escaped),
		cmocka_unit_test(test_cuts_at_a_character),
		cmocka_unit_test(test_any_pair_of_bytes_comes_out_clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
