// SPDX-License-Identifier: Apache-2.0
/* The rules, see the header. */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * So many frames are left, the outermost, or fewer: no less than `outermost`. False: 0, there are
 * none.
 */
static bool unwind_within(struct callstack *cs, uint64_t time, uint32_t keep, uint32_t outermost)
{
	if (keep == 0)
		return false;
	cs->over = 0;
	cs_unwind_to(cs, time, keep);
	if (outermost < keep)
		cs_doubt(cs, time, outermost - 1);
	return true;
}

/*
 * Into a function that is on the stack, but not on top: all in it is unwound. Where its calls land
 * at `to` when an exception leaves them: in the innermost whose call that is. Else it may be any
 * that is on the stack. A part is on the stack as what it is a part of.
 */
static bool to_function(struct callstack *cs, uint64_t time, uint64_t to, const struct callfunc *f)
{
	uint32_t keep = 0, outermost = 0;

	for (uint32_t i = cs->n - 1; i > 0 && f->known; i--) {
		if (!cs_is_in(&cs->frames[i - 1], f) && !f->is_part)
			continue;
		if (cs_lands(cs, &cs->frames[i], to)) {
			cs_unwind_to(cs, time, i);
			return true;
		}
		if (!cs_is_in(&cs->frames[i - 1], f))
			continue;
		if (keep == 0)
			keep = i;
		outermost = i;
	}
	return cs_stack_unwound(cs, time, to) || unwind_within(cs, time, keep, outermost);
}

void cs_unwind_to(struct callstack *cs, uint64_t time, uint32_t keep)
{
	cs->stats.unwound++;
	cs->stats.skipped += cs->n - keep;
	cs_pop(cs, time, cs->n - keep);
}

void cs_doubt(struct callstack *cs, uint64_t time, uint32_t from)
{
	const uint32_t n = cs->n - from;
	struct frame *v = malloc(n * sizeof(*v));

	cs->stats.doubted++;
	if (!v)
		return;
	memcpy(v, cs->frames + from, n * sizeof(*v));
	cs_pop(cs, time, n);
	for (uint32_t i = 0; i < n; i++)
		cs_push(cs, time, &v[i], CALLSTACK_UNWOUND_DOUBTED);
	free(v);
}

/* Whether any call may have that, without looking at all. */
static bool is_point(const struct callstack *cs, uint64_t to)
{
	for (uint32_t i = 0; i < MAX_SETJMPS; i++)
		if (cs->points[i] == to)
			return true;
	return false;
}

static void add_point(struct callstack *cs, struct frame *fr, uint64_t to)
{
	if (cs_has_point(fr, to))
		return;
	fr->more_points |= fr->points[MAX_POINTS - 1] != 0;
	if (!is_point(cs, to))
		cs->points[cs->next_point++ % MAX_SETJMPS] = to;
	memmove(fr->points + 1, fr->points, (MAX_POINTS - 1) * sizeof(*fr->points));
	fr->points[0] = to;
}

/*
 * Where several calls have been to setjmp there, and are still on the stack: to the last one, but
 * it may be any.
 */
static bool to_setjmp(struct callstack *cs, uint64_t time, uint64_t to)
{
	uint32_t keep = 0, outermost = 0;

	if (cs->over && !is_point(cs, to))
		return false;
	for (uint32_t i = cs->n; i > 0; i--) {
		if (!cs_has_point(&cs->frames[i - 1], to) ||
		    cs->frames[i - 1].f != cs_function(cs, to, NULL))
			continue;
		if (keep == 0)
			keep = i;
		outermost = i;
	}
	return unwind_within(cs, time, keep, outermost);
}

/*
 * Within a function that has just loaded the stack pointer: a longjmp of its own, to itself or to
 * an outer call of the same function. Which it was only returns show, and they end what is within.
 * False: there is one call of it.
 */
static bool to_outer_call(struct callstack *cs, uint64_t time, const struct callfunc *f)
{
	struct frame *top = cs_top(cs);
	uint32_t outermost = cs->n - 1;

	if (!top->loaded || top->called || !f->known)
		return false;
	for (uint32_t i = cs->n - 1; i > 0; i--)
		if (cs_is_in(&cs->frames[i - 1], f))
			outermost = i - 1;
	if (outermost == cs->n - 1)
		return false;
	top->loaded = false; /* what goes on there has not */
	cs_doubt(cs, time, outermost);
	return true;
}

/* The frame on top is not drawn from here on. */
static void hide(struct callstack *cs, uint64_t time)
{
	struct frame fr = *cs_top(cs);

	cs_pop(cs, time, 1);
	fr.pending = true;
	cs_push(cs, time, &fr, CALLSTACK_CALL);
}

void callstack_call(struct callstack *cs, uint64_t time, uint64_t from, uint64_t back, uint64_t to)
{
	const struct callfunc *f;
	bool first, inner, half, same;
	struct frame *fr;

	if (to == back)
		return; /* to learn its own address */
	cs_show(cs, time);
	if (cs->n == 0)
		cs_base(cs, time, from, CALLSTACK_FOUND);
	(void)cs_switch_inlined(cs, time, from);
	if (cs->n)
		cs_top(cs)->called = cs_top(cs)->loaded;
	f = cs_function(cs, to, &first);
	cs->stats.calls++;
	if (cs_go_leave(cs, time, f)) {
		const struct frame go = {.f = f, .ip = to, .site = from};

		cs_push(cs, time, &go, cs->n ? CALLSTACK_CALL : CALLSTACK_SWITCHED);
		return;
	}
	inner = !first && cs->n && cs_top(cs)->f == f;
	half = !first &&
	       (f->is_thunk || (inner && cs->ops.is_half && cs->ops.is_half(cs->arg, to)));
	same = !first && cs_is_same_call(cs, to, f);
	if (same)
		hide(cs, time);
	if (f->is_setjmp && !cs->over && cs->n)
		add_point(cs, cs_top(cs), back);
	/* made where it stays: calls are many */
	fr = cs_add(cs);
	if (!fr)
		return;
	memset(fr, 0, offsetof(struct frame, call)); /* which its user fills in */
	fr->back = back;
	fr->f = f;
	fr->ip = to;
	fr->site = from;
	fr->inner = inner;
	fr->half = half;
	fr->same = same;
	fr->pending = f->is_plt || half || same;
	if (!fr->pending)
		cs_begin(cs, time, fr, CALLSTACK_CALL);
}

/*
 * What leaves the frame on top says that it is another call than the one from before the gap, which
 * it was taken for.
 */
static bool is_disproven(const struct callstack *cs)
{
	return cs->believed && cs->believed == cs->n && !cs_is_switching(cs);
}

void cs_disprove(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const uint32_t n = cs->n;

	cs->stats.adopted -= n;
	cs->stats.skipped += n;
	cs->stats.inferred++;
	cs_pop(cs, time, n);
	cs->n_before += n; /* what is in before[] still */
	cs_base(cs, time, ip, CALLSTACK_FOUND);
}

static void return_outward(struct callstack *cs, uint64_t time, uint64_t to)
{
	uint32_t more = 0, first;

	if (cs_stack_outward(cs, time, to))
		return;
	if (is_disproven(cs)) {
		cs_disprove(cs, time, to);
		return;
	}
	for (uint32_t k = cs->n_before; k > 0; k--) {
		if (cs->before[k - 1].back != to)
			continue;
		first = cs_piece_of(cs, k - 1);
		/* Proven: what was outside of it before the gap is outside of it still. */
		cs_pop(cs, time, cs->n);
		for (uint32_t j = first; j + 1 < k; j++)
			more += !cs->before[j].pending;
		for (uint32_t j = first; j + 1 < k; j++) {
			more -= !cs->before[j].pending;
			cs_push_outside(cs, time, &cs->before[j], more, CALLSTACK_GAP);
		}
		cs->stats.adopted += k - 1 - first;
		cs->n_before = first;
		if (cs->n == 0)
			cs_caller(cs, time, to);
		return;
	}
	cs_pop(cs, time, cs->n);
	cs_caller(cs, time, to);
}

/*
 * Right behind a call that throws, and never returns, may lie a landing pad: of another call, in an
 * outer call of the same function. False: it is none of these.
 */
static bool to_pad_behind(struct callstack *cs, uint64_t time, uint32_t thrower, uint64_t to)
{
	if (cs_lands(cs, &cs->frames[thrower], to))
		return false;
	for (uint32_t i = thrower; i > 1; i--) {
		if (!cs_lands(cs, &cs->frames[i - 1], to))
			continue;
		cs_unwind_to(cs, time, i - 1);
		return true;
	}
	return false;
}

/*
 * To where an outer frame returns to: everything inside of it ends. It may go on: a stack that was
 * left.
 */
static bool to_outer(struct callstack *cs, uint64_t time, uint64_t to)
{
	const bool wrong = is_disproven(cs);

	for (uint32_t i = cs->n - 1; i > 0; i--) {
		if (cs->frames[i - 1].back != to)
			continue;
		if (to_pad_behind(cs, time, i - 1, to))
			return true;
		if (wrong) {
			cs->stats.adopted -= cs->n - i;
			cs->believed = 0; /* the others are proven */
		} else {
			cs_park(cs, cs->frames + i, cs->n - i);
			cs->stats.switches++;
		}
		cs->stats.skipped += cs->n - i;
		cs_pop(cs, time, cs->n - (i - 1));
		if (cs->n == 0)
			cs_caller(cs, time, to);
		return true;
	}
	return false;
}

/*
 * A return to a function's first instruction: a jump made of push and ret, or the first switch to a
 * stack of its own.
 */
static void to_first(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
		     const struct callfunc *f)
{
	cs->stats.tails++;
	if (cs_top(cs)->inner && cs->n > 1) {
		/* a thunk that calls itself to put the address on the stack */
		cs_pop(cs, time, 1);
		cs_replace(cs, time, f, to, from);
		return;
	}
	if (cs_has_just_switched(cs))
		cs_switch_new(cs, time, from, to, f);
	else
		cs_replace(cs, time, f, to, from);
}

/*
 * Nothing says what it leaves; but nothing is around the thread's first function. Any call within
 * that may be another one's.
 */
static void to_unexplained(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
			   const struct callfunc *f)
{
	const struct frame fr = {.f = f, .ip = to, .site = from, .back = cs_top(cs)->back};

	cs->stats.unexplained++;
	cs->stats.skipped++;
	cs_pop(cs, time, 1);
	cs_doubt(cs, time, 1);
	cs_push(cs, time, &fr, CALLSTACK_UNWOUND_DOUBTED);
}

void callstack_return(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const struct callfunc *f;
	bool first;

	cs->stats.returns++;
	cs_show(cs, time);
	if (cs->over) {
		cs->over--;
		return;
	}
	if (cs->n == 0) {
		cs_base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	if (cs_top(cs)->back != to && cs_is_jump(cs, time, from, to))
		return;
	if (cs_switch(cs, time, from, to))
		return;
	if (cs_top(cs)->back == to) {
		const uint64_t plain = cs_top(cs)->loaded ? 0 : cs_return_bit(to);

		if (cs->believed == cs->n)
			cs->believed = 0;
		cs_pop(cs, time, 1);
		if (cs->n == 0)
			cs_caller(cs, time, to);
		else
			cs_top(cs)->returned |= plain;
		return;
	}
	if (to_outer(cs, time, to) || cs_return_to_outer(cs, time, to) || cs_unpark(cs, time, to))
		return;
	f = cs_function(cs, to, &first);
	if (!first && to_setjmp(cs, time, to))
		return; /* getcontext and setcontext */
	if (!first && cs_slot_before(cs, from) != CALLSTACK_SLOT_LOADED &&
	    cs_to_origin(cs, time, from, to, f))
		return;
	if (!first && to_function(cs, time, to, f))
		return;
	if (!first && (cs_unwind_to_outer(cs, time, f, to) || cs_stack_unwound(cs, time, to)))
		return;
	if (cs_top(cs)->is_signal || cs_stack_may_be_handler(cs, to)) {
		cs_top(cs)->handled = !cs_top(cs)->is_signal;
		cs_replace(cs, time, f, to, from); /* to what asks the kernel to end it */
		return;
	}
	if (!f->known && cs_slot_before(cs, from) == CALLSTACK_SLOT_PUSHED) {
		cs->stats.tails++;
		cs_replace_by_jump(cs, time, f, to, from, true);
		return;
	}
	if (first) {
		to_first(cs, time, from, to, f);
		return;
	}
	if (cs_has_just_switched(cs)) {
		cs_switch_unknown(cs, time, to);
		return;
	}
	if (cs->n > 1 && cs->frames[0].begins && !cs->believed) {
		to_unexplained(cs, time, from, to, f);
		return;
	}
	if (cs->n_outer || cs_top(cs)->seen)
		cs->stats.seen_refuted++;
	cs_forget_outer(cs);
	if (cs->frames[0].back == 0) {
		return_outward(cs, time, to);
		return;
	}
	cs->stats.unexplained++;
	cs->stats.skipped += cs->n;
	cs_pop(cs, time, cs->n);
	cs_base(cs, time, to, CALLSTACK_FOUND);
}

void callstack_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, bool indirect)
{
	const struct callfunc *of, *f;
	bool first, loaded, known;

	cs_show(cs, time);
	if (cs->over) {
		/* who jumps is not known: but to there nobody else does */
		if (indirect)
			(void)to_setjmp(cs, time, to);
		return;
	}
	if (cs->n == 0) {
		cs_base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	f = cs_function(cs, to, &first);
	of = cs_top(cs)->f;
	if (f == of && indirect && (cs_switch_inlined(cs, time, to) || to_outer_call(cs, time, f)))
		return;
	/* a direct one to its own first instruction may be a loop as well */
	if (f == of &&
	    (f->is_plt || ((!cs_top(cs)->pending || cs_top(cs)->same) && !(first && indirect))))
		return;
	if (f->is_thunk && first)
		return; /* it goes on from there */
	if (of->go == CALLFUNC_GO_GOGO && f->go != CALLFUNC_GO_GOGO && cs_go_on(cs, time, from, to))
		return;
	/* Out of a stub; or by one, to a function whose name it is not. */
	if ((cs_top(cs)->pending && !cs_top(cs)->same) || f->is_plt) {
		cs_replace(cs, time, f, to, from);
		return;
	}
	if (cs_switch(cs, time, from, to))
		return;
	/* a part of the function that jumps there, without a name: the same call goes on */
	if (!indirect && (f->is_part || (f->is_unnamed && cs->ops.in_parts &&
					 cs->ops.in_parts(cs->arg, from, to)))) {
		cs_top(cs)->part = f;
		return;
	}
	if (first) {
		cs->stats.tails++;
		/* not to its second half */
		if (cs_has_just_switched(cs) && indirect && !f->is_switch)
			cs_switch_new(cs, time, from, to, f);
		else
			cs_replace_by_jump(cs, time, f, to, from, indirect);
		return;
	}
	if (f->known && cs_function(cs, from, NULL) == f)
		return; /* within such a part */
	/*
	 * A return made of pop and jmp, as libraries of coroutines do; or what has loaded the stack
	 * pointer for its caller.
	 */
	if (cs_top(cs)->back == to) {
		loaded = cs_top(cs)->loaded && !cs_top(cs)->called;
		cs_pop(cs, time, 1);
		if (cs->n == 0)
			cs_caller(cs, time, to);
		else if (loaded)
			callstack_loaded(cs);
		return;
	}
	if (to_outer(cs, time, to) || cs_return_to_outer(cs, time, to) || to_setjmp(cs, time, to))
		return;
	/*
	 * generated code may put the stack pointer back before it goes on at a known place, but not
	 * before it goes anywhere
	 */
	if (!(indirect && cs_slot_before(cs, from) == CALLSTACK_SLOT_LOADED) &&
	    cs_to_origin(cs, time, from, to, f))
		return;
	/*
	 * what unwinds knows only when it runs where it goes; else it is code that several
	 * functions end in, as those that call an interpreter
	 */
	if ((indirect || !of->known) &&
	    (to_function(cs, time, to, f) || cs_unwind_to_outer(cs, time, f, to) ||
	     cs_stack_unwound(cs, time, to)))
		return;
	if (cs_unpark(cs, time, to))
		return;
	known = indirect && f->known && of->known;
	/*
	 * Into the middle of something that nobody has called: another stack, which was left where
	 * nobody saw it; or code that is shared (mempcpy goes on in memmove), which the jump itself
	 * says, or that has no names.
	 */
	if (known && cs_has_just_switched(cs)) {
		cs_switch_unknown(cs, time, to);
		return;
	}
	cs->stats.unexplained += known;
	/*
	 * the end of what unwinds, say, whose begin is not known: so it is with who goes on, and
	 * nobody has seen him called
	 */
	if (known && cs->n == 1 && cs_top(cs)->back == 0 && !cs_top(cs)->begins) {
		cs_pop(cs, time, 1);
		cs_base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	cs->stats.tails++;
	cs_replace_by_jump(cs, time, f, to, from, indirect);
}

void callstack_loaded(struct callstack *cs)
{
	if (cs->n == 0 || cs->over)
		return;
	cs_top(cs)->loaded = true;
	cs_top(cs)->called = false;
}

void callstack_stop(struct callstack *cs, uint64_t time, uint64_t ip, uint64_t back)
{
	(void)time;
	cs->stopped = true;
	cs->stop_ip = ip;
	cs->stop_back = back;
}

/* A handler may have gone on with another stack: all is in doubt, now and whenever one ends. */
static void exchange(struct callstack *cs, uint64_t time)
{
	waiting_exchange(cs->waiting);
	if (cs->n)
		cs_doubt(cs, time, 0);
}

static bool is_interrupted_at(const struct frame *fr, uint64_t ip)
{
	return fr->is_signal && (fr->resume == ip || fr->back == ip);
}

/*
 * So many frames are left, where a handler, the next one, has interrupted them. `asked`: the one on
 * top has asked to be ended.
 */
static void end_handler(struct callstack *cs, uint64_t time, uint32_t keep, bool asked)
{
	bool other = false;

	/* it has not interrupted that, nor one that has been told to end in the same moment */
	if (asked && cs->waiting)
		for (uint32_t i = cs->n; i - 1 > keep; i--)
			other |= !cs->frames[i - 1].in_place;
	cs_pop(cs, time, cs->n - keep);
	if (asked && cs->waiting && (other || waiting_exchanges(cs->waiting)))
		exchange(cs, time);
}

static void begin_handler(struct callstack *cs, uint64_t time, const struct frame *fr)
{
	enum callstack_why why = CALLSTACK_SIGNAL;

	cs->stats.signals++;
	if (cs->waiting && fr->in_place &&
	    (waiting_exchanges(cs->waiting) || !waiting_has_handler(cs->waiting, fr->f))) {
		cs->stats.doubted++;
		why = CALLSTACK_SIGNAL_DOUBTED;
	} else if (cs->waiting && !fr->in_place) {
		waiting_add_handler(cs->waiting, fr->f);
	}
	cs_push(cs, time, fr, why);
}

void callstack_resume(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const bool was_stopped = cs->stopped;
	const struct callfunc *f;
	bool first, asks, asked;
	struct frame fr;

	cs->stopped = false;
	if (cs->in_gap) {
		callstack_resync(cs, time, ip);
		return;
	}
	cs_show(cs, time);
	if (cs->n == 0) {
		cs_base(cs, time, ip, cs->is_new ? CALLSTACK_CALL : CALLSTACK_FOUND);
		if (cs->n && cs->is_new)
			cs_top(cs)->begins = cs->is_own = true;
		cs->left_at = cs->goes_on_after = cs->is_new ? time : 0;
		cs->is_new = false;
		return;
	}
	/*
	 * a handler that was interrupted where it asks to be ended, by another one that has asked
	 * there: that one ends
	 */
	asks = was_stopped && cs->stop_back && cs_top(cs)->is_signal;
	asked = asks && cs_top(cs)->tail; /* where it has returned to */
	if (asks && cs_top(cs)->resume == ip) {
		end_handler(cs, time, cs->n - 1, asked);
		return;
	}
	if (was_stopped && (ip == cs->stop_ip || ip == cs->stop_back))
		return;
	/* back from a handler: the innermost that interrupted this place, or its system call */
	for (uint32_t i = cs->n; i > 0; i--) {
		if (!is_interrupted_at(&cs->frames[i - 1], ip))
			continue;
		end_handler(cs, time, i - 1, asked);
		return;
	}
	if (was_stopped && cs_top(cs)->handled) {
		if (cs->n > 1 || !cs_stack_outward(cs, time, ip)) {
			cs_pop(cs, time, cs->n);
			cs_caller(cs, time, ip);
		}
		return;
	}
	f = cs_function(cs, ip, &first);
	if (was_stopped && first && cs_go_injected(cs, time, f, ip))
		return;
	if (was_stopped && first) {
		/*
		 * `back`: an interrupted system call goes on after its instruction, or is made
		 * again.
		 */
		fr = (struct frame){.f = f,
				    .ip = ip,
				    .resume = cs->stop_ip,
				    .back = cs->stop_back,
				    .is_signal = true,
				    .in_place = asked};
		begin_handler(cs, time, &fr);
		return;
	}
	if (asked && cs->waiting &&
	    (waiting_was_used(cs->waiting) || waiting_exchanges(cs->waiting))) {
		waiting_exchange(cs->waiting);
		cs_switch_unknown(cs, time, ip);
		return;
	}
	/* elsewhere: as if it had jumped */
	callstack_jump(cs, time, cs->stop_ip, ip, true);
}

void callstack_resume_within(struct callstack *cs)
{
	cs->stopped = false;
}

bool callstack_back_in(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const struct callfunc *f;
	uint32_t n = cs->n;

	cs_show(cs, time);
	f = cs_function(cs, ip, NULL);
	while (n > 0 && f->known && cs->frames[n - 1].f != f)
		n--;
	if (n == 0 || !f->known || cs->over)
		return false;
	cs->stats.skipped += cs->n - n;
	cs_pop(cs, time, cs->n - n);
	return true;
}

void callstack_finish(struct callstack *cs, uint64_t time)
{
	if (cs->waiting)
		waiting_forget(cs->waiting, cs);
	way_close(&cs->way);
	cs->is_own = cs->doubted = false;
	cs_drop(cs, time);
	free(cs->frames);
	free(cs->before);
	free(cs->outer);
	cs->frames = cs->before = cs->outer = NULL;
	cs->room = cs->n_before = 0;
	cs_uncharge(cs);
	cs->stopped = cs->in_gap = cs->is_new = false;
	while (cs->n_parked)
		cs_park_drop(cs, 0);
}
