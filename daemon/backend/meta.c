// SPDX-License-Identifier: Apache-2.0
/*
 * The part of meta.json that a frozen recording writes: the target, its records and losses, its
 * processes and event rings.
 */
#include <string.h>

#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/target/backend.h"

static void meta_target(const struct frozen *frozen, struct json_object *o)
{
	struct json_object *list;

	json_add_string(o, "id", frozen->name);
	json_add_string(o, "scope", target_scope_name(frozen->scope));
	json_add_int(o, "pid", frozen->pid);
	if (frozen->scope == TARGET_THREAD)
		json_add_int(o, "tid", frozen->tid);
	if (frozen->unit)
		json_add_text(o, "unit", frozen->unit, strlen(frozen->unit));
	json_add_text(o, "comm", frozen->comm, strlen(frozen->comm));
	if (frozen->exe)
		json_add_text(o, "exe", frozen->exe, strlen(frozen->exe));
	json_add_uint(o, "uid", frozen->uid);
	json_add_uint(o, "start_time", frozen->start_time);
	json_add_string(o, "state", target_state_name(frozen->state));
	json_add_uint(o, "armed_at", frozen->armed_unix_ns);
	list = json_add_new_array(o, "warnings");
	for (size_t i = 0; i < frozen->n_warnings; i++)
		json_append_string(list, frozen->warnings[i]);
}

static void meta_records(const struct frozen_stats *stats, struct json_object *o)
{
	json_add_uint(o, "samples", stats->samples);
	json_add_uint(o, "switches", stats->switches);
	json_add_uint(o, "wakeups", stats->wakeups);
	json_add_uint(o, "mmaps", stats->mmaps);
	json_add_uint(o, "comms", stats->comms);
	json_add_uint(o, "forks", stats->forks);
	json_add_uint(o, "exits", stats->exits);
	json_add_uint(o, "namespaces", stats->namespaces);
	json_add_uint(o, "first_ns", stats->first_ns);
	json_add_uint(o, "last_ns", stats->last_ns);
}

static void meta_losses(const struct frozen_stats *stats, struct json_object *o)
{
	json_add_uint(o, "lost", stats->lost);
	json_add_uint(o, "torn", stats->torn);
	json_add_uint(o, "malformed", stats->malformed);
	json_add_uint(o, "overwritten_bytes", stats->overwritten_bytes);
	json_add_uint(o, "throttled", stats->throttled);
	json_add_uint(o, "history_lost", stats->history_lost);
	json_add_uint(o, "history_dropped", stats->history_dropped);
	json_add_uint(o, "images_missing", stats->images_missing);
	json_add_uint(o, "processes_left_out", stats->processes_left_out);
	json_add_uint(o, "processes_refused", stats->processes_refused);
}

/*
 * Its next entry, which may be hidden, follows at once: it has executed another program, or it is
 * not known whether it has.
 */
static bool goes_on(const struct frozen *frozen, size_t i)
{
	const struct frozen_member *m = &frozen->members[i], *next = m + 1;

	return i + 1 < frozen->n_members && next->pid == m->pid && next->from_ns == m->to_ns + 1;
}

static void meta_processes(const struct frozen *frozen, struct json_object *list)
{
	for (size_t i = 0; i < frozen->n_members; i++) {
		const struct frozen_member *member = &frozen->members[i];
		struct json_object *o;

		if (member->hidden)
			continue;
		o = json_object_new_object();
		json_add_int(o, "pid", member->pid);
		json_add_int(o, "nspid", member->nspid);
		json_add_text(o, "comm", member->comm, strlen(member->comm));
		json_add_uint(o, "from_ns", member->from_ns);
		if (member->to_ns == UINT64_MAX)
			json_add_null(o, "to_ns");
		else
			json_add_uint(o, "to_ns", member->to_ns);
		if (goes_on(frozen, i))
			json_add_bool(o, "goes_on", true);
		json_append(list, o);
	}
}

/* The files with event rings; who wrote them may have ended by now. */
static void meta_producers(const struct frozen *frozen, struct json_object *list)
{
	for (size_t i = 0; i < frozen->n_producers; i++) {
		const struct frozen_producer *p = &frozen->producers[i];
		const char *comm = producer_comm(p->producer);
		struct json_object *o;

		if (!p->file[0])
			continue;
		o = json_object_new_object();
		json_add_string(o, "file", p->file);
		json_add_int(o, "pid", producer_pid(p->producer));
		json_add_int(o, "nspid", producer_nspid(p->producer));
		json_add_uint(o, "start_time", producer_start_time(p->producer));
		json_add_text(o, "comm", comm, strlen(comm));
		json_add_string(o, "state", p->stats.ended ? "ended" : "live");
		json_add_uint(o, "bytes", p->stats.bytes);
		json_add_uint(o, "rings", p->stats.rings);
		json_add_uint(o, "rings_left_out", p->stats.rings_left_out);
		json_add_uint(o, "copy_ns", p->stats.copy_ns);
		json_append(list, o);
	}
}

/* From then on nothing of the target is missing, as far as its back end says. */
static uint64_t complete_from(const struct frozen *frozen, const struct frozen_stats *stats)
{
	uint64_t from = frozen_recorded_from(frozen);

	if (frozen->oldest_ns > from)
		from = frozen->oldest_ns;
	return stats->complete_from_ns > from ? stats->complete_from_ns : from;
}

/*
 * Nothing of the target was recorded any more. A suspension that the freeze has found may be
 * younger than it.
 */
static void meta_suspended(const struct frozen *frozen, struct json_object *gaps)
{
	struct json_object *o;

	if (!frozen->suspended[0] || frozen->suspended_ns >= frozen->raw_ns)
		return;
	o = json_object_new_object();
	json_add_string(o, "kind", "suspended");
	json_add_text(o, "why", frozen->suspended, strlen(frozen->suspended));
	json_add_uint(o, "from_ns", frozen->suspended_ns);
	json_add_uint(o, "to_ns", frozen->raw_ns);
	json_append(gaps, o);
}

struct json_object *frozen_meta(const struct frozen *frozen, const struct frozen_stats *stats)
{
	struct json_object *o = json_object_new_object(), *events, *losses = NULL, *gaps = NULL;

	if (!o)
		return NULL;
	meta_target(frozen, json_add_new_object(o, "target"));
	events = json_add_new_object(o, "events");
	json_add_string(events, "backend", frozen->backend->name);
	json_add_string(events, "method", frozen->method);
	json_add_string(events, "stacks", stacks_mode_name(frozen->stacks));
	json_add_bool(events, "waits", frozen->waits);
	json_add_uint(events, "wait_min_ns", frozen->wait_min_ns);
	json_add_bool(events, "kernel", frozen->kernel_stacks);
	json_add_bool(events, "kernel_waits", frozen->kernel_waits);
	json_add_uint(events, "hz", frozen->hz);
	json_add_string(events, "clock", "CLOCK_MONOTONIC_RAW");
	json_add_uint(events, "frozen_ns", frozen->raw_ns);
	json_add_uint(events, "oldest_ns", frozen->oldest_ns);
	json_add_uint(events, "lookback_ns",
		      frozen->raw_ns > frozen->oldest_ns ? frozen->raw_ns - frozen->oldest_ns : 0);
	json_add_uint(o, "frozen_raw_ns", frozen->raw_ns);
	if (stats) {
		json_add_uint(events, "complete_from_ns", complete_from(frozen, stats));
		gaps = json_add_new_array(o, "gaps");
		meta_suspended(frozen, gaps);
		meta_records(stats, json_add_new_object(o, "records"));
		losses = json_add_new_object(o, "losses");
		meta_losses(stats, losses);
		if (frozen->n_go > 0)
			json_add_uint(losses, "go_traces", frozen_go_lost(frozen));
	}
	if (frozen->backend->meta)
		frozen->backend->meta(frozen, events, losses, gaps);
	meta_processes(frozen, json_add_new_array(o, "processes"));
	if (frozen->n_producers > 0)
		meta_producers(frozen, json_add_new_array(o, "rings"));
	if (frozen->n_go > 0)
		json_add(o, "go", frozen_go_to_json(frozen));
	return o;
}
