// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decode/go/reader.h"
#include "decode/go/text.h"
#include "decode/go/text_out.h"

static const char *const kinds[] = {
	[GOEVENT_SYNC] = "Sync",
	[GOEVENT_METRIC] = "Metric",
	[GOEVENT_LABEL] = "Label",
	[GOEVENT_STACK_SAMPLE] = "StackSample",
	[GOEVENT_RANGE_BEGIN] = "RangeBegin",
	[GOEVENT_RANGE_ACTIVE] = "RangeActive",
	[GOEVENT_RANGE_END] = "RangeEnd",
	[GOEVENT_TASK_BEGIN] = "TaskBegin",
	[GOEVENT_TASK_END] = "TaskEnd",
	[GOEVENT_REGION_BEGIN] = "RegionBegin",
	[GOEVENT_REGION_END] = "RegionEnd",
	[GOEVENT_LOG] = "Log",
	[GOEVENT_TRANSITION] = "StateTransition",
	[GOEVENT_EXPERIMENTAL] = "Experimental",
};

static const char *const states[] = {
	[GOSTATE_UNDETERMINED] = "Undetermined",
	[GOSTATE_NOT_EXIST] = "NotExist",
	[GOSTATE_IDLE] = "Idle",
	[GOSTATE_RUNNABLE] = "Runnable",
	[GOSTATE_RUNNING] = "Running",
	[GOSTATE_WAITING] = "Waiting",
	[GOSTATE_SYSCALL] = "Syscall",
};

static void put_stack(struct gotext_out *o, const char *heading, const struct gogeneration *g,
		      uint64_t id)
{
	const uint32_t n = g ? gogeneration_stack_depth(g, id) : 0;

	gotext_printf(o, "\n%s\n", heading);
	for (uint32_t i = 0; i < n; i++) {
		struct goframe f;

		gogeneration_frame(g, id, i, &f);
		gotext_put(o, "\t", 1);
		gotext_put(o, f.func.p, f.func.len);
		gotext_printf(o, " @ 0x%" PRIx64 "\n\t\t", f.pc);
		gotext_put(o, f.file.p, f.file.len);
		gotext_printf(o, ":%" PRIu64 "\n", f.line);
	}
}

static void put_scope(struct gotext_out *o, const struct goevent *e)
{
	if (e->scope == GOSCOPE_NONE)
		gotext_printf(o, "None");
	else
		gotext_printf(o, "%s(%" PRId64 ")", e->scope == GOSCOPE_PROC ? "Proc" : "Goroutine",
			      (int64_t)e->id);
}

static void put_clock(struct gotext_out *o, const struct goclock *c)
{
	const time_t sec = (time_t)c->sec;
	struct tm tm;
	char nsec[16];
	size_t n;

	gotext_printf(o, " Trace=%" PRId64 " Mono=%" PRId64, (int64_t)c->trace, (int64_t)c->mono);
	if (!gmtime_r(&sec, &tm))
		return;
	gotext_printf(o, " Wall=%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1,
		      tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	n = (size_t)snprintf(nsec, sizeof(nsec), ".%09u", (unsigned int)(c->nsec % 1000000000));
	while (nsec[n - 1] == '0')
		n--;
	gotext_put(o, nsec, n > 1 ? n : 0);
	gotext_put(o, "Z", 1);
}

static void put_range(struct gotext_out *o, const struct goevent *e)
{
	gotext_printf(o, " Name=");
	if (e->kind_of.p) {
		char name[GOFMT_MAX_STRING + 32];
		const int n = snprintf(name, sizeof(name), "%.*s (", (int)e->name.len, e->name.p);

		/* the reason may have any bytes */
		memcpy(name + n, e->kind_of.p, e->kind_of.len);
		name[(size_t)n + e->kind_of.len] = ')';
		gotext_quote(o, name, (size_t)n + e->kind_of.len + 1);
	} else {
		gotext_string(o, &e->name);
	}
	gotext_printf(o, " Scope=");
	put_scope(o, e);
	if (e->kind != GOEVENT_RANGE_END)
		return;
	gotext_printf(o, " Attributes=[");
	if (e->type == GOFMT_GC_SWEEP_END)
		gotext_printf(o,
			      "\"bytes swept\"=Value{Uint64(%" PRIu64
			      ")} \"bytes reclaimed\"=Value{Uint64(%" PRIu64 ")}",
			      e->value, e->value2);
	gotext_printf(o, "]");
}

static void put_event(struct gotext_out *o, const struct gogeneration *g, const struct goevent *e)
{
	const struct gofmt_spec *spec = gofmt_spec(e->type);

	gotext_printf(o, "M=%" PRId64 " P=%" PRId64 " G=%" PRId64 " %s Time=%" PRId64,
		      (int64_t)e->m, (int64_t)e->p, (int64_t)e->g, kinds[e->kind],
		      (int64_t)e->time);
	switch (e->kind) {
	case GOEVENT_SYNC:
		gotext_printf(o, " N=%" PRIu64, e->id);
		if (e->clock)
			put_clock(o, e->clock);
		break;
	case GOEVENT_METRIC:
		gotext_printf(o, " Name=");
		gotext_string(o, &e->name);
		gotext_printf(o, " Value=Value{Uint64(%" PRIu64 ")}", e->value);
		break;
	case GOEVENT_LABEL:
		gotext_printf(o, " Label=");
		gotext_string(o, &e->name);
		gotext_printf(o, " Resource=");
		put_scope(o, e);
		break;
	case GOEVENT_RANGE_BEGIN:
	case GOEVENT_RANGE_ACTIVE:
	case GOEVENT_RANGE_END:
		put_range(o, e);
		break;
	case GOEVENT_TASK_BEGIN:
	case GOEVENT_TASK_END:
		gotext_printf(o, " ID=%" PRIu64 " Parent=%" PRIu64 " Type=", e->id, e->parent);
		gotext_string(o, &e->name);
		break;
	case GOEVENT_REGION_BEGIN:
	case GOEVENT_REGION_END:
		gotext_printf(o, " Task=%" PRIu64 " Type=", e->id);
		gotext_string(o, &e->name);
		break;
	case GOEVENT_LOG:
		gotext_printf(o, " Task=%" PRIu64 " Category=", e->id);
		gotext_string(o, &e->name);
		gotext_printf(o, " Message=");
		gotext_string(o, &e->text);
		break;
	case GOEVENT_TRANSITION:
		gotext_printf(o, " %s=%" PRId64 " %s->%s Reason=",
			      e->scope == GOSCOPE_PROC ? "ProcID" : "GoID", (int64_t)e->id,
			      states[e->from], states[e->to]);
		gotext_quote(o, e->text.p ? e->text.p : "", e->text.len);
		if (e->new_stack || e->type == GOFMT_GO_CREATE ||
		    e->type == GOFMT_GO_CREATE_BLOCKED)
			put_stack(o, "TransitionStack=", g, e->new_stack);
		break;
	case GOEVENT_EXPERIMENTAL:
		gotext_printf(o, " Name=%s Args=[", spec->name);
		for (unsigned int i = 0; i < spec->n_args; i++)
			gotext_printf(o, "%s%s=Value{Uint64(%" PRIu64 ")}", i ? ", " : "",
				      spec->args[i], e->args[i]);
		gotext_printf(o, "]");
		break;
	case GOEVENT_STACK_SAMPLE:
		break;
	}
	if (e->stack || e->kind == GOEVENT_STACK_SAMPLE)
		put_stack(o, "Stack=", g, e->stack);
	gotext_put(o, "\n", 1);
}

int gotext_parsed(gobatch_read_fn read, void *arg, struct budget *budget, int fd,
		  uint64_t max_bytes, struct gotext_stats *ret)
{
	_cleanup_(goreader_freep) struct goreader *reader = NULL;
	_cleanup_free_ struct gotext_out *o = malloc(sizeof(*o));
	struct goevent e;
	int r;

	*ret = (struct gotext_stats){0};
	if (!o)
		return -ENOMEM;
	o->fd = fd;
	o->max_bytes = max_bytes;
	o->bytes = o->n = 0;
	o->error = 0;
	r = goreader_new(read, arg, budget, &reader);
	if (r < 0)
		return r;
	while ((r = goreader_next(reader, &e)) == GOREADER_EVENT && o->error == 0) {
		put_event(o, goreader_generation(reader), &e);
		ret->events++;
	}
	gotext_flush(o);
	ret->generations = goreader_generations(reader);
	ret->bytes_read = goreader_offset(reader);
	ret->bytes_out = o->bytes;
	if (r == GOREADER_BROKEN)
		(void)snprintf(ret->why, sizeof(ret->why), "%s", goreader_why(reader));
	if (o->error < 0 && o->error != -EFBIG)
		ret->write_error = o->error;
	return r < 0 ? r : o->error;
}
