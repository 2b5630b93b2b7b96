// SPDX-License-Identifier: Apache-2.0
/* The map that a JIT wrote, and what somebody else may have written in its place. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/object/perfmap.h"

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

/* Which of two names for an address is right is not known. */
static void test_several(void **state)
{
	static const char text[] = "7f0010000000 100 first\n"
				   "7f0010000000 40 second\n"
				   "7f0010000080 10 within\n"
				   "7f0010001000 40 same\n"
				   "7f0010001000 40 same\n"
				   "7f0010001040 10 alone\n";
	_cleanup_(perfmap_freep) struct perfmap *m = map_of(text, sizeof(text) - 1);

	(void)state;
	expect(m, 0x7f0010000020, "second");
	assert_true(perfmap_has_another(m, 0x7f0010000020));
	expect(m, 0x7f0010000088, "within");
	assert_true(perfmap_has_another(m, 0x7f0010000088));
	assert_false(perfmap_has_another(m, 0x7f0010001000));
	assert_false(perfmap_has_another(m, 0x7f0010001048));
	assert_false(perfmap_has_another(m, 0x7f0010002000));
}

static int read_text(const char *text, size_t len)
{
	_cleanup_close_ int fd = io_memfd("perfmap");
	_cleanup_(perfmap_freep) struct perfmap *m = NULL;
	int r;

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, text, len, 0), 0);
	r = perfmap_read(fd, &budget, &m);
	assert_true((r == 0) == (m != NULL));
	return r;
}

/* Lines of a map with one other line among them. */
static int read_among(unsigned entries, const char *line, struct perfmap **ret)
{
	_cleanup_close_ int fd = io_memfd("perfmap");
	char text[8192];
	size_t len = 0;

	for (unsigned i = 0; i < entries; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%x 10 entry\n",
					0x7f000000 + i * 16);
		if (i == entries / 2)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n", line);
	}
	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, text, len, 0), 0);
	return perfmap_read(fd, &budget, ret);
}

static void test_nonsense(void **state)
{
	static const char *const lines[] = {"",
					    " ",
					    "foo",
					    "1 2",
					    "1 2 ",
					    "zz 10 name",
					    "10 zz name",
					    "11112222333344445 1 too long a number",
					    "ffffffffffffffff 10 wraps",
					    "-1 10 negative",
					    "10000 10",
					    "\xff\x01",
					    "ffff 10 too low",
					    "ffffffff81000000 10 the kernel's",
					    "100000000000000 10 not user space's",
					    "7f0010000000 40000001 too long a function"};
	struct perfmap *m = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		/* one in 64 is borne with, though it says nothing */
		assert_int_equal(read_among(63, lines[i], &m), 0);
		expect(m, 0x7f000010, "entry");
		m = perfmap_free(m);
		assert_int_equal(read_among(62, lines[i], &m), -EBADMSG);
		assert_null(m);
	}
	assert_int_equal(read_among(63, "7f0010000000 10 \xff\x01name", &m), 0);
	expect(m, 0x7f0010000008, "\xff\x01name");
	m = perfmap_free(m);
	assert_int_equal(read_among(1, "7f0010000000 0 thrown away", &m), 0);
	expect(m, 0x7f0010000000, NULL);
	m = perfmap_free(m);
	assert_int_equal(budget.used, 0);
}

/* Files that somebody may put at the path of a map to see what is in them. */
static void test_secrets(void **state)
{
	static const char *const secrets[] = {
		"",
		"\n",
		"root:$y$j9T$WqG/1:19700:0:99999:7:::\ndaemon:*:19700:0:99999:7:::\n",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAA\n"
		"-----END OPENSSH PRIVATE KEY-----\n",
		"30 4 * * * /usr/bin/backup --password=secret\n0 5 * * 1 /usr/bin/other\n",
		"deadbeefdeadbeefdeadbeefdeadbeef\n",
		"7f0010000000 40 all but an end of the line",
		"host 10 secret\n",
		"1000 1000 alice\n1001 1001 bob\n",
		"0a00020f 1f90 address and port\n00000000 16 in hex\n",
		"PASSWORD=secret\n",
		"\177ELF\2\1\1",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
		assert_int_equal(read_text(secrets[i], strlen(secrets[i])), -EBADMSG);
	assert_int_equal(read_text("7f0010000000 40 f\n\0\0\0", 21), 0);
	assert_int_equal(read_text("7f0010000000 40 f\n\0\0\n", 21), -EBADMSG);
	assert_int_equal(budget.used, 0);
}

static void test_budget(void **state)
{
	_cleanup_close_ int fd = io_memfd("perfmap");
	struct budget small = {.max = 100};
	struct perfmap *m = NULL;
	char line[] = "99000 1 a\n";

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
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
