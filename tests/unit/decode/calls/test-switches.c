// SPDX-License-Identifier: Apache-2.0
/* Several stacks a thread: coroutines, and what a fork copies of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

/* Two stacks that wait at the same place, and one that comes back to where it left. */
static void coroutines(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	for (int i = 0; i < 2; i++) {
		call(&s, 'A', 0x10, 'w');
		callstack_return(s.cs, ++s.clock, AT('w', 8), AT(i ? 'D' : 'C', 0));
		call(&s, i ? 'D' : 'C', 0x10, 'G');
		call(&s, 'G', 0x10, 'w');
		ret(&s, 'w', 'A', 0x10);
	}
	for (int i = 0; i < 2; i++) {
		call(&s, 'A', 0x20, 'w');
		ret(&s, 'w', 'G', 0x10);
		call(&s, 'G', 0x10, 'w');
		ret(&s, 'w', 'A', 0x20);
	}
	/*
	 * C goes on to D without asking A. They wait at the same place: which is which is not known
	 * until one returns.
	 */
	call(&s, 'A', 0x20, 'w');
	ret(&s, 'w', 'G', 0x10);
	call(&s, 'G', 0x10, 'w');
	ret(&s, 'w', 'G', 0x10);
	ret(&s, 'G', 'D', 0x10);
	ret(&s, 'D', 'A', 0x20);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(w())\"C(G(w()))?A(w())\"D(G(w()))"
		      "?A(w())?G(w())?A(w())?G(w())"
		      "?A(w())?G(w())?G()^+D()^?A()");
}

/*
 * No doubt where one waits alone, or all that wait have the same callers: any number of those is
 * kept as one.
 */
static void coroutines_that_wait(void **state)
{
	struct scene s;

	(void)state;
	for (int alike = 0; alike < 2; alike++) {
		scene_begin(&s);
		for (int i = 0; i < 2; i++) {
			call(&s, 'A', 0x10, 'w');
			callstack_return(s.cs, ++s.clock, AT('w', 8), AT('C', 0));
			call(&s, 'C', i && !alike ? 0x20 : 0x10, 'w');
			ret(&s, 'w', 'A', 0x10);
		}
		for (int i = 0; i < 2; i++) {
			call(&s, 'A', 0x10, 'w');
			ret(&s, 'w', 'C', i && !alike ? 0x20 : 0x10);
			call(&s, 'C', 0x30, 'D');
			ret(&s, 'D', 'C', 0x30);
			call(&s, 'C', 0x40 + 0x10 * (unsigned)i, 'w');
			ret(&s, 'w', 'A', 0x10);
		}
		assert_int_equal(callstack_stats(s.cs)->doubted, 0);
		assert_int_equal(callstack_stats(s.cs)->given_up, 0);
		scene_end(&s,
			  "?A(w())\"C(w())?A(w())\"C(w())?A(w())+C(D()w())?A(w())+C(D()w())?A()");
	}
	scene_new(&s);
	s.quiet = true;
	callstack_resume(s.cs, ++s.clock, AT('A', 0));
	for (int i = 0; i < 1030; i++) {
		call(&s, 'A', 0x10, 'w');
		callstack_return(s.cs, ++s.clock, AT('w', 8), AT('C', 0));
		call(&s, 'C', 0x10, 'w');
		ret(&s, 'w', 'A', 0x10);
	}
	assert_int_equal(callstack_stats(s.cs)->given_up, 0);
	scene_end(&s, "");
}

static void a_switch_by_jumps(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'w');
	jump(&s, 'w', 'C', 0);
	call(&s, 'C', 0x10, 'w');
	jump(&s, 'w', 'A', 0x14);
	call(&s, 'A', 0x20, 'B');
	ret(&s, 'B', 'A', 0x20);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(w())\"C(w())?A(B())");
}

/*
 * Jumps to stacks that were left where nobody saw it, as goroutines are by other threads: what is
 * not known is in doubt, and all that goes on later.
 */
static void stacks_from_elsewhere(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x10, 'w');
	jump(&s, 'w', 'F', 0x14);
	ret(&s, 'F', 'E', 0x30);
	call(&s, 'E', 0x40, 'w');
	jump(&s, 'w', 'G', 0x14);
	call(&s, 'G', 0x30, 'w');
	/* the first of them again: its frames are known now */
	jump(&s, 'w', 'E', 0x44);
	call(&s, 'E', 0x50, 'w');
	jump(&s, 'w', 'B', 0x14);
	ret(&s, 'B', 'A', 0x10);
	call(&s, 'A', 0x20, 'C');
	ret(&s, 'C', 'A', 0x20);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 2);
	assert_int_equal(callstack_stats(s.cs)->inferred, 1);
	scene_end(&s, "?A(B(w()))?F()^?E(w())?G(w())?E(w())?A(*B()C())");
}

/*
 * What jumps begins stacks beside each other, not within each other: as many as there may be, none
 * deeper than the first.
 */
static void stacks_begun_by_jumps(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	for (int i = 0; i < 3; i++) {
		if (i == 0)
			call(&s, 'A', 0x10, 'w');
		else
			call(&s, 'S', 0x10, 'w');
		jump(&s, 'w', 'v', 0); /* its second half */
		jump(&s, 'v', (char)('C' + i), 0);
		call(&s, (char)('C' + i), 0x10, 'S');
	}
	/* the first of them goes on */
	call(&s, 'S', 0x10, 'w');
	jump(&s, 'w', 'v', 0);
	jump(&s, 'v', 'C', 0x14);
	assert_int_equal(callstack_depth(s.cs), 1);
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(w()>v())\"C(S(w()>v()))\"D(S(w()>v()))\"E(S(w()>v()))+C()");
}

/* The child goes on behind the system call, in all that its parent was in; both return. */
static void a_fork(void **state)
{
	struct scene parent, child;

	(void)state;
	scene_begin(&parent);
	call(&parent, 'A', 0x10, 'B');
	call(&parent, 'B', 0x10, 'p');
	jump(&parent, 'p', 'V', 0);
	callstack_stop(parent.cs, ++parent.clock, AT('V', 0x10), AT('V', 0x12));
	scene_new(&child);
	assert_int_equal(callstack_fork(child.cs, parent.cs), 0);
	assert_int_equal(child.n, 0);
	callstack_resume(child.cs, ++child.clock, AT('V', 0x12));
	ret(&child, 'V', 'B', 0x10);
	ret(&child, 'B', 'A', 0x10);
	assert_int_equal(callstack_stats(child.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(child.cs)->inferred, 0);
	scene_end(&child, "&A(&B(&V()))");
	/*
	 * one that ends before anybody has seen it run, and one of whose begin something is missing
	 */
	scene_new(&child);
	assert_int_equal(callstack_fork(child.cs, parent.cs), 0);
	scene_end(&child, "");
	scene_new(&child);
	assert_int_equal(callstack_fork(child.cs, parent.cs), 0);
	callstack_resync(child.cs, ++child.clock, AT('K', 0x20));
	ret(&child, 'K', 'B', 0x10);
	ret(&child, 'B', 'A', 0x10);
	scene_end(&child, "?K()^~A(^~B())");
	callstack_resume(parent.cs, ++parent.clock, AT('V', 0x12));
	ret(&parent, 'V', 'B', 0x10);
	scene_end(&parent, "?A(B(V()))");
}

/* Stacks that wait are the child's, too: as many as there are, also where they are the same. */
static void a_fork_of_stacks(void **state)
{
	struct scene parent, child;

	(void)state;
	scene_begin(&parent);
	for (int i = 0; i < 2; i++) {
		call(&parent, 'A', 0x10, 'w');
		callstack_return(parent.cs, ++parent.clock, AT('w', 8), AT('C', 0));
		call(&parent, 'C', 0x10, 'w');
		ret(&parent, 'w', 'A', 0x10);
	}
	callstack_stop(parent.cs, ++parent.clock, AT('A', 0x20), AT('A', 0x22));
	scene_new(&child);
	assert_int_equal(callstack_fork(child.cs, parent.cs), 0);
	callstack_resume(child.cs, ++child.clock, AT('A', 0x22));
	for (int i = 0; i < 2; i++) {
		call(&child, 'A', 0x10, 'w');
		ret(&child, 'w', 'C', 0x10);
		/* far enough from C that it does not wait within it */
		call(&child, 'C', 0x40, 'D');
		call(&child, 'D', 0x10, 'E');
		call(&child, 'E', 0x10, 'F');
		call(&child, 'F', 0x10, 'w');
		ret(&child, 'w', 'A', 0x10);
	}
	assert_int_equal(callstack_stats(child.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(child.cs)->doubted, 0);
	scene_end(&child, "&A(w())+C(D(E(F(w()))))?A(w())+C(D(E(F(w()))))?A()");
	scene_end(&parent, "?A(w())\"C(w())?A(w())\"C(w())?A()");
}

/* A new stack from A, on which `first` is interrupted by a handler, or has called G: that waits. */
static void waits_in_handler(struct scene *s, char first)
{
	call(s, 'A', 0x10, 'w');
	callstack_return(s->cs, ++s->clock, AT('w', 8), AT(first, 0));
	callstack_stop(s->cs, ++s->clock, AT(first, 0x30), 0);
	callstack_resume(s->cs, ++s->clock, AT('H', 0));
	call(s, 'H', 0x10, 'w');
	ret(s, 'w', 'A', 0x10);
}

/* They wait alike within handlers: what those have interrupted shows which it is. */
static void coroutines_in_handlers(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	waits_in_handler(&s, 'C');
	waits_in_handler(&s, 'D');
	call(&s, 'A', 0x20, 'w');
	ret(&s, 'w', 'H', 0x10);
	callstack_return(s.cs, ++s.clock, AT('H', 0x80), AT('R', 0));
	callstack_stop(s.cs, ++s.clock, AT('R', 8), AT('R', 10));
	callstack_resume(s.cs, ++s.clock, AT('D', 0x30));
	call(&s, 'D', 0x40, 'B');
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(w())\"C(@H(w()))?A(w())\"D(@H(w()))?A(w())?H()>R()^+D(B())");
}

/*
 * An exception goes out of what is known of one that has gone on, to where only one of them has a
 * landing pad.
 */
static void coroutines_unwound(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	for (int i = 0; i < 2; i++) {
		call(&s, 'A', 0x10, 'w');
		callstack_return(s.cs, ++s.clock, AT('w', 8), AT(i ? 'D' : 'C', 0));
		call(&s, i ? 'D' : 'C', i ? 0x10 : 0x20, 'G');
		call(&s, 'G', 0x10, 'w');
		ret(&s, 'w', 'A', 0x10);
	}
	call(&s, 'A', 0x20, 'w');
	ret(&s, 'w', 'G', 0x10);
	call(&s, 'G', 0x30, 'X');
	callstack_return(s.cs, ++s.clock, AT('X', 0xf0), AT('C', 0x62));
	call(&s, 'C', 0x70, 'B');
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?A(w())\"C(G(w()))?A(w())\"D(G(w()))?A(w())?G(X())^+C(B())");
}

/*
 * Another stack has been to setjmp there since, in another call of that function: it is not what
 * this one comes back to.
 */
static void setjmp_of_another_stack(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'F');
	call(&s, 'F', 0x10, 'j');
	ret(&s, 'j', 'F', 0x10);
	call(&s, 'F', 0x20, 'F');
	call(&s, 'F', 0x30, 'w');
	callstack_return(s.cs, ++s.clock, AT('w', 8), AT('C', 0));
	call(&s, 'C', 0x10, 'E');
	call(&s, 'E', 0x10, 'F');
	call(&s, 'F', 0x10, 'j');
	ret(&s, 'j', 'F', 0x10);
	call(&s, 'F', 0x40, 'w');
	ret(&s, 'w', 'F', 0x30);
	call(&s, 'F', 0x50, 'X');
	jump(&s, 'X', 'F', 0x14);
	call(&s, 'F', 0x60, 'B');
	assert_int_equal(callstack_stats(s.cs)->doubted, 0);
	scene_end(&s, "?A(F(j()F(w())))\"C(E(F(j()w())))?A(+F(+F(X())B()))");
}

/*
 * A longjmp from another stack, to a place further out in a function that is called again there:
 * only the outer call has been to setjmp.
 */
static void setjmp_from_another_stack(void **state)
{
	struct scene s;

	(void)state;
	for (int both = 0; both < 2; both++) {
		scene_begin(&s);
		call(&s, 'A', 0x10, 'w');
		callstack_return(s.cs, ++s.clock, AT('w', 8), AT('C', 0));
		call(&s, 'C', 0x10, 'F');
		call(&s, 'F', 0x10, 'j');
		ret(&s, 'j', 'F', 0x10);
		call(&s, 'F', 0x20, 'F');
		if (both) {
			call(&s, 'F', 0x10, 'j');
			ret(&s, 'j', 'F', 0x10);
		}
		call(&s, 'F', 0x30, 'w');
		ret(&s, 'w', 'A', 0x10);
		call(&s, 'A', 0x20, 'w');
		jump(&s, 'w', 'F', 0x14);
		call(&s, 'F', 0x40, 'B');
		ret(&s, 'B', 'F', 0x40);
		ret(&s, 'F', both ? 'F' : 'C', both ? 0x20 : 0x10);
		assert_int_equal(callstack_stats(s.cs)->doubted, 0);
		/* where both have, the return shows which it was */
		scene_end(&s, both ? "?A(w())\"C(F(j()F(j()w())))?A(w())?F(B())^+C(^+F())" :
				     "?A(w())\"C(F(j()F(w())))?A(w())+C(+F(B()))");
	}
}

/* More places of setjmp than are kept: it may be any call of that function. */
static void setjmp_in_many_places(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'w');
	callstack_return(s.cs, ++s.clock, AT('w', 8), AT('C', 0));
	call(&s, 'C', 0x10, 'F');
	for (unsigned i = 0; i < 3; i++) {
		call(&s, 'F', 0x10 + 0x10 * i, 'j');
		ret(&s, 'j', 'F', 0x10 + 0x10 * i);
	}
	call(&s, 'F', 0x50, 'F');
	call(&s, 'F', 0x60, 'w');
	ret(&s, 'w', 'A', 0x10);
	call(&s, 'A', 0x20, 'w');
	jump(&s, 'w', 'F', 0x14);
	ret(&s, 'F', 'C', 0x10);
	scene_end(&s, "?A(w())\"C(F(j()j()j()F(w())))?A(w())?F()^+C()");
}

/*
 * What is begun on top of who begins it, and copied away from under it: both wait for the same
 * return then.
 */
static void stacks_that_are_copied(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'X');
	call(&s, 'X', 0x10, 'w');
	ret(&s, 'w', 'X', 0x10);
	call(&s, 'X', 0x20, 'C');
	call(&s, 'C', 0x10, 'X');
	call(&s, 'X', 0x10, 'w');
	ret(&s, 'w', 'X', 0x10);
	ret(&s, 'X', 'A', 0x10);
	call(&s, 'A', 0x30, 'X');
	call(&s, 'X', 0x10, 'w');
	ret(&s, 'w', 'X', 0x10);
	ret(&s, 'X', 'C', 0x10);
	call(&s, 'C', 0x30, 'B');
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	assert_int_equal(callstack_stats(s.cs)->doubted, 2);
	scene_end(&s, "?A(X(w()C(X(w()))))?X()^?A(X(w()))?X()^*C(B())");
}

static void interrupt(struct scene *s, char who, char handler)
{
	callstack_stop(s->cs, ++s->clock, AT(who, 0x30), 0);
	callstack_resume(s->cs, ++s->clock, AT(handler, 0));
}

/* The handler asks to be ended, and it goes on there. */
static void end_handler(struct scene *s, char handler, uint64_t at)
{
	callstack_return(s->cs, ++s->clock, AT(handler, 0x80), AT('R', 0));
	callstack_stop(s->cs, ++s->clock, AT('R', 8), AT('R', 10));
	callstack_resume(s->cs, ++s->clock, at);
}

/* A handler that exchanges the registers which it returns to: what goes on may be anybody. */
static void handlers_that_exchange(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'B');
	interrupt(&s, 'B', 'H');
	end_handler(&s, 'H', AT('S', 0)); /* a new one: or a signal that has come meanwhile */
	interrupt(&s, 'S', 'H');
	end_handler(&s, 'H', AT('B', 0x30)); /* no: nobody has asked for its end */
	interrupt(&s, 'B', 'H');
	end_handler(&s, 'H', AT('S', 0x30));
	call(&s, 'S', 0x40, 'D');
	interrupt(&s, 'D', 'H');
	end_handler(&s, 'H', AT('D', 0x30)); /* or another one that was interrupted there */
	scene_end(&s, "?A(B(@H()>R(;S(@H()>R()))))|A(|B(@H()>R()))?S(D(@H()>R()))|S(|D())");
}

/* Two signals at once: the one ends where the other begins. It is a handler, as it was before. */
static void handlers_at_once(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	interrupt(&s, 'A', 'H');
	end_handler(&s, 'H', AT('A', 0x30));
	interrupt(&s, 'A', 'G');
	end_handler(&s, 'G', AT('H', 0));
	end_handler(&s, 'H', AT('A', 0x30));
	call(&s, 'A', 0x40, 'B');
	assert_int_equal(callstack_stats(s.cs)->doubted, 0);
	scene_end(&s, "?A(@H()>R()@G()>R(@H()>R())B())");
}

/* A new stack from A, which waits in what it has called. */
static void waits_in_call(struct scene *s, char first)
{
	call(s, 'A', 0x10, 'w');
	callstack_return(s->cs, ++s->clock, AT('w', 8), AT(first, 0));
	call(s, first, 0x10, 'G');
	call(s, 'G', 0x10, 'w');
	ret(s, 'w', 'A', 0x10);
}

/*
 * Each of two threads has left one there: either may go on on either of them, the first time as
 * well.
 */
static void coroutines_of_two_threads(void **state)
{
	struct scene a, b;

	(void)state;
	scene_begin(&a);
	scene_begin(&b);
	callstack_set_waiting(b.cs, a.waiting);
	waits_in_call(&a, 'C');
	waits_in_call(&b, 'D');
	call(&b, 'A', 0x20, 'w');
	ret(&b, 'w', 'G', 0x10);
	ret(&b, 'G', 'C', 0x10);
	call(&b, 'C', 0x20, 'B');
	assert_int_equal(callstack_stats(b.cs)->doubted, 0);
	scene_end(&b, "?A(w())\"D(G(w()))?A(w())?G()^+C(B())");
	scene_end(&a, "?A(w())\"C(G(w()))?A()");
}

/*
 * One of several goes on, and is left before it is known which it is; what it has called then
 * returns, and all that is around.
 */
static void one_of_several(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	waits_in_call(&s, 'C');
	waits_in_call(&s, 'D');
	call(&s, 'A', 0x20, 'w');
	ret(&s, 'w', 'G', 0x10);
	call(&s, 'G', 0x20, 'w');
	ret(&s, 'w', 'A', 0x20);
	call(&s, 'A', 0x30, 'w');
	ret(&s, 'w', 'G', 0x20);
	ret(&s, 'G', 'D', 0x10);
	call(&s, 'D', 0x20, 'B');
	assert_int_equal(callstack_stats(s.cs)->doubted, 0);
	scene_end(&s, "?A(w())\"C(G(w()))?A(w())\"D(G(w()))?A(w())?G(w())?A(w())?G()^+D(B())");
}

/*
 * What a call has called makes it another stack, for the rest of it, and calls it back: it is one
 * call.
 */
static void stack_in_pieces(void **state)
{
	struct scene s;

	(void)state;
	scene_begin(&s);
	call(&s, 'A', 0x10, 'F');
	call(&s, 'F', 0x0, 'M');
	callstack_call(s.cs, ++s.clock, AT('M', 0x10), AT('M', 0x13), AT('F', 5));
	call(&s, 'F', 0x20, 'B');
	ret(&s, 'B', 'F', 0x20);
	callstack_return(s.cs, ++s.clock, AT('F', 0x80), AT('M', 0x13));
	call(&s, 'M', 0x20, 'N');
	ret(&s, 'N', 'M', 0x20);
	ret(&s, 'M', 'F', 0);
	ret(&s, 'F', 'A', 0x10);
	call(&s, 'A', 0x30, 'B');
	assert_int_equal(callstack_stats(s.cs)->skipped, 0);
	scene_end(&s, "?A(F(M()B()N())B())");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(coroutines),
		cmocka_unit_test(coroutines_that_wait),
		cmocka_unit_test(a_switch_by_jumps),
		cmocka_unit_test(stacks_from_elsewhere),
		cmocka_unit_test(stacks_begun_by_jumps),
		cmocka_unit_test(a_fork),
		cmocka_unit_test(a_fork_of_stacks),
		cmocka_unit_test(coroutines_in_handlers),
		cmocka_unit_test(coroutines_unwound),
		cmocka_unit_test(setjmp_of_another_stack),
		cmocka_unit_test(setjmp_from_another_stack),
		cmocka_unit_test(setjmp_in_many_places),
		cmocka_unit_test(stacks_that_are_copied),
		cmocka_unit_test(handlers_that_exchange),
		cmocka_unit_test(handlers_at_once),
		cmocka_unit_test(coroutines_of_two_threads),
		cmocka_unit_test(one_of_several),
		cmocka_unit_test(stack_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
