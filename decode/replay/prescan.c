// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/prescan.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>

#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/replay/pt.h"
#include "decode/replay/session_internal.h"

#define MAX_CPUS 4096u
/* The period is measured by the first so many gaps between samples, among so many records. */
#define MAX_GAPS 4096u
#define MIN_GAPS 8u
#define MAX_GAP_RECORDS 65536u
#define GAP_THREADS 256u
/* The largest record there can be: what does not fit the ring any more is lost as a whole. */
#define RECORD_MAX 65536u
#define MAX_LOSSES 65536u /* the last one goes on with those after it */

struct measure {
	struct {
		uint32_t tid;
		uint64_t time; /* 0: none */
	} last[GAP_THREADS];
	uint64_t gaps[MAX_GAPS];
	size_t n, records;
};

/* What of a CPU's ring that keeps the newest is there. */
struct ring {
	uint64_t first, bytes;
};

struct walk {
	struct prescan *to;
	struct replay_pt *pt; /* NULL: there is none */
	struct process_maps *maps;
	struct measure *measure; /* NULL: the attributes have the period */
	struct ring *rings;	 /* of each CPU; NULL: they do not keep the newest */
	/* of each CPU, the time of its last record; NULL: nothing was lost */
	uint64_t *lost_last;
	uint64_t complete_from;
	size_t max_losses;
};

/* ---- the period of samples */

static bool attr_is_clock(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE &&
	       (a->config == PERF_COUNT_SW_CPU_CLOCK || a->config == PERF_COUNT_SW_TASK_CLOCK);
}

static uint64_t period_of_attrs(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++) {
		const struct perfattr *a = &pd->attrs[i];

		if (!attr_is_sampling(a))
			continue;
		if (a->freq && a->period && a->period <= 1000000000)
			return 1000000000 / a->period;
		if (!a->freq && attr_is_clock(a) && a->period && a->period <= 60000000000u)
			return a->period;
	}
	return 0;
}

static bool is_measured(const struct measure *m)
{
	return m->records == MAX_GAP_RECORDS || m->n == MAX_GAPS;
}

static void measure_record(struct measure *m, const struct perfevent *ev)
{
	const size_t slot = ev->tid % GAP_THREADS;

	m->records++;
	if (ev->kind != PERFEVENT_SAMPLE || !ev->has_time || !attr_is_sampling(ev->attr))
		return;
	if (m->last[slot].time && m->last[slot].tid == ev->tid && ev->time > m->last[slot].time)
		m->gaps[m->n++] = ev->time - m->last[slot].time;
	m->last[slot].tid = ev->tid;
	m->last[slot].time = ev->time;
}

static int gap_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of the time between two samples of one thread; 0: too few. */
static uint64_t measured_period(struct measure *m)
{
	if (m->n < MIN_GAPS)
		return 0;
	qsort(m->gaps, m->n, sizeof(*m->gaps), gap_compare);
	return m->gaps[m->n / 2] <= 1000000000 ? m->gaps[m->n / 2] : 0;
}

/* ---- rings that keep the newest */

static bool is_backward(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++)
		if (pd->attrs[i].write_backward)
			return true;
	return false;
}

static void ring_record(struct walk *w, const struct perfevent *ev)
{
	struct ring *ring = ev->cpu < MAX_CPUS ? &w->rings[ev->cpu] : NULL;

	if (!ev->attr->write_backward || !ev->has_time || ev->time == 0)
		return;
	if (!ring) { /* in nobody knows which ring */
		w->complete_from = ev->time;
		return;
	}
	if (!ring->bytes)
		ring->first = ev->time;
	ring->bytes += ev->size;
}

static uint64_t complete_from(const struct walk *w)
{
	uint64_t from = w->complete_from, largest = 0, room = 1;

	for (size_t i = 0; i < MAX_CPUS; i++)
		if (w->rings[i].bytes > largest)
			largest = w->rings[i].bytes;
	/*
	 * All are of one size, a power of two. One is full but for a record, or has not come round.
	 */
	while (room < largest)
		room *= 2;
	for (size_t i = 0; i < MAX_CPUS; i++)
		if (w->rings[i].bytes + RECORD_MAX > room && w->rings[i].first > from)
			from = w->rings[i].first;
	return from;
}

/*
 * ---- losses: which records they were is not known, so they count from the record before on that
 * CPU
 */

static void loss_record(struct walk *w, const struct perfevent *ev)
{
	uint64_t *last = ev->cpu < MAX_CPUS ? &w->lost_last[ev->cpu] : NULL;
	struct prescan *p = w->to;

	if (!ev->has_time || ev->time == 0)
		return;
	if (ev->kind == PERFEVENT_LOST && ev->lost.count && p->n_losses == w->max_losses)
		p->losses[p->n_losses - 1].end = ev->time;
	else if (ev->kind == PERFEVENT_LOST && ev->lost.count)
		p->losses[p->n_losses++] =
			(struct prescan_loss){.begin = last && *last ? *last : ev->time,
					      .end = ev->time};
	if (last)
		*last = ev->time;
}

/* ---- */

static int on_record(void *arg, const struct perfevent *ev)
{
	struct walk *w = arg;

	if (w->measure && !is_measured(w->measure))
		measure_record(w->measure, ev);
	if (w->rings)
		ring_record(w, ev);
	if (w->lost_last)
		loss_record(w, ev);
	if (w->pt) {
		process_maps_record(w->maps, ev);
		return replay_pt_record(w->pt, ev);
	}
	/* the period alone needs no more than the first records */
	return w->rings || w->lost_last || !is_measured(w->measure) ? 0 : 1;
}

int prescan_run(const struct prescan_options *o, struct prescan *ret)
{
	_cleanup_free_ struct measure *measure = NULL;
	_cleanup_free_ struct ring *rings = NULL;
	_cleanup_free_ uint64_t *lost_last = NULL;
	struct perfdata *pd = o->pd;
	struct walk w = {.to = ret, .pt = o->pt, .maps = o->maps};
	int r = 0;

	*ret = (struct prescan){.period_ns = period_of_attrs(pd)};
	/* every so many cycles or misses: how long that takes shows in the times alone */
	if (!ret->period_ns && !(measure = calloc(1, sizeof(*measure))))
		return -ENOMEM;
	/* Exact calls do not hang on what is missing around them. */
	if (!o->pt && o->complete_from && is_backward(pd) &&
	    !(rings = calloc(MAX_CPUS, sizeof(*rings))))
		return -ENOMEM;
	w.max_losses =
		o->pt ? 0
		      : pd->n_records[PERF_RECORD_LOST] + pd->n_records[PERF_RECORD_LOST_SAMPLES];
	if (w.max_losses > MAX_LOSSES)
		w.max_losses = MAX_LOSSES;
	if (w.max_losses) {
		lost_last = calloc(MAX_CPUS, sizeof(*lost_last));
		ret->losses = calloc(w.max_losses, sizeof(*ret->losses));
		if (!lost_last || !ret->losses)
			return -ENOMEM;
	}
	w.measure = measure;
	w.rings = rings;
	w.lost_last = lost_last;
	if (o->pt || measure || rings || lost_last)
		r = perfdata_walk(pd, on_record, &w);
	if (measure)
		ret->period_ns = measured_period(measure);
	if (rings)
		ret->complete_from_ns = complete_from(&w);
	return r < 0 ? r : 0;
}

void prescan_fini(struct prescan *p)
{
	free(p->losses);
	*p = (struct prescan){.losses = NULL};
}
