// SPDX-License-Identifier: Apache-2.0
/* The map that a JIT wrote, and what somebody else may have written in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/io.h"
#include "decode/perfmap.h"

static struct budget budget = {.max = 16 << 20};

static struct perfmap *map_of(const char *text, size_t len)
{
	_cleanup_close_ int fd = io_memfd("perfmap");
	struct perfmap *m = NULL;

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, text, len, 0), 0);
	assert_int_equal(perfmap_read(fd, &budget, &m), 0);
	return m;
}

static void expect(const struct perfmap *m, uint64_t addr, const char *name)
{
	const char *found;
	uint64_t start;
	size_t len = 0;

	found = perfmap_find(m, addr, &len, &start);
	if (!name) {
		assert_null(found);
		return;
	}
	assert_non_null(found);
	assert_int_equal(len, strlen(name));
	assert_memory_equal(found, name, len);
	assert_true(start <= addr);
}

static void test_lines(void **state)
{
	static const char text[] = "7f0010000000 40 JS:*fib /srv/app.js:1:13\n"
				   "0x7f0010000100 0x20 py::f:/srv/a.py\n"
				   "7f0010000040 10 Builtins Entry\n"
				   "7f0010000100 30 py::g:/srv/a.py\n"
				   "7f00100002";
	_cleanup_(perfmap_freep) struct perfmap *m = map_of(text, sizeof(text) - 1);

	(void)state;
	expect(m, 0x7f000fffffff, NULL);
	expect(m, 0x7f0010000000, "JS:*fib /srv/app.js:1:13");
	expect(m, 0x7f001000003f, "JS:*fib /srv/app.js:1:13");
	expect(m, 0x7f0010000040, "Builtins Entry");
	expect(m, 0x7f0010000050, NULL);
	/* code that was thrown away and its place used again: the later line counts */
	expect(m, 0x7f0010000110, "py::g:/srv/a.py");
	expect(m, 0x7f001000012f, "py::g:/srv/a.py");
	/* the last line is being written and says nothing yet */
	assert_int_equal(perfmap_bad_lines(m), 0);
}

static void test_nonsense(void **state)
{
	static const char text[] = "\n\n \nfoo\n1 2\n1 2 \nzz 10 name\n10 zz name\n"
				   "11112222333344445 1 too long a number\n"
				   "ffffffffffffffff 10 wraps\n"
				   "1000 0 empty\n"
				   "2000 10 \xff\x01name\n"
				   "-1 10 negative\n";
	_cleanup_(perfmap_freep) struct perfmap *m = map_of(text, sizeof(text) - 1);

	(void)state;
	expect(m, 0x1000, NULL);
	expect(m, 0x2008, "\xff\x01name");
	assert_int_equal(perfmap_bad_lines(m), 10);
	m = perfmap_free(m);
	m = map_of("", 0);
	expect(m, 0, NULL);
	assert_int_equal(perfmap_bad_lines(m), 0);
}

static void test_budget(void **state)
{
	_cleanup_close_ int fd = io_memfd("perfmap");
	struct budget small = {.max = 100};
	struct perfmap *m = NULL;
	char line[] = "1000 10 a\n";

	(void)state;
	for (int i = 0; i < 20; i++)
		assert_int_equal(io_pwrite_all(fd, line, 10, i * 10), 0);
	assert_true(perfmap_read(fd, &small, &m) < 0);
	assert_null(m);
	assert_int_equal(budget.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
