// SPDX-License-Identifier: Apache-2.0
/* What targets and capture tell about themselves: the protocol's Target, status, meta.json. */
#include <stdio.h>
#include <string.h>

#include "common/control/json.h"
#include "daemon/backend/backend.h"
#include "daemon/backend/capture.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/config.h"
#include "daemon/target/target_internal.h"

static const char *scope_name(enum target_scope scope)
{
	static const char *const names[] = {"process", "thread", "unit"};

	return names[scope];
}

static const char *state_name(enum target_state state)
{
	static const char *const names[] = {"armed", "suspended", "exited"};

	return names[state];
}

static void add_texts(struct json_object *o, const char *key, char *const *texts, size_t n)
{
	struct json_object *list = json_add_new_array(o, key);

	for (size_t i = 0; i < n; i++)
		json_append_string(list, texts[i]);
}

static void add_lost(struct json_object *o, const struct target *target, const struct backend_stats *stats)
{
	struct json_object *lost = json_add_new_object(o, "lost");

	json_add_uint(lost, "samples", stats->lost);
	json_add_uint(lost, "history", history_lost(target->targets->history) - target->history_lost_at);
	json_add_uint(lost, "history_dropped", target->log.dropped);
	json_add_uint(lost, "images_missing", target_images_missing(target));
}

struct json_object *target_to_json(struct target *target)
{
	struct json_object *o = json_object_new_object(), *events = NULL;
	const char *comm = target_comm(target);
	struct backend_stats stats;

	if (!o)
		return NULL;
	target->backend->stats(target, &stats);
	json_add_string(o, "id", target->name);
	json_add_string(o, "scope", scope_name(target->scope));
	json_add_int(o, "pid", target_pid(target));
	if (target->scope == TARGET_THREAD)
		json_add_int(o, "tid", target->tid);
	if (target->unit) {
		json_add_text(o, "unit", target->unit, strlen(target->unit));
		json_add_text(o, "cgroup", target->cgroup.path, strlen(target->cgroup.path));
	}
	json_add_text(o, "comm", comm, strlen(comm));
	if (target->exe)
		json_add_text(o, "exe", target->exe, strlen(target->exe));
	else
		json_add_null(o, "exe");
	json_add_uint(o, "uid", target->uid);
	json_add_uint(o, "start_time", target->proc.start_time);
	json_add_string(o, "state", state_name(target->state));
	json_add_string(o, "backend", target->backend->name);
	json_add_string(o, "method", stats.method);
	json_add_string(o, "stacks", stacks_mode_name(target->stacks));
	json_add_bool(o, "stacks_auto", target->stacks_asked == STACKS_AUTO);
	add_texts(o, "why", target->why, target->n_why);
	add_texts(o, "warnings", target->warnings, target->n_warnings);
	json_add_bool(o, "waits", target->waits);
	json_add_uint(o, "armed_at", target->armed_unix_ns);
	json_add_uint(o, "lookback_ns", stats.lookback_ns);
	json_add_uint(o, "samples", stats.samples);
	json_add_uint(o, "switches", stats.switches);
	json_add_uint(o, "processes", target->n_members);
	json_add_uint(o, "history_bytes", target->log.bytes);
	add_lost(o, target, &stats);
	json_add_uint(o, "ring_bytes", stats.ring_bytes);
	if (target_events_json(target, &events) < 0 || events)
		json_add(o, "events", events);
	else
		json_add_null(o, "events");
	if (target->backend->describe)
		target->backend->describe(target, o);
	else
		json_add_null(o, "step");
	json_add_uint(o, "fds", target->charge_fds.amount);
	json_add_uint(o, "owner_uid", target->owner);
	return o;
}

/* ---- status */

static void lacks(struct json_object *list, const char *what, const char *cost)
{
	struct json_object *o = json_object_new_object();

	json_add_string(o, "what", what);
	json_add_string(o, "cost", cost);
	json_append(list, o);
}

static void add_lacks(const struct targets *targets, struct json_object *list)
{
	const struct sampler_can *can = sampler_can(targets->sampler);
	char cost[320];

	if (!can->any)
		lacks(list, "perf_events", "perf_event_open is refused: nothing can be recorded");
	else if (!can->cpu_wide)
		lacks(list, "cpu_events", "no events on cpus or cgroups: targets get events on each thread, which slow "
					  "their context switches, and only those of tracerd's own user can be recorded");
	if (!can->filter) {
		(void)snprintf(cost, sizeof(cost), "%s: no stacks of waits, no wake-ups, no machine-wide sampling",
			       can->filter_why);
		lacks(list, "bpf_programs", cost);
	}
	if (!can->dwarf)
		lacks(list, "dwarf_stacks", "this architecture's registers are not known: call chains need frame pointers");
	if (targets->cgroup_fd < 0)
		lacks(list, "cgroup2", "no unified cgroup hierarchy: units cannot be armed");
}

static void add_backends(const struct targets *targets, struct json_object *status)
{
	static const struct backend *const backends[] = {&backend_sample, &backend_step};
	struct json_object *all = json_add_new_object(status, "backends");

	for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
		struct json_object *o = json_add_new_object(all, backends[i]->name);
		const char *method;
		char why[200] = "";
		bool available = backends[i]->probe(targets, &method, why, sizeof(why));

		json_add_bool(o, "available", available);
		json_add_string(o, "method", method);
		json_add_string(o, "why", why);
	}
}

int targets_status(const struct targets *targets, struct json_object *status, struct json_object *lack)
{
	struct json_object *o = json_add_new_object(status, "targets");
	size_t sets, resting, cpus;
	uint64_t bytes, fds;

	json_add_uint(o, "armed", targets->n_armed - targets->n_events);
	json_add_uint(o, "events", targets->n_events);
	json_add_uint(o, "suspended", targets->n_suspended);
	json_add_uint(o, "exited", targets->n_exited);
	json_add_uint(o, "limit", targets->config->max_targets);
	add_backends(targets, status);

	sampler_usage(targets->sampler, &sets, &bytes, &fds);
	sampler_resting(targets->sampler, &resting, &cpus);
	o = json_add_new_object(status, "capture");
	json_add_string(o, "history", history_running(targets->history) ? "machine"
				      : targets->history_error		 ? "tasks"
									 : "idle");
	json_add_bool(o, "bpf", sampler_can(targets->sampler)->filter);
	json_add_uint(o, "sets", sets);
	json_add_uint(o, "ring_bytes", bytes);
	json_add_uint(o, "event_fds", fds);
	json_add_uint(o, "cpus", cpus);
	json_add_uint(o, "cpus_resting", resting);
	json_add_uint(o, "images", images_count(targets->images));
	json_add_uint(o, "images_limit", targets->config->images_max);
	json_add_bool(o, "map_files", images_by_map_files(targets->images));
	add_lacks(targets, lack);
	return 0;
}

size_t targets_readers_hanging(const struct targets *targets)
{
	return targetwork_hanging(targets) + images_hanging(targets->images);
}

int targets_losses(const struct targets *targets, struct json_object *losses)
{
	const struct filter *filter = sampler_filter(targets->sampler);
	uint64_t dropped = 0, missing = 0;
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
	{
		dropped += target->log.dropped;
		missing += target_images_missing(target);
	}
	json_add_uint(losses, "history_lost", history_lost(targets->history));
	json_add_uint(losses, "history_dropped", dropped);
	json_add_uint(losses, "images_missing", missing);
	json_add_uint(losses, "switches_lost", filter ? filter_drops(filter) : 0);
	return 0;
}

/* ---- meta.json */

static void meta_target(const struct frozen *frozen, struct json_object *o)
{
	json_add_string(o, "id", frozen->name);
	json_add_string(o, "scope", scope_name(frozen->scope));
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
	json_add_string(o, "state", state_name(frozen->state));
	json_add_uint(o, "armed_at", frozen->armed_unix_ns);
	add_texts(o, "warnings", frozen->warnings, frozen->n_warnings);
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
}

static void meta_processes(const struct frozen *frozen, struct json_object *list)
{
	for (size_t i = 0; i < frozen->n_members; i++) {
		const struct frozen_member *member = &frozen->members[i];
		struct json_object *o = json_object_new_object();

		json_add_int(o, "pid", member->pid);
		json_add_int(o, "nspid", member->nspid);
		json_add_text(o, "comm", member->comm, strlen(member->comm));
		json_add_uint(o, "from_ns", member->from_ns);
		if (member->to_ns == UINT64_MAX)
			json_add_null(o, "to_ns");
		else
			json_add_uint(o, "to_ns", member->to_ns);
		json_append(list, o);
	}
}

/* The files with event rings; who wrote them may have ended by now. */
static void meta_programs(const struct frozen *frozen, struct json_object *list)
{
	for (size_t i = 0; i < frozen->n_programs; i++) {
		const struct frozen_program *program = &frozen->programs[i];
		const char *comm = producer_comm(program->producer);
		struct json_object *o;

		if (!program->file[0])
			continue;
		o = json_object_new_object();
		json_add_string(o, "file", program->file);
		json_add_int(o, "pid", producer_pid(program->producer));
		json_add_int(o, "nspid", producer_nspid(program->producer));
		json_add_uint(o, "start_time", producer_start_time(program->producer));
		json_add_text(o, "comm", comm, strlen(comm));
		json_add_string(o, "state", program->stats.ended ? "ended" : "live");
		json_add_uint(o, "bytes", program->stats.bytes);
		json_add_uint(o, "rings", program->stats.rings);
		json_add_uint(o, "rings_left_out", program->stats.rings_left_out);
		json_add_uint(o, "copy_ns", program->stats.copy_ns);
		json_append(list, o);
	}
}

/* Since when the target is recorded at all: its rings may be older than it. */
static uint64_t recorded_from(const struct frozen *frozen)
{
	uint64_t from = UINT64_MAX;

	for (size_t i = 0; i < frozen->n_members; i++)
		if (frozen->members[i].from_ns < from)
			from = frozen->members[i].from_ns;
	return from == UINT64_MAX ? 0 : from;
}

/* From then on no ring has lost anything of the target. */
static uint64_t complete_from(const struct frozen *frozen)
{
	uint64_t from = recorded_from(frozen);

	if (frozen->oldest_ns > from)
		from = frozen->oldest_ns;
	for (size_t i = 0; i < frozen->n_rings; i++) {
		/* One of which nothing could be read has nothing whole. */
		const uint64_t oldest = frozen->rings[i].oldest_ns ? frozen->rings[i].oldest_ns : frozen->raw_ns;

		if (frozen->rings[i].wrapped && oldest > from)
			from = oldest;
	}
	return from;
}

/*
 * Where one cpu's ring reaches back less far than another's, what ran there is missing in between.
 * Before the oldest data of all, and before the target was armed, there is nothing to miss it in.
 */
static void meta_gaps(const struct frozen *frozen, struct json_object *list)
{
	uint64_t begin = UINT64_MAX, from = recorded_from(frozen);
	char kind[48];

	for (size_t i = 0; i < frozen->n_rings; i++)
		if (frozen->rings[i].oldest_ns && frozen->rings[i].oldest_ns < begin)
			begin = frozen->rings[i].oldest_ns;
	if (begin < from)
		begin = from;
	for (size_t i = 0; i < frozen->n_rings; i++) {
		const struct frozen_ring *ring = &frozen->rings[i];
		struct json_object *o;

		if (!ring->wrapped || ring->oldest_ns <= begin)
			continue;
		o = json_object_new_object();
		(void)snprintf(kind, sizeof(kind), "ring of cpu %d overwritten", ring->cpu);
		json_add_string(o, "kind", kind);
		json_add_int(o, "cpu", ring->cpu);
		json_add_uint(o, "from_ns", begin);
		json_add_uint(o, "to_ns", ring->oldest_ns);
		json_append(list, o);
	}
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
	json_add_uint(events, "hz", frozen->hz);
	json_add_string(events, "clock", "CLOCK_MONOTONIC_RAW");
	json_add_uint(events, "frozen_ns", frozen->raw_ns);
	json_add_uint(events, "oldest_ns", frozen->oldest_ns);
	json_add_uint(events, "lookback_ns", frozen->raw_ns > frozen->oldest_ns ? frozen->raw_ns - frozen->oldest_ns : 0);
	json_add_uint(o, "frozen_raw_ns", frozen->raw_ns);
	if (stats) {
		json_add_uint(events, "complete_from_ns", complete_from(frozen));
		gaps = json_add_new_array(o, "gaps");
		meta_gaps(frozen, gaps);
		meta_records(stats, json_add_new_object(o, "records"));
		losses = json_add_new_object(o, "losses");
		meta_losses(stats, losses);
	}
	if (frozen->backend->meta)
		frozen->backend->meta(frozen, events, losses, gaps);
	meta_processes(frozen, json_add_new_array(o, "processes"));
	if (frozen->n_programs > 0)
		meta_programs(frozen, json_add_new_array(o, "rings"));
	return o;
}
