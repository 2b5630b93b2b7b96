/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and what they do: samples, switches, wake-ups. Each thread is running, not running, or
 * unknown; every event says something about one of these states and, mostly, about the stack.
 *
 *              sample, switch-in                       switch-out
 *   UNKNOWN ----------------------> ON <---------------------------------> OFF
 *              switch-out -> OFF        switch-in (sample: its end is not recorded)
 */
#include "config.h"

#include "decode/timeline_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_PERIOD_NS 1000000ull
#define DEFAULT_MAX_THREADS 65536u
#define MISSING_PERIODS 3u /* without a sample: it was not running */
#define REACH_PERIODS 2u   /* how far back a first sample's stack is believed */
#define LONG_GAP_PERIODS 10u /* a loss in which a thread may have done anything */

/* ---- life */

static void focus_on_cause(struct timeline *tl)
{
	const struct timeline_cause *c = &tl->options.cause;

	summary_focus(tl->summary, timeline_monotonic(tl, c->begin_ns), timeline_monotonic(tl, c->end_ns));
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
	r = slices_new(st, w, options->depth_cap, &tl->slices);
	if (r == 0)
		r = summary_new(st, &tl->summary);
	if (r == 0)
		r = sched_new(w, &tl->sched);
	if (r == 0)
		r = wait_drawer_new(tl->slices, w, tl->summary, st, &tl->waits);
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
		waits_fini(&tl->threads[i]->waits);
		free(tl->threads[i]->regions.open);
		free(tl->threads[i]);
	}
	free(tl->threads);
	free(tl->thread_map.keys);
	free(tl->thread_map.values);
	free(tl->process_map.keys);
	free(tl->process_map.values);
	tl_events_free(tl);
	free(tl->processes);
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
	*ret_mono = tl->stats.last_ns;
	return 0;
}

/* Ends on paper what is open; the lanes themselves stay as they are, for the sums go on. */
static void cut(struct timeline *tl)
{
	uint64_t now = tl->stats.last_ns;

	tl->stats.cut = true;
	tl->stats.cut_ns = now;
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		const struct lane *l = &tl->threads[i]->lane;
		uint32_t n = l->n_open + (l->folded != 0) + l->leaf;

		for (; n > 0; n--)
			tl->w->ops->slice_end(tl->w, l->track, now > l->last_ts ? now : l->last_ts, NULL);
	}
	tl_events_cut(tl, now);
	timeline_mark_cut(tl, now);
	sched_finish(tl->sched);
	writer_mute(tl->w);
}

int timeline_leave(struct timeline *tl)
{
	if (writer_is_cut(tl->w) && !tl->stats.cut)
		cut(tl);
	return writer_error(tl->w);
}

/* ---- what threads do */

/* What decode/sched.c answers: a CPU beyond the limit is not worth the trace. */
static int sched_result(struct timeline *tl, int r)
{
	if (r == SCHED_E_CPU) {
		tl->stats.refused_full++;
		return 0;
	}
	return r;
}

int timeline_account_on(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to)
{
	t->on_ns += to > from ? to - from : 0;
	return summary_on_cpu(tl->summary, t->index, from, to);
}

int timeline_account_off(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to)
{
	t->off_ns += to > from ? to - from : 0;
	return summary_off_cpu(tl->summary, t->index, from, to);
}

bool timeline_thread_used(const struct timeline *tl, const struct tl_thread *t, uint64_t mono, uint64_t *ret_on,
			  uint64_t *ret_off)
{
	bool switches = tl->options.switches || t->has_switches;

	*ret_on = t->on_ns;
	*ret_off = t->off_ns;
	if (t->running == RUNNING_ON && switches && mono > t->on_since)
		*ret_on += mono - t->on_since;
	else if (t->running == RUNNING_OFF && mono > t->waits.current.begin)
		*ret_off += mono - t->waits.current.begin;
	return switches && t->running != RUNNING_UNKNOWN;
}

static int wait_end(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	int r = timeline_account_off(tl, t, t->waits.current.begin, mono);

	t->waits.current.waker = t->waker;
	t->waker = (struct wait_waker){.known = false};
	if (r == 0)
		r = waits_end(tl->waits, &t->waits, &t->lane, mono, timeline_who(t));
	return r;
}

int timeline_thread_gap(struct timeline *tl, struct tl_thread *t, const struct tl_gap *gap)
{
	bool long_one = gap->end - gap->begin > LONG_GAP_PERIODS * tl->options.period_ns;
	uint64_t end = t->last_sample > t->resumed ? t->last_sample : t->resumed;
	int r = 0;

	if (t->running == RUNNING_OFF) {
		t->waits.current.lost_within = true;
		if (!long_one)
			return 0;
		/* It was away when the loss began; when it came back is not known. */
		end = gap->begin > t->waits.current.begin ? gap->begin : t->waits.current.begin;
		r = wait_end(tl, t, end);
	} else {
		end += tl->options.period_ns;
		if (end > gap->begin)
			end = gap->begin;
		if (t->running == RUNNING_ON && long_one && end > t->on_since &&
		    (tl->options.switches || t->has_switches))
			r = timeline_account_on(tl, t, t->on_since, end);
	}
	waits_settle(tl->waits, &t->waits, &t->lane, STACKTAB_ROOT, timeline_who(t));
	if (t->lane.n_open) {
		slices_trim(tl->slices, &t->lane, 0, end);
		slices_instant(tl->slices, &t->lane, end,
			       &(struct writer_event){.name = tl->gap_name, .category = tl->loss_category});
	}
	t->resumed = 0;
	if (long_one) {
		t->running = RUNNING_UNKNOWN;
		t->complete_from = gap->end;
	}
	return r;
}

/*
 * The thread shows `stack` at `mono`. After a moment from which on nothing was known of its stack,
 * what it no longer shows ended there; what is new began there too, if that is not long ago.
 */
static int evidence(struct timeline *tl, struct tl_thread *t, uint32_t stack, uint64_t mono, bool reach)
{
	uint64_t close = t->resumed ? t->resumed : mono, open = mono;

	waits_settle(tl->waits, &t->waits, &t->lane, stack, timeline_who(t));
	if (t->resumed && reach) {
		if (mono - t->resumed <= REACH_PERIODS * tl->options.period_ns)
			open = t->resumed;
	}
	t->resumed = 0;
	return slices_draw(tl->slices, &t->lane, stack, close, open);
}

int timeline_sample(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, uint32_t stack)
{
	uint64_t mono, period = tl->options.period_ns;
	struct tl_thread *t;
	bool switches;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r == 0)
		r = summary_sample(tl->summary, t->index, mono, stack, period);
	if (r != 0)
		return r;
	tl->stats.samples++;
	switches = tl->options.switches || t->has_switches;
	if (switches && cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_seen(tl->sched, cpu, mono, timeline_task(t)));
	if (r < 0 || t->exited)
		return r < 0 ? r : timeline_leave(tl);

	if (t->running == RUNNING_OFF) {
		tl->stats.inconsistent++;
		t->waits.current.end_unrecorded = true;
		r = wait_end(tl, t, mono);
	}
	if (t->running != RUNNING_ON)
		t->on_since = mono;
	t->running = RUNNING_ON;
	if (!switches) {
		if (t->last_sample && mono - t->last_sample > MISSING_PERIODS * period)
			slices_trim(tl->slices, &t->lane, 0, t->last_sample + period);
		if (r == 0)
			r = timeline_account_on(tl, t, mono > period ? mono - period : 0, mono);
		t->on_since = mono;
	}
	if (r == 0)
		r = evidence(tl, t, stack, mono, true);
	t->last_sample = mono;
	return r < 0 ? r : timeline_leave(tl);
}

static enum writer_state writer_state_of(enum tl_wait state)
{
	switch (state) {
	case TL_WAIT_PREEMPTED:
		return WRITER_STATE_PREEMPTED;
	case TL_WAIT_DISK:
		return WRITER_STATE_DISK;
	case TL_WAIT_STOPPED:
		return WRITER_STATE_STOPPED;
	case TL_WAIT_DEAD:
		return WRITER_STATE_DEAD;
	case TL_WAIT_UNKNOWN:
	case TL_WAIT_SLEEPING:
		break;
	}
	return WRITER_STATE_SLEEPING;
}

/* One of ours goes by its newest name, whatever the event calls it. */
static struct sched_task task_of(struct timeline *tl, uint32_t tid, const char *name)
{
	const struct tl_thread *t = timeline_thread_find(tl, tid);

	if (t && t->name)
		return timeline_task(t);
	return (struct sched_task){.tid = tid, .name = writer_name(tl->w, name)};
}

/* Were records missing at that time, as far as was said in advance? */
static bool is_incomplete(const struct timeline *tl, uint64_t ts)
{
	for (uint32_t i = 0; i < tl->n_incomplete; i++)
		if (ts >= tl->incomplete[i].begin && ts < tl->incomplete[i].end)
			return true;
	return false;
}

int timeline_switch_out(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, enum tl_wait state,
			uint32_t stack, uint32_t other_tid, const char *other_name)
{
	struct sched_task other;
	struct tl_thread *t;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	tl->stats.switches_out++;
	t->has_switches = true;
	other = task_of(tl, other_tid, other_name);
	if (cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_out(tl->sched, cpu, mono, timeline_task(t),
					       writer_state_of(state), other));
	if (t->running == RUNNING_OFF && r == 0) {
		tl->stats.inconsistent++;
		t->waits.current.end_unrecorded = true;
		r = wait_end(tl, t, mono);
	}
	if (t->running == RUNNING_ON && r == 0)
		r = timeline_account_on(tl, t, t->on_since, mono);
	if (r < 0)
		return r;
	t->waker = (struct wait_waker){.known = false};
	if (t->exited || state == TL_WAIT_DEAD) {
		t->running = RUNNING_UNKNOWN;
		if (!t->exited)
			timeline_thread_close(tl, t, mono);
		t->exited = true;
		return timeline_leave(tl);
	}
	t->running = RUNNING_OFF;
	if (stack)
		r = evidence(tl, t, stack, mono, false);
	t->resumed = 0;
	if (r == 0)
		r = waits_begin(tl->waits, &t->waits, &t->lane,
				&(struct wait){.begin = mono,
					       .state = state,
					       .stack = stack,
					       .other = other,
					       .lost_within = is_incomplete(tl, ts)},
				stack != 0);
	return r < 0 ? r : timeline_leave(tl);
}

/*
 * Since when a thread of which nothing is known would have been seen if it had come to the CPU: the
 * last loss, or the begin of a complete recording, or its own. 0 if that is not known.
 */
static uint64_t silent_since(struct timeline *tl, const struct tl_thread *t)
{
	uint64_t since = t->complete_from;

	if (!since && tl->options.complete_from_ns) {
		since = timeline_monotonic(tl, tl->options.complete_from_ns);
		if (since < t->born)
			since = t->born;
	}
	return since && since < tl->stats.first_ns ? tl->stats.first_ns : since;
}

/* The first thing known of a thread is that it comes back: it was away before. */
static int wait_before(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	struct wait w = {
		.begin = silent_since(tl, t),
		.state = TL_WAIT_UNKNOWN,
		.other = {.tid = TL_TID_UNKNOWN},
		.begin_unknown = true,
	};
	int r;

	if (w.begin == 0 || w.begin >= mono)
		return 0;
	r = waits_begin(tl->waits, &t->waits, &t->lane, &w, true);
	return r < 0 ? r : wait_end(tl, t, mono);
}

/* At the end: a thread that never came to the CPU while all of it was recorded. */
static int wait_throughout(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	struct wait w = {
		.begin = silent_since(tl, t),
		.state = TL_WAIT_UNKNOWN,
		.other = {.tid = TL_TID_UNKNOWN},
		.begin_unknown = true,
	};

	/* One that just began, or has been running all along, may not have been sampled yet. */
	if (t->running != RUNNING_UNKNOWN || !tl->options.switches || w.begin == 0 ||
	    mono < w.begin + MISSING_PERIODS * tl->options.period_ns)
		return 0;
	t->running = RUNNING_OFF;
	return waits_begin(tl->waits, &t->waits, &t->lane, &w, true);
}

int timeline_switch_in(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, uint32_t other_tid,
		       const char *other_name)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	tl->stats.switches_in++;
	t->has_switches = true;
	if (cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_in(tl->sched, cpu, mono, timeline_task(t),
					      task_of(tl, other_tid, other_name)));
	if (r < 0 || t->exited)
		return r < 0 ? r : timeline_leave(tl);
	switch (t->running) {
	case RUNNING_OFF:
		r = wait_end(tl, t, mono);
		break;
	case RUNNING_UNKNOWN:
		r = wait_before(tl, t, mono);
		break;
	case RUNNING_ON:
		/* It must have left in between: it ran as long as there is evidence. */
		tl->stats.inconsistent++;
		if (t->last_sample > t->on_since)
			r = timeline_account_on(tl, t, t->on_since, t->last_sample);
		if (r == 0)
			r = timeline_thread_gap(tl, t, &(struct tl_gap){.begin = mono, .end = mono});
		break;
	}
	t->running = RUNNING_ON;
	t->on_since = t->resumed = mono;
	return r < 0 ? r : timeline_leave(tl);
}

/*
 * The waker's stack is right for this moment only: drawn without duration, but for what it shares
 * with what was there. What it runs afterwards its next evidence tells, back to here.
 */
static int draw_wakes(struct timeline *tl, struct tl_thread *t, const struct tl_thread *wakee,
		      uint32_t stack, uint64_t mono, uint64_t flow)
{
	struct writer_arg arg = {
		.key = tl->key_wakee, .kind = WRITER_ARG_UINT, .value.u64 = wakee->tid};
	struct writer_event ev = {
		.category = tl->wakes_category, .args = &arg, .n_args = 1, .flow = flow};
	bool exact = stack != 0 && t->running != RUNNING_OFF;
	uint32_t shared = 0;
	char name[160];
	int r = 0;

	(void)snprintf(name, sizeof(name), "wakes %.128s", writer_name_text(tl->w, wakee->name));
	ev.name = writer_name(tl->w, name);
	if (exact) {
		shared = slices_common(tl->slices, &t->lane, stack);
		r = evidence(tl, t, stack, mono, false);
	}
	slices_instant(tl->slices, &t->lane, mono, &ev);
	if (exact) {
		slices_trim(tl->slices, &t->lane, shared, mono);
		t->resumed = mono;
	}
	return r;
}

int timeline_wakeup(struct timeline *tl, uint32_t wakee_tid, uint64_t ts, uint32_t cpu,
		    uint32_t waker_tid, uint32_t waker_pid, const char *waker_name, bool in_irq,
		    uint32_t stack)
{
	struct tl_thread *wakee, *waker = NULL;
	struct sched_task by;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r != 0)
		return r;
	tl->stats.wakeups++;
	if (!timeline_thread_find(tl, wakee_tid))
		return timeline_leave(tl); /* nobody of ours waits for it */
	r = timeline_thread_enter(tl, wakee_tid, mono, &wakee);
	if (r == 0 && !in_irq && timeline_thread_find(tl, waker_tid))
		r = timeline_thread_enter(tl, waker_tid, mono, &waker);
	if (r != 0)
		return r;
	by = task_of(tl, waker_tid, waker_name);
	if (cpu != TL_CPU_UNKNOWN && wakee->running != RUNNING_ON)
		r = sched_result(tl, sched_wake(tl->sched, cpu, mono, timeline_task(wakee), by, in_irq));
	if (r < 0)
		return r;
	wakee->waker = (struct wait_waker){
		.known = true, .in_irq = in_irq, .task = by, .stack = in_irq ? 0 : stack};
	if (waker && waker != wakee && !waker->exited) {
		wakee->waker.flow = ++tl->next_flow;
		r = draw_wakes(tl, waker, wakee, stack, mono, wakee->waker.flow);
	}
	return r < 0 ? r : timeline_leave(tl);
}

/* ---- the end */

static void name_thread(void *arg, uint32_t index, struct summary_thread *ret)
{
	const struct timeline *tl = arg;
	const struct tl_thread *t = tl->threads[index];

	*ret = (struct summary_thread){
		.pid = t->pid, .tid = t->tid, .name = writer_name_text(tl->w, t->name)};
}

void timeline_stats(const struct timeline *tl, struct timeline_stats *ret_stats)
{
	*ret_stats = tl->stats;
	ret_stats->folded = slices_folded(tl->slices);
	ret_stats->inconsistent += sched_inconsistent(tl->sched);
}

int timeline_finish(struct timeline *tl, struct json_object **ret_summary)
{
	uint64_t last;
	int r;

	if (!tl->begun) {
		/* Nothing has happened: an empty trace is a trace too. */
		r = timeline_enter(tl, tl->last_source, &last);
		if (r < 0)
			return r;
		tl->stats.events--;
	}
	last = tl->stats.last_ns;
	tl_events_close(tl, last);
	timeline_cause_until(tl, UINT64_MAX);
	for (uint32_t i = 0; i < tl->n_threads; i++) {
		struct tl_thread *t = tl->threads[i];

		timeline_thread_declare(tl, t, last);
		if (t->exited)
			continue;
		r = timeline_thread_see_gaps(tl, t);
		if (r == 0)
			r = wait_throughout(tl, t, last);
		if (r < 0)
			return r;
		timeline_thread_close(tl, t, last);
	}
	sched_finish(tl->sched);
	tl->finished = true;
	(void)timeline_leave(tl);
	r = writer_end(tl->w);
	if (r < 0)
		return r;
	return summary_to_json(tl->summary, tl->stats.first_ns, last, tl->n_threads, name_thread, tl,
			       ret_summary);
}
