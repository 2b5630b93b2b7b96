// SPDX-License-Identifier: Apache-2.0
/*
 * Time in which records of some CPU are missing: rings that begin later than others, losses. A
 * thread of which the others have nothing may have run there all along, so nobody's running and
 * waiting is drawn: each thread is "not known", CPUs are "not recorded", nothing is added up. A
 * sample is a moment that was seen, no more.
 */
#include "config.h"

#include <string.h>

#include "decode/timeline/timeline_internal.h"

void timeline_incomplete(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end)
{
	struct tl_gap *v = tl->incomplete, w = {.begin = ts_begin, .end = ts_end};
	uint32_t from, to = tl->n_incomplete;

	if (ts_end <= ts_begin)
		return;
	/* [from, to) are those that it touches: they become one with it. */
	while (to > 0 && v[to - 1].begin > w.end)
		to--;
	for (from = to; from > 0 && v[from - 1].end >= w.begin; from--)
		continue;
	if (from == to && tl->n_incomplete == TIMELINE_MAX_INCOMPLETE) {
		/* Rather too much of it is not known than too little. */
		if (from > 0)
			v[from - 1].end = w.end;
		else
			v[0].begin = w.begin;
		return;
	}
	if (from < to) {
		if (v[from].begin < w.begin)
			w.begin = v[from].begin;
		if (v[to - 1].end > w.end)
			w.end = v[to - 1].end;
	}
	memmove(&v[from + 1], &v[to], (tl->n_incomplete - to) * sizeof(*v));
	tl->n_incomplete -= to - from;
	tl->n_incomplete++;
	v[from] = w;
}

bool timeline_is_incomplete(const struct timeline *tl, uint64_t from, uint64_t to)
{
	for (uint32_t i = 0; i < tl->n_incomplete; i++)
		if (from >= tl->incomplete[i].begin && to <= tl->incomplete[i].end)
			return true;
	return false;
}

bool timeline_has_incomplete(const struct timeline *tl, uint64_t from, uint64_t to)
{
	for (uint32_t i = 0; i < tl->n_incomplete; i++)
		if (from < tl->incomplete[i].end && to > tl->incomplete[i].begin)
			return true;
	return false;
}

/* On the output's clock, not before the recording. */
static uint64_t moment(struct timeline *tl, uint64_t ts)
{
	uint64_t mono = ts ? timeline_monotonic(tl, ts) : 0;

	return mono > tl->stats.first_ns ? mono : tl->stats.first_ns;
}

/* What of it lies in the recording is a slice of its own. */
static void draw(struct timeline *tl, uint64_t begin, uint64_t end)
{
	if (end <= begin)
		return;
	if (!tl->not_known_track) {
		tl->not_known_track = writer_new_track(tl->w);
		writer_track(
			tl->w, tl->not_known_track, WRITER_TRACK_NONE, "tracerd: not known",
			"Time of which not all CPUs have records: who ran and who waited is not known");
	}
	writer_slice_begin(tl->w, tl->not_known_track, begin,
		&(struct writer_event){.name = tl->not_known_name, .category = tl->loss_category});
	writer_slice_end(tl->w, tl->not_known_track, end, NULL);
}

void timeline_incomplete_pass(struct timeline *tl, uint64_t ts)
{
	while (tl->n_passed < tl->n_incomplete && ts >= tl->incomplete[tl->n_passed].begin) {
		const struct tl_gap *g = &tl->incomplete[tl->n_passed];

		if (!tl->not_known)
			sched_lost(tl->sched, moment(tl, g->begin));
		tl->not_known = ts < g->end;
		if (tl->not_known)
			return;
		tl->n_passed++;
		draw(tl, moment(tl, g->begin), moment(tl, g->end));
	}
}

void timeline_incomplete_finish(struct timeline *tl)
{
	if (tl->not_known)
		draw(tl, moment(tl, tl->incomplete[tl->n_passed].begin), tl->stats.last_ns);
	for (uint32_t i = 0; i < tl->n_incomplete; i++) {
		const uint64_t end = moment(tl, tl->incomplete[i].end), last = tl->stats.last_ns;

		summary_incomplete(tl->summary, moment(tl, tl->incomplete[i].begin),
				   end < last ? end : last);
	}
}

/* ---- threads */

static void leaf_begin(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	slices_leaf_begin(tl->slices, &t->lane, mono,
			  &(struct writer_event){.name = tl->not_known_name,
						 .category = tl->loss_category});
}

void timeline_not_known(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to,
			const struct wait *left)
{
	struct writer_arg args[2];
	struct frame_info info;
	uint32_t n = 0;

	if (left)
		args[n++] = (struct writer_arg){.kind = WRITER_ARG_NAME,
						.key = writer_name(tl->w, "left the CPU"),
						.value.name = waits_state(tl->waits, left)};
	if (left && left->stack) {
		stacktab_info(tl->st, stacktab_leaf(tl->st, left->stack), &info);
		args[n++] = (struct writer_arg){
			.kind = WRITER_ARG_NAME,
			.key = writer_name(tl->w, "left in"),
			.value.name = writer_name(tl->w, *info.name ? info.name : "[unknown]")};
	}
	if (!t->in_call)
		slices_trim(tl->slices, &t->lane, 0, from);
	leaf_begin(tl, t, from);
	slices_leaf_end(tl->slices, &t->lane, to,
			&(struct writer_event){.args = args, .n_args = n});
}

static int begin(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	int r = timeline_thread_unknown(tl, t, mono);

	t->not_known = true;
	leaf_begin(tl, t, mono);
	return r;
}

static void end(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	if (t->lane.leaf)
		slices_leaf_end(tl->slices, &t->lane, mono, NULL);
	t->not_known = false;
	t->complete_from = mono;
}

int timeline_thread_incomplete(struct timeline *tl, struct tl_thread *t)
{
	int r = 0;

	/* What comes of it after its exit is late, and begins nothing. */
	if (t->exited)
		return 0;
	while (t->incomplete_seen < tl->n_incomplete && r == 0) {
		const struct tl_gap *g = &tl->incomplete[t->incomplete_seen];
		uint64_t from = moment(tl, g->begin), to = moment(tl, g->end);

		if (tl->last_source < g->begin)
			break;
		if (from < t->born)
			from = t->born;
		if (!t->not_known && from < to)
			r = begin(tl, t, from);
		if (tl->last_source < g->end)
			break;
		if (t->not_known)
			end(tl, t, to);
		t->incomplete_seen++;
	}
	return r;
}

void timeline_sample_alone(struct timeline *tl, struct tl_thread *t, uint64_t mono, uint32_t stack)
{
	struct writer_event ev = {.category = tl->sample_category};
	struct frame_info info;

	stacktab_info(tl->st, stacktab_leaf(tl->st, stack), &info);
	ev.name = writer_name(tl->w, *info.name ? info.name : "[unknown]");
	slices_instant(tl->slices, &t->lane, mono, &ev);
}
