// SPDX-License-Identifier: Apache-2.0
/* When inlined calls begin and end, by maps of code that are drawn as text: a letter an address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/dwarf/inlines.h"

/*
 * Of a function: a and b are inlined in it, c and d in a, e in c. Each begins at its capital, or
 * nowhere.
 */
static struct dwarf_scope function, a, b, c, d, e;

struct code {
	const char *map; /* '.': nothing inlined */
	char said[256];
};

static const struct dwarf_scope *scope_of(char letter)
{
	switch (letter | 0x20) {
	case 'a':
		return &a;
	case 'b':
		return &b;
	case 'c':
		return &c;
	case 'd':
		return &d;
	case 'e':
		return &e;
	default:
		return NULL;
	}
}

static char letter_of(const struct dwarf_scope *s)
{
	return s == &a ? 'a' : s == &b ? 'b' : s == &c ? 'c' : s == &d ? 'd' : 'e';
}

static const struct dwarf_scope *at(void *arg, uint64_t ip, uint64_t *ret_end)
{
	const struct code *code = arg;
	uint64_t end = ip;

	while (code->map[end] && scope_of(code->map[end]) == scope_of(code->map[ip]))
		end++;
	*ret_end = code->map[end] ? end : UINT64_MAX;
	return scope_of(code->map[ip]);
}

static uint64_t entry(void *arg, const struct dwarf_scope *s, uint64_t ip)
{
	const struct code *code = arg;
	const char *p = strchr(code->map, letter_of(s) & ~0x20);

	/* the capital of a call that is inlined in it at once stands for both */
	if (!p && s == &a)
		p = strchr(code->map, 'C');
	return p ? (uint64_t)(p - code->map) : UINT64_MAX;
}

static void begin(void *arg, const struct dwarf_scope *s, uint64_t ip)
{
	struct code *code = arg;
	const size_t n = strlen(code->said);

	(void)snprintf(code->said + n, sizeof(code->said) - n, "%s%d+%c", n ? " " : "", (int)ip,
		       letter_of(s));
}

static void end(void *arg, uint32_t count, uint64_t ip)
{
	struct code *code = arg;
	const size_t n = strlen(code->said);

	(void)snprintf(code->said + n, sizeof(code->said) - n, "%s%d-%d", n ? " " : "", (int)ip,
		       (int)count);
}

static const struct inlines_ops ops = {.at = at, .entry = entry, .begin = begin, .end = end};

static int setup(void **state)
{
	(void)state;
	a = (struct dwarf_scope){.outer = &function, .depth = 1};
	b = a;
	c = (struct dwarf_scope){.outer = &a, .depth = 2};
	d = c;
	e = (struct dwarf_scope){.outer = &c, .depth = 3};
	return 0;
}

/* A line over all of `map`, from `now`: what is told, and what is open then. */
static void line(const char *map, char now, const char *want, char then)
{
	struct code code = {.map = map};

	assert_ptr_equal(inlines_line(&ops, &code, scope_of(now), 0, strlen(map) - 1,
				      strlen(map) - 1),
			 scope_of(then));
	assert_string_equal(code.said, want);
}

static void go(const char *map, uint64_t ip, bool straight, char now, const char *want, char then)
{
	struct code code = {.map = map};

	assert_ptr_equal(inlines_go(&ops, &code, scope_of(now), ip, strlen(map) - 1, straight),
			 scope_of(then));
	assert_string_equal(code.said, want);
}

static void test_nesting(void **state)
{
	line("....", '.', "", '.');
	line("..Aaa..", '.', "2+a 5-1", '.');
	line("Cca", '.', "0+a 0+c 2-1", 'a');
	line(".Aa.Bb", '.', "1+a 3-1 4+b", 'b');
	line("AaCcEecca.", '.', "0+a 2+c 4+e 6-1 8-1 9-1", '.');
	line("ECcDd.", '.', "0+a 0+c 0+e 1-1 3-1 3+d 5-2", '.');
	line("aa", 'e', "0-2", 'a');
	line("..", 'e', "0-3", '.');
	/* all of a line is a call that began elsewhere, or to its branch */
	line("ee", 'e', "", 'e');
	line("..bb", '.', "2+b", 'b');
}

static void test_mixed(void **state)
{
	/* code around it, and of what is around that */
	line("Aa.aa.a.", '.', "0+a 7-1", '.');
	line("c.c.", 'c', "3-2", '.');
	line("ca.c.", 'c', "4-2", '.');
	/* its first instruction again: the next of a loop */
	line("aa.Aa.", 'a', "2-1 3+a 5-1", '.');
	/* the begin of the next one, moved up into it */
	line("aaBa.bb.", 'a', "4-1 5+b 7-1", '.');
	/* two that take turns */
	line("AaBbab", '.', "0+a 5-1 5+b", 'b');
	/* one that is all there stands between the pieces */
	line("aaBb.aa.", 'a', "2-1 2+b 4-1", '.');
}

static void test_moved(void **state)
{
	/* a piece without its begin is nothing; it was moved there */
	line("..b...", '.', "", '.');
	line("..b..Bb.", '.', "5+b 7-1", '.');
	line("Aa.b.aa.", '.', "0+a 7-1", '.');
	/* also of a call in a call: that around it has begun */
	line("Aaeaa.", '.', "0+a 5-1", '.');
	line(".ccAac.", '.', "1+a 6-1", '.');
	/* but not where the line ends in it */
	line("..b", '.', "2+b", 'b');
}

static void test_branches(void **state)
{
	go("..Aa..", 2, false, '.', "2+a", 'a');
	go("..Aa..", 4, false, 'a', "4-1", '.');
	go("..Aa..", 3, false, 'a', "", 'a');
	/* behind a call the line goes on into it, behind a jump nobody knows */
	go("aa..aa.", 2, true, 'a', "", 'a');
	go("aa..aa.", 2, false, 'a', "2-1", '.');
	go("aa..Aa.", 2, true, 'a', "2-1", '.');
	/* a jump to a piece */
	go("..b...", 2, false, '.', "", '.');
	go("..bbbb", 2, false, '.', "2+b", 'b');
}

/*
 * A line that comes in two parts, for a PSB or an interrupt lies in it, is that line all the same.
 */
static void test_parts(void **state)
{
	static const char *const maps[] = {"Aa..a.",     "AaCc.ca.b", ".Aa..a.Bb",
					   "AaCcEecca.", "ECcDd.",    "..Aa.bbbaa."};

	(void)state;
	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		const uint64_t last = strlen(maps[i]) - 1;
		struct code whole = {.map = maps[i]};
		const struct dwarf_scope *then = inlines_line(&ops, &whole, NULL, 0, last, last);

		for (uint64_t cut = 1; cut <= last; cut++) {
			struct code code = {.map = maps[i]};
			const struct dwarf_scope *now =
				inlines_line(&ops, &code, NULL, 0, cut - 1, last);

			now = inlines_go(&ops, &code, now, cut, last, true);
			assert_ptr_equal(inlines_line(&ops, &code, now, cut, last, last), then);
			assert_string_equal(code.said, whole.said);
		}
	}
}

/*
 * Code that changes at each address is looked at so far, and no farther; what is told is balanced
 * all the same.
 */
static void test_many(void **state)
{
	char map[4097];
	struct code code = {.map = map};
	int depth = 0;

	for (size_t i = 0; i < sizeof(map) - 1; i++)
		map[i] = ".acebda.ecAB"[i * 7 % 12];
	map[sizeof(map) - 1] = '\0';
	for (uint64_t from = 0; from < 4000; from += 13) {
		const struct dwarf_scope *now = NULL;

		code.said[0] = '\0';
		depth = 0;
		now = inlines_line(&ops, &code, now, from, from + 11, from + 11);
		for (const char *p = code.said; *p; p++)
			depth += *p == '+' ? 1 : *p == '-' ? -(p[1] - '0') : 0;
		assert_int_equal(depth, now ? (int)now->depth : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nesting), cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_moved),   cmocka_unit_test(test_branches),
		cmocka_unit_test(test_parts),   cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
