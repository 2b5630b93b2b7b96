// SPDX-License-Identifier: Apache-2.0
/* Rules of what the runtime and users say: metrics, labels, tasks, regions, logs. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "decode/go/order_internal.h"

int gorule_metric(struct goorder *o, const struct goraw_event *ev)
{
	static const struct gostring procs = {"/sched/gomaxprocs:threads", 25},
				     objects = {"/memory/classes/heap/objects:bytes", 34},
				     goal = {"/gc/heap/goal:bytes", 19};
	struct goevent *e;
	int r = goorder_need(o, MUST, ev->type == GOFMT_PROCS_CHANGE ? MUST : MAY);

	if (r != GOORDER_DONE)
		return r;
	e = goorder_push(o, ev, GOEVENT_METRIC);
	e->name = ev->type == GOFMT_PROCS_CHANGE ? procs
		  : ev->type == GOFMT_HEAP_ALLOC ? objects
						 : goal;
	e->value = ev->args[0];
	e->stack = ev->type == GOFMT_PROCS_CHANGE ? ev->args[1] : 0;
	return GOORDER_DONE;
}

int gorule_label(struct goorder *o, const struct goraw_event *ev)
{
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	e = goorder_push(o, ev, GOEVENT_LABEL);
	(void)gogeneration_string(o->g, ev->args[0], &e->name);
	e->scope = GOSCOPE_GOROUTINE;
	e->id = o->ctx.g;
	return GOORDER_DONE;
}

int gorule_task_begin(struct goorder *o, const struct goraw_event *ev)
{
	const uint64_t parent = ev->args[1] ? ev->args[1] : GOFMT_NO_ID;
	struct gostring name;
	struct goevent *e;
	int r;

	if (hashmap_get(&o->tasks, 0, ev->args[0]))
		return goorder_broken(o, "task ID conflict: %" PRIu64, ev->args[0]);
	if (!gogeneration_string(o->g, ev->args[2], &name))
		return goorder_broken(o, "invalid string ID %" PRIu64 " for %s event", ev->args[2],
				      goorder_name(ev));
	r = goorder_need(o, MUST, MUST);
	if (r != GOORDER_DONE)
		return r;
	if (!goorder_make_task(o, ev->args[0], &name, parent))
		return -ENOMEM;
	e = goorder_push(o, ev, GOEVENT_TASK_BEGIN);
	e->id = ev->args[0];
	e->parent = parent;
	e->name = name;
	e->stack = ev->args[3];
	return GOORDER_DONE;
}

int gorule_task_end(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_task *t;
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	t = hashmap_pointer(&o->tasks, ev->args[0]);
	e = goorder_push(o, ev, GOEVENT_TASK_END);
	e->id = ev->args[0];
	e->parent = GOFMT_NO_ID;
	e->name.p = "";
	e->stack = ev->args[1];
	if (t) {
		memcpy(o->task_name, t->name, t->len);
		e->parent = t->parent;
		e->name = (struct gostring){.p = o->task_name, .len = t->len};
		hashmap_drop(&o->tasks, 0, ev->args[0]);
		budget_give(o->budget, sizeof(*t) + t->len);
		o->taken -= sizeof(*t) + t->len;
		free(t);
	}
	return GOORDER_DONE;
}

static int push_region(struct goorder *o, struct goorder_thing *g, uint64_t task,
		       const struct gostring *name)
{
	if (g->n_regions == GOORDER_MAX_REGIONS)
		return goorder_broken(o, "more than %u open regions in goroutine %" PRId64,
				      GOORDER_MAX_REGIONS, (int64_t)g->id);
	if (g->n_regions == g->max_regions) {
		const uint32_t max = g->max_regions ? g->max_regions * 2 : 4;
		struct goorder_region *v;

		if (goorder_charge(o, (max - g->max_regions) * sizeof(*v)) < 0)
			return -ENOMEM;
		v = reallocarray(g->regions, max, sizeof(*v));
		if (!v)
			return -ENOMEM;
		g->regions = v;
		g->max_regions = max;
	}
	g->regions[g->n_regions] = (struct goorder_region){.task = task,
							   .len = name->len,
							   .name = malloc(name->len + 1)};
	if (!g->regions[g->n_regions].name)
		return -ENOMEM;
	if (goorder_charge(o, name->len) < 0) {
		free(g->regions[g->n_regions].name);
		return -ENOMEM;
	}
	memcpy(g->regions[g->n_regions++].name, name->p, name->len);
	return GOORDER_DONE;
}

static int pop_region(struct goorder *o, struct goorder_thing *g, uint64_t task,
		      const struct gostring *name)
{
	struct goorder_region *top = g->n_regions ? &g->regions[g->n_regions - 1] : NULL;

	if (!top) /* it began before the trace */
		return GOORDER_DONE;
	if (top->task != task || top->len != name->len ||
	    memcmp(top->name, name->p, name->len) != 0)
		return goorder_broken(o,
				      "misuse of region in goroutine %" PRId64
				      ": region end {%" PRIu64 " %.*s} when the inner-most active "
				      "region start event is {%" PRIu64 " %.*s}",
				      (int64_t)g->id, task, (int)name->len, name->p, top->task,
				      (int)top->len, top->name);
	free(top->name);
	budget_give(o->budget, top->len);
	o->taken -= top->len;
	g->n_regions--;
	return GOORDER_DONE;
}

int gorule_region(struct goorder *o, const struct goraw_event *ev)
{
	const bool begins = ev->type == GOFMT_USER_REGION_BEGIN;
	struct goorder_thing *g;
	struct gostring name;
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	if (!gogeneration_string(o->g, ev->args[1], &name))
		return goorder_broken(o, "invalid string ID %" PRIu64 " for %s event", ev->args[1],
				      goorder_name(ev));
	g = goorder_g(o, o->ctx.g);
	if (!g)
		return goorder_broken(
			o, "encountered %s without known state for current goroutine %" PRId64,
			goorder_name(ev), (int64_t)o->ctx.g);
	r = begins ? push_region(o, g, ev->args[0], &name) : pop_region(o, g, ev->args[0], &name);
	if (r != GOORDER_DONE)
		return r;
	e = goorder_push(o, ev, begins ? GOEVENT_REGION_BEGIN : GOEVENT_REGION_END);
	e->id = ev->args[0];
	e->name = name;
	e->stack = ev->args[2];
	return GOORDER_DONE;
}

int gorule_user_log(struct goorder *o, const struct goraw_event *ev)
{
	struct goevent *e;
	int r = goorder_need(o, MUST, MUST);

	if (r != GOORDER_DONE)
		return r;
	e = goorder_push(o, ev, GOEVENT_LOG);
	e->id = ev->args[0];
	(void)gogeneration_string(o->g, ev->args[1], &e->name);
	(void)gogeneration_string(o->g, ev->args[2], &e->text);
	e->stack = ev->args[3];
	return GOORDER_DONE;
}

int gorule_experimental(struct goorder *o, const struct goraw_event *ev)
{
	int r = goorder_need(o, MAY, MAY);

	if (r == GOORDER_DONE)
		(void)goorder_push(o, ev, GOEVENT_EXPERIMENTAL);
	return r;
}
