// SPDX-License-Identifier: Apache-2.0
/* Durations, sizes, names and tables as people get them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/ui/human.h"

static void duration(uint64_t ns, const char *want)
{
	char buf[HUMAN_SIZE];

	assert_string_equal(human_duration(buf, ns), want);
}

static void test_durations(void **state)
{
	duration(0, "0 ns");
	duration(999, "999 ns");
	duration(1000, "1.00 us");
	duration(4219, "4.21 us");
	duration(38200000, "38.2 ms");
	duration(999999999, "999 ms"); /* never 1000 */
	duration(3180000000, "3.18 s");
	duration(59999999999, "59.9 s");
	duration(125000000000, "2 min 5 s");
	duration(11520000000000, "3 h 12 min");
	duration(187200000000000, "2 d 4 h");
	duration(UINT64_MAX, "213503 d 23 h");
}

static void size(uint64_t bytes, const char *want)
{
	char buf[HUMAN_SIZE];

	assert_string_equal(human_bytes(buf, bytes), want);
}

static void test_sizes(void **state)
{
	size(0, "0 B");
	size(1023, "1023 B");
	size(1024, "1.0 KiB");
	size(8396, "8.1 KiB");
	size(1048575, "1023 KiB");
	size(1048576, "1.0 MiB");
	size(10 << 20, "10.0 MiB");
	size(1500ULL << 20, "1.4 GiB");
	size(UINT64_MAX, "15.9 EiB");
}

static void test_percent(void **state)
{
	char buf[HUMAN_SIZE];

	assert_string_equal(human_percent(buf, 0, 0), "-");
	assert_string_equal(human_percent(buf, 1, 3), "33.3 %");
	assert_string_equal(human_percent(buf, 7, 7), "100.0 %");
	assert_string_equal(human_time(buf, 0), "-");
}

static void test_names(void **state)
{
	_cleanup_free_ char *bad = human_name("a\033]0;x\a\n\xe2\x80\xae\xff");
	_cleanup_free_ char *none = human_name(NULL), *plain = human_name("caf\xc3\xa9 \\n");

	assert_string_equal(bad, "a\\x1b]0;x\\x07\\x0a\\xe2\\x80\\xae\\xff");
	assert_string_equal(none, "-");
	assert_string_equal(plain, "caf\xc3\xa9 \\n");
	assert_int_equal(human_width("caf\xc3\xa9"), 4);
}

/* What `print` writes, as a string. */
static char *printed(void (*print)(FILE *))
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	print(f);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void print_table(FILE *f)
{
	static const struct human_column columns[] = {{"NAME", 'l'}, {"N", 'r'}, {"LAST", 'l'}};
	_cleanup_(human_table_fini) struct human_table t = HUMAN_TABLE(columns);
	static const char *const cells[] = {"a", "1", "x", "caf\xc3\xa9s", "1000", ""};

	human_table_print(&t, f, 0);
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		human_table_add(&t, strdup(cells[i]));
	human_table_print(&t, f, 2);
}

static void print_cut(FILE *f)
{
	(void)human_print_cut(f, "caf\xc3\xa9 au lait", 5);
	(void)fputc('|', f);
	(void)human_print_cut(f, "caf\xc3\xa9", 4);
	(void)fputc('|', f);
	(void)human_print_cut(f, "long", 0);
}

static void test_table(void **state)
{
	_cleanup_free_ char *table = printed(print_table), *cut = printed(print_cut);

	assert_string_equal(table, "  NAME      N  LAST\n"
				   "  a         1  x\n"
				   "  caf\xc3\xa9s  1000\n");
	assert_string_equal(cut, "caf\xc3\xa9~|caf\xc3\xa9|long");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_percent),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
