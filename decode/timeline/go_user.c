/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Go program says of itself - tasks, regions, logs, labels - and its runtime: garbage
 * collection, stops of the world, metrics.
 */
#include "config.h"

#include "decode/timeline/go_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- regions of goroutines */

/* The event as one of any program's: the runtime's numbers are its own. */
static struct ringevent as_event(const struct tl_go_at *at, enum ringevent_kind kind, uint32_t name)
{
	return (struct ringevent){.kind = kind,
				  .ts = at->tl->last_source,
				  .pid = at->go->pid,
				  .tid = at->thread ? at->thread->tid : 0,
				  .of_runtime = true,
				  .name = writer_name_text(at->tl->w, name)};
}

static struct tl_place place_of(const struct tl_go_at *at, struct tl_goroutine *g)
{
	struct tl_thread *t = g->fiber.on ? g->fiber.on : at->thread;

	return (struct tl_place){.thread = t,
				 .fiber = &g->fiber,
				 .regions = &g->fiber.regions,
				 .mono = at->mono};
}

/*
 * What has begun before the trace is drawn from there, on a track of its own of which nothing is
 * drawn yet.
 */
static uint64_t early_since(const struct tl_go_at *at, const struct tl_goroutine *g)
{
	return g->fiber.parent_track && !g->fiber.regions.track ? at->go->begin : at->mono;
}

static int region_early(const struct tl_go_at *at, struct tl_goroutine *g, uint32_t name,
			uint64_t task, uint64_t since)
{
	struct ringevent ev = as_event(at, RINGEVENT_REGION_BEGIN, name);
	struct tl_place place = place_of(at, g);

	ev.began_early = true;
	ev.task = task;
	place.mono = since;
	return tl_region_begin(at->tl, &place, &ev);
}

int tl_go_early_regions(const struct tl_go_at *at, struct tl_goroutine *g)
{
	const struct gosurvey *s = at->go->survey;
	const uint64_t since = early_since(at, g);
	uint32_t n, first = gosurvey_early(s, g->fiber.id, &n);

	for (uint32_t i = first; i < first + n; i++) {
		int r = region_early(at, g,
				     writer_name(at->tl->w, gosurvey_name(s, s->early[i].name)),
				     s->early[i].task, since);

		if (r != 0)
			return r;
	}
	return 0;
}

int tl_go_early_tasks(const struct tl_go_at *at)
{
	const struct gosurvey *s = at->go->survey;
	uint32_t n, first = gosurvey_early(s, GOFMT_NO_ID, &n);

	for (uint32_t i = first; i < first + n; i++) {
		struct ringevent ev =
			as_event(at, RINGEVENT_TASK_BEGIN,
				 writer_name(at->tl->w, "(its name was not recorded)"));
		const struct tl_place place = {.mono = at->mono};
		int r;

		ev.began_early = true;
		ev.task = s->early[i].task;
		r = tl_task_begin(at->tl, &place, &ev);
		if (r != 0)
			return r;
	}
	return 0;
}

static int region(const struct tl_go_at *at, uint64_t id, bool begins, uint32_t name, uint64_t task)
{
	struct ringevent ev =
		as_event(at, begins ? RINGEVENT_REGION_BEGIN : RINGEVENT_REGION_END, name);
	struct tl_goroutine *g;
	struct tl_place place;
	int r = tl_goroutine_get(at, id, &g);

	if (r != 0)
		return r;
	ev.task = task;
	place = place_of(at, g);
	return begins ? tl_region_begin(at->tl, &place, &ev) : tl_region_end(at->tl, &place, &ev);
}

/* ---- what the runtime does */

static uint32_t range_name(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	char text[600];

	if (!ev->kind_of.p)
		return tl_go_text(at, &ev->name);
	(void)snprintf(text, sizeof(text), "%.*s (%.512s)", (int)ev->name.len, ev->name.p,
		       writer_name_text(at->tl->w, tl_go_text(at, &ev->kind_of)));
	return writer_name(at->tl->w, text);
}

/* One that the whole process has. */
static void whole(const struct tl_go_at *at, uint32_t *track, const char *track_name, bool *open,
		  uint32_t name)
{
	const enum goevent_kind kind = at->ev->kind;
	struct tl_args a = {.n = 0};

	if (kind == GOEVENT_RANGE_END) {
		if (*open)
			writer_slice_end(at->tl->w, *track, at->mono, NULL);
		*open = false;
		return;
	}
	if (*open) /* said again at the begin of a generation */
		return;
	*open = true;
	if (at->ev->stack)
		tl_args_name(&a, at->go->n.key_stack, tl_go_stack(at, at->ev->stack));
	if (at->ev->g != GOFMT_NO_ID)
		tl_args_uint(&a, at->go->n.key_goroutine, at->ev->g);
	if (kind == GOEVENT_RANGE_ACTIVE)
		tl_args_name(&a, at->go->n.key_note, at->go->n.note_before);
	writer_slice_begin(at->tl->w, tl_go_track(at, track, tl_go_process(at), track_name),
			   kind == GOEVENT_RANGE_ACTIVE && !at->go->in_gc_before ? at->go->begin
										 : at->mono,
			   &(struct writer_event){.name = name,
						  .category = at->go->n.gc,
						  .args = a.a,
						  .n_args = a.n});
}

static int assist(const struct tl_go_at *at, uint32_t name)
{
	const struct goevent *ev = at->ev;
	struct tl_goroutine *g;
	int r = tl_goroutine_get(at, ev->id, &g);

	if (r != 0 || g->assists == (ev->kind != GOEVENT_RANGE_END))
		return r;
	g->assists = !g->assists;
	if (g->state == GOSTATE_WAITING)
		at->go->counts[TL_GO_GC_WAITING] += g->assists ? 1 : UINT64_MAX;
	if (ev->kind == GOEVENT_RANGE_ACTIVE)
		return region_early(at, g, name, 0, early_since(at, g));
	return region(at, ev->id, g->assists, name, 0);
}

int tl_go_range(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	const uint32_t name = range_name(at);

	if (ev->scope == GOSCOPE_PROC)
		return tl_go_proc_sweep(at);
	if (ev->scope == GOSCOPE_NONE) {
		whole(at, &at->go->gc_track, "Go: garbage collection", &at->go->in_gc, name);
		at->go->in_gc_before = true;
		return 0;
	}
	if (!ev->kind_of.p)
		return assist(at, name);
	whole(at, &at->go->stw_track, "Go: stop the world", &at->go->in_stw, name);
	return region(at, ev->id, ev->kind != GOEVENT_RANGE_END, name, 0);
}

int tl_go_metric(const struct tl_go_at *at)
{
	static const struct {
		const char *metric, *name;
		enum writer_unit unit;
	} metrics[] = {
		{"/sched/gomaxprocs:threads", "Go: GOMAXPROCS", WRITER_UNIT_COUNT},
		{"/memory/classes/heap/objects:bytes", "Go: heap", WRITER_UNIT_BYTES},
		{"/gc/heap/goal:bytes", "Go: heap goal", WRITER_UNIT_BYTES},
	};
	const struct goevent *ev = at->ev;
	uint32_t track;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		if (ev->name.len != strlen(metrics[i].metric) ||
		    memcmp(ev->name.p, metrics[i].metric, ev->name.len) != 0)
			continue;
		r = timeline_counter_track(at->tl, at->go->pid, at->mono, metrics[i].name,
					   metrics[i].unit, &track);
		if (r != 0)
			return r;
		writer_counter(at->tl->w, track, at->mono,
			       ev->value > INT64_MAX ? INT64_MAX : (int64_t)ev->value);
	}
	return 0;
}

void tl_go_cpu_sample(const struct tl_go_at *at)
{
	struct tl_args a = {.n = 0};

	if (at->thread)
		tl_args_uint(&a, at->go->n.key_tid, at->thread->tid);
	if (at->ev->stack)
		tl_args_name(&a, at->go->n.key_stack, tl_go_stack(at, at->ev->stack));
	tl_goroutine_instant(at, at->ev->g,
			     &(struct writer_event){.name = at->go->n.cpu_sample,
						    .category = at->go->n.sample,
						    .args = a.a,
						    .n_args = a.n});
}

/* ---- what the program says */

static int task(const struct tl_go_at *at, struct tl_goroutine *g)
{
	const struct goevent *ev = at->ev;
	const bool begins = ev->kind == GOEVENT_TASK_BEGIN;
	struct ringevent e = as_event(at, begins ? RINGEVENT_TASK_BEGIN : RINGEVENT_TASK_END,
				      tl_go_text(at, &ev->name));
	const struct tl_place place = place_of(at, g);

	e.task = ev->id;
	e.parent = ev->parent == GOFMT_NO_ID ? 0 : ev->parent;
	return begins ? tl_task_begin(at->tl, &place, &e) : tl_task_end(at->tl, &place, &e);
}

static void log_line(const struct tl_go_at *at, struct tl_goroutine *g)
{
	const struct goevent *ev = at->ev;
	const struct tl_place place = place_of(at, g);
	struct ringevent e = as_event(at, RINGEVENT_LOG, 0);
	struct tl_args a = {.n = 0};
	char text[4096];

	(void)snprintf(text, sizeof(text), "%s%s%s%s", ev->name.len ? "[" : "",
		       writer_name_text(at->tl->w, tl_go_text(at, &ev->name)),
		       ev->name.len ? "] " : "",
		       writer_name_text(at->tl->w, tl_go_text(at, &ev->text)));
	e.task = ev->id;
	tl_args_task(at->tl, &a, &e);
	if (place.thread)
		tl_args_uint(&a, at->go->n.key_tid, place.thread->tid);
	at->tl->stats.logs++;
	tl_region_instant(at->tl, &place,
			  &(struct writer_event){.name = writer_name(at->tl->w,
								     *text ? text : "(empty)"),
						 .category = at->tl->event_names->log,
						 .args = a.a,
						 .n_args = a.n});
}

int tl_go_user(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	const bool begins = ev->kind == GOEVENT_REGION_BEGIN;
	struct tl_goroutine *g;
	int r = tl_goroutine_get(at, ev->g, &g);

	if (r != 0)
		return r;
	switch (ev->kind) {
	case GOEVENT_TASK_BEGIN:
	case GOEVENT_TASK_END:
		return task(at, g);
	case GOEVENT_LOG:
		log_line(at, g);
		return 0;
	case GOEVENT_LABEL:
		g->label = tl_go_text(at, &ev->name);
		return 0;
	default:
		return region(at, ev->g, begins, tl_go_text(at, &ev->name), ev->id);
	}
}

void tl_go_ranges_end(const struct tl_go_at *at)
{
	const struct writer_arg arg = {.key = at->go->n.key_note,
				       .kind = WRITER_ARG_NAME,
				       .value.name = at->go->n.note_end};
	const struct writer_event ev = {.args = &arg, .n_args = 1};

	if (at->go->in_gc)
		writer_slice_end(at->tl->w, at->go->gc_track, at->mono, &ev);
	if (at->go->in_stw)
		writer_slice_end(at->tl->w, at->go->stw_track, at->mono, &ev);
	at->go->in_gc = at->go->in_stw = false;
}

void tl_go_ranges_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono)
{
	if (go->in_gc)
		writer_slice_end(tl->w, go->gc_track, mono, NULL);
	if (go->in_stw)
		writer_slice_end(tl->w, go->stw_track, mono, NULL);
}
