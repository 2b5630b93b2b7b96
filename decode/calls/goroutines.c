// SPDX-License-Identifier: Apache-2.0
/* Stacks of goroutines: how Go's runtime leaves them and goes on with them, see callstack.h. */
#include "decode/calls/goroutines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/calls/callstack_internal.h"

/* Goroutines whose frames are the same: it makes no difference which of them goes on. */
struct group {
	struct frame *frames; /* the outermost first. The innermost has called the runtime's switch, and returns to where they wait */
	uint32_t n;
	uint64_t count;
	uint64_t age; /* when the first of them came */
	bool doubted; /* these frames may be others' */
};

struct goroutines {
	struct budget *budget; /* borrowed */
	struct group *groups;
	uint32_t n, room;
	size_t bytes;
	uint64_t clock;
	bool complete; /* those that wait are all here */
};

int goroutines_new(struct budget *budget, struct goroutines **ret)
{
	struct goroutines *gs = calloc(1, sizeof(*gs));

	if (!gs)
		return -ENOMEM;
	gs->budget = budget;
	*ret = gs;
	return 0;
}

static void drop(struct goroutines *gs, uint32_t i)
{
	const size_t bytes = gs->groups[i].n * sizeof(*gs->groups[i].frames);

	gs->bytes -= bytes;
	budget_give(gs->budget, bytes);
	free(gs->groups[i].frames);
	gs->groups[i] = gs->groups[--gs->n];
}

static void clear(struct goroutines *gs)
{
	while (gs->n)
		drop(gs, gs->n - 1);
}

struct goroutines *goroutines_free(struct goroutines *gs)
{
	if (!gs)
		return NULL;
	clear(gs);
	free(gs->groups);
	free(gs);
	return NULL;
}

void goroutines_begin(struct goroutines *gs)
{
	clear(gs);
	gs->complete = true;
}

void goroutines_miss(struct goroutines *gs)
{
	gs->complete = false;
}

/* ---- the pool */

static bool is_same(const struct group *g, const struct frame *frames, uint32_t n)
{
	for (uint32_t i = 0; i < n && g->n == n; i++)
		if (g->frames[i].f != frames[i].f || g->frames[i].back != frames[i].back || g->frames[i].first != frames[i].first)
			return false;
	return g->n == n;
}

static void drop_oldest(struct goroutines *gs)
{
	uint32_t oldest = 0;

	for (uint32_t i = 1; i < gs->n; i++)
		if (gs->groups[i].age < gs->groups[oldest].age)
			oldest = i;
	drop(gs, oldest);
	gs->complete = false;
}

static bool make_room(struct goroutines *gs, size_t bytes)
{
	struct group *v;

	while (gs->n == GOROUTINES_MAX_STACKS || (gs->n && gs->bytes + bytes > GOROUTINES_MAX_BYTES))
		drop_oldest(gs);
	if (gs->n == gs->room) {
		v = reallocarray(gs->groups, gs->room ? gs->room * 2 : 16, sizeof(*v));
		if (!v)
			return false;
		gs->groups = v;
		gs->room = gs->room ? gs->room * 2 : 16;
	}
	return budget_take(gs->budget, bytes);
}

/* Takes the frames; false: they are given up. */
static bool put(struct goroutines *gs, struct frame *frames, uint32_t n, bool doubted)
{
	const size_t bytes = n * sizeof(*frames);

	for (uint32_t i = 0; i < gs->n; i++) {
		if (!is_same(&gs->groups[i], frames, n))
			continue;
		gs->groups[i].count++;
		gs->groups[i].doubted |= doubted;
		free(frames);
		return true;
	}
	if (bytes > GOROUTINES_MAX_BYTES || !make_room(gs, bytes)) {
		free(frames);
		gs->complete = false;
		return false;
	}
	gs->bytes += bytes;
	gs->groups[gs->n++] = (struct group){.frames = frames, .n = n, .count = 1, .age = ++gs->clock, .doubted = doubted};
	return true;
}

/* Whether it waits at path[0], and its calls return to the others. Of what is around those that are known nothing is known. */
static bool fits(struct callstack *cs, const struct group *g, const uint64_t *path, uint32_t n_path)
{
	for (uint32_t j = 0; j < n_path; j++) {
		if (j > 0 && j + 1 >= g->n)
			return !g->frames[0].first || (j + 1 == g->n && cs_function(cs, path[j], NULL)->go == CALLFUNC_GO_BOTTOM);
		if (g->frames[g->n - 1 - j].back != path[j])
			return false;
	}
	return true;
}

/* How many differ that fit, and of these the one that waits longest. */
static uint32_t find(struct callstack *cs, const uint64_t *path, uint32_t n_path, uint32_t *ret)
{
	const struct goroutines *gs = cs->goroutines;
	uint32_t n = 0;

	for (uint32_t i = 0; i < gs->n; i++) {
		if (!fits(cs, &gs->groups[i], path, n_path))
			continue;
		if (n++ == 0 || gs->groups[i].age < gs->groups[*ret].age)
			*ret = i;
	}
	return n;
}

static void take_one(struct goroutines *gs, uint32_t i)
{
	if (--gs->groups[i].count == 0)
		drop(gs, i);
}

/* ---- to the thread's own stack */

static void end_all(struct callstack *cs, uint64_t time)
{
	cs_pop(cs, time, cs->n);
	if (cs->n_outer) {
		cs_push_outer(cs, time);
		cs_pop(cs, time, cs->n);
	}
	cs->n_before = cs->believed = cs->n_go_path = 0;
	cs->over = 0;
}

/* The goroutine is one of several: the one that waits longest, and none of them is known for certain from now on. */
static uint32_t choose(struct callstack *cs, const uint64_t *path, uint32_t n_path, bool *ret_doubted)
{
	struct goroutines *gs = cs->goroutines;
	uint32_t at = 0, n = find(cs, path, n_path, &at);

	*ret_doubted = n != 1 || cs->go_unordered || !gs->complete;
	if (n == 0) {
		gs->complete = false;
		return UINT32_MAX;
	}
	for (uint32_t i = 0; i < gs->n && n > 1; i++)
		if (fits(cs, &gs->groups[i], path, n_path))
			gs->groups[i].doubted = true;
	*ret_doubted |= gs->groups[at].doubted;
	return at;
}

/* Of the goroutine: the `keep` outermost frames, and what is around them. NULL: no memory. */
static struct frame *collect(struct callstack *cs, uint32_t keep, uint32_t *ret_n, bool *ret_doubted)
{
	const struct group *g = NULL;
	uint32_t at = UINT32_MAX, around = 0, n_path = cs->n_go_path;
	struct frame *v;

	*ret_doubted = cs->go_doubted;
	/* what a stack has told of its callers is like returns to them */
	if (n_path && cs->n_outer && n_path < MAX_GO_PATH)
		cs->go_path[n_path++] = cs->frames[0].back;
	for (uint32_t k = cs->n_outer; k > 1 && n_path && n_path < MAX_GO_PATH; k--)
		cs->go_path[n_path++] = cs->outer[k - 1].back;
	if (n_path) {
		at = choose(cs, cs->go_path, n_path, ret_doubted);
		g = at == UINT32_MAX ? NULL : &cs->goroutines->groups[at];
	}
	if (g && g->n > n_path + 1)
		around = g->n - 1 - n_path;
	*ret_n = around + cs->n_outer + keep;
	v = malloc(*ret_n * sizeof(*v));
	if (!v)
		return NULL;
	if (around)
		memcpy(v, g->frames, around * sizeof(*v));
	if (cs->n_outer)
		memcpy(v + around, cs->outer, cs->n_outer * sizeof(*v));
	memcpy(v + around + cs->n_outer, cs->frames, keep * sizeof(*v));
	if (around)
		v[around].back = g->frames[around].back;
	else if (g && g->n > n_path)
		v[0].first = g->frames[0].first;
	if (g)
		take_one(cs->goroutines, at);
	return v;
}

/* It stops: its `keep` outermost frames are kept. */
static void park(struct callstack *cs, uint32_t keep)
{
	struct frame *v;
	uint32_t n;
	bool doubted;

	if (keep == 0 || cs->frames[keep - 1].back == 0) {
		goroutines_miss(cs->goroutines);
		return;
	}
	v = collect(cs, keep, &n, &doubted);
	if (!v) {
		goroutines_miss(cs->goroutines);
		cs->stats.given_up++;
		return;
	}
	/* those that have returned to it, or whose stack has named it, and those that have not are alike */
	if (n > 1 && v[0].f->go == CALLFUNC_GO_BOTTOM) {
		memmove(v, v + 1, --n * sizeof(*v));
		v[0].first = true;
	}
	if (n > 1)
		v[0].back = 0;
	cs->stats.given_up += !put(cs->goroutines, v, n, doubted);
}

/* It ends: it is none of those that wait. */
static void forget(struct callstack *cs)
{
	bool doubted;
	uint32_t at;

	if (cs->n_go_path == 0)
		return;
	at = choose(cs, cs->go_path, cs->n_go_path, &doubted);
	if (at != UINT32_MAX)
		take_one(cs->goroutines, at);
}

/* So many frames, the outermost, are the goroutine's: those on top of them are of what lets it go on itself. */
static uint32_t own_frames(const struct callstack *cs)
{
	uint32_t n = cs->n;

	while (n > 0 && cs->frames[n - 1].f->go == CALLFUNC_GO_GOGO)
		n--;
	while (n > 0 && cs->frames[n - 1].f->go == CALLFUNC_GO_SAME)
		n--;
	return n;
}

bool cs_go_leave(struct callstack *cs, uint64_t time, const struct callfunc *f)
{
	const enum callfunc_go by = cs->n ? cs_top(cs)->f->go : CALLFUNC_GO_NONE;
	struct frame fr;

	if (!cs->goroutines)
		return false;
	cs->go_never |= f->go == CALLFUNC_GO_NEVER;
	if (cs->over && (f->go == CALLFUNC_GO_MCALL || f->go == CALLFUNC_GO_SAME)) {
		/* Its innermost frames are not known, so it cannot be found again. */
		end_all(cs, time);
		goroutines_miss(cs->goroutines);
		return true;
	}
	if (by == CALLFUNC_GO_MCALL && f->go != CALLFUNC_GO_SAME) {
		if (f->go == CALLFUNC_GO_END)
			forget(cs);
		else
			park(cs, cs->n);
		end_all(cs, time);
		return true;
	}
	if (by == CALLFUNC_GO_SAME && f->go == CALLFUNC_GO_YIELD) {
		fr = *cs_top(cs);
		fr.back = 0;
		park(cs, own_frames(cs));
		end_all(cs, time);
		cs_push(cs, time, &fr, CALLSTACK_SWITCHED);
		return true;
	}
	return false;
}

/* ---- to a goroutine */

/* It goes on with the `n` outermost of its frames; `outside`: around what is told already. */
static void adopt(struct callstack *cs, uint64_t time, uint32_t at, uint32_t n, bool outside)
{
	struct goroutines *gs = cs->goroutines;
	const struct group *g = &gs->groups[at];
	const bool doubted = g->doubted || cs->go_unordered || !gs->complete;
	const enum callstack_why why = doubted ? CALLSTACK_GOROUTINE_DOUBTED : CALLSTACK_GOROUTINE;

	cs->stats.doubted += doubted;
	cs->go_doubted = doubted;
	cs->n_go_path = 0;
	for (uint32_t j = 0; j < n; j++) {
		if (outside)
			cs_push_outside(cs, time, &g->frames[j], n - 1 - j, why);
		else
			cs_push(cs, time, &g->frames[j], why);
	}
	take_one(gs, at);
}

static void resume(struct callstack *cs, uint64_t time, uint64_t to)
{
	uint32_t at, n;

	cs->go_path[0] = to;
	cs->n_go_path = 1;
	n = find(cs, cs->go_path, 1, &at);
	if (n == 1 && cs->goroutines->groups[at].n > 1) {
		adopt(cs, time, at, cs->goroutines->groups[at].n - 1, false);
		return;
	}
	if (n == 1)
		take_one(cs->goroutines, at);
	if (n <= 1) {
		goroutines_miss(cs->goroutines);
		cs->n_go_path = 0;
	}
	cs->go_doubted = n != 1;
	cs_base(cs, time, to, CALLSTACK_FOUND);
}

/* Where it was stopped; or a panic ends, in a function that had deferred what has recovered it. */
static void go_on_same(struct callstack *cs, uint64_t time, uint64_t to)
{
	const struct callfunc *f = cs_function(cs, to, NULL);
	const uint32_t own = own_frames(cs);
	uint32_t at = 0, n = 0;
	struct frame fr;

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
	}
	if (n == 0) {
		if (cs_unwind_to_outer(cs, time, f, to))
			return;
		goroutines_miss(cs->goroutines);
		end_all(cs, time);
		cs_base(cs, time, to, CALLSTACK_FOUND);
		return;
	}
	cs_unwind_to(cs, time, at);
	if (n == 1)
		return;
	/* it may be any of its calls: the next return shows where it was */
	fr = *cs_top(cs);
	cs_pop(cs, time, 1);
	cs_push(cs, time, &fr, CALLSTACK_UNWOUND_DOUBTED);
	cs->stats.doubted++;
}

bool cs_go_on(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const uint32_t own = own_frames(cs);
	const struct callfunc *f;
	bool first;

	if (!cs->goroutines)
		return false;
	if (own < cs->n && cs->frames[own].f->go == CALLFUNC_GO_SAME) {
		go_on_same(cs, time, to);
		return true;
	}
	f = cs_function(cs, to, &first);
	cs->stats.switches++;
	end_all(cs, time);
	cs->go_unordered = cs->ops.is_unordered && cs->ops.is_unordered(cs->arg);
	cs->go_doubted = false;
	if (first) {
		const struct frame fr = {.f = f, .ip = to, .site = from, .first = true};

		cs_push(cs, time, &fr, CALLSTACK_CALL);
		return true;
	}
	resume(cs, time, to);
	return true;
}

bool cs_go_outward(struct callstack *cs, uint64_t time, uint64_t to)
{
	uint32_t at, n;

	if (!cs->goroutines || cs->n_go_path == 0)
		return false;
	if (cs->n > 1 || cs->n_go_path == MAX_GO_PATH) {
		goroutines_miss(cs->goroutines);
		cs->n_go_path = 0;
		return false;
	}
	cs->go_path[cs->n_go_path++] = to;
	n = find(cs, cs->go_path, cs->n_go_path, &at);
	if (n == 0) {
		goroutines_miss(cs->goroutines);
		cs->n_go_path = 0;
		return false;
	}
	if (n > 1)
		return false;
	if (cs->goroutines->groups[at].n <= cs->n_go_path) {
		/* all of its frames have returned */
		cs->go_doubted = cs->goroutines->groups[at].doubted;
		take_one(cs->goroutines, at);
		cs->n_go_path = 0;
		return false;
	}
	cs_pop(cs, time, 1);
	adopt(cs, time, at, cs->goroutines->groups[at].n - cs->n_go_path, true);
	return true;
}

/* ---- */

bool cs_go_injected(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip)
{
	uint64_t at;
	struct frame fr;

	if (f->go != CALLFUNC_GO_INJECTED || cs->n < 2 || !cs_top(cs)->is_signal || !cs_top(cs)->resume)
		return false;
	at = cs_top(cs)->resume;
	cs_pop(cs, time, 1);
	fr = (struct frame){.f = f, .ip = ip, .back = at, .site = at};
	cs_push(cs, time, &fr, CALLSTACK_SIGNAL);
	return true;
}
