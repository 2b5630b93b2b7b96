// SPDX-License-Identifier: Apache-2.0
/* What a recording says of itself before it is replayed, and what happened after. */
#include "config.h"

#include <linux/perf_event.h>
#include <time.h>

#include "common/control/json.h"
#include "decode/object/process_maps.h"
#include "decode/replay/session_internal.h"

static void add_count(struct json_object *o, const char *key, uint64_t n)
{
	if (n)
		json_add_uint(o, key, n);
}

void session_report(const struct session *s, struct json_object *stats, struct json_object *losses)
{
	static const struct perfdata_losses none;
	const struct perfdata_losses *l = s->o.pd ? perfdata_lost(s->o.pd) : &none;
	const struct resolve_stats *rs = resolver_stats(s->resolver);
	const struct images_stats *is = images_stats(s->o.images);

	json_add_uint(stats, "records", s->o.pd ? perfdata_count(s->o.pd) : 0);
	json_add_uint(stats, "samples", s->samples);
	json_add_uint(stats, "switches", s->switches);
	json_add_uint(stats, "wakeups", s->wakeups);
	json_add_uint(stats, "mmaps", process_maps_records(s->o.maps));
	json_add_uint(stats, "processes", s->processes.n);
	json_add_uint(stats, "threads", s->threads.n);
	json_add_uint(stats, "images", is->ready);
	json_add_uint(stats, "debug_files", is->debug_found);
	json_add_uint(stats, "perf_maps", rs->perfmaps);
	json_add_uint(stats, "addresses", rs->addresses);
	json_add_uint(stats, "stacks", s->walk.stacks);
	/*
	 * no loss: a stripped object has no names to lose, the addresses where functions begin
	 * distinguish them
	 */
	add_count(stats, "frames_without_symbol", rs->unknown_no_symbol);
	add_count(stats, "callers_found", s->walk.missing_callers.found);
	add_count(stats, "idle_samples", s->idle_samples);
	add_count(stats, "samples_of_ended_threads", s->samples_of_ended);
	add_count(stats, "kernel_events", s->moments);
	add_count(stats, "in_goroutine", s->in_goroutine);
	add_count(stats, "events_after_freeze", s->events_late);

	add_count(losses, "inlined_calls_over_memory", resolver_inlines_left_out(s->resolver));
	add_count(losses, "torn_records", l->torn);
	add_count(losses, "malformed_records", l->malformed);
	add_count(losses, "unknown_records", l->unknown);
	add_count(losses, "unknown_ids", l->unknown_ids);
	add_count(losses, "compressed_records_unreadable", l->compressed);
	add_count(losses, "records_over_memory", l->no_memory + s->no_memory);
	add_count(losses, "features_unreadable", l->features);
	add_count(losses, "aux_records_ignored", s->aux_ignored);
	add_count(losses, "aux_bytes_ignored", s->o.pt ? 0 : l->aux_bytes);
	add_count(losses, "aux_truncated", s->aux_truncated);
	add_count(losses, "bytes_unread", l->unread_bytes);
	add_count(losses, "samples_without_time", s->untimed);
	add_count(losses, "bad_sched_events", s->bad_sched);
	add_count(losses, "records_lost", s->lost);
	add_count(losses, "events_without_thread", s->events_unattributed);
	add_count(losses, "throttled", s->throttled);
	if (!s->o.pt) /* else replay_pt_report() does, and the trace shows it */
		add_count(losses, "maps_refused", process_maps_refused(s->o.maps));
	add_count(losses, "debug_files_wrong", is->debug_wrong);
	add_count(losses, "frames_unmapped", rs->unknown_no_map);
	add_count(losses, "frames_without_image", rs->unknown_no_image);
	add_count(losses, "frames_without_jit_name", rs->unknown_jit);
	add_count(losses, "frames_with_several_jit_names", rs->several_names);
	add_count(losses, "frames_wrong", rs->wrong);
	stackwalk_report(&s->walk, losses);
	python_report(&s->python, stats, losses);
	images_report(s->o.images, losses);
}

/* ---- what the attributes say of the whole recording */

bool session_has_switches(const struct perfdata *pd)
{
	for (uint32_t i = 0; i < pd->n_attrs; i++)
		if (pd->attrs[i].context_switch || perfattr_is_bpf_output(&pd->attrs[i]) ||
			attr_tracepoint(&pd->attrs[i]) == TRACEPOINT_SWITCH)
			return true;
	return false;
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
