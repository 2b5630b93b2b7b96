// SPDX-License-Identifier: Apache-2.0
#include "decode/go/order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/go/order_internal.h"

int goorder_broken(struct goorder *o, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(o->why, o->why_size, format, ap);
	va_end(ap);
	return GOORDER_BROKEN;
}

int goorder_new(struct budget *budget, const struct gogeneration *g, char *why, size_t size,
		struct goorder **ret)
{
	struct goorder *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->budget = budget;
	o->g = g;
	o->why = why;
	o->why_size = size;
	*ret = o;
	return 0;
}

static void things_free(struct hashmap *map, bool regions)
{
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(map, &pos)) != 0) {
		void *p = (void *)(uintptr_t)v;

		if (regions) {
			struct goorder_thing *t = p;

			for (uint32_t i = 0; i < t->n_regions; i++)
				free(t->regions[i].name);
			free(t->regions);
		}
		free(p);
	}
	hashmap_fini(map);
}

struct goorder *goorder_free(struct goorder *o)
{
	if (!o)
		return NULL;
	things_free(&o->gs.map, true);
	things_free(&o->ps.map, true);
	things_free(&o->ms, false);
	things_free(&o->tasks, false);
	budget_give(o->budget, o->taken);
	free(o);
	return NULL;
}

int goorder_charge(struct goorder *o, uint64_t bytes)
{
	if (!budget_take(o->budget, bytes))
		return -ENOMEM;
	o->taken += bytes;
	return 0;
}

/* Of any map of the state; zeroed. NULL: no memory. */
static void *make(struct goorder *o, struct hashmap *map, uint64_t id, size_t size)
{
	void *p;

	if (goorder_charge(o, size + hashmap_more_bytes(map)) < 0)
		return NULL;
	p = calloc(1, size);
	if (p && hashmap_put_pointer(map, id, p) < 0) {
		free(p);
		return NULL;
	}
	return p;
}

struct goorder_thing *goorder_make(struct goorder *o, struct goorder_things *things, uint64_t id,
				   uint8_t status)
{
	struct goorder_thing *t = make(o, &things->map, id, sizeof(*t));

	if (t) {
		t->id = id;
		t->status = status;
		t->gen = o->g->gen;
	}
	return t;
}

void goorder_drop_g(struct goorder *o, struct goorder_thing *g)
{
	if (o->gs.recent[g->id % GOORDER_RECENT] == g)
		o->gs.recent[g->id % GOORDER_RECENT] = NULL;
	hashmap_drop(&o->gs.map, 0, g->id);
	for (uint32_t i = 0; i < g->n_regions; i++) {
		free(g->regions[i].name);
		budget_give(o->budget, g->regions[i].len);
		o->taken -= g->regions[i].len;
	}
	free(g->regions);
	free(g);
	budget_give(o->budget, sizeof(*g));
	o->taken -= sizeof(*g);
}

struct goorder_m *goorder_make_m(struct goorder *o, uint64_t m)
{
	struct goorder_m *t = make(o, &o->ms, m, sizeof(*t));

	if (t)
		*t = (struct goorder_m){.m = m, .p = GOFMT_NO_ID, .g = GOFMT_NO_ID};
	return t;
}

struct goorder_task *goorder_make_task(struct goorder *o, uint64_t id, const struct gostring *name,
				       uint64_t parent)
{
	struct goorder_task *t = make(o, &o->tasks, id, sizeof(*t) + name->len);

	if (t) {
		t->parent = parent;
		t->len = name->len;
		memcpy(t->name, name->p, name->len);
	}
	return t;
}

/* ---- what is next */

bool goorder_next(struct goorder *o, struct goevent *ret)
{
	if (o->at + 1 >= o->n_made)
		return false;
	*ret = o->queue[o->at++];
	return true;
}

/* The first event of a thread in this generation. */
static __attribute__((noinline)) int meet(struct goorder *o, struct goraw_event *ev)
{
	if (!o->initial_gen)
		o->initial_gen = o->g->gen;
	if (ev->m == GOFMT_NO_ID) {
		ev->thread = &o->nobody;
		return 0;
	}
	ev->thread = hashmap_pointer(&o->ms, ev->m);
	if (!ev->thread)
		ev->thread = goorder_make_m(o, ev->m);
	return ev->thread ? 0 : -ENOMEM;
}

int goorder_advance(struct goorder *o, struct goraw_event *ev, struct goevent *ret)
{
	if (!ev->thread && meet(o, ev) < 0)
		return -ENOMEM;
	if (ev->thread == &o->nobody)
		o->nobody =
			(struct goorder_m){.m = GOFMT_NO_ID, .p = GOFMT_NO_ID, .g = GOFMT_NO_ID};
	o->first = ret;
	o->at = o->n_made = 0;
	o->thread = ev->thread;
	o->ctx = *ev->thread;
	if (!goorder_rules[ev->type])
		return goorder_broken(o, "bad event type found while ordering: %d", ev->type);
	return goorder_rules[ev->type](o, ev);
}
