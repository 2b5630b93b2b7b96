// SPDX-License-Identifier: Apache-2.0
/* Very deep stacks: kept as far as the budget goes, left from any depth, and counted beyond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/calls/callstack.h"
#include "decode/calls/functions.h"

#define AT(function, offset) (0x1000ull * (uint64_t)(function) + (offset))
#define N(deep) ((deep) + 1u) /* with the outermost */

enum { OUTER = 1, DIG, AFTER, SETJMP };

static struct callfunc functions[8];
static struct budget budget;

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	(void)arg;
	*ret_first = ip % 0x1000 == 0;
	return &functions[ip / 0x1000];
}

static bool on_lands(void *arg, uint64_t call, uint64_t pad)
{
	(void)arg;
	(void)call;
	(void)pad;
	return false;
}

/* Each call is given back what it began with. */
static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	uint32_t *open = arg;

	(void)time;
	(void)fr;
	(void)why;
	*call = (struct call){.frame = ++*open};
}

static void on_end(void *arg, uint64_t time, struct call *call)
{
	uint32_t *open = arg;

	(void)time;
	assert_int_equal(call->frame, (*open)--);
}

static struct callstack *new_stack(uint32_t *open)
{
	static const struct callstack_ops ops = {.function = on_function,
						 .lands = on_lands,
						 .begin = on_begin,
						 .end = on_end};
	struct callstack *cs;

	*open = 0;
	assert_int_equal(callstack_new(&ops, open, &budget, &cs), 0);
	return cs;
}

static struct callstack *begin(uint64_t max, uint32_t *open)
{
	struct callstack *cs;

	for (uint32_t i = 0; i < 8; i++)
		functions[i] = (struct callfunc){.start = AT(i, 0), .id = i, .known = true};
	functions[SETJMP].is_setjmp = true;
	budget = (struct budget){.max = max};
	cs = new_stack(open);
	callstack_resume(cs, 1, AT(OUTER, 0));
	return cs;
}

static void dig(struct callstack *cs, uint32_t n)
{
	callstack_call(cs, 2, AT(OUTER, 0x10), AT(OUTER, 0x14), AT(DIG, 0));
	while (--n)
		callstack_call(cs, 2, AT(DIG, 0x10), AT(DIG, 0x14), AT(DIG, 0));
}

static void climb(struct callstack *cs, uint32_t n)
{
	while (--n)
		callstack_return(cs, 3, AT(DIG, 0x80), AT(DIG, 0x14));
	callstack_return(cs, 3, AT(DIG, 0x80), AT(OUTER, 0x14));
}

/* What comes after is where it belongs. */
static void end(struct callstack *cs, uint32_t *open)
{
	assert_int_equal(callstack_depth(cs), 1);
	callstack_call(cs, 4, AT(OUTER, 0x20), AT(OUTER, 0x24), AT(AFTER, 0));
	assert_int_equal(*open, 2);
	callstack_return(cs, 5, AT(AFTER, 0x80), AT(OUTER, 0x24));
	assert_int_equal(callstack_depth(cs), 1);
	assert_int_equal(callstack_stats(cs)->unexplained, 0);
	callstack_finish(cs, 6);
	assert_int_equal(*open, 0);
	assert_int_equal(budget.used, 0);
	callstack_free(cs);
}

static void test_million(void **state)
{
	uint32_t open;
	struct callstack *cs = begin(1ull << 30, &open);

	(void)state;
	dig(cs, 1000000);
	assert_int_equal(callstack_depth(cs), N(1000000));
	assert_true(budget.used > 0);
	climb(cs, 1000000);
	assert_int_equal(callstack_stats(cs)->too_deep, 0);
	end(cs, &open);
}

/* Without memory for them they are counted, on the way down and on the way up. */
static void test_counted(void **state)
{
	uint32_t open;
	struct callstack *cs = begin(0, &open);

	(void)state;
	dig(cs, 10000);
	assert_int_equal(callstack_depth(cs), CALLSTACK_FREE_DEPTH);
	assert_int_equal(callstack_stats(cs)->too_deep, N(10000) - CALLSTACK_FREE_DEPTH);
	climb(cs, 10000);
	end(cs, &open);
}

static struct callstack *deep_in_setjmp(uint64_t max, uint32_t *open)
{
	struct callstack *cs = begin(max, open);

	callstack_call(cs, 2, AT(OUTER, 0x30), AT(OUTER, 0x34), AT(SETJMP, 0));
	callstack_return(cs, 2, AT(SETJMP, 0x80), AT(OUTER, 0x34));
	dig(cs, 10000);
	return cs;
}

static void leave_by_longjmp(struct callstack *cs, uint32_t *open)
{
	callstack_jump(cs, 3, AT(DIG, 0x90), AT(OUTER, 0x34), true);
	end(cs, open);
}

static void test_longjmp(void **state)
{
	uint32_t open, open_child;
	struct callstack *parent, *child;

	(void)state;
	leave_by_longjmp(deep_in_setjmp(1ull << 30, &open), &open);
	leave_by_longjmp(deep_in_setjmp(0, &open), &open);
	/* a child that has its parent's frames, none of which it has begun */
	parent = deep_in_setjmp(0, &open);
	child = new_stack(&open_child);
	assert_int_equal(callstack_fork(child, parent), 0);
	leave_by_longjmp(child, &open_child);
	leave_by_longjmp(parent, &open);
}

/* What was before a gap is as deep. */
static void test_gap(void **state)
{
	uint32_t open;
	struct callstack *cs = begin(1ull << 30, &open);

	(void)state;
	dig(cs, 10000);
	callstack_gap(cs, 3);
	assert_int_equal(open, 0);
	callstack_resync(cs, 3, AT(DIG, 0x20));
	assert_int_equal(callstack_depth(cs), N(10000));
	climb(cs, 10000);
	end(cs, &open);
	/* and without memory for it forgotten, and said so */
	cs = begin(0, &open);
	dig(cs, CALLSTACK_FREE_DEPTH - 1);
	callstack_gap(cs, 3);
	callstack_resync(cs, 3, AT(OUTER, 0x40));
	dig(cs, CALLSTACK_FREE_DEPTH - 1);
	callstack_gap(cs, 3);
	assert_true(callstack_stats(cs)->forgotten > 0);
	callstack_finish(cs, 4);
	assert_int_equal(open, 0);
	callstack_free(cs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_million),
		cmocka_unit_test(test_counted),
		cmocka_unit_test(test_longjmp),
		cmocka_unit_test(test_gap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
