// SPDX-License-Identifier: Apache-2.0
/* Stacks that something else than a branch has named: who is around the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

/* Found in a function, and called on from there: `path` is two letters or more. */
static void scene_found(struct scene *s, const char *path)
{
	scene_new(s);
	callstack_resync(s->cs, ++s->clock, AT(path[0], 0x30));
	for (; path[1]; path++)
		call(s, path[0], 0x40, path[1]);
}

/*
 * It stops, and its stack is that of calls at 0x40 of these functions, the innermost first; a
 * letter that is not one: not known.
 */
static enum callstack_seen seen(struct scene *s, const char *stack, bool cut)
{
	struct stack_place places[16];
	uint32_t n = 0;

	callstack_stop(s->cs, ++s->clock, AT(stack[0], 0x60), 0);
	places[n++] =
		(struct stack_place){.ip = stack[0] == '_' ? 0 : AT(stack[0], 0x60), .exact = true};
	for (; stack[n]; n++)
		places[n] = (struct stack_place){.ip = stack[n] == '_' ? 0 : AT(stack[n], 0x44)};
	return callstack_seen(s->cs, s->clock, places, n, cut);
}

static void go_on(struct scene *s, char at)
{
	callstack_resume(s->cs, ++s->clock, AT(at, 0x60));
}

/*
 * A stack names what is around the calls, which begins before them and ends after them, or with a
 * gap, or with all.
 */
static void callers_that_a_stack_names(void **state)
{
	struct scene s;

	(void)state;
	scene_found(&s, "ABC");
	assert_int_equal(seen(&s, "CBAFM", false), CALLSTACK_AGREES);
	assert_int_equal(seen(&s, "CBAFM", false), CALLSTACK_AGREES); /* again */
	go_on(&s, 'C');
	ret(&s, 'C', 'B', 0x40);
	call(&s, 'B', 0x10, 'D');
	ret(&s, 'D', 'B', 0x10);
	ret(&s, 'B', 'A', 0x40);
	assert_int_equal(callstack_stats(s.cs)->seen, 0);
	ret(&s, 'A', 'F', 0x40);
	assert_int_equal(callstack_stats(s.cs)->seen, 2);
	call(&s, 'F', 0x10, 'K');
	scene_end(&s, "?A(B(C()D()))^=M(^=F(K()))");

	/* cut: the outermost of it says so, and another stack tells more */
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAF", true), CALLSTACK_AGREES);
	scene_end(&s, "?A(B())^-F()");
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAF", true), CALLSTACK_AGREES);
	assert_int_equal(seen(&s, "BAFM", false), CALLSTACK_AGREES);
	assert_int_equal(seen(&s, "B", true), CALLSTACK_AGREES);
	scene_end(&s, "?A(B())^=M(^=F())");

	/* a gap ends them, and what comes after may prove them */
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFM", false), CALLSTACK_AGREES);
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('K', 0x30));
	ret(&s, 'K', 'F', 0x40);
	scene_end(&s, "?A(B())^=M(^=F())?K()^~M(^~F())");

	/* a recursion: as many of them as the calls leave */
	scene_found(&s, "RRR");
	assert_int_equal(seen(&s, "RRRRM", false), CALLSTACK_AGREES);
	scene_end(&s, "?R(R(R()))^=M(^=R())");

	/* a fork is within them */
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFM", false), CALLSTACK_AGREES);
	{
		struct scene child;

		scene_new(&child);
		assert_int_equal(callstack_fork(child.cs, s.cs), 0);
		callstack_resume(child.cs, ++child.clock, AT('B', 0x60));
		scene_end(&child, "&A(&B())^&M(^&F())");
	}
	scene_end(&s, "?A(B())^=M(^=F())");
}

/* That there are more around the outermost is said of it for as long as nobody knows them. */
static void a_stack_that_is_cut(void **state)
{
	struct scene s, child;

	(void)state;
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFM", true), CALLSTACK_AGREES);
	scene_new(&child);
	assert_int_equal(callstack_fork(child.cs, s.cs), 0);
	callstack_resume(child.cs, ++child.clock, AT('B', 0x60));
	scene_end(&child, "&A(&B())^-M(^&F())");
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('K', 0x30));
	ret(&s, 'K', 'F', 0x40);
	scene_end(&s, "?A(B())^-M(^=F())?K()^-M(^~F())");
}

/* Out of what the trace knows, over some of what the stack has named. */
static void unwinding_to_what_a_stack_names(void **state)
{
	struct scene s;

	(void)state;
	/*
	 * a return over them, a landing pad in one of them: of two calls of it the one whose call
	 * has that
	 */
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFGM", false), CALLSTACK_AGREES);
	go_on(&s, 'B');
	ret(&s, 'B', 'M', 0x40);
	scene_end(&s, "?A(B())^=M(^=G(^=F()))");
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFGM", false), CALLSTACK_AGREES);
	go_on(&s, 'B');
	jump(&s, 'B', 'G', 0x70);
	call(&s, 'G', 0x10, 'H');
	scene_end(&s, "?A(B())^=M(^=G(^=F()H()))");
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFM", false), CALLSTACK_AGREES);
	go_on(&s, 'B');
	callstack_return(s.cs, ++s.clock, AT('B', 0x80), AT('F', 0x62));
	assert_int_equal(callstack_stats(s.cs)->unwound, 1);
	scene_end(&s, "?A(B())^=M(^=F())");
}

/* The stack is of another moment, or says something else than the calls: those are right. */
static void stacks_that_disagree(void **state)
{
	struct scene s;

	(void)state;
	scene_found(&s, "ABC");
	assert_int_equal(seen(&s, "CKAFM", false), CALLSTACK_DISAGREES);
	assert_int_equal(seen(&s, "CBA", false), CALLSTACK_AGREES); /* no more than the calls */
	assert_int_equal(seen(&s, "C", false), CALLSTACK_DISAGREES); /* less */
	assert_int_equal(callstack_stats(s.cs)->stacks_disagree, 2);
	scene_end(&s, "?A(B(C()))");

	scene_found(&s, "AB");
	/* who is in between is not known */
	assert_int_equal(seen(&s, "BA_M", false), CALLSTACK_AGREES);
	go_on(&s, 'B');
	assert_int_equal(callstack_seen(s.cs, 0, &(struct stack_place){AT('B', 0x60), true}, 1,
					true),
			 CALLSTACK_ELSEWHERE);
	scene_end(&s, "?A(B())");

	/*
	 * while it runs its place says nothing, also where a call of it returns to: of a recursion
	 * that may be any
	 */
	scene_found(&s, "RRR");
	{
		const struct stack_place places[] = {{AT('R', 0x44), true},
						     {AT('R', 0x44), false},
						     {AT('M', 0x44), false}};

		assert_int_equal(callstack_seen(s.cs, s.clock, places, 3, false),
				 CALLSTACK_ELSEWHERE);
	}
	assert_int_equal(seen(&s, "_", false), CALLSTACK_ELSEWHERE);
	scene_end(&s, "?R(R(R()))");
	/* but in the kernel, which is traced, it is where that was called */
	scene_found(&s, "AB");
	callstack_call(s.cs, ++s.clock, AT('B', 0x40), AT('B', 0x42), AT('K', 0) | KERNEL);
	callstack_call(s.cs, ++s.clock, AT('K', 0x40) | KERNEL, AT('K', 0x44) | KERNEL,
		       AT('L', 0) | KERNEL);
	{
		const struct stack_place places[] = {{AT('B', 0x42), true},
						     {AT('A', 0x44), false},
						     {AT('M', 0x44), false}};

		assert_int_equal(callstack_seen(s.cs, s.clock, places, 3, false), CALLSTACK_AGREES);
	}
	scene_end(&s, "?A(B(K(L())))^=M()");

	/* the thread begins with what is known: there is no more */
	scene_new(&s);
	callstack_begin(s.cs);
	callstack_resume(s.cs, ++s.clock, AT('A', 0));
	call(&s, 'A', 0x40, 'B');
	assert_int_equal(seen(&s, "BAM", false), CALLSTACK_DISAGREES);
	assert_int_equal(seen(&s, "BA", false), CALLSTACK_AGREES);
	scene_end(&s, "A(B())");

	/*
	 * it agrees, but a return goes elsewhere than it says: it was no stack that the thread goes
	 * back through
	 */
	scene_found(&s, "AB");
	assert_int_equal(seen(&s, "BAFM", false), CALLSTACK_AGREES);
	go_on(&s, 'B');
	ret(&s, 'B', 'A', 0x40);
	ret(&s, 'A', 'K', 0x40);
	assert_int_equal(callstack_stats(s.cs)->seen_refuted, 1);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(B())^?K()");

	/* what was only believed since a gap gives way */
	scene_begin(&s);
	call(&s, 'A', 0x40, 'B');
	callstack_gap(s.cs, ++s.clock);
	callstack_resync(s.cs, ++s.clock, AT('B', 0x30));
	assert_int_equal(seen(&s, "BFM", false), CALLSTACK_AGREES);
	assert_int_equal(callstack_stats(s.cs)->stacks_disagree, 0);
	scene_end(&s, "?A(B())~A(~B())?B()^=M(^=F())");

	/* on another stack than the thread's own nothing is said of that */
	scene_found(&s, "A");
	call(&s, 'A', 0x40, 'w');
	ret(&s, 'w', 'C', 0x40);
	assert_int_equal(seen(&s, "CM", false), CALLSTACK_AGREES);
	scene_end(&s, "?A(w())?C()^=M()");
}

/* In a handler: the stack has the kernel's way back, and where it was interrupted. */
static void a_stack_with_a_handler(void **state)
{
	const struct stack_place places[] = {
		{AT('D', 0x60), true}, {AT('H', 0x44), false}, {AT('S', 0), true},
		{AT('B', 0x50), true}, {AT('A', 0x44), false}, {AT('M', 0x44), false},
	};
	struct scene s;

	(void)state;
	scene_found(&s, "AB");
	callstack_stop(s.cs, ++s.clock, AT('B', 0x50), 0);
	callstack_resume(s.cs, ++s.clock, AT('H', 0));
	call(&s, 'H', 0x40, 'D');
	callstack_stop(s.cs, ++s.clock, AT('D', 0x60), 0);
	assert_int_equal(callstack_seen(s.cs, s.clock, places, 6, false), CALLSTACK_AGREES);
	scene_end(&s, "?A(B(@H(D())))^=M()");

	/* found within it: the whole of it is outside */
	scene_found(&s, "HD");
	callstack_stop(s.cs, ++s.clock, AT('D', 0x60), 0);
	assert_int_equal(callstack_seen(s.cs, s.clock, places, 6, false), CALLSTACK_AGREES);
	callstack_resume(s.cs, ++s.clock, AT('D', 0x60));
	ret(&s, 'D', 'H', 0x40);
	callstack_return(s.cs, ++s.clock, AT('H', 0x80), AT('S', 0));
	callstack_stop(s.cs, ++s.clock, AT('S', 0x10), AT('S', 0x12));
	callstack_resume(s.cs, ++s.clock, AT('B', 0x50));
	scene_end(&s, "?H(D())^=M(^=A(^=B(^=S())))");
}

/*
 * ---- goroutines: S schedules, m leaves them and calls K, g goes on, n is newstack and R is
 * recovery, both called by m's like
 */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(callers_that_a_stack_names),
		cmocka_unit_test(a_stack_that_is_cut),
		cmocka_unit_test(unwinding_to_what_a_stack_names),
		cmocka_unit_test(stacks_that_disagree),
		cmocka_unit_test(a_stack_with_a_handler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
