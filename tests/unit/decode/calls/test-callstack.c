// SPDX-License-Identifier: Apache-2.0
/* The rules from branches to calls, one scenario each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

static void calls_and_recursion(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'B');
	call(&s, 'B', 0x10, 'B');
	ret(&s, 'B', 'B', 0x10);
	ret(&s, 'B', 'B', 0x10);
	ret(&s, 'B', 'A', 0x10);
	call(&s, 'A', 0x20, 'C');
	ret(&s, 'C', 'A', 0x20);
	/* call next: no call */
	callstack_call(s.cs, ++s.clock, AT('A', 0x30), AT('A', 0x34), AT('A', 0x34));
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(s.cs)->calls, 4);
	scene_end(&s, "?A(B(B(B()))C())");
}

static void tail_calls_and_stubs(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	jump(&s, 'B', 'C', 0);
	ret(&s, 'C', 'A', 0x10);
	/* by a stub: the callee alone is drawn */
	call(&s, 'A', 0x20, 'p');
	jump(&s, 'p', 'D', 0);
	ret(&s, 'D', 'A', 0x20);
	/* push and ret */
	call(&s, 'A', 0x30, 'E');
	callstack_return(s.cs, ++s.clock, AT('E', 8), AT('F', 0));
	ret(&s, 'F', 'A', 0x30);
	/* into the middle: by the code itself, to code without a name, and who knows why */
	call(&s, 'A', 0x40, 'B');
	callstack_jump(s.cs, ++s.clock, AT('B', 8), AT('C', 0x20), false);
	jump(&s, 'C', 'u', 0x20);
	ret(&s, 'u', 'A', 0x40);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	call(&s, 'A', 0x40, 'B');
	jump(&s, 'B', 'C', 0x20);
	ret(&s, 'C', 'A', 0x40);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 1);
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	scene_end(&s, "?A(B()>C()D()E()>F()B()>C()>u()B()>C())");
}

/*
 * An interpreter with a function for each opcode goes on with the next one's, which may be the same
 * again.
 */
static void tail_calls_of_itself(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x20, 'D');
	ret(&s, 'D', 'B', 0x20);
	jump(&s, 'B', 'B', 0);
	call(&s, 'B', 0x20, 'D');
	ret(&s, 'D', 'B', 0x20);
	jump(&s, 'B', 'B', 0);
	/* a computed goto, and what may be a loop */
	jump(&s, 'B', 'B', 0x40);
	callstack_jump(s.cs, ++s.clock, AT('B', 8), AT('B', 0), false);
	ret(&s, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->tails, 2);
	scene_end(&s, "?A(B(D())>B(D())>B())");
}

/* What unwinds goes on in a frame that is older than all that is known. */
static void jump_into_the_middle(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	jump(&s, 'A', 'C', 0x40);
	call(&s, 'C', 0x50, 'D');
	ret(&s, 'D', 'C', 0x50);
	/* shared code, of which it is known who has begun to run it */
	call(&s, 'C', 0x60, 'B');
	jump(&s, 'B', 'D', 0x40);
	ret(&s, 'D', 'C', 0x60);
	assert_int_equal(callstack_stats(s.cs)->tails, 1);
	scene_end(&s, "?A()?C(D()B()>D())");
}

/* A longjmp of its own code, to an outer call of the same function: any of them may go on. */
static void jump_to_an_outer_call(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	callstack_loaded(s.cs);
	jump(&s, 'B', 'B', 0x40); /* one call of it: it is that */
	call(&s, 'B', 0x10, 'B');
	call(&s, 'B', 0x10, 'B');
	jump(&s, 'B', 'B', 0x40);
	callstack_loaded(s.cs);
	jump(&s, 'B', 'B', 0x40);
	jump(&s, 'B', 'B', 0x40);
	call(&s, 'B', 0x20, 'D');
	ret(&s, 'D', 'B', 0x20);
	ret(&s, 'B', 'A', 0x10);
	call(&s, 'A', 0x20, 'C');
	ret(&s, 'C', 'A', 0x20);
	assert_int_equal(callstack_stats(s.cs)->doubted, 1);
	scene_end(&s, "?A(B(B(B()))|B(|B(|B(D())))C())");
}

/* The thunk calls itself to put the address of the target in the place of its own. */
static void retpoline(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'R');
	callstack_call(s.cs, ++s.clock, AT('R', 0), AT('R', 5), AT('R', 0xc));
	callstack_return(s.cs, ++s.clock, AT('R', 0x10), AT('B', 0));
	call(&s, 'B', 0x10, 'C');
	ret(&s, 'C', 'B', 0x10);
	ret(&s, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	assert_int_equal(callstack_stats(s.cs)->switches, 0);
	scene_end(&s, "?A(R(R())>B(C()))");
}

/*
 * A retpoline that is known is no call at all, and where it goes is what is called, or jumped to.
 */
static void thunks(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	/* call *%rax */
	call(&s, 'A', 0x10, 't');
	pass(&s, 't', 0, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('t', 0xe8), AT('B', 0));
	/* jmp *%rax within the function, and to another one */
	jump(&s, 'B', 't', 0);
	pass(&s, 't', 0, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('t', 0xe8), AT('B', 0x40));
	jump(&s, 'B', 't', 0);
	pass(&s, 't', 0, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('t', 0xe8), AT('C', 0));
	/* ret, by a thunk that drops its own address */
	jump(&s, 'C', 't', 0);
	pass(&s, 't', 0, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('t', 0x80), AT('A', 0x14));
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	assert_int_equal(callstack_stats(s.cs)->switches, 0);
	scene_end(&s, "?A(B()>C())");
}

/* The same in the function's own code: a call, one of itself, and a jump. */
static void thunks_inline(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	callstack_call(s.cs, ++s.clock, AT('A', 0x10), AT('A', 0x14), AT('A', 0xe4));
	pass(&s, 'A', 0x20, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('A', 0xe8), AT('B', 0));
	ret(&s, 'B', 'A', 0x10);
	callstack_call(s.cs, ++s.clock, AT('A', 0x10), AT('A', 0x14), AT('A', 0xe4));
	pass(&s, 'A', 0x20, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('A', 0xe8), AT('A', 0));
	ret(&s, 'A', 'A', 0x10);
	pass(&s, 'A', 0x20, 0xe4);
	callstack_return(s.cs, ++s.clock, AT('A', 0xe8), AT('A', 0x60));
	call(&s, 'A', 0x64, 'C');
	ret(&s, 'C', 'A', 0x64);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	scene_end(&s, "?A(B()A()C())");
}

/*
 * A return of an address that the function has pushed is a jump; one after the stack pointer was
 * loaded may be anything.
 */
static void pushed_returns(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	callstack_return(s.cs, ++s.clock, AT('B', 0xe0), AT('B', 0x40));
	callstack_return(s.cs, ++s.clock, AT('B', 0xe0), AT('C', 0));
	ret(&s, 'C', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	/* nor is what called B another stack: the next one stands on it */
	call(&s, 'A', 0x20, 'D');
	ret(&s, 'D', 'A', 0x20);
	scene_end(&s, "?A(B()>C()D())");
}

/*
 * Generated code goes back to the call that has left for it, not to an older one of the same
 * function.
 */
static void generated_code(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'I');
	call(&s, 'I', 0x20, 'H');
	call(&s, 'H', 0x10, 'I');
	jump(&s, 'I', 'u', 0x20);
	callstack_call(s.cs, ++s.clock, AT('u', 0x30), AT('u', 0x34), AT('G', 0));
	callstack_return(s.cs, ++s.clock, AT('G', 0x80), AT('u', 0x34));
	jump(&s, 'u', 'I', 0x40);
	/* out of what it has called, too, and by an exit that puts the stack pointer back */
	jump(&s, 'I', 'u', 0x20);
	callstack_call(s.cs, ++s.clock, AT('u', 0x30), AT('u', 0x34), AT('G', 0));
	callstack_jump(s.cs, ++s.clock, AT('G', 0xf0), AT('I', 0x50), false);
	/* with an address of its own pushed: what it jumps to returns there */
	callstack_jump(s.cs, ++s.clock, AT('I', 0xe0), AT('K', 0), true);
	callstack_return(s.cs, ++s.clock, AT('K', 0x80), AT('I', 0x70));
	/* but what is thrown lands in the outer call */
	jump(&s, 'I', 'u', 0x20);
	jump(&s, 'u', 'I', 0x62);
	ret(&s, 'I', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(I(H(I()>u(G())<I()>u(G())<I()>K()<I()>u())))");
}

static void exceptions(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'C');
	call(&s, 'C', 0x10, 'T');
	/*
	 * a landing pad that cleans up in C, then the handler in A; the unwinder leaves by ret or
	 * by jmp
	 */
	callstack_return(s.cs, ++s.clock, AT('T', 8), AT('C', 0x60));
	call(&s, 'C', 0x64, 'U');
	jump(&s, 'U', 'A', 0x60);
	call(&s, 'A', 0x70, 'D');
	ret(&s, 'D', 'A', 0x70);
	assert_int_equal(callstack_stats(s.cs)->unwound, 2);
	scene_end(&s, "?A(B(C(T()U()))D())");
}

/* The handler lies right behind the call that throws, and is an outer call's. */
static void landing_pad_behind_the_throw(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x20, 'B');
	call(&s, 'B', 0x5e, 'T');
	call(&s, 'T', 0x10, 'U');
	callstack_return(s.cs, ++s.clock, AT('U', 8), AT('B', 0x62));
	call(&s, 'B', 0x70, 'D');
	ret(&s, 'D', 'B', 0x70);
	ret(&s, 'B', 'A', 0x10);
	scene_end(&s, "?A(B(B(T(U()))D()))");
}

/* A direct jump, which no table of jumps may be behind. */
static void jump_to(struct scene *s, char from, char to, unsigned offset)
{
	callstack_jump(s->cs, ++s->clock, AT(from, 0x94), AT(to, offset), false);
}

/*
 * The cold parts of a stripped program: P begins with a frame, so it is a part; Q may be a
 * function.
 */
static void parts_without_names(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	functions['P'].is_unnamed = functions['P'].is_part = functions['Q'].is_unnamed = true;
	call(&s, 'A', 0x10, 'I');
	call(&s, 'I', 0x20, 'I');
	jump_to(&s, 'I', 'P', 0);
	call(&s, 'P', 0x20, 'G');
	/* what is thrown lands in the part, of the inner I */
	callstack_return(s.cs, ++s.clock, AT('G', 8), AT('P', 0x62));
	call(&s, 'P', 0x70, 'H');
	ret(&s, 'H', 'P', 0x70);
	jump_to(&s, 'P', 'I', 0x40);
	call(&s, 'I', 0x44, 'K');
	ret(&s, 'K', 'I', 0x44);
	/*
	 * the same without a word of the unwind table: a tail call, which comes back to the inner I
	 */
	jump_to(&s, 'I', 'Q', 0);
	call(&s, 'Q', 0x10, 'G');
	ret(&s, 'G', 'Q', 0x10);
	jump_to(&s, 'Q', 'I', 0x48);
	ret(&s, 'I', 'I', 0x20);
	ret(&s, 'I', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(I(I(G()H()K())>Q(G())<I()))");
}

/* The handler is in an outer call of a function that calls itself. */
static void exception_under_recursion(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x20, 'B');
	call(&s, 'B', 0x10, 'B');
	call(&s, 'B', 0x30, 'T');
	callstack_return(s.cs, ++s.clock, AT('T', 8), AT('B', 0x62));
	call(&s, 'B', 0x70, 'D');
	ret(&s, 'D', 'B', 0x70);
	ret(&s, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->unwound, 1);
	assert_int_equal(callstack_stats(s.cs)->switches, 0);
	scene_end(&s, "?A(B(B(B(T()))D()))");
}

static void longjmp_to_a_frame(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	/* of two frames of one function the one that called setjmp last */
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'j');
	ret(&s, 'j', 'B', 0x10);
	call(&s, 'B', 0x20, 'B');
	call(&s, 'B', 0x20, 'C');
	jump(&s, 'C', 'B', 0x14);
	call(&s, 'B', 0x30, 'D');
	ret(&s, 'D', 'B', 0x30);
	ret(&s, 'B', 'A', 0x10);
	scene_end(&s, "?A(B(j()B(C())D()))");
}

static void signals(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	callstack_stop(s.cs, ++s.clock, AT('B', 0x40), 0);
	callstack_resume(s.cs, ++s.clock, AT('H', 0));
	call(&s, 'H', 0x10, 'D');
	ret(&s, 'D', 'H', 0x10);
	ret(&s, 'H', 'S', 0);
	callstack_stop(s.cs, ++s.clock, AT('S', 8), AT('S', 10));
	callstack_resume(s.cs, ++s.clock, AT('B', 0x40));
	/* a system call that is made again after its handler */
	callstack_stop(s.cs, ++s.clock, AT('B', 0x50), AT('B', 0x52));
	callstack_resume(s.cs, ++s.clock, AT('H', 0));
	callstack_stop(s.cs, ++s.clock, AT('S', 8), AT('S', 10));
	callstack_resume(s.cs, ++s.clock, AT('B', 0x50));
	callstack_stop(s.cs, ++s.clock, AT('B', 0x50), AT('B', 0x52));
	callstack_resume(s.cs, ++s.clock, AT('B', 0x52));
	ret(&s, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(s.cs)->signals, 2);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(B(@H(D())>S()@H()))");
}

static void begin_in_the_middle(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	ret(&s, 'B', 'A', 0x10);
	ret(&s, 'A', 'M', 0x10);
	ret(&s, 'M', 'N', 0x10);
	assert_int_equal(callstack_stats(s.cs)->inferred, 2);
	scene_end(&s, "?A(B())^?M()^?N()");
}

static void a_new_thread(void **state)
{
	struct scene s;

	(void)state;
	scene_new(&s);
	callstack_begin(s.cs);
	callstack_resume(s.cs, ++s.clock, AT('N', 0x20));
	call(&s, 'N', 0x22, 'R');
	scene_end(&s, "N(R())");
	/* something is missing of its begin */
	scene_new(&s);
	callstack_begin(s.cs);
	callstack_gap(s.cs, ++s.clock);
	callstack_resume(s.cs, ++s.clock, AT('N', 0x20));
	scene_end(&s, "?N()");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_and_recursion),
		cmocka_unit_test(tail_calls_and_stubs),
		cmocka_unit_test(tail_calls_of_itself),
		cmocka_unit_test(jump_into_the_middle),
		cmocka_unit_test(jump_to_an_outer_call),
		cmocka_unit_test(retpoline),
		cmocka_unit_test(thunks),
		cmocka_unit_test(thunks_inline),
		cmocka_unit_test(pushed_returns),
		cmocka_unit_test(generated_code),
		cmocka_unit_test(exceptions),
		cmocka_unit_test(landing_pad_behind_the_throw),
		cmocka_unit_test(parts_without_names),
		cmocka_unit_test(exception_under_recursion),
		cmocka_unit_test(longjmp_to_a_frame),
		cmocka_unit_test(signals),
		cmocka_unit_test(begin_in_the_middle),
		cmocka_unit_test(a_new_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
