// SPDX-License-Identifier: Apache-2.0
/*
 * The timeline's processes and threads: who they are, what they are called, when their tracks are
 * declared and closed. What threads do is decode/timeline/timeline.c's.
 */
#include "config.h"

#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- maps from a number to an index */

static uint32_t map_slot(const struct tl_map *m, uint32_t key)
{
	uint32_t at = (uint32_t)(((uint64_t)key * 0x9e3779b97f4a7c15ull) >> 32) & (m->n_slots - 1);

	while (m->values[at] && m->keys[at] != key)
		at = (at + 1) & (m->n_slots - 1);
	return at;
}

static bool map_get(const struct tl_map *m, uint32_t key, uint32_t *ret_index)
{
	uint32_t v = m->n_slots ? m->values[map_slot(m, key)] : 0;

	if (v == 0)
		return false;
	*ret_index = v - 1;
	return true;
}

static int map_set(struct tl_map *m, uint32_t key, uint32_t index)
{
	uint32_t at;

	if (m->used >= m->n_slots / 2) {
		struct tl_map bigger = {.n_slots = m->n_slots ? m->n_slots * 2 : 256};

		bigger.keys = calloc(bigger.n_slots, sizeof(uint32_t));
		bigger.values = calloc(bigger.n_slots, sizeof(uint32_t));
		if (!bigger.keys || !bigger.values) {
			free(bigger.keys);
			free(bigger.values);
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < m->n_slots; i++) {
			if (!m->values[i])
				continue;
			at = map_slot(&bigger, m->keys[i]);
			bigger.keys[at] = m->keys[i];
			bigger.values[at] = m->values[i];
		}
		bigger.used = m->used;
		free(m->keys);
		free(m->values);
		*m = bigger;
	}
	at = map_slot(m, key);
	m->used += m->values[at] == 0;
	m->keys[at] = key;
	m->values[at] = index + 1;
	return 0;
}

/* ---- processes and threads */

static int process_get(struct timeline *tl, uint32_t pid, struct tl_process **ret)
{
	struct tl_process *p;
	uint32_t i;
	int r;

	if (map_get(&tl->process_map, pid, &i)) {
		*ret = &tl->processes[i];
		return 0;
	}
	if (tl->n_processes == tl->options.max_threads)
		return TIMELINE_E_FULL;
	if (tl->n_processes == tl->max_processes) {
		uint32_t max = tl->max_processes ? tl->max_processes * 2 : 16;

		p = reallocarray(tl->processes, max, sizeof(*p));
		if (!p)
			return -ENOMEM;
		tl->processes = p;
		tl->max_processes = max;
	}
	r = map_set(&tl->process_map, pid, tl->n_processes);
	if (r < 0)
		return r;
	p = &tl->processes[tl->n_processes++];
	*p = (struct tl_process){.pid = pid};
	tl->stats.processes++;
	*ret = p;
	return 0;
}

static void process_declare(struct timeline *tl, struct tl_process *p, uint64_t mono)
{
	if (p->track && !p->renamed)
		return;
	if (!p->track)
		p->track = writer_new_track(tl->w);
	p->renamed = false;
	writer_process(tl->w, p->track, p->pid, p->ppid, writer_name_text(tl->w, p->name), mono);
}

struct tl_process *timeline_process_enter(struct timeline *tl, uint32_t pid, uint64_t mono)
{
	struct tl_process *p;

	if (process_get(tl, pid, &p) != 0)
		return NULL;
	process_declare(tl, p, mono);
	return p;
}

struct tl_process *timeline_process_find(const struct timeline *tl, uint32_t pid)
{
	uint32_t i;

	return map_get(&tl->process_map, pid, &i) ? &tl->processes[i] : NULL;
}

uint32_t timeline_process_track(struct timeline *tl, uint32_t pid, uint64_t mono)
{
	const struct tl_process *p = timeline_process_enter(tl, pid, mono);

	return p ? p->track : 0;
}

struct tl_thread *timeline_thread_look_up(struct timeline *tl, uint32_t tid)
{
	uint32_t i;

	if (!map_get(&tl->thread_map, tid, &i))
		return NULL;
	tl->last_found = tl->threads[i];
	return tl->last_found;
}

void timeline_thread_declare_now(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	const uint32_t process = timeline_process_track(tl, t->pid, mono);

	if (!t->lane.track)
		t->lane.track = writer_new_track(tl->w);
	t->renamed = false;
	writer_thread(tl->w, t->lane.track, process, t->pid, t->tid,
			   writer_name_text(tl->w, t->name), mono);
}

static int thread_make(struct timeline *tl, uint32_t pid, uint32_t tid, uint64_t born,
		       struct tl_thread **ret)
{
	struct tl_thread *t;
	int r;

	if (tl->n_threads == tl->options.max_threads)
		return TIMELINE_E_FULL;
	if (tl->n_threads == tl->max_threads) {
		uint32_t max = tl->max_threads ? tl->max_threads * 2 : 64;
		struct tl_thread **p = reallocarray(tl->threads, max, sizeof(*p));

		if (!p)
			return -ENOMEM;
		tl->threads = p;
		tl->max_threads = max;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	r = map_set(&tl->thread_map, tid, tl->n_threads);
	if (r < 0) {
		free(t);
		return r;
	}
	tl->last_found = NULL; /* one of that number may be another one now */
	t->tid = tid;
	t->pid = pid;
	t->born = born;
	t->index = tl->n_threads;
	t->cpu = TL_CPU_UNKNOWN;
	t->gaps_seen = tl->gaps;
	tl->threads[tl->n_threads++] = t;
	tl->stats.threads++;
	/* One of that number that is born later is another one. */
	if (tid == tl->options.cause.tid && tid != 0 &&
	    (!tl->focus_thread || born <= timeline_monotonic(tl, tl->options.cause.begin_ns))) {
		tl->focus_thread = t->index + 1;
		summary_focus_thread(tl->summary, t->index);
	}
	*ret = t;
	return 0;
}

/* The losses that the thread has not seen yet. */
int timeline_thread_see_gaps(struct timeline *tl, struct tl_thread *t)
{
	int r = 0;

	if (tl->gaps - t->gaps_seen > TL_RECENT_GAPS)
		t->gaps_seen = tl->gaps - TL_RECENT_GAPS;
	while (t->gaps_seen < tl->gaps && r == 0)
		r = timeline_thread_gap(tl, t, &tl->recent_gaps[t->gaps_seen++ % TL_RECENT_GAPS]);
	return r;
}

int timeline_thread_enter(struct timeline *tl, uint32_t tid, uint64_t mono, struct tl_thread **ret)
{
	return timeline_thread_enter_of(tl, tid, tid, mono, ret);
}

int timeline_thread_enter_of(struct timeline *tl, uint32_t pid, uint32_t tid, uint64_t mono,
			     struct tl_thread **ret)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);
	int r;

	if (!t) {
		r = thread_make(tl, pid, tid, mono, &t);
		if (r == TIMELINE_E_FULL)
			tl->stats.refused_full++;
		if (r != 0)
			return r;
	}
	timeline_thread_declare(tl, t, mono);
	*ret = t;
	r = t->gaps_seen < tl->gaps ? timeline_thread_see_gaps(tl, t) : 0;
	return r < 0 || t->incomplete_seen == tl->n_incomplete ? r
							       : timeline_thread_incomplete(tl, t);
}

int timeline_process(struct timeline *tl, uint32_t pid, uint32_t ppid, const char *name,
		     uint64_t ts)
{
	struct tl_process *p;
	uint64_t mono = 0;
	uint32_t id;
	int r;

	/* Time 0: it was there before the recording. */
	if (ts != 0 && (r = timeline_enter(tl, ts, &mono)) != 0)
		return r;
	r = process_get(tl, pid, &p);
	if (r == TIMELINE_E_FULL)
		tl->stats.refused_full++;
	if (r != 0)
		return r;
	if (ppid)
		p->ppid = ppid;
	id = writer_name(tl->w, name);
	if (id && id != p->name) {
		p->name = id;
		p->renamed = p->track != 0;
		if (p->renamed && mono)
			process_declare(tl, p, mono);
	}
	return timeline_leave(tl);
}

/* The thread is gone, or was another one all the time: nothing of it stays open. */
void timeline_thread_close(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	bool switches = tl->options.switches || t->has_switches;
	uint64_t end = mono;

	(void)timeline_thread_see_gaps(tl, t);
	(void)timeline_thread_incomplete(tl, t);
	if (t->not_known && t->lane.leaf)
		slices_leaf_end(tl->slices, &t->lane, mono, NULL);
	timeline_thread_seen_again(tl, t, mono);
	if (t->running == RUNNING_OFF)
		(void)timeline_account_off(tl, t, t->waits.current.begin, mono);
	else if (t->running == RUNNING_ON && switches)
		(void)timeline_account_on(tl, t, t->on_since, mono);
	if (!switches && t->last_sample + tl->options.period_ns < end)
		end = t->last_sample + tl->options.period_ns;
	(void)timeline_wait_show(tl, t);
	waits_abandon(tl->waits, &t->waits, &t->lane, mono, timeline_who(t));
	slices_trim(tl->slices, &t->lane, 0, end);
	(void)slices_outside_end(tl->slices, &t->lane);
	tl_regions_close(tl, &t->regions, mono, tl->event_names->note_closed);
	tl_fiber_leave(tl, t, mono);
	tl_seen_end(tl, t, end);
	tl_goroutine_thread_ends(tl, t, mono);
	t->running = RUNNING_UNKNOWN;
	t->resumed = 0;
	t->closed = mono;
}

int timeline_thread(struct timeline *tl, uint32_t pid, uint32_t tid, const char *name, uint64_t ts)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);
	uint64_t mono = 0;
	uint32_t id;
	int r;

	if (ts != 0 && (r = timeline_enter(tl, ts, &mono)) != 0)
		return r;
	if (t && !t->exited && t->pid != pid) {
		timeline_thread_close(tl, t, tl->stats.last_ns);
		t->exited = true;
	}
	if (!t || t->exited) {
		r = thread_make(tl, pid, tid, mono, &t);
		if (r == TIMELINE_E_FULL)
			tl->stats.refused_full++;
		if (r != 0)
			return r;
	}
	id = writer_name(tl->w, name);
	if (id && id != t->name) {
		t->name = id;
		t->renamed = t->lane.track != 0;
		if (t->renamed && mono)
			timeline_thread_declare(tl, t, mono);
	}
	return timeline_leave(tl);
}

void timeline_thread_forked(struct timeline *tl, uint32_t tid)
{
	struct tl_thread *t = timeline_thread_find(tl, tid);

	if (t && t->running == RUNNING_UNKNOWN)
		t->forked = true;
}

static void exit_now(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	timeline_thread_declare(tl, t, mono);
	timeline_thread_close(tl, t, mono);
	sched_exit(tl->sched, mono, t->tid);
	t->exited = true;
}

int timeline_exit(struct timeline *tl, uint64_t ts)
{
	uint64_t mono;
	int r = tl->n_threads ? timeline_enter(tl, ts, &mono) : 0;

	if (r != 0 || tl->n_threads == 0)
		return r;
	for (uint32_t i = 0; i < tl->n_threads; i++)
		if (!tl->threads[i]->exited)
			exit_now(tl, tl->threads[i], mono);
	return timeline_leave(tl);
}

int timeline_thread_exit(struct timeline *tl, uint32_t tid, uint64_t ts)
{
	struct tl_thread *t;
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r != 0)
		return r;
	t = timeline_thread_find(tl, tid);
	if (t && !t->exited) {
		timeline_thread_declare(tl, t, mono);
		r = timeline_thread_see_gaps(tl, t);
		if (r == 0)
			r = timeline_thread_incomplete(tl, t);
		if (r == 0)
			r = timeline_thread_exits(tl, t, mono);
		if (r < 0)
			return r;
		exit_now(tl, t, mono);
	}
	return timeline_leave(tl);
}
