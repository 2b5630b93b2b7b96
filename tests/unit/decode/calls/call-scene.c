// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/decode/calls/call-scene.h"

struct callfunc functions[128];
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
	return (pad & 0xff) == 0x62 && at >> 8 == pad >> 8 && (at & 0xff) >= 0x20 &&
	       (at & 0xff) < 0x24;
}

/*
 * Offsets say what the code in front of them did: 0xe0 pushed, 0xe8 stored, 0xf0 loaded the stack
 * pointer.
 */
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

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	static const char marks[] = {[CALLSTACK_CALL] = 0,
				     [CALLSTACK_TAIL] = '>',
				     [CALLSTACK_UNWOUND] = '!',
				     [CALLSTACK_FOUND] = '?',
				     [CALLSTACK_SIGNAL] = '@',
				     [CALLSTACK_GAP] = '~',
				     [CALLSTACK_RESUMED] = '+',
				     [CALLSTACK_DOUBTED] = '*',
				     [CALLSTACK_BACK] = '<',
				     [CALLSTACK_GOROUTINE] = '$',
				     [CALLSTACK_GOROUTINE_DOUBTED] = '%',
				     [CALLSTACK_SWITCHED] = '#',
				     [CALLSTACK_UNWOUND_DOUBTED] = '|',
				     [CALLSTACK_FORKED] = '&',
				     [CALLSTACK_SEEN] = '=',
				     [CALLSTACK_SEEN_CUT] = '-',
				     [CALLSTACK_NEW_STACK] = '"',
				     [CALLSTACK_SIGNAL_DOUBTED] = ';'};
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

static struct callstack_run on_goroutine(void *arg, uint64_t since, bool begins)
{
	struct scene *s = arg;
	struct callstack_run *told = begins ? &s->begun : &s->left;
	const struct callstack_run run = *told;

	assert_true(since > 0 && since <= s->clock);
	*told = (struct callstack_run){0};
	return run;
}

/* "^": around what is told already. */
static void on_outside(void *arg, uint64_t time, const struct callstack_frame *fr,
		       struct call *call, uint32_t more, enum callstack_why why)
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

void scene_new(struct scene *s)
{
	static const struct callstack_ops ops = {
		.function = on_function,
		.lands = on_lands,
		.slot = on_slot,
		.is_half = on_is_half,
		.is_unordered = on_is_unordered,
		.goroutine = on_goroutine,
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

void scene_begin(struct scene *s)
{
	scene_new(s);
	callstack_resume(s->cs, ++s->clock, AT('A', 0));
}

void scene_end(struct scene *s, const char *want)
{
	callstack_finish(s->cs, ++s->clock);
	assert_int_equal(s->n_open, 0);
	assert_string_equal(s->text, want);
	s->cs = callstack_free(s->cs);
	s->waiting = waiting_free(s->waiting);
}

void call(struct scene *s, char from, unsigned offset, char to)
{
	callstack_call(s->cs, ++s->clock, AT(from, offset), AT(from, offset + 4), AT(to, 0));
}

void ret(struct scene *s, char from, char to, unsigned offset)
{
	callstack_return(s->cs, ++s->clock, AT(from, 0x80), AT(to, offset + 4));
}

void jump(struct scene *s, char from, char to, unsigned offset)
{
	callstack_jump(s->cs, ++s->clock, AT(from, 0x90), AT(to, offset), true);
}

void pass(struct scene *s, char letter, unsigned from, unsigned to)
{
	callstack_call(s->cs, ++s->clock, AT(letter, from), AT(letter, from + 5), AT(letter, to));
}
