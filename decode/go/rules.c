// SPDX-License-Identifier: Apache-2.0
/*
 * What each event of a Go trace needs, and what it does: one function a kind, in the files beside
 * this. The order of the checks in them decides which error is seen.
 */
#include <string.h>

#include "decode/go/order_internal.h"

const char *goorder_name(const struct goraw_event *ev)
{
	return gofmt_spec(ev->type)->name;
}

const char *goorder_g_name(uint8_t s)
{
	static const char *const names[] = {"Bad", "Runnable", "Running", "Syscall", "Waiting"};

	return s < ARRAY_SIZE(names) ? names[s] : "Bad";
}

const char *goorder_p_name(uint8_t s)
{
	static const char *const names[] = {"Bad", "Running", "Idle", "Syscall",
					    "SyscallAbandoned"};

	return s < ARRAY_SIZE(names) ? names[s] : "Bad";
}

static int need_one(struct goorder *o, enum goorder_need need, uint64_t id, const char *what)
{
	if (need == MUST && id == GOFMT_NO_ID)
		return goorder_broken(o, "expected a %s but didn't have one", what);
	if (need == NOT && id != GOFMT_NO_ID)
		return goorder_broken(o, "expected no %s but had one", what);
	return GOORDER_DONE;
}

int goorder_lacks(struct goorder *o, enum goorder_need p, enum goorder_need g)
{
	int r = need_one(o, MUST, o->ctx.m, "thread");

	if (r == GOORDER_DONE)
		r = need_one(o, p, o->ctx.p, "proc");
	return r == GOORDER_DONE ? need_one(o, g, o->ctx.g, "goroutine") : r;
}

struct goorder_thing *goorder_find(struct goorder_things *things, uint64_t id)
{
	struct goorder_thing *t = hashmap_pointer(&things->map, id);

	if (t)
		things->recent[id % GOORDER_RECENT] = t;
	return t;
}

struct goevent *goorder_transition(struct goorder *o, const struct goraw_event *ev,
				   enum goscope scope, uint64_t id, enum gostate from,
				   enum gostate to)
{
	struct goevent *e = goorder_push(o, ev, GOEVENT_TRANSITION);

	e->scope = scope;
	e->id = id;
	e->from = from;
	e->to = to;
	return e;
}

const gorule_fn goorder_rules[UINT8_MAX + 1] = {
	[GOFMT_PROCS_CHANGE] = gorule_metric,
	[GOFMT_PROC_START] = gorule_proc_start,
	[GOFMT_PROC_STOP] = gorule_proc_stop,
	[GOFMT_PROC_STEAL] = gorule_proc_steal,
	[GOFMT_PROC_STATUS] = gorule_proc_status,
	[GOFMT_GO_CREATE] = gorule_go_create,
	[GOFMT_GO_CREATE_SYSCALL] = gorule_go_create_syscall,
	[GOFMT_GO_START] = gorule_go_start,
	[GOFMT_GO_DESTROY] = gorule_go_stop,
	[GOFMT_GO_DESTROY_SYSCALL] = gorule_destroy_syscall,
	[GOFMT_GO_STOP] = gorule_go_stop,
	[GOFMT_GO_BLOCK] = gorule_go_stop,
	[GOFMT_GO_UNBLOCK] = gorule_go_unblock,
	[GOFMT_GO_SYSCALL_BEGIN] = gorule_syscall_begin,
	[GOFMT_GO_SYSCALL_END] = gorule_syscall_end,
	[GOFMT_GO_SYSCALL_END_BLOCKED] = gorule_syscall_end_blocked,
	[GOFMT_GO_STATUS] = gorule_go_status,
	[GOFMT_STW_BEGIN] = gorule_stw,
	[GOFMT_STW_END] = gorule_stw,
	[GOFMT_GC_ACTIVE] = gorule_gc,
	[GOFMT_GC_BEGIN] = gorule_gc,
	[GOFMT_GC_END] = gorule_gc,
	[GOFMT_GC_SWEEP_ACTIVE] = gorule_sweep_active,
	[GOFMT_GC_SWEEP_BEGIN] = gorule_gc_sweep,
	[GOFMT_GC_SWEEP_END] = gorule_gc_sweep,
	[GOFMT_GC_MARK_ASSIST_ACTIVE] = gorule_assist_active,
	[GOFMT_GC_MARK_ASSIST_BEGIN] = gorule_mark_assist,
	[GOFMT_GC_MARK_ASSIST_END] = gorule_mark_assist,
	[GOFMT_HEAP_ALLOC] = gorule_metric,
	[GOFMT_HEAP_GOAL] = gorule_metric,
	[GOFMT_GO_LABEL] = gorule_label,
	[GOFMT_USER_TASK_BEGIN] = gorule_task_begin,
	[GOFMT_USER_TASK_END] = gorule_task_end,
	[GOFMT_USER_REGION_BEGIN] = gorule_region,
	[GOFMT_USER_REGION_END] = gorule_region,
	[GOFMT_USER_LOG] = gorule_user_log,
	[GOFMT_GO_SWITCH] = gorule_go_switch,
	[GOFMT_GO_SWITCH_DESTROY] = gorule_go_switch,
	[GOFMT_GO_CREATE_BLOCKED] = gorule_go_create,
	[GOFMT_GO_STATUS_STACK] = gorule_go_status,
	[GOFMT_SPAN ... GOFMT_GOROUTINE_STACK_FREE] = gorule_experimental,
};
