// SPDX-License-Identifier: Apache-2.0
/* Rules of what lasts on a goroutine or processor: stops of the world, garbage collection. */
#include <inttypes.h>

#include "decode/go/order_internal.h"

static const struct gostring gc_mark = {"GC concurrent mark phase", 24},
			     sweep = {"GC incremental sweep", 20}, assist = {"GC mark assist", 14},
			     stop = {"stop-the-world", 14};

static int range_begin(struct goorder *o, const struct goraw_event *ev, struct goorder_thing *t,
		       uint8_t type, uint64_t kind)
{
	for (uint32_t i = 0; i < t->n_ranges; i++)
		if (t->ranges[i].type == type && t->ranges[i].kind == kind)
			return goorder_broken(
				o, "discovered event already in-flight for when starting event %s",
				goorder_name(ev));
	if (t->n_ranges == GOORDER_MAX_RANGES)
		return goorder_broken(o, "more than %u ranges at once", GOORDER_MAX_RANGES);
	t->ranges[t->n_ranges++] = (struct goorder_range){.type = type, .kind = kind};
	return GOORDER_DONE;
}

static int range_active(struct goorder *o, const struct goraw_event *ev, struct goorder_thing *t,
			uint8_t type)
{
	bool found = false;

	for (uint32_t i = 0; i < t->n_ranges; i++)
		found |= t->ranges[i].type == type;
	if (o->g->gen != o->initial_gen)
		return found ? GOORDER_DONE
			     : goorder_broken(o, "resource is missing active range: %s",
					      goorder_name(ev));
	return found ? goorder_broken(o, "found named active range already in first gen: %s",
				      goorder_name(ev))
		     : range_begin(o, ev, t, type, 0);
}

static int range_end(struct goorder *o, struct goorder_thing *t, uint8_t type, uint64_t *ret_kind)
{
	for (uint32_t i = 0; i < t->n_ranges; i++) {
		if (t->ranges[i].type != type)
			continue;
		*ret_kind = t->ranges[i].kind;
		t->ranges[i] = t->ranges[--t->n_ranges];
		return GOORDER_DONE;
	}
	return goorder_broken(o, "tried to end event %s, but not in-flight",
			      gofmt_spec(type)->name);
}

static struct goevent *range(struct goorder *o, const struct goraw_event *ev,
			     enum goevent_kind kind, const struct gostring *name,
			     enum goscope scope, uint64_t id)
{
	struct goevent *e = goorder_push(o, ev, kind);

	e->name = *name;
	e->scope = scope;
	e->id = id;
	return e;
}

/*
 * A range of the goroutine or processor `t` that begins or ends now. `kind` is its begin's, or 0,
 * and what it was at its end.
 */
static int begin_or_end(struct goorder *o, const struct goraw_event *ev, enum gofmt_type begin,
			const struct gostring *name, enum goscope scope, struct goorder_thing *t,
			uint64_t *kind, struct goevent **ret)
{
	const bool begins = ev->type == begin;
	int r;

	if (!t)
		return goorder_broken(o, "encountered event of type %s without known %s",
				      goorder_name(ev),
				      scope == GOSCOPE_PROC ? "proc" : "goroutine");
	r = begins ? range_begin(o, ev, t, (uint8_t)begin, *kind)
		   : range_end(o, t, (uint8_t)begin, kind);
	if (r == GOORDER_DONE)
		*ret = range(o, ev, begins ? GOEVENT_RANGE_BEGIN : GOEVENT_RANGE_END, name, scope,
			     t->id);
	return r;
}

int gorule_stw(struct goorder *o, const struct goraw_event *ev)
{
	const bool begins = ev->type == GOFMT_STW_BEGIN;
	uint64_t kind = begins ? ev->args[0] : 0;
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r == GOORDER_DONE)
		r = begin_or_end(o, ev, GOFMT_STW_BEGIN, &stop, GOSCOPE_GOROUTINE,
				 goorder_g(o, o->ctx.g), &kind, &e);
	if (r != GOORDER_DONE)
		return r;
	(void)gogeneration_string(o->g, kind, &e->kind_of);
	e->stack = begins ? ev->args[1] : 0;
	return GOORDER_DONE;
}

int gorule_mark_assist(struct goorder *o, const struct goraw_event *ev)
{
	struct goevent *e;
	uint64_t kind = 0;
	int r = goorder_need(o, MUST, MUST);

	if (r == GOORDER_DONE)
		r = begin_or_end(o, ev, GOFMT_GC_MARK_ASSIST_BEGIN, &assist, GOSCOPE_GOROUTINE,
				 goorder_g(o, o->ctx.g), &kind, &e);
	if (r == GOORDER_DONE)
		e->stack = ev->type == GOFMT_GC_MARK_ASSIST_BEGIN ? ev->args[0] : 0;
	return r;
}

int gorule_assist_active(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = goorder_g(o, ev->args[0]);
	int r;

	if (!g)
		return goorder_broken(o, "uninitialized goroutine %" PRId64 " found during %s",
				      (int64_t)ev->args[0], goorder_name(ev));
	r = range_active(o, ev, g, GOFMT_GC_MARK_ASSIST_BEGIN);
	if (r == GOORDER_DONE)
		(void)range(o, ev, GOEVENT_RANGE_ACTIVE, &assist, GOSCOPE_GOROUTINE, g->id);
	return r;
}

int gorule_gc_sweep(struct goorder *o, const struct goraw_event *ev)
{
	struct goevent *e;
	uint64_t kind = 0;
	int r = goorder_need(o, MUST, MAY);

	if (r == GOORDER_DONE)
		r = begin_or_end(o, ev, GOFMT_GC_SWEEP_BEGIN, &sweep, GOSCOPE_PROC,
				 goorder_p(o, o->ctx.p), &kind, &e);
	if (r != GOORDER_DONE)
		return r;
	if (ev->type == GOFMT_GC_SWEEP_BEGIN) {
		e->stack = ev->args[0];
	} else {
		e->value = ev->args[0];
		e->value2 = ev->args[1];
	}
	return GOORDER_DONE;
}

int gorule_sweep_active(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *p = goorder_p(o, ev->args[0]);
	int r;

	if (!p)
		return goorder_broken(o, "encountered %s for unknown proc %" PRId64,
				      goorder_name(ev), (int64_t)ev->args[0]);
	r = range_active(o, ev, p, GOFMT_GC_SWEEP_BEGIN);
	if (r == GOORDER_DONE)
		(void)range(o, ev, GOEVENT_RANGE_ACTIVE, &sweep, GOSCOPE_PROC, p->id);
	return r;
}

int gorule_gc(struct goorder *o, const struct goraw_event *ev)
{
	const bool first = (ev->type == GOFMT_GC_ACTIVE && o->g->gen == o->initial_gen) ||
			   (ev->type == GOFMT_GC_BEGIN && o->gc == GC_UNDETERMINED);
	int r = GOORDER_DONE;
	struct goevent *e;

	if (first && o->gc != GC_UNDETERMINED)
		return goorder_broken(o, "GCActive in the first generation isn't first GC event");
	if (!first) {
		if (ev->args[0] != o->gc_seq + 1)
			return GOORDER_WAIT;
		if (ev->type == GOFMT_GC_BEGIN && o->gc == GC_RUNNING)
			return goorder_broken(
				o, "encountered GCBegin while GC was already in progress");
		if (ev->type != GOFMT_GC_BEGIN && o->gc != GC_RUNNING)
			return goorder_broken(o, "encountered %s when GC was %s", goorder_name(ev),
					      o->gc == GC_UNDETERMINED ? "in an undetermined state"
								       : "not in progress");
		r = goorder_need(o, MUST, MUST);
	}
	if (r != GOORDER_DONE)
		return r;
	o->gc_seq = ev->args[0];
	o->gc = ev->type == GOFMT_GC_END ? GC_NOT_RUNNING : GC_RUNNING;
	e = range(o, ev,
		  ev->type == GOFMT_GC_ACTIVE  ? GOEVENT_RANGE_ACTIVE
		  : ev->type == GOFMT_GC_BEGIN ? GOEVENT_RANGE_BEGIN
					       : GOEVENT_RANGE_END,
		  &gc_mark, GOSCOPE_NONE, GOFMT_NO_ID);
	e->stack = ev->type == GOFMT_GC_BEGIN ? ev->args[1] : 0;
	return GOORDER_DONE;
}
