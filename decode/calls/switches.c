// SPDX-License-Identifier: Apache-2.0
/* How a thread leaves one stack and goes on with another, see callstack.h. */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"

/* ---- leaving */

void cs_stack_end(struct callstack *cs, uint64_t time)
{
	cs_pop(cs, time, cs->n);
	if (cs->n_outer) {
		cs_push_outer(cs, time);
		cs_pop(cs, time, cs->n);
	}
	cs->n_before = cs->believed = 0;
	way_close(&cs->way);
	cs->over = 0;
	cs->is_own = cs->doubted = false;
	cs->run = (struct callstack_run){0};
}

/*
 * What is around the stack that runs, by what it has returned to and what its stack has told; NULL:
 * that is not known.
 */
static struct waiting_stack *around(struct callstack *cs, uint32_t *ret_n)
{
	struct waiting_stack *s = NULL;
	struct way way = cs->way;

	*ret_n = 0;
	if (!way_is_open(&way))
		return NULL;
	/* what a stack has told of its callers is like returns to them */
	if (cs->n_outer && way.n < MAX_PATH)
		way_add(&way, cs->frames[0].back, false);
	for (uint32_t k = cs->n_outer; k > 1 && way.n < MAX_PATH; k--)
		way_add(&way, cs->outer[k - 1].back, false);
	if (waiting_find(cs, &way, &s) != 1 || s->way)
		return NULL;
	*ret_n = waiting_depth(cs, s, &way);
	*ret_n -= *ret_n > 0; /* the outermost that is known stands for it */
	return s;
}

/* It has not gone on further than to where it waits again. */
static bool is_unchanged(const struct callstack *cs, uint32_t keep)
{
	return !cs->run.goroutine && !cs->way.in && cs->way.n == 1 && keep == 2 && !cs->n_outer &&
	       cs->frames[1].back == cs->way.path[0];
}

/*
 * The `keep` outermost frames of the stack that runs, with all that is around them. False: no
 * memory.
 */
static bool collect(struct callstack *cs, uint32_t keep, bool go, struct waiting_stack *ret)
{
	uint32_t n_around, n = 0;
	struct waiting_stack *s = around(cs, &n_around);
	const bool open = !s && way_is_open(&cs->way) && (!cs->n_outer || cs->outer[0].cut);

	*ret = (struct waiting_stack){.count = 1,
				      .left_by = cs,
				      .owner = s            ? s->owner
					       : cs->is_own ? cs
							    : NULL,
				      .doubted = cs->doubted,
				      .is_goroutine = go,
				      .run = cs->run};
	ret->frames = malloc((n_around + cs->n_outer + keep) * sizeof(*ret->frames));
	ret->way = open ? malloc(sizeof(*ret->way)) : NULL;
	if (!ret->frames || (open && !ret->way)) {
		waiting_stack_fini(ret);
		return false;
	}
	if (open)
		*ret->way = cs->way;
	if (n_around)
		memcpy(ret->frames, s->frames, n_around * sizeof(*s->frames));
	n += n_around;
	if (cs->n_outer)
		memcpy(ret->frames + n, cs->outer, cs->n_outer * sizeof(*cs->outer));
	n += cs->n_outer;
	memcpy(ret->frames + n, cs->frames, keep * sizeof(*cs->frames));
	ret->n = n + keep;
	if (n_around)
		ret->frames[n_around].back = s->frames[n_around].back;
	else if (s)
		ret->frames[0].first = s->frames[0].first;
	if (s) {
		ret->doubted |= s->doubted;
		waiting_take(cs->waiting, s, cs);
	}
	return true;
}

static void keep_waiting(struct callstack *cs, uint32_t keep, bool go)
{
	struct waiting_stack s;

	if (keep == 0 || cs->frames[keep - 1].back == 0 || cs->over) {
		/* it cannot be found again */
		waiting_miss(cs->waiting);
		return;
	}
	if (is_unchanged(cs, keep))
		return; /* it is one of those that wait there, still */
	if (!collect(cs, keep, go, &s)) {
		waiting_miss(cs->waiting);
		cs->stats.given_up++;
		return;
	}
	/*
	 * those that have returned to it, or whose stack has named it, and those that have not are
	 * alike
	 */
	if (s.n > 1 && s.frames[0].f->go == CALLFUNC_GO_BOTTOM) {
		memmove(s.frames, s.frames + 1, --s.n * sizeof(*s.frames));
		s.frames[0].first = true;
	}
	if (s.n > 1)
		s.frames[0].back = 0;
	for (uint32_t i = 0; i < s.n; i++)
		s.frames[i].loaded = s.frames[i].called = false;
	cs->stats.given_up += !waiting_put(cs->waiting, &s);
}

void cs_stack_leave(struct callstack *cs, uint64_t time, uint32_t keep, bool go)
{
	keep_waiting(cs, keep, go);
	cs_stack_end(cs, time);
}

/* ---- going on */

/* Whether it may be another one than it seems. */
static bool is_doubtful(const struct callstack *cs, const struct waiting_stack *s)
{
	if (s->doubted || waiting_is_contradicted(cs->waiting))
		return true;
	if (s->run.goroutine && cs->run.goroutine)
		return false;
	return (cs->unordered && waiting_moves(cs->waiting)) || !waiting_is_complete(cs->waiting);
}

/*
 * The one that was found goes on with the `n` outermost of its frames; `outside`: around what is
 * told already.
 */
static void adopt(struct callstack *cs, uint64_t time, struct waiting_stack *s, uint32_t n,
		  bool outside)
{
	const bool whole = !s->way &&
			   (s->frames[0].begins || s->frames[0].first || s->frames[0].seen);
	enum callstack_why why;

	cs->doubted = is_doubtful(cs, s);
	cs->stats.doubted += cs->doubted;
	if (s->is_goroutine)
		why = cs->doubted ? CALLSTACK_GOROUTINE_DOUBTED : CALLSTACK_GOROUTINE;
	else
		why = cs->doubted ? CALLSTACK_DOUBTED : CALLSTACK_RESUMED;
	cs->is_own = s->owner == cs;
	if (outside && cs->ops.identified)
		cs->ops.identified(cs->arg, why);
	for (uint32_t j = 0; j < n; j++) {
		/* what is around the outermost that is known is not */
		const enum callstack_why how = j == 0 && !whole ? CALLSTACK_FOUND : why;

		if (outside)
			cs_push_outside(cs, time, &s->frames[j], n - 1 - j, how);
		else
			cs_push(cs, time, &s->frames[j], how);
	}
	if (s->way)
		cs->way = *s->way;
	else
		way_close(&cs->way);
	waiting_take(cs->waiting, s, cs);
}

bool cs_stack_told(struct callstack *cs, uint64_t time, uint64_t to)
{
	const struct way way = {.path = {to}, .n = 1};
	struct waiting_stack *s;
	uint32_t depth;

	if (!cs->run.goroutine || cs->run.run == 0)
		return false;
	s = waiting_of_goroutine(cs->waiting, (struct callstack_run){.goroutine = cs->run.goroutine,
								     .run = cs->run.run - 1});
	if (!s)
		return false;
	if (waiting_at(s) != to) {
		cs->stats.contradicted++;
		cs->run = (struct callstack_run){0};
		waiting_take(cs->waiting, s, cs);
		waiting_contradict(cs->waiting);
		return false;
	}
	cs->stats.told++;
	depth = waiting_depth(cs, s, &way);
	if (depth) {
		adopt(cs, time, s, depth, false);
		return true;
	}
	/* nothing is known of it but that it waits there */
	waiting_take(cs->waiting, s, cs);
	cs_base(cs, time, to, CALLSTACK_FOUND);
	return true;
}

void cs_stack_resume(struct callstack *cs, uint64_t time, uint64_t to, const struct callfunc *in)
{
	struct waiting_stack *s = NULL;
	uint32_t n, depth;

	cs->unordered = cs->ops.is_unordered && cs->ops.is_unordered(cs->arg);
	cs->way = (struct way){.in = in, .path = {to}, .n = !in};
	if (in && waiting_has_point(cs, in, to))
		cs->way.point = to;
	n = waiting_find(cs, &cs->way, &s);
	depth = n == 1 ? waiting_depth(cs, s, &cs->way) : 0;
	if (depth) {
		adopt(cs, time, s, depth, false);
		return;
	}
	if (n == 1)
		waiting_take(cs->waiting, s, cs);
	if (n == 0 && !cs->run.goroutine)
		waiting_miss(cs->waiting);
	if (n <= 1)
		way_close(&cs->way);
	cs->doubted = n == 0 && !cs->run.goroutine;
	cs_base(cs, time, to, CALLSTACK_FOUND);
}

/* It is not known which it is, and cannot be found out. */
static bool lose_way(struct callstack *cs)
{
	waiting_miss(cs->waiting);
	way_close(&cs->way);
	return false;
}

/*
 * All of its frames that are known have returned, and it is one of several itself, of which it was
 * not known which: the way on is that of those. False: it cannot be put together.
 */
static bool go_on_around(struct callstack *cs, struct waiting_stack *s)
{
	const uint32_t known = waiting_known(cs, s, &cs->way);
	struct way way;

	if (!s->way || known == 0 || cs->way.n < known ||
	    s->way->n + (cs->way.n - known + 1) > MAX_PATH)
		return false;
	way = *s->way;
	for (uint32_t i = 0; i < cs->way.n; i++) {
		if (cs->way.pads[i])
			return false;
		/* the outermost has returned to where nobody knew */
		if (i + 1 >= known)
			way_add(&way, cs->way.path[i], false);
	}
	cs->way = way;
	waiting_take(cs->waiting, s, cs);
	return true;
}

bool cs_stack_outward(struct callstack *cs, uint64_t time, uint64_t to)
{
	struct waiting_stack *s = NULL;
	uint32_t n, depth;
	bool doubted = false;

	if (!cs->waiting || !way_is_open(&cs->way))
		return false;
	if (cs->n > 1 || cs->way.n == MAX_PATH)
		return lose_way(cs);
	way_add(&cs->way, to, false);
	for (;;) {
		n = waiting_find(cs, &cs->way, &s);
		if (n == 0)
			return lose_way(cs);
		if (n > 1)
			return false;
		depth = waiting_depth(cs, s, &cs->way);
		if (depth)
			break;
		doubted |= s->doubted;
		cs->doubted = doubted;
		if (go_on_around(cs, s))
			continue;
		/* all of its frames that are known have returned */
		cs->doubted |= s->way != NULL;
		if (s->way)
			waiting_miss(cs->waiting);
		waiting_take(cs->waiting, s, cs);
		way_close(&cs->way);
		return false;
	}
	s->doubted |= doubted;
	cs_pop(cs, time, 1);
	adopt(cs, time, s, depth, true);
	return true;
}

/* The way on, by an exception. */
static uint32_t find_unwound(struct callstack *cs, uint64_t to, struct way *ret,
			     struct waiting_stack **ret_s)
{
	if (!cs->waiting || !way_is_open(&cs->way) || cs->way.n == MAX_PATH || cs->n_outer)
		return 0;
	*ret = cs->way;
	way_add(ret, to, true);
	return waiting_has(cs, ret, false) ? waiting_find(cs, ret, ret_s) : 0;
}

bool cs_stack_unwinds(struct callstack *cs, uint64_t to)
{
	struct waiting_stack *s;
	struct way way;

	return find_unwound(cs, to, &way, &s) > 0;
}

bool cs_stack_unwound(struct callstack *cs, uint64_t time, uint64_t to)
{
	struct waiting_stack *s = NULL;
	struct way way;
	const uint32_t n = find_unwound(cs, to, &way, &s),
		       depth = n == 1 ? waiting_depth(cs, s, &way) : 0;

	if (n == 0 || (n == 1 && depth == 0))
		return false;
	cs->stats.unwound++;
	cs->stats.skipped += cs->n;
	cs->way = way;
	cs_pop(cs, time, cs->n);
	if (depth)
		adopt(cs, time, s, depth, true);
	else
		cs_caller(cs, time, to);
	return true;
}

bool cs_stack_may_be_handler(struct callstack *cs, uint64_t to)
{
	struct way way = cs->way;
	struct waiting_stack *s;

	if (!cs->waiting || !way_is_open(&way) || cs->n > 1 || cs->n_outer || way.n == MAX_PATH)
		return false;
	way_add(&way, to, false);
	return waiting_find(cs, &way, &s) == 0 && waiting_has(cs, &cs->way, true);
}

/* ---- by code that loads the stack pointer */

/* The stack that runs may be the one that goes on. */
static void switch_to(struct callstack *cs, uint64_t time, uint64_t to, const struct callfunc *in)
{
	cs->stats.switches++;
	cs_stack_leave(cs, time, cs->n, false);
	cs_stack_resume(cs, time, to, in);
}

/*
 * Whether it is to a function that has not called what switches itself, or lands in one where an
 * exception does: the stack is unwound.
 */
static bool is_unwinding(struct callstack *cs, uint64_t to, const struct callfunc *f)
{
	for (uint32_t i = cs->n; i > 1; i--)
		if ((cs->frames[i - 2].f == f && i - 1 + SWITCH_DEPTH <= cs->n) ||
		    ((cs->frames[i - 2].f == f || f->is_part) &&
		     cs_lands(cs, &cs->frames[i - 1], to)))
			return true;
	return false;
}

/*
 * Into the middle of a function, not to where a call in it returns: stacks wait within it, with
 * what they have called to switch, or without.
 */
static bool switch_within(struct callstack *cs, uint64_t time, uint64_t to,
			  const struct callfunc *f)
{
	const struct way way = {.in = f};
	struct waiting_stack *s;

	if (!f->known || (!waiting_has_point(cs, f, to) && waiting_find(cs, &way, &s) == 0))
		return false;
	switch_to(cs, time, to, f);
	return true;
}

static bool switch_into(struct callstack *cs, uint64_t time, uint64_t to)
{
	const struct callfunc *f;
	bool first;

	f = cs_function(cs, to, &first);
	if (first || cs_top(cs)->called || cs_top(cs)->f == f)
		return false;
	/* where others have been to setjmp, too, it may be any: this stack is one of them then */
	if (!waiting_has_point(cs, f, to) && (is_unwinding(cs, to, f) || cs_stack_unwinds(cs, to)))
		return false;
	return switch_within(cs, time, to, f);
}

/*
 * Outside of that frame, a call of `f` to which what switches has returned at `to` before, and
 * which has called something else then: a stack of its own, perhaps, that has begun on top of it
 * and is copied away now (as greenlet does). So many frames are in that call; 0: there is none.
 */
static uint32_t went_on(struct callstack *cs, uint32_t i, uint64_t to, const struct callfunc *f)
{
	const uint32_t last = i > MAX_SPLIT_DEPTH ? i - MAX_SPLIT_DEPTH : 1;

	while (i-- > last) {
		const struct frame *fr = &cs->frames[i - 1];

		if (fr->f == f && cs->frames[i].back != to && (fr->returned & cs_return_bit(to)))
			return i;
	}
	return 0;
}

/*
 * So many frames, the outermost, are left to go on by themselves: the others are a stack of their
 * own, and wait where `last` returns to.
 */
static bool split_off(struct callstack *cs, uint64_t time, uint32_t keep, const struct frame *last)
{
	const uint32_t n = cs->n - keep;
	struct waiting_stack s = {.count = 1,
				  .left_by = cs,
				  .doubted = true,
				  .n = n,
				  .frames = malloc(n * sizeof(*cs->frames))};
	struct frame fr = *last;

	if (!s.frames) {
		waiting_miss(cs->waiting);
		cs->stats.given_up++;
		return false;
	}
	memcpy(s.frames, cs->frames + keep, n * sizeof(*s.frames));
	s.frames[0].first = true;
	for (uint32_t i = 0; i < n; i++)
		s.frames[i].loaded = s.frames[i].called = false;
	if (n > 1)
		s.frames[0].back = 0;
	if (!waiting_put(cs->waiting, &s))
		cs->stats.given_up++;
	cs_pop(cs, time, n);
	fr.pending = true;
	cs_push(cs, time, &fr, CALLSTACK_CALL);
	return true;
}

/*
 * What runs may be several stacks, the one on top of the other: whichever of them goes on at `to`,
 * that is in doubt.
 */
static void split(struct callstack *cs, uint64_t time, uint64_t to)
{
	const struct callfunc *f = cs_function(cs, to, NULL);
	const struct frame last = *cs_top(cs);
	uint32_t keep;

	while (cs->n > 2 && (keep = went_on(cs, cs->n - 1, to, f)) > 0) {
		if (!split_off(cs, time, keep, &last))
			return;
		cs->doubted = true;
	}
}

bool cs_try_switch_inlined(struct callstack *cs, uint64_t time, uint64_t ip)
{
	return ip < KERNEL_HALF && switch_within(cs, time, ip, cs_top(cs)->f);
}

bool cs_try_switch(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const struct way way = {.path = {to}, .n = 1};
	struct waiting_stack *s;
	uint32_t n;

	if (from >= KERNEL_HALF)
		return false;
	if (cs_top(cs)->back == to)
		split(cs, time, to);
	n = waiting_find(cs, &way, &s);
	if (n == 0 && cs_top(cs)->back != to)
		return switch_into(cs, time, to);
	if (n == 0 && waiting_is_complete(cs->waiting))
		return false;
	switch_to(cs, time, to, NULL);
	return true;
}

void cs_switch_new(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
		   const struct callfunc *f)
{
	const struct frame fr = {
		.f = f, .ip = to, .site = from, .pending = f->is_plt, .first = true};

	cs->stats.switches++;
	cs_stack_leave(cs, time, cs->n, false);
	cs_push(cs, time, &fr, CALLSTACK_NEW_STACK);
}

void cs_switch_unknown(struct callstack *cs, uint64_t time, uint64_t to)
{
	cs->stats.switches++;
	cs->stats.unexplained++;
	cs_stack_leave(cs, time, cs->n, false);
	waiting_miss(cs->waiting); /* it has waited, and nobody knew */
	cs_base(cs, time, to, CALLSTACK_FOUND);
}
