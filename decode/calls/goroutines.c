// SPDX-License-Identifier: Apache-2.0
/* How Go's runtime leaves the stacks of goroutines and goes on with them, see callstack.h. */
#include "decode/calls/callstack_internal.h"

/*
 * So many frames, the outermost, are the goroutine's: those on top of them are of what lets it go
 * on itself.
 */
static uint32_t own_frames(const struct callstack *cs)
{
	uint32_t n = cs->n;

	while (n > 0 && cs->frames[n - 1].f->go == CALLFUNC_GO_GOGO)
		n--;
	while (n > 0 && cs->frames[n - 1].f->go == CALLFUNC_GO_SAME)
		n--;
	return n;
}

static struct callstack_run told(struct callstack *cs, uint64_t since, bool begins)
{
	return cs->ops.goroutine && since ? cs->ops.goroutine(cs->arg, since, begins)
					  : (struct callstack_run){0};
}

/* The goroutine that runs stops now. */
static void stops(struct callstack *cs, uint64_t time)
{
	const uint64_t since = cs->stops_after ? cs->stops_after : time;
	const struct callstack_run run = told(cs, since, false);

	cs->left_at = time;
	cs->goes_on_after = run.goroutine ? since : time;
	if (!run.goroutine)
		return;
	if (cs->run.goroutine && (cs->run.goroutine != run.goroutine || cs->run.run != run.run)) {
		cs->stats.contradicted++;
		cs->doubted = true;
		waiting_contradict(cs->waiting);
	}
	cs->run = run;
}

bool cs_go_leave(struct callstack *cs, uint64_t time, const struct callfunc *f)
{
	const enum callfunc_go by = cs->n ? cs_top(cs)->f->go : CALLFUNC_GO_NONE;
	struct frame fr;

	if (!cs->waiting)
		return false;
	cs->go_never |= f->go == CALLFUNC_GO_NEVER;
	if (cs->over && (f->go == CALLFUNC_GO_MCALL || f->go == CALLFUNC_GO_SAME)) {
		/* Its innermost frames are not known, so it cannot be found again. */
		stops(cs, time);
		cs_stack_end(cs, time);
		waiting_miss(cs->waiting);
		return true;
	}
	if (by == CALLFUNC_GO_MCALL && f->go != CALLFUNC_GO_SAME) {
		stops(cs, time);
		if (f->go == CALLFUNC_GO_END)
			cs_stack_end(cs, time);
		else
			cs_stack_leave(cs, time, cs->n, true);
		return true;
	}
	if (by == CALLFUNC_GO_SAME && f->go == CALLFUNC_GO_YIELD) {
		stops(cs, time);
		fr = *cs_top(cs);
		fr.back = 0;
		cs_stack_leave(cs, time, own_frames(cs), true);
		cs_push(cs, time, &fr, CALLSTACK_SWITCHED);
		return true;
	}
	return false;
}

/* Where it was stopped; or a panic ends, in a function that had deferred what has recovered it. */
static void go_on_same(struct callstack *cs, uint64_t time, uint64_t to)
{
	const struct callfunc *f = cs_function(cs, to, NULL);
	const uint32_t own = own_frames(cs);
	uint32_t at = 0, outermost = 0, n = 0;

	if (own > 0 && cs->frames[own - 1].back == to) {
		cs_pop(cs, time, cs->n - (own - 1));
		if (cs->n == 0)
			cs_caller(cs, time, to);
		return;
	}
	for (uint32_t i = own; i > 0 && f->known; i--) {
		if (cs->frames[i - 1].f != f)
			continue;
		if (n++ == 0)
			at = i;
		outermost = i;
	}
	if (n == 0) {
		if (cs_unwind_to_outer(cs, time, f, to))
			return;
		waiting_miss(cs->waiting);
		cs_stack_end(cs, time);
		cs_base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	cs_unwind_to(cs, time, at);
	if (n == 1)
		return;
	/* it may be any of its calls: the next return shows where it was */
	cs_doubt(cs, time, outermost - 1);
}

bool cs_go_on(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const uint32_t own = own_frames(cs);
	const struct callfunc *f;
	bool first;

	if (!cs->waiting)
		return false;
	if (own < cs->n && cs->frames[own].f->go == CALLFUNC_GO_SAME) {
		go_on_same(cs, time, to);
		return true;
	}
	f = cs_function(cs, to, &first);
	cs->stats.switches++;
	cs_stack_end(cs, time);
	if (f->go == CALLFUNC_GO_THREAD) {
		cs_base(cs, time, to, CALLSTACK_SWITCHED);
		return true;
	}
	cs->run = told(cs, cs->goes_on_after, true);
	cs->stops_after = cs->run.goroutine ? cs->left_at : 0;
	cs->goes_on_after = 0;
	if (first) {
		const struct frame fr = {.f = f, .ip = to, .site = from, .first = true};

		cs_push(cs, time, &fr, CALLSTACK_CALL);
		return true;
	}
	if (!cs_stack_told(cs, time, to))
		cs_stack_resume(cs, time, to, NULL);
	return true;
}

bool cs_go_injected(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip)
{
	uint64_t at;
	struct frame fr;

	if (f->go != CALLFUNC_GO_INJECTED || cs->n < 2 || !cs_top(cs)->is_signal ||
	    !cs_top(cs)->resume)
		return false;
	at = cs_top(cs)->resume;
	cs_pop(cs, time, 1);
	fr = (struct frame){.f = f, .ip = ip, .back = at, .site = at};
	cs_push(cs, time, &fr, CALLSTACK_SIGNAL);
	return true;
}
