// SPDX-License-Identifier: Apache-2.0
/* What a recording says of itself before it is replayed, and what happened after. */
#include "config.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <time.h>

#include "common/control/json.h"
#include "decode/replay/session_internal.h"

static void add_count(struct json_object *o, const char *key, uint64_t n)
{
	if (n)
		json_add_uint(o, key, n);
}

void session_report(const struct session *s, struct json_object *stats, struct json_object *losses)
{
	static const struct perfdata_losses none;
	const struct perfdata_losses *l = s->o.pd ? &s->o.pd->losses : &none;
	const struct resolve_stats *rs = resolver_stats(s->resolver);
	const struct images_stats *is = images_stats(s->o.images);

	json_add_uint(stats, "records", s->o.pd ? s->o.pd->n_index : 0);
	json_add_uint(stats, "samples", s->samples);
	json_add_uint(stats, "switches", s->switches);
	json_add_uint(stats, "wakeups", s->wakeups);
	json_add_uint(stats, "mmaps", s->mmaps);
	json_add_uint(stats, "processes", s->processes.n);
	json_add_uint(stats, "threads", s->threads.n);
	json_add_uint(stats, "images", is->ready);
	json_add_uint(stats, "debug_files", is->debug_found);
	json_add_uint(stats, "perf_maps", rs->perfmaps);
	json_add_uint(stats, "addresses", rs->addresses);
	json_add_uint(stats, "stacks", s->walk.stacks);
	/* no loss: a stripped object has no names to lose, its functions are told apart by where they begin */
	add_count(stats, "frames_without_symbol", rs->unknown_no_symbol);
	add_count(stats, "callers_found", s->walk.leaf_callers.found);
	add_count(stats, "idle_samples", s->idle_samples);
	add_count(stats, "kernel_events", s->moments);
	add_count(stats, "events_after_freeze", s->events_late);

	add_count(losses, "torn_records", l->torn);
	add_count(losses, "malformed_records", l->malformed);
	add_count(losses, "unknown_records", l->unknown);
	add_count(losses, "unknown_ids", l->unknown_ids);
	add_count(losses, "compressed_records_unreadable", l->compressed);
	add_count(losses, "records_over_memory", l->no_memory + s->no_memory);
	add_count(losses, "features_unreadable", l->features);
	add_count(losses, "aux_records_ignored", l->aux_records);
	add_count(losses, "aux_bytes_ignored", l->aux_bytes);
	add_count(losses, "aux_truncated", s->aux_truncated);
	add_count(losses, "bytes_unread", l->unread_bytes);
	add_count(losses, "samples_without_time", s->untimed);
	add_count(losses, "bad_sched_events", s->bad_sched);
	add_count(losses, "records_lost", s->lost);
	add_count(losses, "events_without_thread", s->events_homeless);
	add_count(losses, "throttled", s->throttled);
	add_count(losses, "maps_refused", s->maps_refused);
	add_count(losses, "debug_files_wrong", is->debug_wrong);
	add_count(losses, "frames_unmapped", rs->unknown_no_map);
	add_count(losses, "frames_without_image", rs->unknown_no_image);
	add_count(losses, "frames_without_jit_name", rs->unknown_jit);
	add_count(losses, "frames_wrong", rs->wrong);
	stackwalk_report(&s->walk, losses);
	images_report(s->o.images, losses);
}

/* ---- what the attributes say of the whole recording */

static bool attr_is_clock(const struct perfattr *a)
{
	return a->type == PERF_TYPE_SOFTWARE &&
	       (a->config == PERF_COUNT_SW_CPU_CLOCK || a->config == PERF_COUNT_SW_TASK_CLOCK);
}

static int gap_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of the time between two samples of one thread, by the first ones; 0: too few. */
static uint64_t measured_period(struct perfdata *pd)
{
	enum { MAX_GAPS = 4096, MIN_GAPS = 8, MAX_RECORDS = 65536 };
	struct {
		uint32_t tid;
		uint64_t time; /* 0: none */
	} last[256] = {0};
	const struct perfdata_losses losses = pd->losses; /* each is counted when it is replayed */
	_cleanup_free_ uint64_t *gaps = calloc(MAX_GAPS, sizeof(*gaps));
	struct perfevent ev;
	size_t n = 0;

	if (!gaps)
		return 0;
	pd->next = 0;
	for (size_t i = 0; i < MAX_RECORDS && n < MAX_GAPS && perfdata_next(pd, &ev); i++) {
		size_t slot = ev.tid % ARRAY_SIZE(last);

		if (ev.kind != PERFEVENT_SAMPLE || !ev.has_time || !attr_is_sampling(ev.attr))
			continue;
		if (last[slot].time && last[slot].tid == ev.tid && ev.time > last[slot].time)
			gaps[n++] = ev.time - last[slot].time;
		last[slot].tid = ev.tid;
		last[slot].time = ev.time;
	}
	pd->next = 0;
	pd->losses = losses;
	if (n < MIN_GAPS)
		return 0;
	qsort(gaps, n, sizeof(*gaps), gap_compare);
	return gaps[n / 2] <= 1000000000 ? gaps[n / 2] : 0;
}

uint64_t session_period_ns(struct perfdata *pd)
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
	/* every so many cycles or misses: nobody knows how long that is, but the times tell */
	return measured_period(pd);
}

bool session_has_switches(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++)
		if (pd->attrs[i].context_switch || perfattr_is_bpf_output(&pd->attrs[i]) ||
			attr_tracepoint(&pd->attrs[i]) == TRACEPOINT_SWITCH)
			return true;
	return false;
}

/* The largest record there can be: what does not fit the ring any more is lost as a whole. */
#define RECORD_MAX 65536u

uint64_t session_complete_from(struct perfdata *pd)
{
	enum { MAX_RINGS = 4096 };
	struct ring {
		uint64_t first, bytes;
	} *rings;
	const struct perfdata_losses losses = pd->losses; /* each is counted when it is replayed */
	uint64_t from = 0, largest = 0, room = 1;
	bool backward = false;
	struct perfevent ev;

	for (uint32_t i = 0; i < pd->n_attrs; i++)
		backward |= pd->attrs[i].write_backward;
	if (!backward)
		return 0;
	rings = calloc(MAX_RINGS, sizeof(*rings));
	pd->next = 0;
	while (perfdata_next(pd, &ev)) {
		struct ring *ring = rings && ev.cpu < MAX_RINGS ? &rings[ev.cpu] : NULL;

		if (!ev.attr->write_backward || !ev.has_time || ev.time == 0)
			continue;
		if (!ring) { /* in nobody knows which ring */
			from = ev.time;
			continue;
		}
		if (!ring->bytes)
			ring->first = ev.time;
		ring->bytes += ev.size;
		if (ring->bytes > largest)
			largest = ring->bytes;
	}
	pd->next = 0;
	pd->losses = losses;
	/* All are of one size, a power of two. One is full but for a record, or has not come round. */
	while (room < largest)
		room *= 2;
	for (size_t i = 0; rings && i < MAX_RINGS; i++)
		if (rings[i].bytes + RECORD_MAX > room && rings[i].first > from)
			from = rings[i].first;
	free(rings);
	return from;
}

enum clock_source session_clock(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++) {
		if (!pd->attrs[i].use_clockid)
			continue;
		switch (pd->attrs[i].clockid) {
		case CLOCK_MONOTONIC:
			return CLOCK_SOURCE_MONOTONIC;
		case CLOCK_MONOTONIC_RAW:
			return CLOCK_SOURCE_MONOTONIC_RAW;
		case CLOCK_BOOTTIME:
			return CLOCK_SOURCE_BOOTTIME;
		case CLOCK_REALTIME:
			return CLOCK_SOURCE_REALTIME;
		default:
			break;
		}
	}
	return CLOCK_SOURCE_UNKNOWN;
}
