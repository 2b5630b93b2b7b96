// SPDX-License-Identifier: Apache-2.0
/* The frames of a stack: its life, its copies, and how frames begin and end. */
#include "decode/calls/callstack_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int callstack_new(const struct callstack_ops *ops, void *arg, struct budget *budget,
		  struct callstack **ret)
{
	struct callstack *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	cs->ops = *ops;
	cs->arg = arg;
	cs->budget = budget;
	*ret = cs;
	return 0;
}

bool cs_charge(struct callstack *cs, size_t *charged, size_t n)
{
	const size_t want = n > CALLSTACK_FREE_DEPTH ? n - CALLSTACK_FREE_DEPTH : 0;

	if (want <= *charged)
		return true;
	if (!cs->budget || !budget_take(cs->budget, (want - *charged) * sizeof(struct frame)))
		return false;
	*charged = want;
	return true;
}

void cs_uncharge(struct callstack *cs)
{
	if (cs->budget)
		budget_give(cs->budget, (cs->charged + cs->charged_before) * sizeof(struct frame));
	cs->charged = cs->charged_before = 0;
}

struct callstack *callstack_free(struct callstack *cs)
{
	if (!cs)
		return NULL;
	for (uint32_t i = 0; i < cs->n_parked; i++)
		free(cs->parked[i].frames);
	free(cs->parked);
	free(cs->before);
	free(cs->outer);
	free(cs->frames);
	cs_uncharge(cs);
	free(cs);
	return NULL;
}

uint32_t callstack_depth(const struct callstack *cs)
{
	return cs->n;
}

uint32_t callstack_n_open(const struct callstack *cs)
{
	return cs->n_open;
}

struct call *callstack_call_at(const struct callstack *cs, uint32_t i)
{
	return cs->hidden || cs->frames[i].pending ? NULL : &cs->frames[i].call;
}

struct call *callstack_innermost(const struct callstack *cs, const struct callfunc **ret_f,
				 uint32_t *ret_i)
{
	uint32_t i = cs->n;

	if (cs->n_open == 0)
		return NULL;
	while (cs->frames[i - 1].pending)
		i--;
	*ret_f = cs->frames[i - 1].f;
	*ret_i = i - 1;
	return &cs->frames[i - 1].call;
}

const struct callstack_stats *callstack_stats(const struct callstack *cs)
{
	return &cs->stats;
}

void callstack_set_waiting(struct callstack *cs, struct waiting *w)
{
	cs->waiting = w;
	way_close(&cs->way);
	cs->go_never = false;
}

bool callstack_runs_goroutines(const struct callstack *cs)
{
	return !cs->go_never;
}

void callstack_begin(struct callstack *cs)
{
	cs->is_new = true;
}

static int copy_frames(struct frame **ret, const struct frame *frames, uint32_t n)
{
	struct frame *v = n ? malloc(n * sizeof(*v)) : NULL;

	if (n && !v)
		return -ENOMEM;
	if (n)
		memcpy(v, frames, n * sizeof(*v));
	free(*ret);
	*ret = v;
	return 0;
}

int callstack_fork(struct callstack *cs, const struct callstack *parent)
{
	int r = copy_frames(&cs->frames, parent->frames, parent->n);

	if (r < 0)
		return r;
	cs->n = cs->room = parent->n;
	cs->hidden = true;
	r = copy_frames(&cs->before, parent->before, parent->n_before);
	if (r < 0)
		return r;
	cs->n_before = parent->n_before;
	r = copy_frames(&cs->outer, parent->outer, parent->n_outer);
	if (r < 0)
		return r;
	cs->n_outer = parent->n_outer;
	cs->outer_why = CALLSTACK_FORKED;
	for (uint32_t i = 0; i < parent->n_parked; i++)
		cs_park(cs, parent->parked[i].frames, parent->parked[i].n);
	cs->is_own = parent->is_own;
	cs->way = parent->way;
	if (cs->waiting && parent->waiting)
		waiting_fork(cs->waiting, cs, parent->waiting, parent);
	memcpy(cs->points, parent->points, sizeof(cs->points));
	cs->next_point = parent->next_point;
	cs->clock = parent->clock;
	cs->over = parent->over;
	cs->stopped = parent->stopped;
	cs->in_gap = parent->in_gap;
	cs->stop_ip = parent->stop_ip;
	cs->stop_back = parent->stop_back;
	return 0;
}

size_t callstack_size(const struct callstack *cs)
{
	size_t n = (size_t)cs->n + cs->n_before + cs->n_outer;

	for (uint32_t i = 0; i < cs->n_parked; i++)
		n += cs->parked[i].n;
	return n * sizeof(struct frame);
}

/* ---- */

static struct callstack_frame shown(const struct frame *fr)
{
	return (struct callstack_frame){.f = fr->f, .ip = fr->ip, .site = fr->site};
}

uint32_t callstack_n_outer(const struct callstack *cs)
{
	return cs->n_outer;
}

struct callstack_frame callstack_outer_at(const struct callstack *cs, uint32_t i)
{
	return shown(&cs->outer[i]);
}

void cs_begin(struct callstack *cs, uint64_t time, struct frame *fr, enum callstack_why why)
{
	const struct callstack_frame t = shown(fr);

	cs->ops.begin(cs->arg, time, &t, &fr->call, fr->cut ? CALLSTACK_SEEN_CUT : why);
	cs->n_open++;
}

static bool has_room(struct callstack *cs)
{
	const uint32_t room = cs->room ? cs->room * 2 : 64;
	struct frame *v;

	if (cs->n < cs->room)
		return true;
	v = cs->n < CALLSTACK_MAX_DEPTH && cs_charge(cs, &cs->charged, room)
		    ? reallocarray(cs->frames, room, sizeof(*v))
		    : NULL;
	if (!v)
		return false;
	cs->frames = v;
	cs->room = room;
	return true;
}

struct frame *cs_add(struct callstack *cs)
{
	if (cs->over || !has_room(cs)) {
		cs->over++;
		cs->stats.too_deep++;
		return NULL;
	}
	return &cs->frames[cs->n++];
}

static bool keep(struct callstack *cs, const struct frame *fr)
{
	struct frame *top = cs_add(cs);

	if (top)
		*top = *fr;
	return top;
}

void cs_push(struct callstack *cs, uint64_t time, const struct frame *fr, enum callstack_why why)
{
	if (keep(cs, fr) && !fr->pending)
		cs_begin(cs, time, cs_top(cs), why);
}

/* It was there already, around everything since the stack was found. */
void cs_push_outside(struct callstack *cs, uint64_t time, const struct frame *fr, uint32_t more,
		     enum callstack_why why)
{
	const struct callstack_frame t = shown(fr);

	if (!keep(cs, fr) || fr->pending)
		return;
	if (cs->ops.outside) {
		cs->ops.outside(cs->arg, time, &t, &cs_top(cs)->call, more,
				fr->cut ? CALLSTACK_SEEN_CUT : why);
		cs->n_open++;
	} else {
		cs_begin(cs, time, cs_top(cs), why);
	}
}

void cs_pop(struct callstack *cs, uint64_t time, uint32_t n)
{
	for (; n > 0; n--) {
		struct frame *fr = &cs->frames[--cs->n];

		if (fr->pending)
			continue;
		cs->n_open--;
		cs->ops.end(cs->arg, time, &fr->call);
	}
	if (cs->believed > cs->n)
		cs->believed = cs->n;
}

/* The frame on top is another function's now. */
void cs_replace(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip,
		uint64_t site)
{
	struct frame fr = *cs_top(cs);

	cs_pop(cs, time, 1);
	if (!fr.pending || fr.same) {
		fr.tail = true;
		fr.same = false;
		fr.site = site;
	}
	fr.f = f;
	fr.part = NULL;
	fr.ip = ip;
	fr.pending = f->is_plt;
	cs_push(cs, time, &fr, fr.tail ? CALLSTACK_TAIL : CALLSTACK_CALL);
}

/* The first frame of what is known. */
void cs_base(struct callstack *cs, uint64_t time, uint64_t ip, enum callstack_why why)
{
	const struct frame fr = {.f = cs_function(cs, ip, NULL), .ip = ip};

	cs_push(cs, time, &fr, why);
}

/* The last frame that was known has returned to there: so that was around it. */
void cs_caller(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const struct frame fr = {.f = cs_function(cs, ip, NULL), .ip = ip};

	if (cs->n_outer) {
		cs_push_outer(cs, time);
		return;
	}
	cs_push_outside(cs, time, &fr, 0, CALLSTACK_FOUND);
	cs->stats.inferred++;
}

/* A forked process runs: what its parent was in when it was forked, it is in. */
void cs_show(struct callstack *cs, uint64_t time)
{
	if (!cs->hidden)
		return;
	cs->hidden = false;
	for (uint32_t i = 0; i < cs->n; i++)
		if (!cs->frames[i].pending)
			cs_begin(cs, time, &cs->frames[i], CALLSTACK_FORKED);
}

void cs_drop(struct callstack *cs, uint64_t time)
{
	if (cs->hidden)
		cs->n = cs->believed = cs->n_outer = 0; /* nobody has seen them */
	cs_pop(cs, time, cs->n);
	cs->over = 0;
	cs->hidden = false;
	if (cs->n_outer) {
		cs_push_outer(cs, time);
		cs_pop(cs, time, cs->n);
	}
	cs->run = (struct callstack_run){0};
	cs->left_at = cs->stops_after = cs->goes_on_after = 0;
}
