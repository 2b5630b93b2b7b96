// SPDX-License-Identifier: Apache-2.0
/* Goroutines: stacks that go on on other threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

static struct budget room = {.max = 1 << 20};

static void go_scene(struct scene *s, struct waiting *gs)
{
	scene_new(s);
	functions['m'].go = CALLFUNC_GO_MCALL;
	functions['g'].go = CALLFUNC_GO_GOGO;
	functions['n'].go = functions['R'].go = CALLFUNC_GO_SAME;
	functions['y'].go = CALLFUNC_GO_YIELD;
	functions['e'].go = CALLFUNC_GO_END;
	functions['z'].go = CALLFUNC_GO_BOTTOM;
	functions['i'].go = CALLFUNC_GO_INJECTED;
	functions['x'].go = CALLFUNC_GO_STAYS;
	functions['M'].go = CALLFUNC_GO_THREAD;
	callstack_set_waiting(s->cs, gs);
	callstack_resume(s->cs, ++s->clock, AT('S', 0));
}

/* The thread's own stack goes on with a goroutine, and is left to be told by another one. */
static void go(struct scene *s, char by, char to, unsigned offset)
{
	call(s, by, 0x10, 'g');
	callstack_loaded(s->cs);
	jump(s, 'g', to, offset);
}

/* Where `from` calls it at that offset. */
static void leave(struct scene *s, char from, unsigned offset, char what)
{
	call(s, from, offset, 'm');
	callstack_loaded(s->cs);
	call(s, 'm', 0x10, what);
}

static void goroutines_on_other_threads(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene a, b;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	waiting_begin(gs);
	go_scene(&a, gs);
	go_scene(&b, gs);
	go(&a, 'S', 'A', 0);
	call(&a, 'A', 0x10, 'B');
	leave(&a, 'B', 0x20, 'K');
	go(&b, 'S', 'B', 0x24);
	ret(&b, 'B', 'A', 0x10);
	/* nobody waits any more */
	go(&a, 'K', 'B', 0x24);
	/* and what ends does not wait */
	ret(&b, 'A', 'z', 0x10);
	leave(&b, 'z', 0x20, 'e');
	assert_int_equal(callstack_stats(a.cs)->doubted + callstack_stats(b.cs)->doubted, 0);
	scene_end(&a, "?S(g())A(B(m()))#K(g())?B()");
	scene_end(&b, "?S(g())$A($B())^?z(m())#e()");
	gs = waiting_free(gs);
	assert_int_equal(room.used, 0);
}

/* Two wait in C, called by A and by B. */
static void two_wait(struct scene *s)
{
	s->quiet = true;
	go(s, 'S', 'A', 0);
	call(s, 'A', 0x10, 'C');
	leave(s, 'C', 0x20, 'K');
	go(s, 'K', 'B', 0);
	call(s, 'B', 0x10, 'C');
	leave(s, 'C', 0x20, 'K');
	s->quiet = false;
}

static void goroutines_at_the_same_place(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	/* a return shows which, and then the other one is known */
	waiting_begin(gs);
	go_scene(&s, gs);
	two_wait(&s);
	go(&s, 'K', 'C', 0x24);
	ret(&s, 'C', 'B', 0x10);
	leave(&s, 'B', 0x30, 'K');
	go(&s, 'K', 'C', 0x24);
	assert_int_equal(callstack_stats(s.cs)->doubted, 0);
	scene_end(&s, "?S(g())?C()^$B(m())#K(g())$A($C())");

	/* it stops before: whose frames these are is not known, and no caller is drawn */
	waiting_begin(gs);
	go_scene(&s, gs);
	two_wait(&s);
	go(&s, 'K', 'C', 0x24);
	leave(&s, 'C', 0x40, 'K');
	go(&s, 'K', 'C', 0x44);
	leave(&s, 'C', 0x60, 'K');
	go(&s, 'K', 'C', 0x24);
	assert_int_equal(callstack_stats(s.cs)->doubted, 0);
	scene_end(&s, "?S(g())?C(m())#K(g())?C(m())#K(g())?C()");
}

static void goroutines_in_doubt(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	for (int i = 0; i < 3; i++) {
		waiting_begin(gs);
		go_scene(&s, gs);
		go(&s, 'S', 'A', 0);
		leave(&s, 'A', 0x20, 'K');
		if (i == 0)
			waiting_miss(gs); /* others may wait there */
		else if (i == 1)
			s.unordered = true; /* or will be told later */
		go(&s, 'K', 'A', 0x24);
		scene_end(&s, i == 2 ? "?S(g())A(m())#K(g())$A()" : "?S(g())A(m())#K(g())%A()");
	}
}

static void goroutines_that_go_on_at_once(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	waiting_begin(gs);
	/* its stack grows: nothing has happened to its calls */
	go_scene(&s, gs);
	go(&s, 'S', 'A', 0);
	call(&s, 'A', 0x10, 'B');
	call(&s, 'B', 0x20, 'O');
	call(&s, 'O', 0x20, 'n');
	go(&s, 'n', 'B', 0x24);
	ret(&s, 'B', 'A', 0x10);
	/* or others have their turn first */
	call(&s, 'A', 0x30, 'O');
	call(&s, 'O', 0x20, 'n');
	call(&s, 'n', 0x30, 'y');
	go(&s, 'y', 'A', 0x34);
	scene_end(&s, "?S(g())A(B(O(n(g())))O(n()))#n(y(g()))$A()");

	/* a panic, recovered in B; in one of two calls of B */
	for (int i = 0; i < 2; i++) {
		go_scene(&s, gs);
		go(&s, 'S', 'A', 0);
		call(&s, 'A', 0x10, 'B');
		if (i)
			call(&s, 'B', 0x10, 'B');
		call(&s, 'B', 0x10, 'C');
		leave(&s, 'C', 0x20, 'R');
		go(&s, 'R', 'B', 0x70);
		ret(&s, 'B', 'A', 0x10);
		scene_end(&s,
			  i ? "?S(g())A(B(B(C(m(R(g())))))|B(|B()))" : "?S(g())A(B(C(m(R(g())))))");
	}

	/* preempted in the middle, by a handler that makes it call something there */
	go_scene(&s, gs);
	go(&s, 'S', 'A', 0);
	callstack_stop(s.cs, ++s.clock, AT('A', 0x40), 0);
	callstack_resume(s.cs, ++s.clock, AT('H', 0));
	callstack_stop(s.cs, ++s.clock, AT('H', 0x10), AT('H', 0x12));
	callstack_resume(s.cs, ++s.clock, AT('i', 0));
	leave(&s, 'i', 0x20, 'K');
	go(&s, 'K', 'i', 0x24);
	callstack_return(s.cs, ++s.clock, AT('i', 0x30), AT('A', 0x40));
	assert_int_equal(callstack_stats(s.cs)->unexplained, 0);
	scene_end(&s, "?S(g())A(@H()@i(m()))#K(g())$A($i())");
}

/*
 * What the runtime does on another stack is called, however many stacks may wait that nobody knows.
 */
static void goroutines_on_the_thread_s_stack(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	waiting_begin(gs);
	waiting_miss(gs);
	go_scene(&s, gs);
	go(&s, 'S', 'A', 0);
	call(&s, 'A', 0x10, 'x');
	callstack_loaded(s.cs);
	call(&s, 'x', 0x10, 'B');
	ret(&s, 'B', 'x', 0x10);
	callstack_loaded(s.cs);
	ret(&s, 'x', 'A', 0x10);
	call(&s, 'A', 0x20, 'C');
	ret(&s, 'C', 'A', 0x20);
	scene_end(&s, "?S(g())A(x(B())C())");

	/* a goroutine ends with its thread, which says nothing of the others */
	waiting_begin(gs);
	go_scene(&s, gs);
	go(&s, 'S', 'A', 0);
	leave(&s, 'A', 0x20, 'K');
	go(&s, 'K', 'B', 0);
	leave(&s, 'B', 0x20, 'e');
	go(&s, 'e', 'M', 0x24);
	go(&s, 'M', 'A', 0x24);
	scene_end(&s, "?S(g())A(m())#K(g())B(m())#e(g())#M(g())$A()");
}

#define RUN(g, n) ((struct callstack_run){.goroutine = (g), .run = (n)})

/*
 * The runtime tells which goroutine it is: then it makes no difference what else waits there, or
 * may.
 */
static void goroutines_told(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	for (int i = 0; i < 5; i++) {
		waiting_begin(gs);
		waiting_miss(gs);
		go_scene(&s, gs);
		s.quiet = true;
		/* 1 has run since before the trace began, 2 begins */
		go(&s, 'S', 'A', 0);
		call(&s, 'A', 0x10, 'C');
		s.left = RUN(1, 0);
		leave(&s, 'C', 0x20, 'K');
		s.begun = RUN(2, 1);
		go(&s, 'K', 'B', 0);
		call(&s, 'B', 0x10, 'C');
		s.left = RUN(2, 1);
		leave(&s, 'C', 0x20, 'K');
		s.quiet = false;
		/*
		 * in turn, and again; without being told; 2 runs and nobody has seen it; where it
		 * does not wait; and what nobody has seen
		 */
		s.begun = i == 0   ? RUN(1, 1)
			  : i == 1 ? RUN(0, 0)
			  : i == 2 ? RUN(2, 3)
			  : i == 3 ? RUN(2, 2)
				   : RUN(3, 1);
		go(&s, 'K', 'C', i == 3 ? 0x44 : 0x24);
		if (i == 0) {
			s.left = RUN(1, 1);
			leave(&s, 'C', 0x20, 'K');
			s.begun = RUN(2, 2);
			go(&s, 'K', 'C', 0x24);
			ret(&s, 'C', 'B', 0x10);
			s.left = RUN(2, 2);
			leave(&s, 'B', 0x30, 'K');
			s.begun = RUN(1, 2);
			go(&s, 'K', 'C', 0x24);
		}
		assert_int_equal(callstack_stats(s.cs)->told, i == 0 ? 3 : 0);
		assert_int_equal(callstack_stats(s.cs)->doubted, 0);
		assert_int_equal(callstack_stats(s.cs)->contradicted, i == 3);
		scene_end(&s, i == 0 ? "?S(g())$A($C(m()))#K(g())$B($C()m())#K(g())$A($C())"
				     : "?S(g())?C()");
	}

	/* the calls say that it is 1 that stops */
	waiting_begin(gs);
	go_scene(&s, gs);
	s.left = RUN(1, 0);
	leave(&s, 'S', 0x20, 'K');
	s.begun = RUN(1, 1);
	go(&s, 'K', 'A', 0);
	s.left = RUN(2, 7);
	leave(&s, 'A', 0x20, 'K');
	go(&s, 'K', 'A', 0x24);
	/* and from then on another one, too, that the runtime tells of */
	leave(&s, 'A', 0x20, 'K');
	s.begun = RUN(5, 1);
	go(&s, 'K', 'B', 0);
	s.left = RUN(5, 1);
	leave(&s, 'B', 0x20, 'K');
	s.begun = RUN(5, 2);
	go(&s, 'K', 'B', 0x24);
	assert_int_equal(callstack_stats(s.cs)->contradicted, 1);
	scene_end(&s, "?S(m())#K(g())A(m())#K(g())%A(m())#K(g())B(m())#K(g())%B()");
}

static void goroutines_given_up(void **state)
{
	_cleanup_(waiting_freep) struct waiting *gs = NULL;
	struct scene s;

	(void)state;
	assert_int_equal(waiting_new(&room, &gs), 0);
	waiting_begin(gs);
	go_scene(&s, gs);
	s.quiet = true;
	go(&s, 'S', 'A', 0);
	/* more that differ than are kept */
	for (unsigned i = 0; i <= WAITING_MAX_STACKS; i++) {
		call(&s, 'A', 0x10, 'B');
		callstack_call(s.cs, ++s.clock, AT('B', 0x20), AT('B', 0) + 0x100000 * i + 0x24,
			       AT('m', 0));
		call(&s, 'm', 0x10, 'K');
		go(&s, 'K', 'A', 0);
	}
	leave(&s, 'A', 0x40, 'K');
	s.quiet = false;
	go(&s, 'K', 'A', 0x44);
	scene_end(&s, "?S(g())%A()");
	gs = waiting_free(gs);
	assert_int_equal(room.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goroutines_on_other_threads),
		cmocka_unit_test(goroutines_at_the_same_place),
		cmocka_unit_test(goroutines_in_doubt),
		cmocka_unit_test(goroutines_that_go_on_at_once),
		cmocka_unit_test(goroutines_on_the_thread_s_stack),
		cmocka_unit_test(goroutines_told),
		cmocka_unit_test(goroutines_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
