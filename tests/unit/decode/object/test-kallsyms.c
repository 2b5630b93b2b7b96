// SPDX-License-Identifier: Apache-2.0
/* Copies of /proc/kallsyms: right ones, those without addresses, and any bytes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/object/kallsyms.h"

static struct budget budget = {.max = 16 << 20};

static int read_text(const char *text, size_t len, struct kallsyms **ret)
{
	_cleanup_close_ int fd = io_memfd("kallsyms");

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, text, len, 0), 0);
	return kallsyms_read(fd, &budget, ret);
}

static void expect(const struct kallsyms *k, uint64_t addr, const char *name, const char *module)
{
	struct kallsyms_function f;

	if (!name) {
		assert_false(kallsyms_find(k, addr, &f));
		return;
	}
	assert_true(kallsyms_find(k, addr, &f));
	assert_int_equal(f.name_len, strlen(name));
	assert_memory_equal(f.name, name, f.name_len);
	assert_int_equal(f.module_len, module ? strlen(module) : 0);
	if (module)
		assert_memory_equal(f.module, module, f.module_len);
}

static void test_find(void **state)
{
	static const char text[] = "0000000000000000 A fixed_percpu_data\n"
				   "ffffffff81000000 T startup\n"
				   "ffffffff81000000 T _text\n"
				   "ffffffffc0001000 t mod_poll\t[mod]\n"
				   "ffffffff81000100 t helper.part.0\n"
				   "ffffffff81000400 T __sched_text_start\n"
				   "ffffffff81000400 T __schedule\n"
				   "ffffffff81000500 T __sched_text_end\n"
				   "ffffffff81000600 T try_to_wake_up\n"
				   "ffffffff81000700 D data\n"
				   "ffffffff81000800 W weak\n"
				   "ffffffff81000900 T not ended";
	_cleanup_(kallsyms_freep) struct kallsyms *k = NULL;

	(void)state;
	assert_int_equal(read_text(text, sizeof(text) - 1, &k), 0);
	expect(k, UINT64_C(0xffffffff80ffffff), NULL, NULL);
	expect(k, UINT64_C(0xffffffff81000000), "startup", NULL);
	expect(k, UINT64_C(0xffffffff810000ff), "startup", NULL);
	expect(k, UINT64_C(0xffffffff81000100), "helper.part.0", NULL);
	expect(k, UINT64_C(0xffffffff81000700), NULL, NULL); /* no code */
	expect(k, UINT64_C(0xffffffff81000900), "weak", NULL);
	/* between the kernel and its modules */
	expect(k, UINT64_C(0xffffffff8f000000), NULL, NULL);
	expect(k, UINT64_C(0xffffffffc0001080), "mod_poll", "[mod]");
	expect(k, UINT64_MAX, NULL, NULL);
	expect(k, 0, NULL, NULL);
	assert_false(kallsyms_is_scheduler(k, UINT64_C(0xffffffff810003ff)));
	assert_true(kallsyms_is_scheduler(k, UINT64_C(0xffffffff81000400)));
	assert_false(kallsyms_is_scheduler(k, UINT64_C(0xffffffff81000500)));
	assert_true(kallsyms_is_scheduler(k, UINT64_C(0xffffffff810006ff)));
	assert_false(kallsyms_is_scheduler(k, UINT64_C(0xffffffff81000700)));
	k = kallsyms_free(k);
	assert_int_equal(budget.used, 0);
}

/* What a reader without the right to see addresses gets, and what is no list of symbols. */
static void test_nothing(void **state)
{
	static const char *const texts[] = {
		"",
		"\n\n",
		"0000000000000000 T _text\n0000000000000000 T _stext\n",
		"ffffffff81000000 T no newline",
		"ffffffff81000000 T \n",
		"ffffffff81000000T  x\n",
		"FFFFFFFF81000000 T x\n",
		"ffffffff8100000 T short\n",
		"ffffffff81000000\n",
		"7fffffff81000000 T user\n",
		"\xff\xfe\x00\n",
	};
	struct kallsyms *k = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(read_text(texts[i], strlen(texts[i]), &k), -ENODATA);
		assert_null(k);
	}
	assert_int_equal(budget.used, 0);
}

/*
 * Each byte of a good one replaced by each of some: it is read or refused, and nothing is read past
 * its end.
 */
static void test_broken(void **state)
{
	static const char text[] =
		"ffffffff81000000 T startup\nffffffffc0001000 t mod_poll\t[mod]\n";
	static const char bytes[] = {'\n', '\t', ' ', '\0', 'f', 'T', '\xff'};
	char broken[sizeof(text)];
	struct kallsyms_function f;
	struct kallsyms *k = NULL;

	(void)state;
	for (size_t at = 0; at < sizeof(text) - 1; at++) {
		for (size_t b = 0; b < sizeof(bytes); b++) {
			memcpy(broken, text, sizeof(text));
			broken[at] = bytes[b];
			if (read_text(broken, sizeof(text) - 1, &k) == 0) {
				if (kallsyms_find(k, UINT64_C(0xffffffffc0001000), &f))
					assert_true(f.name_len > 0 && f.name_len < sizeof(text) &&
						    f.module_len < sizeof(text));
			}
			k = kallsyms_free(k);
		}
	}
	assert_int_equal(budget.used, 0);
}

/* Too little memory is told, and given back. */
static void test_budget(void **state)
{
	struct kallsyms *k = NULL;

	(void)state;
	budget.max = 1024;
	assert_int_equal(read_text("ffffffff81000000 T a\n", 21, &k), -ENOMEM);
	budget.max = 16 << 20;
	assert_null(k);
	assert_int_equal(budget.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
