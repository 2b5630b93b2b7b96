/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline's life: what it is made of, the order of time and the clock of all events, the limit
 * of the output, the end.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_PERIOD_NS 1000000ull
#define DEFAULT_MAX_THREADS 65536u

static void focus_on_cause(struct timeline *tl)
{
	const struct timeline_cause *c = &tl->options.cause;

	summary_focus(tl->summary, timeline_monotonic(tl, c->begin_ns),
		      timeline_monotonic(tl, c->end_ns));
	summary_focus_region(tl->summary, c->region, c->tid, c->over_ns);
}

int timeline_new(const struct timeline_options *options, struct stacktab *st, struct writer *w,
		 struct timeline **ret)
{
	_cleanup_(timeline_freep) struct timeline *tl = calloc(1, sizeof(*tl));
	int r;

	if (!tl)
		return -ENOMEM;
	tl->options = *options;
	if (tl->options.period_ns == 0)
		tl->options.period_ns = DEFAULT_PERIOD_NS;
	if (tl->options.max_threads == 0)
		tl->options.max_threads = DEFAULT_MAX_THREADS;
	tl->st = st;
	tl->w = w;
	tl->incomplete = calloc(TIMELINE_MAX_INCOMPLETE, sizeof(*tl->incomplete));
	if (!tl->incomplete)
		return -ENOMEM;
	timeline_incomplete(tl, 0, options->complete_from_ns);
	r = slices_new(st, w, options->depth_cap, &tl->slices);
	if (r == 0)
		r = summary_new(st, options->stepped, &tl->summary);
	if (r == 0)
		r = sched_new(w, &tl->sched);
	if (r == 0)
		r = wait_drawer_new(tl->slices, w, tl->summary, options->wait_min_ns, &tl->waits);
	if (r == 0)
		r = tl_events_begin(tl);
	if (r < 0)
		return r;
	if (options->focus_end_ns > options->focus_begin_ns)
		summary_focus(tl->summary, timeline_monotonic(tl, options->focus_begin_ns),
			      timeline_monotonic(tl, options->focus_end_ns));
	else if (options->cause.region && options->cause.end_ns > options->cause.begin_ns)
		focus_on_cause(tl);
	*ret = take_ptr(tl);
	return 0;
}

struct timeline *timeline_free(struct timeline *tl)
{
	if (!tl)
		return NULL;
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		lane_fini(&tl->threads[i]->lane);
		free(tl->threads[i]->regions.open);
		free(tl->threads[i]);
	}
	free(tl->threads);
	free(tl->cpus);
	free(tl->thread_map.keys);
	free(tl->thread_map.values);
	free(tl->process_map.keys);
	free(tl->process_map.values);
	tl_events_free(tl);
	free(tl->processes);
	free(tl->incomplete);
	timeline_marks_free(tl);
	wait_drawer_free(tl->waits);
	sched_free(tl->sched);
	summary_free(tl->summary);
	slices_free(tl->slices);
	free(tl);
	return NULL;
}

uint64_t timeline_monotonic(struct timeline *tl, uint64_t ts)
{
	return tl->options.clocks ? clock_map_monotonic(tl->options.clocks, ts) : ts;
}

/* The head of the trace, when the first time is known. */
static int begin(struct timeline *tl, uint64_t ts, uint64_t mono)
{
	struct clock_map *m = tl->options.clocks;
	const struct clock_bracket *b = m ? clock_map_nearest(m, ts) : NULL;
	struct writer_clocks clocks = {.monotonic = mono};
	struct writer_meta meta = {
		.version = tl->options.version,
		.clock = clock_source_to_string(m ? clock_map_source(m) : CLOCK_SOURCE_MONOTONIC),
		.clock_error_ns = !m ? 0 : clock_map_known(m) ? clock_map_error(m) : UINT64_MAX,
		.kernel_release = tl->options.kernel_release,
		.machine = tl->options.machine,
	};

	if (b)
		clocks = (struct writer_clocks){.monotonic = b->monotonic,
						.realtime = b->realtime,
						.boottime = b->boottime,
						.monotonic_raw = b->raw};
	tl->begun = true;
	tl->stats.first_ns = tl->stats.last_ns = mono;
	writer_begin(tl->w, &meta, &clocks);
	return timeline_marks_begin(tl, mono);
}

int timeline_enter(struct timeline *tl, uint64_t ts, uint64_t *ret_mono)
{
	uint64_t mono;

	tl->stats.events++;
	if (ts < tl->last_source) {
		tl->stats.out_of_order++;
		return TIMELINE_E_ORDER;
	}
	mono = timeline_monotonic(tl, ts);
	if (!tl->begun) {
		int r = begin(tl, ts, mono);

		if (r < 0)
			return r;
	}
	tl->last_source = ts;
	timeline_cause_until(tl, ts);
	if (mono > tl->stats.last_ns)
		tl->stats.last_ns = mono;
	if (!tl->seen && !tl->entering_early) {
		tl->seen = true;
		tl->stats.first_ns = tl->stats.last_ns;
	}
	timeline_incomplete_until(tl, ts);
	*ret_mono = tl->stats.last_ns;
	return 0;
}

/* The lanes themselves stay as they are, for the sums go on. */
void timeline_wind_up(struct timeline *tl)
{
	uint64_t now = tl->stats.last_ns;

	tl->stats.cut = true;
	tl->stats.cut_ns = now;
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		struct tl_thread *t = tl->threads[i];
		const struct lane *l = &t->lane;
		uint32_t n;

		(void)timeline_wait_show(tl, t);
		if (t->waits.hidden)
			waits_show(tl->waits, &t->waits, &t->lane, 0, t->in_call != 0);
		n = l->n_open + (l->folded != 0) + l->leaf;
		for (; n > 0; n--)
			writer_slice_end(tl->w, l->track, now > l->last_ts ? now : l->last_ts,
					 NULL);
	}
	tl_events_cut(tl, now);
	timeline_mark_cut(tl, now);
	sched_finish(tl->sched);
	writer_mute(tl->w);
}

static void name_thread(void *arg, uint32_t index, struct summary_thread *ret)
{
	const struct timeline *tl = arg;
	const struct tl_thread *t = tl->threads[index];

	*ret = (struct summary_thread){
		.pid = t->pid,
		.tid = t->tid,
		.name = writer_name_text(tl->w, t->name),
		.switches = tl->options.switches || t->has_switches};
}

void timeline_stats(const struct timeline *tl, struct timeline_stats *ret_stats)
{
	*ret_stats = tl->stats;
	ret_stats->folded = slices_folded(tl->slices);
	ret_stats->inconsistent += sched_inconsistent(tl->sched);
}

/*
 * When the last thread exited; 0: one has not. What comes after it, such as the freeze, shows
 * nobody.
 */
static uint64_t all_exited(const struct timeline *tl)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < tl->n_threads; i++) {
		const struct tl_thread *t = tl->threads[i];

		if (!t->exited)
			return 0;
		if (t->closed > last)
			last = t->closed;
	}
	return last;
}

int timeline_suspended(struct timeline *tl, uint64_t ts, const char *why)
{
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r != 0)
		return r;
	tl->suspended = mono;
	tl->suspended_why = writer_name(tl->w, why);
	sched_lost(tl->sched, mono);
	return timeline_leave(tl);
}

static void suspended_draw(struct timeline *tl, uint64_t last)
{
	const char *why = writer_name_text(tl->w, tl->suspended_why);
	char kind[160];

	(void)snprintf(kind, sizeof(kind), "suspended: %s", why);
	timeline_loss_draw(tl, 0, tl->suspended, last, kind, 0);
	summary_suspended(tl->summary, why, last - tl->suspended);
}

/*
 * Until when what a program told of itself is open: its events may go on when nothing else is
 * recorded of it.
 */
static uint64_t events_end(const struct timeline *tl, uint64_t end)
{
	for (uint32_t i = 0; i < tl->n_threads; i++)
		if (tl->threads[i]->last_event > end)
			return tl->stats.last_ns;
	return end;
}

int timeline_finish(struct timeline *tl, struct json_object **ret_summary)
{
	uint64_t last, exited;
	int r;

	if (!tl->begun) {
		/* Nothing has happened: an empty trace is a trace too. */
		r = timeline_enter(tl, tl->last_source, &last);
		if (r < 0)
			return r;
		tl->stats.events--;
	}
	last = tl->suspended ? tl->suspended : tl->stats.last_ns;
	exited = tl->suspended ? 0 : all_exited(tl);
	tl_events_close(tl, exited ? exited : events_end(tl, last));
	timeline_cause_until(tl, UINT64_MAX);
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		struct tl_thread *t = tl->threads[i];

		timeline_thread_declare(tl, t, last);
		if (t->exited)
			continue;
		r = timeline_thread_see_gaps(tl, t);
		if (r == 0)
			r = timeline_thread_incomplete(tl, t);
		if (r < 0)
			return r;
		timeline_thread_wait_throughout(tl, t, last);
		timeline_thread_close(tl, t, last);
	}
	sched_finish(tl->sched);
	timeline_incomplete_finish(tl);
	if (tl->suspended)
		suspended_draw(tl, tl->stats.last_ns);
	tl->finished = true;
	(void)timeline_leave(tl);
	r = writer_end(tl->w);
	if (r < 0)
		return r;
	if (exited)
		summary_exited(tl->summary);
	return summary_to_json(tl->summary, tl->stats.first_ns, exited ? exited : last,
			       tl->n_threads, name_thread, tl, ret_summary);
}
