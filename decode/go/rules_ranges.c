// SPDX-License-Identifier: Apache-2.0
/* Rules of what lasts on a goroutine or processor: stops of the world, garbage collection. */
#include <inttypes.h>

#include "decode/go/order_internal.h"

static const struct gostring gc_mark = {"GC concurrent mark phase", 24}, sweep = {"GC incremental sweep", 20}, assist = {"GC mark assist", 14},
			     stop = {"stop-the-world", 14};

static int range_begin(struct goorder *o, const struct goraw_event *ev, struct goorder_thing *t, uint8_t type, uint64_t kind)
{
	for (uint32_t i = 0; i < t->n_ranges; i++)
		if (t->ranges[i].type == type && t->ranges[i].kind == kind)
			return goorder_broken(o, "discovered event already in-flight for when starting event %s", goorder_name(ev));
	if (t->n_ranges == GOORDER_MAX_RANGES)
		return goorder_broken(o, "more than %u ranges at once", GOORDER_MAX_RANGES);
	t->ranges[t->n_ranges++] = (struct goorder_range){.type = type, .kind = kind};
	return GOORDER_DONE;
}

static int range_active(struct goorder *o, const struct goraw_event *ev, struct goorder_thing *t, uint8_t type)
{
	bool found = false;

	for (uint32_t i = 0; i < t->n_ranges; i++)
		found |= t->ranges[i].type == type;
	if (o->g->gen != o->initial_gen)
		return found ? GOORDER_DONE : goorder_broken(o, "resource is missing active range: %s", goorder_name(ev));
	return found ? goorder_broken(o, "found named active range already in first gen: %s", goorder_name(ev)) :
		       range_begin(o, ev, t, type, 0);
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
	return goorder_broken(o, "tried to end event %s, but not in-flight", gofmt_spec(type)->name);
}

static struct goevent *range(struct goorder *o, const struct goraw_event *ev, enum goevent_kind kind, const struct gostring *name,
			     enum goscope scope, uint64_t id)
{
	struct goevent *e = goorder_push(o, ev, kind);

	e->name = *name;
	e->scope = scope;
	e->id = id;
	return e;
}

int gorule_stw(struct goorder *o, const struct goraw_event *ev)
{
	const bool begins = ev->type == GOFMT_STW_BEGIN;
	uint64_t kind = begins ? ev->args[0] : 0;
	struct goorder_thing *g;
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	g = goorder_g(o, o->ctx.g);
	if (!g)
		return goorder_broken(o, "encountered event of type %s without known goroutine", goorder_name(ev));
	r = begins ? range_begin(o, ev, g, GOFMT_STW_BEGIN, kind) : range_end(o, g, GOFMT_STW_BEGIN, &kind);
	if (r != GOORDER_DONE)
		return r;
	e = range(o, ev, begins ? GOEVENT_RANGE_BEGIN : GOEVENT_RANGE_END, &stop, GOSCOPE_GOROUTINE, o->ctx.g);
	goorder_string(o, kind, &e->kind_of);
	e->stack = begins ? ev->args[1] : 0;
	return GOORDER_DONE;
}

int gorule_mark_assist(struct goorder *o, const struct goraw_event *ev)
{
	const bool begins = ev->type == GOFMT_GC_MARK_ASSIST_BEGIN;
	struct goorder_thing *g;
	uint64_t kind;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	g = goorder_g(o, o->ctx.g);
	if (!g)
		return goorder_broken(o, "encountered event of type %s without known goroutine", goorder_name(ev));
	r = begins ? range_begin(o, ev, g, GOFMT_GC_MARK_ASSIST_BEGIN, 0) : range_end(o, g, GOFMT_GC_MARK_ASSIST_BEGIN, &kind);
	if (r != GOORDER_DONE)
		return r;
	range(o, ev, begins ? GOEVENT_RANGE_BEGIN : GOEVENT_RANGE_END, &assist, GOSCOPE_GOROUTINE, o->ctx.g)->stack = begins ? ev->args[0] : 0;
	return GOORDER_DONE;
}

int gorule_assist_active(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = goorder_g(o, ev->args[0]);
	int r;

	if (!g)
		return goorder_broken(o, "uninitialized goroutine %" PRId64 " found during %s", (int64_t)ev->args[0], goorder_name(ev));
	r = range_active(o, ev, g, GOFMT_GC_MARK_ASSIST_BEGIN);
	if (r == GOORDER_DONE)
		(void)range(o, ev, GOEVENT_RANGE_ACTIVE, &assist, GOSCOPE_GOROUTINE, g->id);
	return r;
}

int gorule_gc_sweep(struct goorder *o, const struct goraw_event *ev)
{
	const bool begins = ev->type == GOFMT_GC_SWEEP_BEGIN;
	struct goorder_thing *p;
	struct goevent *e;
	uint64_t kind;
	int r = goorder_need(o, MUST, MAY);

	if (r != GOORDER_DONE)
		return r;
	p = goorder_p(o, o->ctx.p);
	if (!p)
		return goorder_broken(o, "encountered event of type %s without known proc", goorder_name(ev));
	r = begins ? range_begin(o, ev, p, GOFMT_GC_SWEEP_BEGIN, 0) : range_end(o, p, GOFMT_GC_SWEEP_BEGIN, &kind);
	if (r != GOORDER_DONE)
		return r;
	e = range(o, ev, begins ? GOEVENT_RANGE_BEGIN : GOEVENT_RANGE_END, &sweep, GOSCOPE_PROC, p->id);
	if (begins) {
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
		return goorder_broken(o, "encountered %s for unknown proc %" PRId64, goorder_name(ev), (int64_t)ev->args[0]);
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
			return goorder_broken(o, "encountered GCBegin while GC was already in progress");
		if (ev->type != GOFMT_GC_BEGIN && o->gc != GC_RUNNING)
			return goorder_broken(o, "encountered %s when GC was %s", goorder_name(ev),
					      o->gc == GC_UNDETERMINED ? "in an undetermined state" : "not in progress");
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
