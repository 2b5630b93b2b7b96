// SPDX-License-Identifier: Apache-2.0
/* Rules of goroutines: their life, and system calls. */
#include <errno.h>
#include <inttypes.h>

#include "decode/go/order_internal.h"

static enum gostate g_public(uint8_t s)
{
	static const enum gostate states[] = {GOSTATE_UNDETERMINED, GOSTATE_RUNNABLE,
					      GOSTATE_RUNNING, GOSTATE_SYSCALL, GOSTATE_WAITING};

	return states[s];
}

/* The goroutine that the thread runs, which must be in that state. */
static inline int current_g(struct goorder *o, const struct goraw_event *ev, enum goorder_need p,
			    uint8_t status, struct goorder_thing **ret)
{
	struct goorder_thing *g = goorder_g(o, o->ctx.g);
	int r = goorder_need(o, p, MUST);

	if (r != GOORDER_DONE)
		return r;
	if (!g)
		return goorder_broken(o, "event %s for goroutine (%" PRId64 ") that doesn't exist",
				      goorder_name(ev), (int64_t)o->ctx.g);
	if (g->status != status)
		return goorder_broken(o, "%s event for goroutine that's not %s", goorder_name(ev),
				      goorder_g_name(status));
	*ret = g;
	return GOORDER_DONE;
}

int gorule_go_status(struct goorder *o, const struct goraw_event *ev)
{
	const uint64_t id = ev->args[0], mid = ev->args[1], wire = ev->args[2];
	const bool first = o->g->gen == o->initial_gen;
	struct goorder_thing *g = goorder_g(o, id);
	enum gostate from = GOSTATE_UNDETERMINED;
	struct goevent *e;

	if (wire > G_WAITING)
		return goorder_broken(o, "invalid status for goroutine %" PRId64 ": %" PRIu64,
				      (int64_t)id, wire);
	if (g) {
		if (g->status != wire)
			return goorder_broken(o,
					      "inconsistent status for goroutine %" PRId64
					      ": old %s vs. new %s",
					      (int64_t)id, goorder_g_name(g->status),
					      goorder_g_name((uint8_t)wire));
		from = g_public(g->status);
		goorder_set(o, g, (uint8_t)wire, 0);
	} else {
		if (!first)
			return goorder_broken(
				o,
				"found goroutine status for new goroutine after the first generation: id=%" PRId64
				" status=%s",
				(int64_t)id, goorder_g_name((uint8_t)wire));
		g = goorder_make(o, &o->gs, id, (uint8_t)wire);
		if (!g)
			return -ENOMEM;
	}
	if (wire == G_RUNNING) {
		o->thread->g = id;
	} else if (wire == G_SYSCALL) {
		struct goorder_m *m;

		if (mid == GOFMT_NO_ID)
			return goorder_broken(o,
					      "found goroutine %" PRId64
					      " in syscall without a thread",
					      (int64_t)id);
		if (mid == o->ctx.m) {
			if (!first && o->ctx.g != id)
				return goorder_broken(
					o,
					"inconsistent thread for syscalling goroutine %" PRId64
					": thread has goroutine %" PRId64,
					(int64_t)id, (int64_t)o->ctx.g);
			o->thread->g = id;
		} else {
			m = hashmap_pointer(&o->ms, mid);
			if (m && m->g != id)
				return goorder_broken(
					o,
					"inconsistent thread for syscalling goroutine %" PRId64
					": thread has goroutine %" PRId64,
					(int64_t)id, (int64_t)m->g);
			if (m) {
				o->ctx.g = id;
			} else {
				m = goorder_make_m(o, mid);
				if (!m)
					return -ENOMEM;
				m->g = id;
			}
			o->ctx.m = mid;
		}
	}
	e = goorder_transition(o, ev, GOSCOPE_GOROUTINE, id, from, g_public((uint8_t)wire));
	if (ev->type == GOFMT_GO_STATUS_STACK)
		e->stack = e->new_stack = ev->args[3];
	return GOORDER_DONE;
}

int gorule_go_create(struct goorder *o, const struct goraw_event *ev)
{
	const uint8_t status = ev->type == GOFMT_GO_CREATE_BLOCKED ? G_WAITING : G_RUNNABLE;
	const struct goorder_thing *g;
	struct goevent *e;
	int r = goorder_need(o, MUST, MAY);

	if (r != GOORDER_DONE)
		return r;
	g = goorder_g(o, o->ctx.g);
	if (g && g->status != G_RUNNING)
		return goorder_broken(o, "%s event for goroutine that's not Running",
				      goorder_name(ev));
	if (goorder_g(o, ev->args[0]))
		return goorder_broken(o,
				      "tried to create goroutine (%" PRId64 ") that already exists",
				      (int64_t)ev->args[0]);
	if (!goorder_make(o, &o->gs, ev->args[0], status))
		return -ENOMEM;
	e = goorder_transition(o, ev, GOSCOPE_GOROUTINE, ev->args[0], GOSTATE_NOT_EXIST,
			       g_public(status));
	e->new_stack = ev->args[1];
	e->stack = ev->args[2];
	return GOORDER_DONE;
}

int gorule_go_create_syscall(struct goorder *o, const struct goraw_event *ev)
{
	int r = goorder_need(o, MAY, NOT);

	if (r != GOORDER_DONE)
		return r;
	if (goorder_g(o, ev->args[0]))
		return goorder_broken(o,
				      "tried to create goroutine (%" PRId64
				      ") in syscall that already exists",
				      (int64_t)ev->args[0]);
	if (!goorder_make(o, &o->gs, ev->args[0], G_SYSCALL))
		return -ENOMEM;
	o->thread->g = ev->args[0];
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, ev->args[0], GOSTATE_NOT_EXIST,
				 GOSTATE_SYSCALL);
	return GOORDER_DONE;
}

int gorule_go_start(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = goorder_g(o, ev->args[0]);
	int r;

	if (!g || g->status != G_RUNNABLE || !goorder_succeeds(o, g, ev->args[1]))
		return GOORDER_WAIT;
	r = goorder_need(o, MUST, NOT);
	if (r != GOORDER_DONE)
		return r;
	goorder_set(o, g, G_RUNNING, ev->args[1]);
	o->thread->g = g->id;
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_RUNNABLE,
				 GOSTATE_RUNNING);
	return GOORDER_DONE;
}

/* It leaves its thread: it stops, blocks or ends. */
int gorule_go_stop(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL;
	struct goevent *e;
	int r = current_g(o, ev, MUST, G_RUNNING, &g);

	if (r != GOORDER_DONE)
		return r;
	o->thread->g = GOFMT_NO_ID;
	e = goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_RUNNING,
		       ev->type == GOFMT_GO_STOP    ? GOSTATE_RUNNABLE
		       : ev->type == GOFMT_GO_BLOCK ? GOSTATE_WAITING
						    : GOSTATE_NOT_EXIST);
	if (ev->type == GOFMT_GO_DESTROY) {
		goorder_drop_g(o, g);
		return GOORDER_DONE;
	}
	g->status = ev->type == GOFMT_GO_STOP ? G_RUNNABLE : G_WAITING;
	(void)gogeneration_string(o->g, ev->args[0], &e->text);
	e->stack = e->new_stack = ev->args[1];
	return GOORDER_DONE;
}

int gorule_go_unblock(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = goorder_g(o, ev->args[0]);

	if (!g || g->status != G_WAITING || !goorder_succeeds(o, g, ev->args[1]))
		return GOORDER_WAIT;
	goorder_set(o, g, G_RUNNABLE, ev->args[1]);
	goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_WAITING, GOSTATE_RUNNABLE)
		->stack = ev->args[2];
	return GOORDER_DONE;
}

/* To a goroutine that waits for this (a coroutine): three events at once. */
int gorule_go_switch(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL, *to;
	struct goraw_event part = {.m = ev->m, .time = ev->time};
	int r = current_g(o, ev, MUST, G_RUNNING, &g);

	if (r != GOORDER_DONE)
		return r;
	to = goorder_g(o, ev->args[0]);
	if (!to || to->status != G_WAITING || !goorder_succeeds(o, to, ev->args[1]))
		return GOORDER_WAIT;
	goorder_set(o, to, G_RUNNING, ev->args[1]);
	o->thread->g = to->id;
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, to->id, GOSTATE_WAITING,
				 GOSTATE_RUNNABLE);
	if (ev->type == GOFMT_GO_SWITCH) {
		part.type = GOFMT_GO_BLOCK;
		(void)goorder_transition(o, &part, GOSCOPE_GOROUTINE, g->id, GOSTATE_RUNNING,
					 GOSTATE_WAITING);
		g->status = G_WAITING;
	} else {
		part.type = GOFMT_GO_DESTROY;
		(void)goorder_transition(o, &part, GOSCOPE_GOROUTINE, g->id, GOSTATE_RUNNING,
					 GOSTATE_NOT_EXIST);
		goorder_drop_g(o, g);
	}
	part.type = GOFMT_GO_START;
	goorder_transition(o, &part, GOSCOPE_GOROUTINE, to->id, GOSTATE_RUNNABLE, GOSTATE_RUNNING)
		->g = GOFMT_NO_ID;
	return GOORDER_MORE;
}

/* ---- system calls */

/* The processor that the thread has. */
static int current_p(struct goorder *o, const struct goraw_event *ev, struct goorder_thing **ret)
{
	*ret = goorder_p(o, o->ctx.p);
	return *ret ? GOORDER_DONE
		    : goorder_broken(o, "uninitialized proc %" PRId64 " found during %s",
				     (int64_t)o->ctx.p, goorder_name(ev));
}

int gorule_syscall_begin(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL, *p;
	struct goevent *e;
	int r = current_g(o, ev, MUST, G_RUNNING, &g);

	if (r == GOORDER_DONE)
		r = current_p(o, ev, &p);
	if (r != GOORDER_DONE)
		return r;
	if (!goorder_succeeds(o, p, ev->args[0]))
		return goorder_broken(o,
				      "failed to advance %s: can't make sequence: %" PRIu64
				      " -> %" PRIu64,
				      goorder_name(ev), p->seq, ev->args[0]);
	g->status = G_SYSCALL;
	goorder_set(o, p, P_SYSCALL, ev->args[0]);
	e = goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_RUNNING, GOSTATE_SYSCALL);
	e->stack = e->new_stack = ev->args[1];
	return GOORDER_DONE;
}

int gorule_syscall_end(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL, *p;
	int r = current_g(o, ev, MUST, G_SYSCALL, &g);

	if (r == GOORDER_DONE)
		r = current_p(o, ev, &p);
	if (r != GOORDER_DONE)
		return r;
	if (p->status != P_SYSCALL)
		return goorder_broken(o,
				      "expected proc %" PRId64
				      " in state Syscall, but got %s instead",
				      (int64_t)p->id, goorder_p_name(p->status));
	g->status = G_RUNNING;
	p->status = P_RUNNING;
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_SYSCALL, GOSTATE_RUNNING);
	return GOORDER_DONE;
}

int gorule_syscall_end_blocked(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL, *p;
	int r;

	if (o->ctx.p != GOFMT_NO_ID) {
		r = current_p(o, ev, &p);
		if (r != GOORDER_DONE)
			return r;
		if (p->status == P_SYSCALL)
			return GOORDER_WAIT;
	}
	r = current_g(o, ev, MAY, G_SYSCALL, &g);
	if (r != GOORDER_DONE)
		return r;
	g->status = G_RUNNABLE;
	o->thread->g = GOFMT_NO_ID;
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_SYSCALL,
				 GOSTATE_RUNNABLE);
	return GOORDER_DONE;
}

int gorule_destroy_syscall(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *g = NULL, *p;
	int r = current_g(o, ev, MAY, G_SYSCALL, &g);

	if (r != GOORDER_DONE)
		return r;
	if (o->ctx.p != GOFMT_NO_ID) {
		const struct goraw_event steal = {.type = GOFMT_PROC_STEAL,
						  .m = ev->m,
						  .time = ev->time,
						  .args = {o->ctx.p}};

		p = goorder_p(o, o->ctx.p);
		if (!p)
			return goorder_broken(o, "found invalid proc %" PRId64 " during %s",
					      (int64_t)o->ctx.p, goorder_name(ev));
		if (p->status != P_SYSCALL)
			return goorder_broken(o, "proc %" PRId64 " in unexpected state %s",
					      (int64_t)p->id, goorder_p_name(p->status));
		/*
		 * the system may use the thread's number again, so nobody is told from whom it will
		 * be stolen
		 */
		p->status = P_ABANDONED;
		o->thread->p = GOFMT_NO_ID;
		(void)goorder_transition(o, &steal, GOSCOPE_PROC, p->id, GOSTATE_RUNNING,
					 GOSTATE_IDLE);
	}
	o->thread->g = GOFMT_NO_ID;
	(void)goorder_transition(o, ev, GOSCOPE_GOROUTINE, g->id, GOSTATE_SYSCALL,
				 GOSTATE_NOT_EXIST);
	goorder_drop_g(o, g);
	return o->n_made > 1 ? GOORDER_MORE : GOORDER_DONE;
}
