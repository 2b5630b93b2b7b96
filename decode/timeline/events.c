/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of programs: which one goes where, their arguments, and what is neither region, fiber nor
 * task: logs, flows, counters, what is missing.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/bundle/ringabi.h"

/* ---- names and arguments */

int tl_events_begin(struct timeline *tl)
{
	static const char *const levels[] = {"debug", "info", "warning", "error"};
	struct writer *w = tl->w;
	struct tl_event_names *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	tl->event_names = n;
	n->region = writer_name(w, "region");
	n->instant = writer_name(w, "instant");
	n->log = writer_name(w, "log");
	n->task = writer_name(w, "task");
	n->fiber = writer_name(w, "fiber");
	n->flow = writer_name(w, "flow");
	n->trigger = writer_name(w, "trigger");
	n->loss = writer_name(w, "loss");
	n->key_task = writer_name(w, "in task");
	n->key_task_id = writer_name(w, "task id");
	n->key_parent = writer_name(w, "parent task id");
	n->key_tid = writer_name(w, "tid");
	n->key_ended_by = writer_name(w, "ended by tid");
	n->key_fiber = writer_name(w, "fiber id");
	n->key_level = writer_name(w, "level");
	n->key_format = writer_name(w, "format");
	n->key_id = writer_name(w, "flow id");
	n->key_note = writer_name(w, "note");
	n->key_ns = writer_name(w, "ns");
	n->key_over = writer_name(w, "over ns");
	n->key_count = writer_name(w, "count");
	for (unsigned int i = 0; i < ARRAY_SIZE(levels); i++)
		n->levels[i] = writer_name(w, levels[i]);
	n->note_open = writer_name(w, "not over when the recording ended");
	n->note_closed = writer_name(w, "its end was not recorded");
	n->note_early = writer_name(w, "its begin was overwritten");
	n->deeper = writer_name(w, "\xe2\x80\xa6 deeper regions");
	return 0;
}

void tl_events_free(struct timeline *tl)
{
	tl_go_free(tl);
	hashmap_fini(&tl->seen_names);
	free(tl->event_names);
	tl_fibers_free(tl);
	tl_tasks_free(tl);
}

void tl_args_uint(struct tl_args *a, uint32_t key, uint64_t value)
{
	if (a->n < WRITER_MAX_ARGS)
		a->a[a->n++] = (struct writer_arg){.key = key,
						   .kind = WRITER_ARG_UINT,
						   .value.u64 = value};
}

void tl_args_name(struct tl_args *a, uint32_t key, uint32_t name)
{
	if (a->n < WRITER_MAX_ARGS)
		a->a[a->n++] = (struct writer_arg){.key = key,
						   .kind = WRITER_ARG_NAME,
						   .value.name = name};
}

/* A text that was cut says so. */
static const char *cut_text(struct tl_args *a, const char *text)
{
	size_t len = writer_text_len(text, WRITER_TEXT_MAX - 4);
	char *to = a->texts + a->used;

	if (a->used + len + 4 > sizeof(a->texts))
		return text;
	memcpy(to, text, len);
	memcpy(to + len, "\xe2\x80\xa6", 4);
	a->used += len + 4;
	return to;
}

static uint32_t arg_key(struct timeline *tl, const struct ringevent *ev, size_t i)
{
	char name[16];

	if (ev->args[i].key && *ev->args[i].key)
		return writer_name(tl->w, ev->args[i].key);
	(void)snprintf(name, sizeof(name), "arg %zu", i + 1);
	return writer_name(tl->w, name);
}

void tl_args_event(struct timeline *tl, struct tl_args *a, const struct ringevent *ev)
{
	a->n = 0;
	a->used = 0;
	for (size_t i = 0; i < ev->n_args && i < RINGEVENT_MAX_ARGS; i++) {
		const struct ringevent_arg *from = &ev->args[i];
		struct writer_arg *to = &a->a[a->n++];

		*to = (struct writer_arg){.key = arg_key(tl, ev, i)};
		switch (from->type) {
		case RINGEVENT_I64:
			to->kind = WRITER_ARG_INT;
			to->value.i64 = from->value.i64;
			break;
		case RINGEVENT_F64:
			to->kind = WRITER_ARG_DOUBLE;
			to->value.f64 = from->value.f64;
			break;
		case RINGEVENT_TEXT:
			to->kind = WRITER_ARG_TEXT;
			to->value.text = from->cut ? cut_text(a, from->value.text)
						   : from->value.text;
			break;
		case RINGEVENT_POINTER:
			to->kind = WRITER_ARG_POINTER;
			to->value.u64 = from->value.u64;
			break;
		case RINGEVENT_U64:
			to->kind = WRITER_ARG_UINT;
			to->value.u64 = from->value.u64;
			break;
		}
	}
}

void tl_args_task(struct timeline *tl, struct tl_args *a, const struct ringevent *ev)
{
	uint32_t name;

	if (!ev->task)
		return;
	name = tl_task_name(tl, tl_task_owner(ev), ev->task);
	if (name)
		tl_args_name(a, tl->event_names->key_task, name);
	tl_args_uint(a, tl->event_names->key_task_id, ev->task);
}

/* ---- moments */

static void moment(struct timeline *tl, const struct tl_place *at, const struct tl_args *a,
		   uint32_t name, uint32_t category)
{
	tl_region_instant(tl, at,
			  &(struct writer_event){.name = name,
						 .category = category,
						 .args = a->a,
						 .n_args = a->n});
}

static void on_instant(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	struct tl_args a;

	tl_args_event(tl, &a, ev);
	tl_args_task(tl, &a, ev);
	if (at->fiber)
		tl_args_uint(&a, tl->event_names->key_tid, at->thread->tid);
	moment(tl, at, &a, writer_name(tl->w, *ev->name ? ev->name : "(no name)"),
	       tl->event_names->instant);
}

static void on_log(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	struct tl_args a;

	tl->stats.logs++;
	tl_args_event(tl, &a, ev);
	tl_args_name(&a, n->key_level,
		     n->levels[ev->level < ARRAY_SIZE(n->levels) ? ev->level : RING_ERROR]);
	if (ev->format && *ev->format)
		tl_args_name(&a, n->key_format, writer_name(tl->w, ev->format));
	tl_args_task(tl, &a, ev);
	if (at->fiber)
		tl_args_uint(&a, n->key_tid, at->thread->tid);
	moment(tl, at, &a, writer_name(tl->w, *ev->name ? ev->name : "(empty)"), n->log);
}

static void on_flow(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	uint64_t flow = tl_flow_number(ev->pid, ev->id);
	const struct writer_arg arg = {.key = n->key_id,
				       .kind = WRITER_ARG_UINT,
				       .value.u64 = ev->id};

	tl->stats.flows++;
	tl_region_instant(tl, at,
			  &(struct writer_event){.name = writer_name(tl->w,
								     *ev->name ? ev->name : "flow"),
						 .category = n->flow,
						 .args = &arg,
						 .n_args = 1,
						 .flow = ev->flow != RING_FLOW_END ? flow : 0,
						 .flow_end = ev->flow == RING_FLOW_END ? flow : 0});
}

/* A region was over its threshold, or the program asked by itself. */
static void on_trigger(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	uint64_t began = ev->began ? timeline_monotonic(tl, ev->began) : 0;
	struct tl_args a = {.n = 0};
	char text[160] = "the program asks for a snapshot";

	if (*ev->name)
		(void)snprintf(text, sizeof(text), "over its threshold: %.*s",
			       (int)writer_text_len(ev->name, 120), ev->name);
	if (*ev->name && began && began < at->mono)
		tl_args_uint(&a, n->key_ns, at->mono - began);
	moment(tl, at, &a, writer_name(tl->w, text), n->trigger);
}

/*
 * What came before is missing: on the thread's track where it ends, and among the losses. That a
 * ring has overwritten its oldest is how far it looks back, and nothing to be summed up as lost.
 * But where all of the time that the snapshot is of was overwritten, the thread has nothing to
 * show.
 */
static int on_lost(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	uint64_t since = at->thread->last_event ? at->thread->last_event : tl->stats.first_ns;
	struct tl_args a = {.n = 0};

	if (ev->value.u64)
		tl_args_uint(&a, n->key_count, ev->value.u64);
	moment(tl, at, &a, writer_name(tl->w, "events before this are missing"), n->loss);
	timeline_loss_draw(tl, ev->tid, since, at->mono, "events overwritten", ev->value.u64);
	if (!ev->nothing_left)
		return 0;
	return summary_loss(tl->summary, "events overwritten before they were copied",
			    ev->value.u64, at->mono > since ? at->mono - since : 0);
}

static int on_counter(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const char *name = *ev->name ? ev->name : "(no name)";
	uint32_t track;
	int r = timeline_counter_track(tl, ev->pid, at->mono, name, WRITER_UNIT_COUNT, &track);

	if (r != 0)
		return r;
	if (ev->value_type == RINGEVENT_F64)
		writer_counter_f64(tl->w, track, at->mono, ev->value.f64);
	else
		writer_counter(tl->w, track, at->mono, ev->value.i64);
	return 0;
}

/* ---- dispatch */

static int draw(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	switch (ev->kind) {
	case RINGEVENT_REGION_BEGIN:
		return tl_region_begin(tl, at, ev);
	case RINGEVENT_REGION_END:
		return tl_region_end(tl, at, ev);
	case RINGEVENT_TASK_BEGIN:
		return tl_task_begin(tl, at, ev);
	case RINGEVENT_TASK_END:
		return tl_task_end(tl, at, ev);
	case RINGEVENT_COUNTER:
		return on_counter(tl, at, ev);
	case RINGEVENT_LOST:
		return on_lost(tl, at, ev);
	case RINGEVENT_INSTANT:
		on_instant(tl, at, ev);
		return 0;
	case RINGEVENT_LOG:
		on_log(tl, at, ev);
		return 0;
	case RINGEVENT_FLOW:
		on_flow(tl, at, ev);
		return 0;
	case RINGEVENT_TRIGGER:
		on_trigger(tl, at, ev);
		return 0;
	case RINGEVENT_THREAD:
	case RINGEVENT_FIBER:
		break;
	}
	return 0;
}

static bool is_on(const struct tl_thread *t, uint64_t fiber)
{
	return t->fiber && t->fiber->id == fiber;
}

int timeline_event(struct timeline *tl, const struct ringevent *ev)
{
	bool early = ev->began_early;
	struct tl_place at = {.fiber = NULL};
	int r;

	tl->entering_early = early;
	r = timeline_enter(tl, ev->ts, &at.mono);
	tl->entering_early = false;
	if (r == 0)
		r = timeline_thread_enter_of(tl, ev->pid, ev->tid, at.mono, &at.thread);
	if (r != 0)
		return r;
	/* An early begin says where it was drawn, not what the thread ran then as a whole. */
	if (ev->kind == RINGEVENT_FIBER)
		r = tl_fiber_switch(tl, at.thread, ev->pid, ev->id, ev->name, at.mono);
	else if (!early && ev->kind != RINGEVENT_THREAD && ev->kind != RINGEVENT_LOST)
		r = tl_fiber_switch(tl, at.thread, ev->pid, ev->fiber,
				    is_on(at.thread, ev->fiber) ? NULL : ev->fiber_name, at.mono);
	if (r == 0 && early && ev->fiber)
		r = tl_fiber_find(tl, ev->pid, ev->fiber, ev->fiber_name, &at.fiber);
	if (r == 0) {
		if (!early)
			at.fiber = at.thread->fiber;
		at.regions = at.fiber ? &at.fiber->regions : &at.thread->regions;
		r = draw(tl, &at, ev);
		/*
		 * The edge of a ring is no event, and an early begin lies before what is missing.
		 */
		if (!early && ev->kind != RINGEVENT_THREAD)
			at.thread->last_event = at.mono;
	}
	if (r == TIMELINE_E_FULL)
		tl->stats.refused_full++;
	return r != 0 ? r : timeline_leave(tl);
}

/* ---- the end */

void tl_events_close(struct timeline *tl, uint64_t mono)
{
	tl_go_close(tl);
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		tl_regions_close(tl, &tl->threads[i]->regions, mono, tl->event_names->note_open);
		tl_fiber_leave(tl, tl->threads[i], mono);
	}
	for (uint32_t i = 0; i < tl->n_fibers; i++)
		tl_regions_close(tl, &tl->fibers[i]->regions, mono, tl->event_names->note_open);
	tl_tasks_close(tl, mono);
}

void tl_events_cut(struct timeline *tl, uint64_t mono)
{
	tl_go_cut(tl, mono);
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		struct tl_thread *t = tl->threads[i];

		tl_regions_cut(tl, &t->regions, mono);
		tl_seen_end(tl, t, mono);
		if (t->fiber)
			writer_slice_end(tl->w, t->fibers_track, mono, NULL);
	}
	for (uint32_t i = 0; i < tl->n_fibers; i++)
		tl_regions_cut(tl, &tl->fibers[i]->regions, mono);
	tl_tasks_cut(tl, mono);
}
