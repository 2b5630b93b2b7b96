// SPDX-License-Identifier: Apache-2.0
/* Frame pointers or not: single functions as compilers write them, then whole programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>

#include "common/base/io.h"
#include "decode/object/probe.h"
#include "tests/unit/decode/object/decode-files.h"

static const struct {
	const char *what;
	uint8_t len;
	uint8_t front[20];
	int answer;
} vectors[] = {
	{"push %rbp; mov %rsp,%rbp", 4, {0x55, 0x48, 0x89, 0xe5}, 1},
	{"endbr64 first", 8, {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, 1},
	{"the other encoding", 4, {0x55, 0x48, 0x8b, 0xec}, 1},
	{"an instruction between", 7, {0x55, 0x41, 0x89, 0xf8, 0x48, 0x89, 0xe5}, 1},
	{"enter", 4, {0xc8, 0x20, 0x00, 0x00}, 1},
	{"Go: sub, save, lea", 14,
		{0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x6c, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24,
			0x10},
		1},
	{"push %rbx; sub", 5, {0x53, 0x48, 0x83, 0xec, 0x10}, 0},
	{"push %rbp as one of many", 7, {0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb}, 0},
	{"mov %rsp,%rbp without a push", 3, {0x48, 0x89, 0xe5}, 0},
};

static void test_functions(void **state)
{
	static const uint8_t call[] = {0xe8, 0x10, 0x02, 0x00, 0x00};
	uint8_t code[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		memset(code, 0x90, sizeof(code));
		memcpy(code, vectors[i].front, vectors[i].len);
		/* a leaf needs no frame and is not judged */
		if (vectors[i].front[0] != 0xc8 && probe_function(code, sizeof(code)) != -1)
			fail_msg("%s: a leaf was judged", vectors[i].what);
		memcpy(code + 30, call, sizeof(call));
		if (probe_function(code, sizeof(code)) != vectors[i].answer)
			fail_msg("%s", vectors[i].what);
		/* nor is a short one */
		assert_int_equal(probe_function(code, 16), -1);
	}
}

static void test_files(void **state)
{
	_cleanup_close_ int tiny = decode_open_tiny(), nothing = io_memfd("nothing");
	struct budget budget = {.max = 256u << 20};
	struct probe_answer a = {0};

	(void)state;
	assert_int_equal(io_pwrite_all(nothing, "#!/bin/sh\n", 10, 0), 0);
	assert_true(probe_file(nothing, &budget, &a) < 0);
	assert_true(tiny >= 0);
	/* a few functions, built either way */
	assert_int_equal(probe_file(tiny, &budget, &a), 0);
	assert_true(a.with <= a.functions && a.functions < 20);
	budget.max = 10;
	assert_true(probe_file(tiny, &budget, &a) < 0);
}

/* This very program is built both ways: the name says how (see tests/unit/decode/Makefile.inc). */
static void test_own_program(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct budget budget = {.max = 256u << 20};
	struct probe_answer a = {0};

	(void)state;
	assert_int_equal(probe_file(fd, &budget, &a), 0);
	print_message("%llu of %llu functions\n", (unsigned long long)a.with,
		(unsigned long long)a.functions);
	assert_true(a.known);
#ifdef WITH_FRAME_POINTERS
	assert_true(a.frame_pointers);
#else
	assert_false(a.frame_pointers);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_own_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
