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

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WAITED_APART_NS 5000000u /* two clocks measure a wait, and records are late */
#define MISSING_PERIODS 3u /* without a sample: it was not running */
#define LONG_GAP_PERIODS 10u /* a loss in which a thread may have done anything */

/* What decode/timeline/sched.c answers: a CPU beyond the limit is not worth the trace. */
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

bool timeline_thread_used(const struct timeline *tl, const struct tl_thread *t, uint64_t mono,
			  uint64_t *ret_on, uint64_t *ret_off)
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
	int r = timeline_wait_show(tl, t);

	if (r == 0)
		r = timeline_account_off(tl, t, t->waits.current.begin, mono);
	t->waits.current.waker = t->waker;
	t->waker = (struct wait_waker){.known = false};
	tl_goroutine_on_cpu(tl, t, mono);
	waits_end(tl->waits, &t->waits, &t->lane, mono, timeline_who(t));
	return r;
}

/*
 * What was seen of its stack holds until it left, as far as it left with that: of the rest it was
 * somewhere else by then.
 */
static void wait_drop(struct timeline *tl, struct tl_thread *t)
{
	const struct wait *w = &t->waits.current;
	const uint64_t since = w->stack ? t->resumed : t->waits.unseen;

	slices_trim(tl->slices, &t->lane,
		    w->stack ? slices_common(tl->slices, &t->lane, w->stack) : 0,
		    since ? since : w->begin);
	t->resumed = 0;
	t->waits.current.waker = t->waker;
	t->waker = (struct wait_waker){.known = false};
	tl_goroutine_on_cpu(tl, t, w->begin);
	waits_drop(tl->waits, &t->waits, timeline_who(t));
}

/*
 * The thread is seen elsewhere, and nothing has reported that it came back: only that it left is
 * known, and how.
 */
static int wait_lost(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const struct wait w = t->waits.current;
	int r = 0;

	tl->stats.inconsistent++;
	t->waits.current.end_unrecorded = true;
	if (t->waits.hidden)
		wait_drop(tl, t);
	else
		r = wait_end(tl, t, w.begin);
	if (mono > w.begin) {
		tl_seen_end(tl, t, w.begin);
		timeline_not_known(tl, t, w.begin, mono, &w);
	}
	return r;
}

int timeline_thread_exits(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	return t->running == RUNNING_OFF ? wait_lost(tl, t, mono) : 0;
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
	/* Calls that are known exactly do not hang on what was lost. */
	if (t->lane.n_open && !t->in_call) {
		slices_trim(tl->slices, &t->lane, 0, end);
		slices_instant(tl->slices, &t->lane, end,
			       &(struct writer_event){.name = tl->gap_name,
						      .category = tl->loss_category});
	}
	tl_seen_end(tl, t, end);
	t->resumed = 0;
	if (long_one) {
		t->running = RUNNING_UNKNOWN;
		t->complete_from = gap->end;
	}
	return r;
}

int timeline_thread_unknown(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const bool switches = tl->options.switches || t->has_switches;
	uint64_t end = mono;
	int r = 0;

	timeline_thread_seen_again(tl, t, mono);
	if (t->running == RUNNING_OFF) {
		t->waits.current.cut = true;
		r = wait_end(tl, t, mono);
	} else if (t->running == RUNNING_ON && switches) {
		r = timeline_account_on(tl, t, t->on_since, mono);
	} else if (t->last_sample && t->last_sample + tl->options.period_ns < end) {
		end = t->last_sample + tl->options.period_ns;
	}
	slices_trim(tl->slices, &t->lane, 0, end);
	tl_seen_end(tl, t, end);
	t->running = RUNNING_UNKNOWN;
	t->waker = (struct wait_waker){.known = false};
	t->resumed = t->last_sample = 0;
	return r;
}

/* Whose calls are known exactly has reported their ends. */
int timeline_thread_executes(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const bool switches = tl->options.switches || t->has_switches;
	uint64_t end = mono;
	int r = timeline_thread_see_gaps(tl, t);

	if (r == 0)
		r = timeline_thread_incomplete(tl, t);
	if (r < 0 || t->exited || t->not_known || t->in_call || t->running != RUNNING_ON)
		return r;
	if (!switches && t->last_sample &&
	    mono - t->last_sample > MISSING_PERIODS * tl->options.period_ns)
		end = t->last_sample + tl->options.period_ns;
	slices_trim(tl->slices, &t->lane, 0, end);
	t->resumed = mono;
	return 0;
}

/* It is seen again, or ends: since it left the CPU unseen nothing is known of it. */
void timeline_thread_seen_again(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	if (t->left_unseen && mono > t->left_unseen)
		timeline_not_known(tl, t, t->left_unseen, mono, NULL);
	t->left_unseen = 0;
}

/*
 * Another runs where it was, and no record says when it left: it was there as long as it was seen,
 * at least until `last`.
 */
static int left_unseen(struct timeline *tl, struct tl_thread *t, uint64_t last)
{
	int r;

	if (t->on_since > last)
		last = t->on_since;
	if (t->last_sample > last)
		last = t->last_sample;
	if (t->resumed > last)
		last = t->resumed;
	tl->stats.inconsistent++;
	r = timeline_account_on(tl, t, t->on_since, last);
	if (!t->in_call)
		slices_trim(tl->slices, &t->lane, 0, last);
	tl_seen_end(tl, t, last);
	t->running = RUNNING_UNKNOWN;
	t->left_unseen = last;
	t->resumed = 0;
	return r;
}

/*
 * The thread is on that CPU, so nobody else is. If it came there just now, `mono`, then in place of
 * `other_tid`.
 */
static int take_cpu(struct timeline *tl, struct tl_thread *t, uint32_t cpu, uint64_t mono,
		    uint32_t other_tid)
{
	struct tl_thread *before;

	t->cpu = cpu;
	if (cpu >= TIMELINE_MAX_CPUS)
		return 0;
	if (cpu >= tl->n_cpus) {
		struct tl_thread **p = reallocarray(tl->cpus, cpu + 1, sizeof(struct tl_thread *));

		if (!p)
			return -ENOMEM;
		memset(p + tl->n_cpus, 0, (cpu + 1 - tl->n_cpus) * sizeof(struct tl_thread *));
		tl->cpus = p;
		tl->n_cpus = cpu + 1;
	}
	before = tl->cpus[cpu];
	tl->cpus[cpu] = t;
	if (!before || before == t || before->running != RUNNING_ON || before->cpu != cpu ||
	    !(tl->options.switches || before->has_switches))
		return 0;
	return left_unseen(tl, before, before->tid == other_tid ? mono : 0);
}

/*
 * The thread shows `stack` at `mono`. After a moment from which on nothing was known of its stack,
 * what it no longer shows ended there; what is new began there too, if that is not long ago.
 */
static int evidence(struct timeline *tl, struct tl_thread *t, uint32_t stack, uint64_t mono,
		    bool reach)
{
	uint64_t close = t->resumed ? t->resumed : mono, open = mono;

	if (t->resumed && reach) {
		if (mono - t->resumed <= TL_REACH_PERIODS * tl->options.period_ns)
			open = t->resumed;
	}
	t->resumed = 0;
	return slices_draw(tl->slices, &t->lane, stack, close, open);
}

/* The thread is on the CPU. If it was away, its way back was not recorded. */
static int seen_running(struct timeline *tl, struct tl_thread *t, uint64_t mono, uint32_t cpu)
{
	int r = t->running == RUNNING_OFF ? wait_lost(tl, t, mono) : 0;

	timeline_thread_seen_again(tl, t, mono);
	if (t->running != RUNNING_ON)
		t->on_since = mono;
	t->running = RUNNING_ON;
	return r < 0 ? r : take_cpu(tl, t, cpu, mono, TL_TID_UNKNOWN);
}

int timeline_sample(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, uint32_t stack)
{
	uint64_t mono, period = tl->options.period_ns;
	struct tl_thread *t;
	bool switches;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	tl->stats.samples++;
	if (tl->not_known) {
		timeline_sample_alone(tl, t, mono, stack);
		return timeline_leave(tl);
	}
	r = summary_sample(tl->summary, t->index, mono, stack, period);
	if (r < 0)
		return r;
	switches = tl->options.switches || t->has_switches;
	if (switches && cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_seen(tl->sched, cpu, mono, timeline_task(t)));
	if (r < 0 || t->exited)
		return r < 0 ? r : timeline_leave(tl);

	r = seen_running(tl, t, mono, cpu);
	tl_seen(tl, t, mono);
	if (!switches) {
		if (t->last_sample && mono - t->last_sample > MISSING_PERIODS * period)
			slices_trim(tl->slices, &t->lane, 0, t->last_sample + period);
		if (r == 0)
			r = timeline_account_on(tl, t, mono > period ? mono - period : 0, mono);
		t->on_since = mono;
	}
	if (r == 0 && t->in_call) {
		t->resumed = 0;
		timeline_sample_alone(tl, t, mono, stack);
	} else if (r == 0) {
		r = evidence(tl, t, stack, mono, true);
		t->waits.goroutine = t->seen.at == mono ? t->seen.id : 0;
	}
	t->last_sample = mono;
	return r < 0 ? r : timeline_leave(tl);
}

static enum writer_state writer_state_of(enum off_cpu state)
{
	switch (state) {
	case OFF_CPU_PREEMPTED:
	case OFF_CPU_THROTTLED:
		return WRITER_STATE_PREEMPTED;
	case OFF_CPU_UNINTERRUPTIBLE:
		return WRITER_STATE_DISK;
	case OFF_CPU_STOPPED:
		return WRITER_STATE_STOPPED;
	case OFF_CPU_DEAD:
		return WRITER_STATE_DEAD;
	case OFF_CPU_UNKNOWN:
	case OFF_CPU_SLEEPING:
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

int timeline_switch_gone(struct timeline *tl, uint64_t ts, uint32_t cpu, uint32_t other_tid,
			 const char *other_name)
{
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0 && cpu != TL_CPU_UNKNOWN && !tl->not_known)
		r = sched_result(tl, sched_gone(tl->sched, cpu, mono,
						task_of(tl, other_tid, other_name)));
	return r != 0 ? r : timeline_leave(tl);
}

/*
 * Since when the thread runs, if the last that was seen of its stack is that of a wait before; else
 * 0.
 */
static uint64_t unseen_since(const struct tl_thread *t)
{
	return t->resumed == t->on_since ? t->resumed : 0;
}

/*
 * With its stack below it. Exact calls are drawn already, and those around them when they have
 * ended.
 */
static int wait_begin(struct timeline *tl, struct tl_thread *t, struct wait *w, uint32_t stack)
{
	int r;

	t->waits.unseen = unseen_since(t);
	r = stack && !t->in_call ? evidence(tl, t, stack, w->begin, false) : 0;
	t->waits.goroutine = w->goroutine;
	t->resumed = 0;
	w->stack = stack;
	if (r == 0)
		waits_begin(tl->waits, &t->waits, &t->lane, w, t->in_call != 0);
	return r;
}

/* Its stack has come. */
static int wait_show(struct timeline *tl, struct tl_thread *t, uint32_t stack)
{
	int r = stack && !t->in_call ? evidence(tl, t, stack, t->waits.current.begin, false) : 0;

	t->waits.goroutine = t->waits.current.goroutine;
	t->resumed = 0;
	if (r == 0)
		waits_show(tl->waits, &t->waits, &t->lane, stack, t->in_call != 0);
	return r;
}

int timeline_wait_show(struct timeline *tl, struct tl_thread *t)
{
	return t->waits.hidden && t->waits.current.stack ? wait_show(tl, t, t->waits.current.stack)
							 : 0;
}

int timeline_waited(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t ns, uint32_t stack)
{
	const uint64_t mono = timeline_monotonic(tl, ts), apart = WAITED_APART_NS + (ns >> 10);
	struct tl_thread *t = timeline_thread_find(tl, tid);
	uint64_t begin = mono > ns ? mono - ns : 0;

	if (!t || tl->not_known)
		return 0;
	if (t->running == RUNNING_UNKNOWN) {
		t->waited_ns = ns;
		t->waited_stack = stack;
	}
	/* It is of another wait where records were lost in between. */
	if (!t->waits.hidden || t->waits.current.stack || begin > t->waits.current.begin + apart ||
	    begin + apart < t->waits.current.begin)
		return 0;
	return wait_show(tl, t, stack);
}

/* Drawn when more is known of it than that it began. */
static void wait_hold(struct tl_thread *t, const struct wait *w)
{
	t->waits.unseen = unseen_since(t);
	waits_begin_hidden(&t->waits, w);
}

int timeline_switch_out(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
			enum off_cpu state, uint32_t stack, uint32_t other_tid,
			const char *other_name)
{
	struct sched_task other;
	struct tl_thread *t;
	struct wait w;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	tl->stats.switches_out++;
	t->has_switches = true;
	if (tl->not_known)
		return timeline_leave(tl);
	other = task_of(tl, other_tid, other_name);
	if (cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_out(tl->sched, cpu, mono, timeline_task(t),
					       writer_state_of(state), other));
	if (t->running == RUNNING_OFF && r == 0)
		r = wait_lost(tl, t, mono);
	if (t->running == RUNNING_ON && r == 0)
		r = timeline_account_on(tl, t, t->on_since, mono);
	if (r < 0)
		return r;
	timeline_thread_seen_again(tl, t, mono);
	tl_seen(tl, t, mono);
	/* If another CPU is quick, it wakes who is about to leave, and has not left yet. */
	t->early = off_cpu_is_ready(state) || t->waker.task.tid == tid
			   ? (struct wait_waker){.known = false}
			   : t->waker;
	t->waker = (struct wait_waker){.known = false};
	if (t->exited || state == OFF_CPU_DEAD) {
		t->running = RUNNING_UNKNOWN;
		if (!t->exited)
			timeline_thread_close(tl, t, mono);
		t->exited = true;
		return timeline_leave(tl);
	}
	t->running = RUNNING_OFF;
	w = (struct wait){.begin = mono,
			  .state = state,
			  .other = other,
			  .goroutine = t->seen.at == mono ? t->seen.id : 0};
	w.stack_later = stack == TL_STACK_LATER;
	w.stack = w.stack_later ? 0 : stack;
	if (t->in_call)
		r = wait_begin(tl, t, &w, w.stack);
	else
		wait_hold(t, &w);
	if (t->goroutine)
		tl_goroutine_off_cpu(tl, t, mono, state, other);
	return r < 0 ? r : timeline_leave(tl);
}

void timeline_wait_in(struct timeline *tl, uint32_t tid, const char *call, uint32_t fd,
		      const char *kind)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);

	if (!t || t->running != RUNNING_OFF || !t->waits.waiting)
		return;
	t->waits.current.call = writer_name(tl->w, call);
	t->waits.current.fd = fd;
	t->waits.current.fd_kind = kind ? writer_name(tl->w, kind) : 0;
}

void timeline_wait_for(struct timeline *tl, uint32_t tid, uint32_t futex)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);

	if (t && t->running == RUNNING_OFF && t->waits.waiting)
		t->waits.current.futex = futex;
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
		.state = OFF_CPU_UNKNOWN,
		.other = {.tid = TL_TID_UNKNOWN},
	};
	int r;

	if (w.begin == 0 || w.begin >= mono)
		return 0;
	/* Whoever was forked has waited since then to run for the first time. */
	w.begin_unknown = !t->forked || w.begin != t->born;
	w.whole_ns = w.begin_unknown ? t->waited_ns : 0;
	r = wait_begin(tl, t, &w, t->waited_ns ? t->waited_stack : 0);
	return r < 0 ? r : wait_end(tl, t, mono);
}

int timeline_blocked(struct timeline *tl, uint32_t tid, uint64_t ts, enum off_cpu state,
		     uint32_t stack)
{
	struct wait w = {
		.state = state,
		.stack = stack,
		.other = {.tid = TL_TID_UNKNOWN},
		.begin_unknown = true,
	};
	struct tl_thread *t;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	if (t->waits.hidden && !t->waits.current.lost_within && !tl->not_known) {
		r = wait_show(tl, t, t->waits.current.stack ? t->waits.current.stack : stack);
		return r < 0 ? r : timeline_leave(tl);
	}
	w.begin = silent_since(tl, t);
	/* Where more is known of it than that it sleeps now, that is drawn. */
	if (tl->not_known || t->not_known || t->exited || t->left_unseen ||
	    t->running != RUNNING_UNKNOWN || w.begin == 0 || w.begin > mono)
		return timeline_leave(tl);
	t->has_switches = true;
	t->running = RUNNING_OFF;
	r = wait_begin(tl, t, &w, stack);
	return r < 0 ? r : timeline_leave(tl);
}

void timeline_thread_wait_throughout(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	struct wait w = {
		.begin = silent_since(tl, t),
		.state = OFF_CPU_UNKNOWN,
		.other = {.tid = TL_TID_UNKNOWN},
		.begin_unknown = true,
	};

	/* One that just began, or has been running all along, may not have been sampled yet. */
	if (t->not_known || t->left_unseen || t->running != RUNNING_UNKNOWN ||
	    !tl->options.switches || w.begin == 0 ||
	    mono < w.begin + MISSING_PERIODS * tl->options.period_ns)
		return;
	t->running = RUNNING_OFF;
	waits_begin(tl->waits, &t->waits, &t->lane, &w, t->in_call != 0);
}

int timeline_switch_in(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
		       uint32_t other_tid, const char *other_name)
{
	struct tl_thread *t;
	uint64_t mono;
	bool goes_on = false;
	int r = timeline_enter(tl, ts, &mono);

	if (r == 0)
		r = timeline_thread_enter(tl, tid, mono, &t);
	if (r != 0)
		return r;
	tl->stats.switches_in++;
	t->has_switches = true;
	if (tl->not_known)
		return timeline_leave(tl);
	if (cpu != TL_CPU_UNKNOWN)
		r = sched_result(tl, sched_in(tl->sched, cpu, mono, timeline_task(t),
					      task_of(tl, other_tid, other_name)));
	if (r < 0 || t->exited)
		return r < 0 ? r : timeline_leave(tl);
	switch (t->running) {
	case RUNNING_OFF:
		/* Nobody comes back who was not woken. */
		if (!t->waker.known && !t->waits.current.lost_within)
			t->waker = t->early;
		t->waits.current.before = task_of(tl, other_tid, other_name);
		r = wait_end(tl, t, mono);
		goes_on = waits_goes_on(&t->waits);
		break;
	case RUNNING_UNKNOWN:
		if (t->left_unseen)
			timeline_thread_seen_again(tl, t, mono);
		else
			r = wait_before(tl, t, mono);
		break;
	case RUNNING_ON:
		/* It must have left in between: it ran as long as there is evidence. */
		tl->stats.inconsistent++;
		if (t->last_sample > t->on_since)
			r = timeline_account_on(tl, t, t->on_since, t->last_sample);
		if (r == 0)
			r = timeline_thread_gap(tl, t,
						&(struct tl_gap){.begin = mono, .end = mono});
		break;
	}
	t->running = RUNNING_ON;
	t->waited_ns = 0;
	t->on_since = mono;
	if (!goes_on)
		t->resumed = mono;
	if (r == 0)
		r = take_cpu(tl, t, cpu, mono, other_tid);
	return r < 0 ? r : timeline_leave(tl);
}

/*
 * The waker's stack is right for this moment only: drawn without duration, but for what it shares
 * with what was there. Its next evidence says what it runs afterwards, back to here.
 */
static int draw_wakes(struct timeline *tl, struct tl_thread *t, const struct tl_thread *wakee,
		      uint32_t stack, uint64_t mono, uint64_t flow)
{
	struct writer_arg arg = {
		.key = tl->key_wakee, .kind = WRITER_ARG_UINT, .value.u64 = wakee->tid};
	struct writer_event ev = {
		.category = tl->wakes_category, .args = &arg, .n_args = 1, .flow = flow};
	const bool exact = stack != 0 && t->running != RUNNING_OFF && !t->in_call;
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
	if (tl->not_known || !timeline_thread_find(tl, wakee_tid))
		return timeline_leave(tl); /* nobody of ours waits for it */
	r = timeline_thread_enter(tl, wakee_tid, mono, &wakee);
	if (r == 0 && !in_irq && timeline_thread_find(tl, waker_tid))
		r = timeline_thread_enter(tl, waker_tid, mono, &waker);
	if (r != 0)
		return r;
	by = task_of(tl, waker_tid, waker_name);
	if (cpu != TL_CPU_UNKNOWN && wakee->running != RUNNING_ON)
		r = sched_result(tl, sched_wake(tl->sched, cpu, mono, timeline_task(wakee), by,
						in_irq));
	if (r < 0)
		return r;
	wakee->waker = (struct wait_waker){.known = true,
					   .in_irq = in_irq,
					   .at = mono,
					   .task = by,
					   .stack = in_irq ? 0 : stack};
	/* Who wakes runs. */
	if (waker && waker->running == RUNNING_OFF && !waker->exited) {
		r = seen_running(tl, waker, mono, cpu);
		if (r < 0)
			return r;
		waker->resumed = mono;
	}
	if (waker && waker != wakee && !waker->exited) {
		wakee->waker.flow = ++tl->next_flow;
		r = draw_wakes(tl, waker, wakee, stack, mono, wakee->waker.flow);
	}
	return r < 0 ? r : timeline_leave(tl);
}

void timeline_wake_in(struct timeline *tl, uint32_t wakee_tid, const char *call)
{
	struct tl_thread *t = timeline_thread_find(tl, wakee_tid);

	if (t && t->waker.known && !tl->not_known)
		t->waker.call = writer_name(tl->w, call);
}
