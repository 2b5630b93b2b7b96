// SPDX-License-Identifier: Apache-2.0
/* The lines of kallsyms that some addresses need. */
#include "daemon/snapshot/kernel_names.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hashmap.h"
#include "common/base/io.h"

#define MAX 4096u

static const char text[] = "ffffffff81000000 T _stext\n"
			   "ffffffff81000000 T first\n"
			   "ffffffff81001000 t second\n"
			   "ffffffff81002000 d data\n"
			   "ffffffff81003000 T third\n"
			   "no line of it\n"
			   "ffffffffc0000000 t of_module\t[module]\n"
			   /* out of order, as those of BPF programs are */
			   "ffffffff81002800 t late\n";

static int copy(const char *from, size_t len, const uint64_t *addrs, size_t n, size_t max,
		char *ret)
{
	_cleanup_(hashmap_fini) struct hashmap map = {0};
	_cleanup_close_ int in = io_memfd("in"), out = io_memfd("out");
	ssize_t got;
	int r;

	assert_return_code(io_write_all(in, from, len), 0);
	for (size_t i = 0; i < n; i++)
		assert_return_code(hashmap_put(&map, 0, addrs[i], addrs[i]), 0);
	r = kernel_names_copy(in, out, &map, max);
	got = io_pread_full(out, ret, MAX, 0);
	assert_true(got >= 0);
	ret[got] = '\0';
	return r;
}

static void expect(uint64_t addr, const char *lines)
{
	char out[MAX + 1];

	assert_int_equal(copy(text, sizeof(text) - 1, &addr, 1, MAX, out), 0);
	assert_string_equal(out, lines);
}

static void test_one(void **state)
{
	expect(UINT64_C(0xffffffff81000010),
	       "ffffffff81000000 T _stext\nffffffff81000000 T first\nffffffff81001000 t second\n");
	expect(UINT64_C(0xffffffff81002810), "ffffffff81002800 t late\nffffffff81003000 T third\n");
	expect(UINT64_C(0xffffffffc0000fff), "ffffffffc0000000 t of_module\t[module]\n");
	/* before all */
	expect(UINT64_C(0xffffffff80000000), "ffffffff81000000 T _stext\n");
}

/* Behind a function that does not return: the address is the next one's. */
static void test_behind(void **state)
{
	expect(UINT64_C(0xffffffff81001000),
	       "ffffffff81000000 T _stext\nffffffff81000000 T first\nffffffff81001000 t second\n"
	       "ffffffff81002000 d data\n");
}

static void test_many(void **state)
{
	const uint64_t addrs[] = {UINT64_C(0xffffffff81001010), UINT64_C(0xffffffff81001020),
				  UINT64_C(0xffffffffc0000010)};
	char out[MAX + 1];

	assert_int_equal(copy(text, sizeof(text) - 1, addrs, 3, MAX, out), 0);
	assert_string_equal(
		out,
		"ffffffff81001000 t second\nffffffff81002000 d data\nffffffffc0000000 t of_module\t[module]\n");
	assert_int_equal(copy(text, sizeof(text) - 1, addrs, 0, MAX, out), 0);
	assert_string_equal(out, "");
}

static void test_no_names(void **state)
{
	const uint64_t addr = UINT64_C(0xffffffff81001010);
	char out[MAX + 1];

	assert_int_equal(copy("", 0, &addr, 1, MAX, out), 0);
	assert_string_equal(out, "");
	assert_int_equal(copy(text, sizeof(text) - 1, &addr, 1, 20, out), -EFBIG);
	/* a last line without its end is none */
	assert_int_equal(copy("ffffffff81001000 t cut", 22, &addr, 1, MAX, out), 0);
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_no_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
