// SPDX-License-Identifier: Apache-2.0
/* What was before a gap in the trace goes on, or does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

static void gaps(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'C');
	callstack_gap(s.cs, ++s.clock);
	/* somewhere else, which returns to B: it and what is outside of it are proven */
	callstack_resync(s.cs, ++s.clock, AT('D', 0x20));
	ret(&s, 'D', 'B', 0x10);
	ret(&s, 'B', 'A', 0x10);
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('A', 0x50));
	assert_int_equal(callstack_stats(s.cs)->adopted, 3);
	scene_end(&s, "?A(B(C()))?D()^~A(^~B())~A()");
}

/* Several calls deep in what was before a gap, and a gap in a gap. */
static void a_stack_proven_by_returns(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'C');
	call(&s, 'C', 0x10, 'D');
	call(&s, 'D', 0x10, 'E');
	callstack_gap(s.cs, ++s.clock);
	callstack_gap(s.cs, ++s.clock);
	callstack_resume(s.cs, ++s.clock, AT('F', 0x30));
	call(&s, 'F', 0x40, 'G');
	ret(&s, 'G', 'F', 0x40);
	/* F's caller was not known before */
	ret(&s, 'F', 'X', 0x10);
	ret(&s, 'X', 'C', 0x10);
	ret(&s, 'C', 'B', 0x10);
	ret(&s, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->adopted, 3);
	assert_int_equal(callstack_stats(s.cs)->inferred, 1);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(B(C(D(E()))))?F(G())^?X()^~A(^~B(^~C()))");
}

/*
 * What was before a gap is remembered over more of them, each piece by itself, until returns prove
 * it.
 */
static void several_gaps(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'C');
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('D', 0x20));
	call(&s, 'D', 0x10, 'E');
	callstack_gap(s.cs, ++s.clock);
	/* code that nobody knows is no piece */
	functions['U'].known = false;
	callstack_resync(s.cs, ++s.clock, AT('U', 0x30));
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('F', 0x30));
	ret(&s, 'F', 'D', 0x10);
	assert_int_equal(callstack_stats(s.cs)->adopted, 1);
	ret(&s, 'D', 'B', 0x10);
	assert_int_equal(callstack_stats(s.cs)->adopted, 3);
	scene_end(&s, "?A(B(C()))?D(E())?U()?F()^~D()^~A(^~B())");

	/*
	 * found where one was called to return to: it has; and if that is not so, it is a
	 * hypothesis again, with what is around
	 */
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'C');
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('D', 0x20));
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('B', 0x10 + 4));
	call(&s, 'B', 0x30, 'E');
	ret(&s, 'E', 'B', 0x30);
	ret(&s, 'B', 'X', 0x10);
	ret(&s, 'X', 'A', 0x10);
	scene_end(&s, "?A(B(C()))?D()~A(~B(E()))?X()^~A()");

	/* many gaps: memory is bounded, and the outermost callers are still there */
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	s.quiet = true;
	for (unsigned int i = 0; i < 3000; i++) {
		callstack_gap(s.cs, ++s.clock);
		callstack_resync(s.cs, ++s.clock, AT('D', 0x20));
		call(&s, 'D', 0x10, 'E');
	}
	assert_true(callstack_size(s.cs) < 2048 * 256);
	assert_true(callstack_stats(s.cs)->forgotten > 3000);
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('F', 0x20));
	s.quiet = false;
	ret(&s, 'F', 'A', 0x10);
	scene_end(&s, "?A(B()^~A()"); /* (all but F's end was not told) */
}

/* Found in the function that was on top, but it is another call of it. */
static void a_stack_disproven(void **state)
{
	struct scene s;

	(void)state;
	for (int i = 0; i < 3; i++) {
		scene_begin(&s);
		call(&s, 'A', 0x10, 'B');
		call(&s, 'B', 0x10, 'C');
		call(&s, 'C', 0x10, 'F');
		callstack_gap(s.cs, ++s.clock);
		callstack_resync(s.cs, ++s.clock, AT('F', 0x30));
		assert_int_equal(callstack_stats(s.cs)->adopted, 4);
		if (i == 0) {
			/* called by the same place as B was: nothing was left to go on */
			ret(&s, 'F', 'A', 0x10);
			assert_int_equal(callstack_stats(s.cs)->adopted, 2);
			assert_int_equal(callstack_stats(s.cs)->inferred, 0);
		} else {
			/*
			 * called by what was not there before, which is not around the frames that
			 * were wrong
			 */
			ret(&s, 'F', 'X', 0x10);
			call(&s, 'X', 0x20, 'F');
			ret(&s, 'F', 'X', 0x20);
			/* by what was, or was not, either */
			ret(&s, 'X', i == 1 ? 'A' : 'Y', 0x10);
			assert_int_equal(callstack_stats(s.cs)->adopted, i == 1 ? 1 : 0);
			assert_int_equal(callstack_stats(s.cs)->inferred, i);
		}
		assert_int_equal(callstack_stats(s.cs)->switches, 0);
		assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
		scene_end(&s, i == 0   ? "?A(B(C(F())))~A(~B(~C(~F())))"
			      : i == 1 ? "?A(B(C(F())))~A(~B(~C(~F())))?X(F())^~A()"
				       : "?A(B(C(F())))~A(~B(~C(~F())))?X(F())^?Y()");
	}
}

/* The hypothesis was wrong: no return proves it, and it does not come back. */
static void a_stack_that_is_gone(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('K', 0x20));
	ret(&s, 'K', 'L', 0x10);
	ret(&s, 'L', 'A', 0x50); /* in A, but behind another call */
	assert_int_equal(callstack_stats(s.cs)->adopted, 0);
	scene_end(&s, "?A(B())?K()^?L()^?A()");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_gaps),
		cmocka_unit_test(gaps),
		cmocka_unit_test(a_stack_proven_by_returns),
		cmocka_unit_test(a_stack_disproven),
		cmocka_unit_test(a_stack_that_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
