// SPDX-License-Identifier: Apache-2.0
/* Rules of processors (P), which run goroutines. */
#include <errno.h>
#include <inttypes.h>

#include "decode/go/order_internal.h"

static enum gostate p_public(uint8_t s)
{
	static const enum gostate states[] = {GOSTATE_UNDETERMINED, GOSTATE_RUNNING, GOSTATE_IDLE,
					      GOSTATE_RUNNING, GOSTATE_IDLE};

	return states[s];
}

int gorule_proc_status(struct goorder *o, const struct goraw_event *ev)
{
	const uint64_t id = ev->args[0], wire = ev->args[1];
	struct goorder_thing *p = goorder_p(o, id);
	uint8_t status = (uint8_t)wire;
	enum gostate from;

	if (wire > P_ABANDONED)
		return goorder_broken(o, "invalid status for proc %" PRId64 ": %" PRIu64,
				      (int64_t)id, wire);
	if (p) {
		if (status == P_ABANDONED && p->status == P_SYSCALL) {
			/* somebody is about to steal it: it is the one's that has it still */
			const struct goorder_m *m = NULL;
			uint32_t pos = 0;
			uint64_t v;

			status = P_SYSCALL;
			while (!m && (v = hashmap_next(&o->ms, &pos)) != 0) {
				const struct goorder_m *one = (const void *)(uintptr_t)v;

				m = one->p == id ? one : NULL;
			}
			if (!m)
				return goorder_broken(
					o,
					"failed to find sched context for proc %" PRId64
					" that's about to be stolen",
					(int64_t)id);
			o->ctx = *m;
			from = GOSTATE_RUNNING;
		} else if (p->status != status) {
			return goorder_broken(o,
					      "inconsistent status for proc %" PRId64
					      ": old %s vs. new %s",
					      (int64_t)id, goorder_p_name(p->status),
					      goorder_p_name(status));
		} else {
			from = p_public(p->status);
		}
		goorder_set(o, p, status, 0);
	} else {
		p = goorder_make(o, &o->ps, id, status);
		if (!p)
			return -ENOMEM;
		from = o->g->gen == o->initial_gen ? GOSTATE_UNDETERMINED : GOSTATE_NOT_EXIST;
	}
	if (wire == P_RUNNING || wire == P_SYSCALL)
		o->thread->p = id;
	(void)goorder_transition(o, ev, GOSCOPE_PROC, id, from, p_public(status));
	return GOORDER_DONE;
}

int gorule_proc_start(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *p = goorder_p(o, ev->args[0]);
	int r;

	if (!p || p->status != P_IDLE || !goorder_succeeds(o, p, ev->args[1]) ||
	    o->ctx.p != GOFMT_NO_ID)
		return GOORDER_WAIT;
	r = goorder_need(o, NOT, MAY);
	if (r != GOORDER_DONE)
		return r;
	goorder_set(o, p, P_RUNNING, ev->args[1]);
	o->thread->p = p->id;
	(void)goorder_transition(o, ev, GOSCOPE_PROC, p->id, GOSTATE_IDLE, GOSTATE_RUNNING);
	return GOORDER_DONE;
}

int gorule_proc_stop(struct goorder *o, const struct goraw_event *ev)
{
	struct goorder_thing *p = goorder_p(o, o->ctx.p);
	int r;

	if (!p)
		return goorder_broken(o, "event ProcStop for proc (%" PRId64 ") that doesn't exist",
				      (int64_t)o->ctx.p);
	if (p->status != P_RUNNING && p->status != P_SYSCALL)
		return goorder_broken(o, "ProcStop event for proc that's not Running or Syscall");
	r = goorder_need(o, MUST, MAY);
	if (r != GOORDER_DONE)
		return r;
	p->status = P_IDLE;
	o->thread->p = GOFMT_NO_ID;
	(void)goorder_transition(o, ev, GOSCOPE_PROC, p->id, GOSTATE_RUNNING, GOSTATE_IDLE);
	return GOORDER_DONE;
}

int gorule_proc_steal(struct goorder *o, const struct goraw_event *ev)
{
	const uint64_t id = ev->args[0], from = ev->args[2];
	struct goorder_thing *p = goorder_p(o, id);
	enum gostate was = GOSTATE_RUNNING;
	struct goorder_m *m;
	int r;

	if (!p || (p->status != P_SYSCALL && p->status != P_ABANDONED) ||
	    !goorder_succeeds(o, p, ev->args[1]))
		return GOORDER_WAIT;
	r = goorder_need(o, MAY, MAY);
	if (r != GOORDER_DONE)
		return r;
	if (p->status == P_ABANDONED) {
		was = GOSTATE_IDLE;
	} else if (from == o->ctx.m) {
		if (o->ctx.p != id)
			return goorder_broken(o,
					      "tried to self-steal proc %" PRId64
					      ", but got proc %" PRId64 " instead",
					      (int64_t)id, (int64_t)o->ctx.p);
		o->thread->p = GOFMT_NO_ID;
	} else {
		m = hashmap_pointer(&o->ms, from);
		if (!m)
			return goorder_broken(o, "stole proc from non-existent thread %" PRId64,
					      (int64_t)from);
		if (m->p != id)
			return goorder_broken(o,
					      "tried to steal proc %" PRId64 " from thread %" PRId64
					      ", but got proc %" PRId64 " instead",
					      (int64_t)id, (int64_t)from, (int64_t)m->p);
		m->p = GOFMT_NO_ID;
	}
	goorder_set(o, p, P_IDLE, ev->args[1]);
	(void)goorder_transition(o, ev, GOSCOPE_PROC, id, was, GOSTATE_IDLE);
	return GOORDER_DONE;
}
