/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the order of events: order.c has what is known and hands out what happened, rules*.c
 * say what each event needs and does.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "decode/go/order.h"

/* Of the file; GOSTATE_... is what users see. */
enum goorder_g_status { G_RUNNABLE = 1, G_RUNNING, G_SYSCALL, G_WAITING };
enum goorder_p_status { P_RUNNING = 1, P_IDLE, P_SYSCALL, P_ABANDONED };

#define GOORDER_MAX_RANGES 4u /* at once, of a goroutine or processor: there are three kinds */
#define GOORDER_RECENT 1024u
#define GOORDER_MAX_REGIONS 4096u /* open at once, of a goroutine */

struct goorder_range {
	uint8_t type;  /* its begin's */
	uint64_t kind; /* of a stop of the world: a string of the generation */
};

struct goorder_region {
	uint64_t task;
	char *name;
	uint32_t len;
};

/* A goroutine or a processor. */
struct goorder_thing {
	uint64_t id;
	uint8_t status;
	uint64_t gen, seq;
	struct goorder_range ranges[GOORDER_MAX_RANGES];
	uint32_t n_ranges;
	struct goorder_region *regions; /* of goroutines */
	uint32_t n_regions, max_regions;
};

/* A thread, and what it has. */
struct goorder_m {
	uint64_t m, p, g;
};

struct goorder_task {
	uint64_t parent;
	uint32_t len;
	char name[];
};

/* By their ids; the last bits of these say where those of late are, for the next look. */
struct goorder_things {
	struct hashmap map;
	struct goorder_thing *recent[GOORDER_RECENT];
};

struct goorder {
	struct budget *budget;
	uint64_t taken;
	const struct gogeneration *g;
	uint64_t initial_gen;
	struct goorder_things gs, ps;
	struct hashmap ms, tasks;
	uint64_t gc_seq;
	enum { GC_UNDETERMINED, GC_NOT_RUNNING, GC_RUNNING } gc;
	struct goorder_m ctx;	  /* the event's thread, before it */
	struct goorder_m *thread; /* and after it */
	struct goorder_m nobody;  /* who wrote an event of no thread; forgets */
	struct goevent *first, queue[2]; /* what the event makes: into the caller's, and besides */
	uint32_t at, n_made;		 /* of the queue, and with the first */
	char task_name[GOFMT_MAX_STRING]; /* of one that has ended */
	char *why;
	size_t why_size;
};

/*
 * What an event needs, and what it does: enum goorder_answer, or -ENOMEM. By its type; NULL: it has
 * none.
 */
typedef int (*gorule_fn)(struct goorder *o, const struct goraw_event *ev);
extern const gorule_fn goorder_rules[UINT8_MAX + 1];

int goorder_broken(struct goorder *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int goorder_charge(struct goorder *o, uint64_t bytes);
struct goorder_thing *goorder_make(struct goorder *o, struct goorder_things *things, uint64_t id,
				   uint8_t status);
void goorder_drop_g(struct goorder *o, struct goorder_thing *g);
struct goorder_m *goorder_make_m(struct goorder *o, uint64_t m);
struct goorder_task *goorder_make_task(struct goorder *o, uint64_t id, const struct gostring *name,
				       uint64_t parent);

/*
 * What not every event has. In halves: all at once GCC would clear by an instruction that takes
 * longer to begin than this.
 */
static inline void goorder_clear(struct goevent *e)
{
	enum { REST = sizeof(*e) - offsetof(struct goevent, scope), HALF = REST / 2 };
	uint8_t *p = (uint8_t *)&e->scope;

	memset(p, 0, HALF);
	memset(p + HALF, 0, REST - HALF);
}

/* One more that the event makes, in the context before it. */
static inline struct goevent *goorder_push(struct goorder *o, const struct goraw_event *ev,
					   enum goevent_kind kind)
{
	struct goevent *e = o->n_made ? &o->queue[o->n_made - 1] : o->first;

	o->n_made++;
	goorder_clear(e);
	e->kind = kind;
	e->type = ev->type;
	e->m = o->ctx.m;
	e->p = o->ctx.p;
	e->g = o->ctx.g;
	e->time = e->raw_time = ev->time;
	memcpy(e->args, ev->args, sizeof(e->args));
	return e;
}

/* ---- rules.c: for all rules */

enum goorder_need { MUST, MAY, NOT };

/* It does not have what it must: says so. */
int goorder_lacks(struct goorder *o, enum goorder_need p, enum goorder_need g);

static inline bool goorder_has(enum goorder_need need, uint64_t id)
{
	return need == MAY || (need == MUST) == (id != GOFMT_NO_ID);
}

/* What the thread must have; itself always. enum goorder_answer. */
static inline int goorder_need(struct goorder *o, enum goorder_need p, enum goorder_need g)
{
	if (goorder_has(MUST, o->ctx.m) && goorder_has(p, o->ctx.p) && goorder_has(g, o->ctx.g))
		return GOORDER_DONE;
	return goorder_lacks(o, p, g);
}

const char *goorder_name(const struct goraw_event *ev);
const char *goorder_g_name(uint8_t status);
const char *goorder_p_name(uint8_t status);
struct goorder_thing *goorder_find(struct goorder_things *things, uint64_t id);

/* NULL: not known. A file may have one of the number GOFMT_NO_ID, too. */
static inline struct goorder_thing *goorder_thing(struct goorder_things *things, uint64_t id)
{
	struct goorder_thing *t = things->recent[id % GOORDER_RECENT];

	return t && t->id == id ? t : goorder_find(things, id);
}

static inline struct goorder_thing *goorder_g(struct goorder *o, uint64_t id)
{
	return goorder_thing(&o->gs, id);
}

static inline struct goorder_thing *goorder_p(struct goorder *o, uint64_t id)
{
	return goorder_thing(&o->ps, id);
}

static inline bool goorder_succeeds(const struct goorder *o, const struct goorder_thing *t,
				    uint64_t seq)
{
	return t->gen == o->g->gen && seq == t->seq + 1;
}

static inline void goorder_set(const struct goorder *o, struct goorder_thing *t, uint8_t status,
			       uint64_t seq)
{
	t->status = status;
	t->gen = o->g->gen;
	t->seq = seq;
}

struct goevent *goorder_transition(struct goorder *o, const struct goraw_event *ev,
				   enum goscope scope, uint64_t id, enum gostate from,
				   enum gostate to);

/* ---- the rules: enum goorder_answer, or -ENOMEM */

int gorule_go_status(struct goorder *o, const struct goraw_event *ev);
int gorule_go_create(struct goorder *o, const struct goraw_event *ev);
int gorule_go_create_syscall(struct goorder *o, const struct goraw_event *ev);
int gorule_go_start(struct goorder *o, const struct goraw_event *ev);
int gorule_go_stop(struct goorder *o, const struct goraw_event *ev);
int gorule_go_unblock(struct goorder *o, const struct goraw_event *ev);
int gorule_go_switch(struct goorder *o, const struct goraw_event *ev);
int gorule_syscall_begin(struct goorder *o, const struct goraw_event *ev);
int gorule_syscall_end(struct goorder *o, const struct goraw_event *ev);
int gorule_syscall_end_blocked(struct goorder *o, const struct goraw_event *ev);
int gorule_destroy_syscall(struct goorder *o, const struct goraw_event *ev);
int gorule_proc_status(struct goorder *o, const struct goraw_event *ev);
int gorule_proc_start(struct goorder *o, const struct goraw_event *ev);
int gorule_proc_stop(struct goorder *o, const struct goraw_event *ev);
int gorule_proc_steal(struct goorder *o, const struct goraw_event *ev);
int gorule_stw(struct goorder *o, const struct goraw_event *ev);
int gorule_mark_assist(struct goorder *o, const struct goraw_event *ev);
int gorule_assist_active(struct goorder *o, const struct goraw_event *ev);
int gorule_gc_sweep(struct goorder *o, const struct goraw_event *ev);
int gorule_sweep_active(struct goorder *o, const struct goraw_event *ev);
int gorule_gc(struct goorder *o, const struct goraw_event *ev);
int gorule_metric(struct goorder *o, const struct goraw_event *ev);
int gorule_label(struct goorder *o, const struct goraw_event *ev);
int gorule_task_begin(struct goorder *o, const struct goraw_event *ev);
int gorule_task_end(struct goorder *o, const struct goraw_event *ev);
int gorule_region(struct goorder *o, const struct goraw_event *ev);
int gorule_user_log(struct goorder *o, const struct goraw_event *ev);
int gorule_experimental(struct goorder *o, const struct goraw_event *ev);
