// SPDX-License-Identifier: Apache-2.0
/* The table of functions of a Go program: one that was made by hand, and the same with damages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/object/gopclntab.h"

#define NAMES 72u
#define UNITS 96u
#define FILES 104u
#define VALUES 112u
#define FUNCTIONS 128u
#define SIZE 256u

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

/* Two functions of 16 and 32 bytes in one file; the first has two lines. */
static struct gopclntab make(uint8_t *p)
{
	memset(p, 0, SIZE);
	memcpy(p + NAMES, "main.f\0main.g", 14);
	put32(p + UNITS, 0);
	memcpy(p + FILES, "/x/y.go", 8);
	/* offset 1: file 0 for 100 bytes; 4: line 10 for 4 bytes, then 12 for 28 */
	memcpy(p + VALUES + 1, "\x02\x64\x00", 3);
	memcpy(p + VALUES + 4, "\x16\x04\x04\x1c\x00", 5);
	for (uint32_t i = 0; i < 2; i++) {
		uint8_t *f = p + FUNCTIONS + 24 + i * 48;

		put32(p + FUNCTIONS + i * 8, i * 16);
		put32(p + FUNCTIONS + i * 8 + 4, 24 + i * 48);
		put32(f + 4, i * 7);
		put32(f + 20, 1);
		put32(f + 24, 4);
		put32(f + 36, 9 + i);
	}
	put32(p + FUNCTIONS + 16, 48);
	return (struct gopclntab){.data = p,
				  .size = SIZE,
				  .names = NAMES,
				  .units = UNITS,
				  .files = FILES,
				  .values = VALUES,
				  .functions = FUNCTIONS,
				  .text = 0x401000,
				  .n_functions = 2,
				  .quantum = 1,
				  .has_lines = true};
}

static void test_lines(void **state)
{
	static const struct {
		uint64_t at;
		bool of_function;
		uint32_t line;
	} cases[] = {{0x401000, false, 10}, {0x401003, false, 10}, {0x401004, false, 12},
		     {0x401000, true, 9},   {0x40100f, true, 9},   {0x401010, true, 10},
		     {0x401010, false, 10}, {0x401015, false, 12}};
	uint8_t p[SIZE];
	const struct gopclntab t = make(p);
	const char *file;
	uint32_t line;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_true(gopclntab_line(&t, cases[i].at, cases[i].of_function, &file, &line));
		assert_string_equal(file, "/x/y.go");
		assert_int_equal(line, cases[i].line);
	}
	assert_false(gopclntab_line(&t, 0x400fff, false, &file, &line));
	assert_false(gopclntab_line(&t, 0x401030, false, &file, &line));
}

static void test_functions(void **state)
{
	struct budget budget = {.max = 1 << 20};
	uint8_t p[SIZE];
	const struct gopclntab t = make(p);
	struct symbols s;

	(void)state;
	symbols_init(&s, &budget);
	assert_int_equal(gopclntab_add(&t, &s), 2);
	symbols_finish(&s);
	assert_int_equal(symbols_find(&s, 0x40102f)->addr, 0x401010);
	assert_memory_equal(symbols_find(&s, 0x401001)->name, "main.f", 6);
	assert_null(symbols_find(&s, 0x401030));
	symbols_fini(&s);
	assert_int_equal(budget.used, 0);
}

/* The table is exactly as large as its memory, so that a sanitizer sees a read past its end. */
static void test_damaged(void **state)
{
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (unsigned int round = 0; round < 20000; round++) {
		struct budget budget = {.max = 1 << 20};
		uint8_t *p = malloc(SIZE);
		struct gopclntab t;
		struct symbols s;
		const char *file;
		uint32_t line;

		assert_non_null(p);
		t = make(p);
		for (unsigned int i = 0; i < 3; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			p[NAMES + (x >> 8) % (SIZE - NAMES)] = (uint8_t)x;
		}
		symbols_init(&s, &budget);
		(void)gopclntab_add(&t, &s);
		for (uint64_t at = t.text; at < t.text + 64; at++) {
			if (gopclntab_line(&t, at, at & 1, &file, &line))
				assert_true(strlen(file) < SIZE && line);
		}
		symbols_fini(&s);
		free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
