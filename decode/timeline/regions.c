/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a program, one stack of them for each thread and fiber: how they nest, what of
 * their time was spent on the CPU, and the moments between them.
 *
 * Ends are matched by name and begin. What is open above a region that ends was left without an end
 * (a jump, a forgotten call) and ends with it; an end that fits nothing is counted and ignored.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool stack_used(const struct timeline *tl, const struct tl_place *at, uint64_t *ret_on,
		       uint64_t *ret_off)
{
	bool known = at->thread && timeline_thread_used(tl, at->thread, at->mono, ret_on, ret_off);

	if (at->fiber)
		tl_fiber_used(tl, at->fiber, at->mono, ret_on, ret_off);
	return known;
}

/* The stack's track, declared now if it was not. 0, or TIMELINE_E_FULL. */
static int track_declare(struct timeline *tl, const struct tl_place *at)
{
	if (at->regions->track)
		return 0;
	if (at->fiber)
		return tl_fiber_track(tl, at->fiber, at->mono);
	at->regions->track = writer_new_track(tl->w);
	writer_track(tl->w, at->regions->track, at->thread->lane.track, "regions", NULL);
	return 0;
}

static int room(struct tl_regions *r)
{
	uint32_t max = r->max_open ? r->max_open * 2 : 8;
	struct tl_region *p;

	if (r->n_open < r->max_open)
		return 0;
	p = reallocarray(r->open, max, sizeof(*p));
	if (!p)
		return -ENOMEM;
	r->open = p;
	r->max_open = max;
	return 0;
}

/* When it began, though its begin may be drawn later: where the recording does. */
static uint64_t early_since(const struct ringevent *ev)
{
	return ev->began_early && ev->began && ev->began < ev->ts ? ev->began : ev->ts;
}

int tl_region_begin(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	struct tl_regions *r = at->regions;
	struct tl_region *region;
	struct tl_args a;
	int k;

	tl->stats.regions++;
	if (r->n_open == TL_REGION_DEPTH) {
		tl->stats.regions_folded++;
		if (r->hidden++ == 0)
			writer_slice_begin(tl->w, r->track, at->mono,
					   &(struct writer_event){.name = n->deeper,
								  .category = n->region});
		return 0;
	}
	k = track_declare(tl, at);
	if (k == 0)
		k = room(r);
	if (k != 0)
		return k;
	if (r->n_open == 0 && !at->fiber)
		summary_watch(tl->summary, at->thread->index);
	region = &r->open[r->n_open++];
	*region = (struct tl_region){.name = writer_name(tl->w, *ev->name ? ev->name : "(no name)"),
				     .unfinished = ev->unfinished,
				     .source = early_since(ev),
				     .begin = at->mono};
	region->cut = region->source < ev->ts;
	if (region->cut)
		region->begin = timeline_monotonic(tl, region->source);
	if (region->begin > at->mono)
		region->begin = at->mono;
	(void)stack_used(tl, at, &region->on_ns, &region->off_ns);
	tl_args_event(tl, &a, ev);
	tl_args_task(tl, &a, ev);
	if (at->fiber && at->thread)
		tl_args_uint(&a, n->key_tid, at->thread->tid);
	if (ev->began_early)
		tl_args_name(&a, n->key_note, n->note_early);
	writer_slice_begin(tl->w, r->track, at->mono,
			   &(struct writer_event){.name = region->name,
						  .category = n->region,
						  .args = a.a,
						  .n_args = a.n,
						  .flow_end = tl_task_part(tl, tl_task_owner(ev),
									   ev->task, region->name,
									   at->mono)});
	return 0;
}

/* The innermost open region that the end can be of, + 1; 0: there is none. */
static uint32_t find(const struct tl_regions *r, uint32_t name, uint64_t began)
{
	for (uint32_t i = r->n_open; i > 0; i--)
		if (r->open[i - 1].name == name && (began == 0 || r->open[i - 1].source == began))
			return i;
	return 0;
}

/* Ends what is beyond the depth limit, and all but the `depth` outermost regions. */
static void trim(struct timeline *tl, struct tl_regions *r, uint32_t depth, uint64_t mono,
		 uint32_t note)
{
	const struct writer_arg arg = {
		.key = tl->event_names->key_note, .kind = WRITER_ARG_NAME, .value.name = note};
	const struct writer_event ev = {.args = &arg, .n_args = 1};

	if (r->hidden) {
		r->hidden = 0;
		writer_slice_end(tl->w, r->track, mono, NULL);
	}
	for (; r->n_open > depth; r->n_open--)
		writer_slice_end(tl->w, r->track, mono, &ev);
}

/* One that is too deep to be drawn still counts. */
static int hidden_end(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	uint64_t begin = ev->began ? timeline_monotonic(tl, ev->began) : at->mono;

	if (--at->regions->hidden == 0)
		writer_slice_end(tl->w, at->regions->track, at->mono, NULL);
	if (ev->began == 0 || begin > at->mono)
		return 0;
	return summary_region(tl->summary,
			      &(struct summary_region){.thread = at->thread->index,
						       .name_id = writer_name(tl->w, ev->name),
						       .name = ev->name,
						       .begin = begin,
						       .end = at->mono,
						       .self_ns = at->mono - begin});
}

static int sum_up(struct timeline *tl, const struct tl_place *at, const struct tl_region *region)
{
	const struct tl_fiber *f = at->fiber;
	uint64_t ns = at->mono - region->begin;
	struct summary_region s = {
		.thread = at->thread->index,
		.name_id = region->name,
		.name = writer_name_text(tl->w, region->name),
		.fiber = f ? writer_name_text(tl->w, f->name) : NULL,
		.begin = region->begin,
		.end = at->mono,
		.self_ns = ns > region->children_ns ? ns - region->children_ns : 0,
		.pause = f && f->goroutine ? tl_goroutine_pause(tl, f, region->begin)
					   : (struct summary_pause){0},
		.own_waits = !f || (f->on == at->thread && f->resumed <= region->begin),
	};

	s.cpu_known = stack_used(tl, at, &s.on_ns, &s.off_ns) &&
		      !timeline_has_incomplete(tl, region->source, tl->last_source);
	/* A loss may have taken back what seemed to be used when it began. */
	s.on_ns = s.on_ns > region->on_ns ? s.on_ns - region->on_ns : 0;
	s.off_ns = s.off_ns > region->off_ns ? s.off_ns - region->off_ns : 0;
	return summary_region(tl->summary, &s);
}

int tl_region_end(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	struct tl_regions *r = at->regions;
	struct tl_region *region;
	uint32_t i = find(r, writer_name(tl->w, *ev->name ? ev->name : "(no name)"), ev->began);
	struct tl_args a;
	int k;

	if (r->hidden && (i == 0 || ev->began == 0))
		return hidden_end(tl, at, ev);
	if (i == 0) {
		tl->stats.regions_not_nested++;
		return 0;
	}
	for (uint32_t above = i; above < r->n_open; above++)
		tl->stats.regions_not_nested += !r->open[above].unfinished;
	trim(tl, r, i, at->mono, tl->event_names->note_closed);
	region = &r->open[--r->n_open];
	tl_args_event(tl, &a, ev);
	if (region->cut)
		tl_args_uint(&a, tl->event_names->key_ns, at->mono - region->begin);
	writer_slice_end(tl->w, r->track, at->mono,
			      a.n ? &(struct writer_event){.args = a.a, .n_args = a.n} : NULL);
	if (r->n_open)
		r->open[r->n_open - 1].children_ns += at->mono - region->begin;
	k = sum_up(tl, at, region);
	if (r->n_open == 0 && at->fiber)
		tl_fiber_release(tl, at->fiber);
	return k;
}

void tl_region_instant(struct timeline *tl, const struct tl_place *at,
		       const struct writer_event *ev)
{
	if (track_declare(tl, at) != 0) {
		tl->stats.refused_full++;
		return;
	}
	writer_instant(tl->w, at->regions->track, at->mono, ev);
	if (at->fiber && at->regions->n_open == 0)
		tl_fiber_release(tl, at->fiber);
}

void tl_regions_close(struct timeline *tl, struct tl_regions *r, uint64_t mono, uint32_t note)
{
	trim(tl, r, 0, mono, note);
}

void tl_regions_cut(struct timeline *tl, const struct tl_regions *r, uint64_t mono)
{
	for (uint32_t n = r->n_open + (r->hidden != 0); n > 0; n--)
		writer_slice_end(tl->w, r->track, mono, NULL);
}
