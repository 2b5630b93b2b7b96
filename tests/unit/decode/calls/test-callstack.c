// SPDX-License-Identifier: Apache-2.0
/* The rules from branches to calls, one scenario each: functions are letters at 0x100 * letter, what is drawn is a line of text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/calls/callstack.h"
#include "decode/calls/waiting.h"

#define AT(letter, offset) ((uint64_t)(letter) * 0x100 + (offset))
#define KERNEL 0x8000000000000000ull

struct scene {
	struct callstack *cs;
	struct waiting *waiting; /* its own process's */
	char open[64], text[512];
	size_t n_open, n;
	uint32_t n_outside; /* are told next */
	uint64_t clock;
	bool quiet; /* nothing is told */
	bool unordered; /* other threads run, and times are not exact */
};

static struct callfunc functions[128];
static struct budget memory = {.max = UINT64_MAX};

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	struct callfunc *f = &functions[ip >> 8 & 127];

	(void)arg;
	*ret_first = (ip & 0xff) == 0;
	return f;
}

/* Offset 0x62 is where what comes out of the call at 0x20 lands. */
static bool on_lands(void *arg, uint64_t at, uint64_t pad)
{
	(void)arg;
	return (pad & 0xff) == 0x62 && at >> 8 == pad >> 8 && (at & 0xff) >= 0x20 && (at & 0xff) < 0x24;
}

/* Offsets say what the code in front of them did: 0xe0 pushed, 0xe8 stored, 0xf0 loaded the stack pointer. */
static enum callstack_slot on_slot(void *arg, uint64_t ip)
{
	(void)arg;
	switch (ip & 0xff) {
	case 0xe0:
		return CALLSTACK_SLOT_PUSHED;
	case 0xe8:
		return CALLSTACK_SLOT_STORED;
	case 0xf0:
		return CALLSTACK_SLOT_LOADED;
	default:
		return CALLSTACK_SLOT_PLAIN;
	}
}

/* Such code is at offset 0xe4. */
static bool on_is_half(void *arg, uint64_t ip)
{
	(void)arg;
	return (ip & 0xff) == 0xe4;
}

static bool on_is_unordered(void *arg)
{
	return ((struct scene *)arg)->unordered;
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call, enum callstack_why why)
{
	static const char marks[] = {[CALLSTACK_CALL] = 0, [CALLSTACK_TAIL] = '>', [CALLSTACK_UNWOUND] = '!', [CALLSTACK_FOUND] = '?',
		[CALLSTACK_SIGNAL] = '@', [CALLSTACK_GAP] = '~', [CALLSTACK_RESUMED] = '+', [CALLSTACK_DOUBTED] = '*', [CALLSTACK_BACK] = '<',
		[CALLSTACK_GOROUTINE] = '$', [CALLSTACK_GOROUTINE_DOUBTED] = '%', [CALLSTACK_SWITCHED] = '#', [CALLSTACK_UNWOUND_DOUBTED] = '|',
		[CALLSTACK_FORKED] = '&', [CALLSTACK_SEEN] = '=', [CALLSTACK_SEEN_CUT] = '-', [CALLSTACK_NEW_STACK] = '"'};
	struct scene *s = arg;
	const char letter = (char)(fr->f - functions);

	(void)time;
	assert_ptr_equal(fr->f, &functions[fr->ip >> 8 & 127]);
	assert_true(s->n_open < sizeof(s->open) && s->n + 3 < sizeof(s->text));
	call->frame = (uint32_t)letter;
	s->open[s->n_open++] = letter;
	if (s->quiet)
		return;
	if (marks[why])
		s->text[s->n++] = marks[why];
	s->text[s->n++] = letter;
	s->text[s->n++] = '(';
}

/* "^": around what is told already. */
static void on_outside(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call, uint32_t more,
		       enum callstack_why why)
{
	struct scene *s = arg;

	assert_true(s->n + 1 < sizeof(s->text));
	assert_true(s->n_outside == 0 || s->n_outside == more + 1);
	assert_true(s->n_outside || s->n_open == 0);
	s->n_outside = more;
	s->text[s->n++] = '^';
	on_begin(arg, time, fr, call, why);
}

/* What is given back is what begin() has put there. */
static void on_end(void *arg, uint64_t time, struct call *call)
{
	struct scene *s = arg;

	(void)time;
	assert_true(s->n_open > 0 && s->n + 1 < sizeof(s->text));
	assert_int_equal(call->frame, s->open[--s->n_open]);
	assert_int_equal(callstack_n_open(s->cs), s->n_open);
	if (!s->quiet)
		s->text[s->n++] = ')';
}

/* Before anything has happened. */
static void scene_new(struct scene *s)
{
	static const struct callstack_ops ops = {
		.function = on_function,
		.lands = on_lands,
		.slot = on_slot,
		.is_half = on_is_half,
		.is_unordered = on_is_unordered,
		.begin = on_begin,
		.outside = on_outside,
		.end = on_end};

	memset(s, 0, sizeof(*s));
	for (uint32_t i = 0; i < 128; i++)
		functions[i] = (struct callfunc){.start = AT(i, 0), .id = i, .known = true};
	functions['p'].is_plt = true;
	functions['t'].is_plt = functions['t'].is_thunk = true;
	functions['j'].is_setjmp = true;
	functions['w'].is_switch = functions['v'].is_switch = true;
	functions['u'].known = false;
	assert_int_equal(callstack_new(&ops, s, NULL, &s->cs), 0);
	assert_int_equal(waiting_new(&memory, &s->waiting), 0);
	waiting_begin(s->waiting);
	callstack_set_waiting(s->cs, s->waiting);
}

static void scene_begin(struct scene *s)
{
	scene_new(s);
	callstack_resume(s->cs, ++s->clock, AT('A', 0));
}

static void scene_end(struct scene *s, const char *want)
{
	callstack_finish(s->cs, ++s->clock);
	assert_int_equal(s->n_open, 0);
	assert_string_equal(s->text, want);
	s->cs = callstack_free(s->cs);
	s->waiting = waiting_free(s->waiting);
}

/* Calls are at an offset of their function and four bytes long. */
static void call(struct scene *s, char from, unsigned offset, char to)
{
	callstack_call(s->cs, ++s->clock, AT(from, offset), AT(from, offset + 4), AT(to, 0));
}

/* A return to behind a call that is there. */
static void ret(struct scene *s, char from, char to, unsigned offset)
{
	callstack_return(s->cs, ++s->clock, AT(from, 0x80), AT(to, offset + 4));
}

static void jump(struct scene *s, char from, char to, unsigned offset)
{
	callstack_jump(s->cs, ++s->clock, AT(from, 0x90), AT(to, offset), true);
}

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

static void pass(struct scene *s, char letter, unsigned from, unsigned to)
{
	callstack_call(s->cs, ++s->clock, AT(letter, from), AT(letter, from + 5), AT(letter, to));
}

/* A retpoline that is known is no call at all, and where it goes is what is called, or jumped to. */
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

/* A return of an address that the function has pushed is a jump; one after the stack pointer was loaded may be anything. */
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

/* Generated code goes back to the call that has left for it, not to an older one of the same function. */
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
	/* a landing pad that cleans up in C, then the handler in A; the unwinder leaves by ret or by jmp */
	callstack_return(s.cs, ++s.clock, AT('T', 8), AT('C', 0x60));
	call(&s, 'C', 0x64, 'U');
	jump(&s, 'U', 'A', 0x60);
	call(&s, 'A', 0x70, 'D');
	ret(&s, 'D', 'A', 0x70);
	assert_int_equal(callstack_stats(s.cs)->unwound, 2);
	scene_end(&s, "?A(B(C(T()U()))D())");
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
	/* C goes on to D without asking A. They wait at the same place: which is which is not known until one returns. */
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

/* No doubt where one waits alone, or all that wait have the same callers: any number of those is kept as one. */
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
		scene_end(&s, "?A(w())\"C(w())?A(w())\"C(w())?A(w())+C(D()w())?A(w())+C(D()w())?A()");
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

/* Jumps to stacks that were left where nobody saw it, as goroutines are by other threads: what is not known is in doubt, and all that goes on later. */
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

/* What jumps begins stacks beside each other, not within each other: as many as there may be, none deeper than the first. */
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

/* What was before a gap is remembered over more of them, each piece by itself, until returns prove it. */
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

	/* found where one was called to return to: it has; and if that is not so, it is a hypothesis again, with what is around */
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
			/* called by what was not there before, which is not around the frames that were wrong */
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
	/* one that ends before anybody has seen it run, and one of whose begin something is missing */
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

/* Found in a function, and called on from there: `path` is two letters or more. */
static void scene_found(struct scene *s, const char *path)
{
	scene_new(s);
	callstack_resync(s->cs, ++s->clock, AT(path[0], 0x30));
	for (; path[1]; path++)
		call(s, path[0], 0x40, path[1]);
}

/* It stops, and its stack is that of calls at 0x40 of these functions, the innermost first; a letter that is not one: not known. */
static enum callstack_seen seen(struct scene *s, const char *stack, bool cut)
{
	struct stack_place places[16];
	uint32_t n = 0;

	callstack_stop(s->cs, ++s->clock, AT(stack[0], 0x60), 0);
	places[n++] = (struct stack_place){.ip = stack[0] == '_' ? 0 : AT(stack[0], 0x60), .exact = true};
	for (; stack[n]; n++)
		places[n] = (struct stack_place){.ip = stack[n] == '_' ? 0 : AT(stack[n], 0x44)};
	return callstack_seen(s->cs, s->clock, places, n, cut);
}

static void go_on(struct scene *s, char at)
{
	callstack_resume(s->cs, ++s->clock, AT(at, 0x60));
}

/* A stack names what is around the calls, which begins before them and ends after them, or with a gap, or with all. */
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
	/* a return over them, a landing pad in one of them: of two calls of it the one whose call has that */
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
	assert_int_equal(seen(&s, "BA_M", false), CALLSTACK_AGREES); /* who is in between is not known */
	go_on(&s, 'B');
	assert_int_equal(callstack_seen(s.cs, 0, &(struct stack_place){AT('B', 0x60), true}, 1, true), CALLSTACK_ELSEWHERE);
	scene_end(&s, "?A(B())");

	/* while it runs its place says nothing, also where a call of it returns to: of a recursion that may be any */
	scene_found(&s, "RRR");
	{
		const struct stack_place places[] = {{AT('R', 0x44), true}, {AT('R', 0x44), false}, {AT('M', 0x44), false}};

		assert_int_equal(callstack_seen(s.cs, s.clock, places, 3, false), CALLSTACK_ELSEWHERE);
	}
	assert_int_equal(seen(&s, "_", false), CALLSTACK_ELSEWHERE);
	scene_end(&s, "?R(R(R()))");
	/* but in the kernel, which is traced, it is where that was called */
	scene_found(&s, "AB");
	callstack_call(s.cs, ++s.clock, AT('B', 0x40), AT('B', 0x42), AT('K', 0) | KERNEL);
	callstack_call(s.cs, ++s.clock, AT('K', 0x40) | KERNEL, AT('K', 0x44) | KERNEL, AT('L', 0) | KERNEL);
	{
		const struct stack_place places[] = {{AT('B', 0x42), true}, {AT('A', 0x44), false}, {AT('M', 0x44), false}};

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

	/* it agrees, but a return goes elsewhere than it says: it was no stack that the thread goes back through */
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
		{AT('D', 0x60), true}, {AT('H', 0x44), false}, {AT('S', 0), true}, {AT('B', 0x50), true}, {AT('A', 0x44), false},
		{AT('M', 0x44), false},
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

/* ---- goroutines: S schedules, m leaves them and calls K, g goes on, n is newstack and R is recovery, both called by m's like */

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
	callstack_set_waiting(s->cs, gs);
	callstack_resume(s->cs, ++s->clock, AT('S', 0));
}

/* The thread's own stack goes on with a goroutine, and is left to be told by another one. */
static void go(struct scene *s, char by, char to, unsigned offset)
{
	call(s, by, 0x10, 'g');
	jump(s, 'g', to, offset);
}

/* Where `from` calls it at that offset. */
static void leave(struct scene *s, char from, unsigned offset, char what)
{
	call(s, from, offset, 'm');
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
		scene_end(&s, i ? "?S(g())A(B(B(C(m(R(g())))))|B(|B()))" : "?S(g())A(B(C(m(R(g())))))");
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
		callstack_call(s.cs, ++s.clock, AT('B', 0x20), AT('B', 0) + 0x100000 * i + 0x24, AT('m', 0));
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
		cmocka_unit_test(calls_and_recursion),
		cmocka_unit_test(tail_calls_and_stubs),
		cmocka_unit_test(retpoline),
		cmocka_unit_test(thunks),
		cmocka_unit_test(thunks_inline),
		cmocka_unit_test(pushed_returns),
		cmocka_unit_test(generated_code),
		cmocka_unit_test(exceptions),
		cmocka_unit_test(exception_under_recursion),
		cmocka_unit_test(longjmp_to_a_frame),
		cmocka_unit_test(coroutines),
		cmocka_unit_test(coroutines_that_wait),
		cmocka_unit_test(a_switch_by_jumps),
		cmocka_unit_test(stacks_from_elsewhere),
		cmocka_unit_test(stacks_begun_by_jumps),
		cmocka_unit_test(signals),
		cmocka_unit_test(begin_in_the_middle),
		cmocka_unit_test(several_gaps), cmocka_unit_test(gaps),
		cmocka_unit_test(a_stack_proven_by_returns),
		cmocka_unit_test(a_stack_disproven),
		cmocka_unit_test(a_stack_that_is_gone),
		cmocka_unit_test(a_new_thread),
		cmocka_unit_test(a_fork),
		cmocka_unit_test(a_fork_of_stacks),
		cmocka_unit_test(callers_that_a_stack_names),
		cmocka_unit_test(a_stack_that_is_cut),
		cmocka_unit_test(unwinding_to_what_a_stack_names),
		cmocka_unit_test(stacks_that_disagree),
		cmocka_unit_test(a_stack_with_a_handler),
		cmocka_unit_test(goroutines_on_other_threads),
		cmocka_unit_test(goroutines_at_the_same_place),
		cmocka_unit_test(goroutines_in_doubt),
		cmocka_unit_test(goroutines_that_go_on_at_once),
		cmocka_unit_test(goroutines_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
