// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that were inlined into a function of a Go program: a table that was made by hand, and
 * the same with damages.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/dwarf/go_scopes.h"

#define NAMES 72u
#define UNITS 96u
#define FILES 104u
#define VALUES 112u
#define FUNCTIONS 384u
#define SIZE 480u
#define TEXT 0x401000u
#define MAX_CALLS 80u
#define FUNC_DATA_SIZE (8 + MAX_CALLS * 16)

/* On the heap, as large as they are, so that a sanitizer sees a read past their ends. */
struct made {
	uint8_t *p, *calls;
	struct gopclntab t;
};

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

/* A call by the name of main.f or main.g, which is called at an instruction of another. */
static void put_call(struct made *m, uint32_t i, uint32_t name, uint32_t called_at, uint32_t line)
{
	put32(m->calls + 8 + i * 16 + 4, name);
	put32(m->calls + 8 + i * 16 + 8, called_at);
	put32(m->calls + 8 + i * 16 + 12, line);
}

/*
 * main.h, of 64 bytes: its own until 8, call 0 (main.f) until 16, call 1 in that (main.g) until 32,
 * call 0 again until 40, and then itself, where call 0 is called at 4 and call 1 at 12.
 */
static struct made make(void)
{
	struct made m = {.p = calloc(1, SIZE), .calls = calloc(1, FUNC_DATA_SIZE)};
	uint8_t *f = m.p + FUNCTIONS + 24;

	assert_non_null(m.p);
	assert_non_null(m.calls);
	memcpy(m.p + NAMES, "main.f\0main.g\0main.h", 21);
	memcpy(m.p + FILES, "/x/y.go", 8);
	memcpy(m.p + VALUES + 1, "\x02\x40\x00", 3);	/* file 0 */
	memcpy(m.p + VALUES + 4, "\x16\x40\x00", 3);	/* line 10 */
	memcpy(m.p + VALUES + 8, "\x00\x08\x02\x08\x02\x10\x01\x08\x01\x10\x00", 11);
	put32(m.p + FUNCTIONS + 4, 24);
	put32(m.p + FUNCTIONS + 8, 64);
	put32(f + 4, 14);
	put32(f + 20, 1);
	put32(f + 24, 4);
	put32(f + 28, 3); /* pcdata */
	put32(f + 36, 9);
	f[43] = 4; /* funcdata */
	put32(f + 44 + 8, 8);
	put32(f + 44 + 12 + 12, 8);
	put_call(&m, 0, 0, 4, 20);
	put_call(&m, 1, 7, 12, 30);
	m.t = (struct gopclntab){.data = m.p,
				 .size = SIZE,
				 .names = NAMES,
				 .units = UNITS,
				 .files = FILES,
				 .values = VALUES,
				 .functions = FUNCTIONS,
				 .text = TEXT,
				 .n_functions = 1,
				 .quantum = 1,
				 .has_lines = true,
				 .func_data = m.calls,
				 .func_data_size = FUNC_DATA_SIZE};
	return m;
}

static void drop(struct made *m)
{
	free(m->p);
	free(m->calls);
}

static struct go_scopes *scopes_of(const struct made *m, struct budget *budget)
{
	struct gopclntab_inlines in;
	struct go_scopes *s;

	assert_true(gopclntab_inlines(&m->t, TEXT, &in));
	assert_int_equal(go_scopes_new(&in, budget, &s), 0);
	return s;
}

static void test_scopes(void **state)
{
	static const struct {
		uint64_t at, end;
		const char *name; /* the innermost */
		uint32_t depth, line;
	} cases[] = {{0, 8, NULL, 0, 0},        {7, 8, NULL, 0, 0},
		     {8, 16, "main.f", 1, 20},  {16, 32, "main.g", 2, 30},
		     {31, 32, "main.g", 2, 30}, {32, 40, "main.f", 1, 20},
		     {40, 56, NULL, 0, 0},      {60, 64, NULL, 0, 0}};
	struct budget budget = {.max = 1 << 20};
	struct made m = make();
	struct go_scopes *s = scopes_of(&m, &budget);
	const struct dwarf_scope *f, *g;
	uint64_t end;

	(void)state;
	assert_int_equal(go_scopes_broken(s), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct dwarf_scope *at = go_scopes_at(s, TEXT + cases[i].at, &end);

		assert_int_equal(end, TEXT + cases[i].end);
		if (!cases[i].name) {
			assert_null(at);
			continue;
		}
		assert_string_equal(go_scope_of(at)->name, cases[i].name);
		assert_int_equal(go_scope_of(at)->line, cases[i].line);
		assert_int_equal(at->depth, cases[i].depth);
	}
	f = go_scopes_at(s, TEXT + 8, &end);
	g = go_scopes_at(s, TEXT + 16, &end);
	assert_ptr_equal(f, go_scopes_at(s, TEXT + 39, &end));
	assert_ptr_equal(g->outer, f);
	assert_non_null(f->outer);
	assert_null(f->outer->outer);
	assert_int_equal(f->entry, TEXT + 8);
	assert_int_equal(g->entry, TEXT + 16);
	assert_int_equal(go_scope_of(f)->called_at, TEXT + 4);
	assert_int_equal(go_scope_of(g)->called_at, TEXT + 12);
	go_scopes_free(s);
	assert_int_equal(budget.used, 0);
	drop(&m);
}

/*
 * What is said to be in itself, or outside of its function, is not shown, and nothing that is in
 * it.
 */
static void test_broken(void **state)
{
	/* in itself; in what is in it; behind the end */
	static const uint32_t wrong[] = {8, 16, 64, UINT32_MAX};
	struct budget budget = {.max = 1 << 20};
	uint64_t end;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct made m = make();
		struct go_scopes *s;

		put_call(&m, 0, 0, wrong[i], 20);
		s = scopes_of(&m, &budget);
		assert_int_equal(go_scopes_broken(s), 2);
		for (uint64_t at = 0; at < 64; at++)
			assert_null(go_scopes_at(s, TEXT + at, &end));
		go_scopes_free(s);
		drop(&m);
	}
}

/* Each in the one before: so deep as scopes may be, and no deeper. */
static void test_deep(void **state)
{
	struct budget budget = {.max = 1 << 20};
	struct made m = make();
	uint8_t *v = m.p + VALUES + 8;
	const struct dwarf_scope *at;
	struct go_scopes *s;
	uint64_t end;

	(void)state;
	put32(m.p + FUNCTIONS + 8, 256);
	for (uint32_t i = 0; i < MAX_CALLS; i++) {
		*v++ = 2;
		*v++ = 1;
		put_call(&m, i, 0, i ? i - 1 : 200, 1);
	}
	*v = 0;
	s = scopes_of(&m, &budget);
	assert_int_equal(go_scopes_broken(s), MAX_CALLS - DWARF_MAX_INLINED);
	at = go_scopes_at(s, TEXT + DWARF_MAX_INLINED - 1, &end);
	assert_int_equal(at->depth, DWARF_MAX_INLINED);
	assert_null(go_scopes_at(s, TEXT + DWARF_MAX_INLINED, &end));
	go_scopes_free(s);
	drop(&m);
}

/* More calls than are kept, and no memory. */
static void test_limits(void **state)
{
	struct budget budget = {.max = 1 << 20}, none = {.max = 16};
	struct made m = make();
	struct gopclntab_inlines in;
	struct go_scopes *s;
	uint64_t end;

	(void)state;
	memcpy(m.p + VALUES + 8, "\x80\x80\x80\x80\x01\x40\x00", 7); /* number 2^27 - 1 */
	s = scopes_of(&m, &budget);
	assert_int_equal(go_scopes_broken(s), 1);
	assert_null(go_scopes_at(s, TEXT + 1, &end));
	go_scopes_free(s);
	assert_true(gopclntab_inlines(&m.t, TEXT, &in));
	assert_int_equal(go_scopes_new(&in, &none, &s), -ENOMEM);
	assert_int_equal(none.used, 0);
	/* a number for which there is room, and which is behind the data */
	memcpy(m.p + VALUES + 8, "\xc8\x01\x40\x00", 4);
	s = scopes_of(&m, &budget);
	assert_true(go_scopes_broken(s) > 100 - MAX_CALLS);
	assert_null(go_scopes_at(s, TEXT + 1, &end));
	go_scopes_free(s);
	assert_int_equal(budget.used, 0);
	drop(&m);
}

static void walk(const struct made *m)
{
	struct budget budget = {.max = 1 << 22};
	struct gopclntab_inlines in;

	for (uint64_t vaddr = TEXT; vaddr < TEXT + 80; vaddr += 3) {
		struct go_scopes *s;
		uint64_t end;

		if (!gopclntab_inlines(&m->t, vaddr, &in) || go_scopes_new(&in, &budget, &s) < 0)
			continue;
		for (const struct dwarf_scope *at = go_scopes_at(s, vaddr, &end); at && at->outer;
		     at = at->outer) {
			assert_true(strlen(go_scope_of(at)->name) < SIZE);
			assert_int_equal(at->depth, at->outer->depth + 1);
			assert_true(at->entry >= in.start);
		}
		assert_true(end > vaddr);
		go_scopes_free(s);
		assert_int_equal(budget.used, 0);
	}
}

static void test_damaged(void **state)
{
	uint64_t x = 88172645463325252ull;

	(void)state;
	for (unsigned int round = 0; round < 5000; round++) {
		struct made m = make();

		for (unsigned int i = 0; i < 3; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			if (x & 1)
				m.p[VALUES + (x >> 8) % (SIZE - VALUES)] = (uint8_t)(x >> 32);
			else
				m.calls[(x >> 8) % 40] = (uint8_t)(x >> 32);
		}
		walk(&m);
		drop(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
