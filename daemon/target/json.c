// SPDX-License-Identifier: Apache-2.0
/*
 * What targets report of themselves: the protocol's Target, their part of the status, their losses.
 */
#include <stdio.h>
#include <string.h>

#include "common/control/json.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

const char *target_scope_name(enum target_scope scope)
{
	static const char *const names[] = {"process", "thread", "unit", "host"};

	return names[scope];
}

const char *target_state_name(enum target_state state)
{
	static const char *const names[] = {"armed", "suspended", "exited"};

	return names[state];
}

static struct json_object *add_texts(struct json_object *o, const char *key, char *const *texts,
				     size_t n)
{
	struct json_object *list = json_add_new_array(o, key);

	for (size_t i = 0; i < n; i++)
		json_append_string(list, texts[i]);
	return list;
}

/* What is to be said of a unit that was stopped. */
static void add_away(struct json_object *warnings, const struct target *target)
{
	const unsigned int keep_s = target->targets->config->exited_keep_s;
	char text[160];

	if (!target->away_ns)
		return;
	if (target->state == TARGET_ARMED)
		(void)snprintf(
			text, sizeof(text),
			"the unit is not running: it is recorded again if it starts within %u s (exited_keep_s)",
			keep_s);
	else
		(void)snprintf(text, sizeof(text),
			       "ended: the unit was gone for longer than %u s (exited_keep_s)",
			       keep_s);
	json_append_string(warnings, text);
}

/*
 * What of all targets' losses is this one's. Which side-band records were lost nobody knows: the
 * status has those.
 */
static void add_lost(struct json_object *o, const struct target *target,
		     const struct backend_stats *stats)
{
	struct json_object *lost = json_add_new_object(o, "lost");

	json_add_uint(lost, "samples", stats->lost);
	json_add_uint(lost, "history_dropped", target->log.dropped);
	json_add_uint(lost, "images_missing", target_images_missing(target));
	json_add_uint(lost, "processes", target->left_out);
	json_add_uint(lost, "refused", target->refused);
}

/*
 * Each back end that has something to say of its targets has a member of its name, null in others'
 * targets.
 */
static void add_recordings(struct json_object *o, const struct target *target)
{
	for (size_t i = 0; i < BACKENDS; i++) {
		if (!backends[i]->describe)
			continue;
		if (backends[i] == target->backend)
			json_add(o, backends[i]->name, backends[i]->describe(target));
		else
			json_add_null(o, backends[i]->name);
	}
}

struct json_object *target_to_json(struct target *target)
{
	struct json_object *o = json_object_new_object(), *events = NULL;
	const char *comm = target_comm(target);
	struct backend_stats stats = {.method = "none"};

	if (!o)
		return NULL;
	if (target->backend->stats)
		target->backend->stats(target, &stats);
	json_add_string(o, "id", target->name);
	json_add_string(o, "scope", target_scope_name(target->scope));
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
	json_add_string(o, "state", target_state_name(target->state));
	json_add_string(o, "backend", target->backend->name);
	json_add_string(o, "method", stats.method);
	json_add_string(o, "stacks", stacks_mode_name(target->stacks));
	json_add_bool(o, "stacks_auto", target->stacks_asked == STACKS_AUTO);
	json_add_bool(o, "stacks_pending", target->probe_waits);
	(void)add_texts(o, "why", target->why, target->n_why);
	add_away(add_texts(o, "warnings", target->warnings, target->n_warnings), target);
	json_add_bool(o, "waits", target->waits);
	json_add_uint(o, "wait_min_ns", stats.wait_min_ns);
	json_add_bool(o, "kernel", target->kernel_stacks);
	json_add_uint(o, "armed_at", target->armed_unix_ns);
	json_add_uint(o, "state_at",
		      target->state_unix_ns ? target->state_unix_ns : target->armed_unix_ns);
	json_add_uint(o, "lookback_ns", stats.lookback_ns);
	json_add_uint(o, "keep_ns", target->keep_ns);
	if (stats.keep_short && stats.lookback_ns < target->keep_ns)
		json_add_string(o, "keep_short", stats.keep_short);
	else
		json_add_null(o, "keep_short");
	json_add_uint(o, "samples", stats.samples);
	json_add_uint(o, "switches", stats.switches);
	json_add_uint(o, "processes", target->n_members);
	json_add_uint(o, "living", target->n_living);
	json_add_bool(o, "children", target->children);
	json_add_uint(o, "history_bytes", target->log.bytes);
	add_lost(o, target, &stats);
	json_add_uint(o, "ring_bytes", stats.ring_bytes);
	if (target_events_json(target, &events) < 0 || events)
		json_add(o, "events", events);
	else
		json_add_null(o, "events");
	add_recordings(o, target);
	json_add_uint(o, "fds", target->charge_fds.amount);
	json_add_uint(o, "owner_uid", target->owner);
	return o;
}

/* ---- status */

void lack_append(struct json_object *list, const char *what, const char *cost)
{
	struct json_object *o = json_object_new_object();

	json_add_string(o, "what", what);
	json_add_string(o, "cost", cost);
	json_append(list, o);
}

static void add_backends(const struct targets *targets, struct json_object *status)
{
	struct json_object *all = json_add_new_object(status, "backends");

	for (size_t i = 0; i < BACKENDS; i++) {
		struct json_object *o;
		const char *method;
		char why[200] = "";

		if (!backends[i]->probe)
			continue;
		o = json_add_new_object(all, backends[i]->name);
		json_add_bool(o, "available",
			      backends[i]->probe(targets, &method, why, sizeof(why)));
		json_add_string(o, "method", method);
		json_add_string(o, "why", why);
	}
}

int targets_status(const struct targets *targets, struct json_object *status,
		   struct json_object *lack)
{
	struct json_object *o = json_add_new_object(status, "targets");

	json_add_uint(o, "armed", targets->n_armed - targets->n_events);
	json_add_uint(o, "events", targets->n_events);
	json_add_uint(o, "suspended", targets->n_suspended);
	json_add_uint(o, "exited", targets->n_exited);
	json_add_uint(o, "limit", targets->config->max_targets);
	add_backends(targets, status);

	o = json_add_new_object(status, "capture");
	json_add_string(o, "history", sideband_events_running(targets->sideband) ? "machine"
				      : targets->sideband_error		 ? "tasks"
									 : "idle");
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->status)
			backends[i]->status(targets, o, lack);
	json_add_uint(o, "images", images_count(targets->images));
	json_add_uint(o, "images_limit", targets->config->images_max);
	json_add_bool(o, "map_files", images_by_map_files(targets->images));
	if (targets->cgroup_fd < 0)
		lack_append(lack, "cgroup2", "no unified cgroup hierarchy: units cannot be armed");
	return 0;
}

size_t targets_readers_hanging(const struct targets *targets)
{
	return work_queue_hanging(targets) + images_hanging(targets->images);
}

int targets_losses(const struct targets *targets, struct json_object *losses)
{
	uint64_t dropped = 0, missing = 0;
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
	{
		dropped += target->log.dropped;
		missing += target_images_missing(target);
	}
	json_add_uint(losses, "history_lost", sideband_events_lost(targets->sideband));
	json_add_uint(losses, "history_dropped", dropped);
	json_add_uint(losses, "images_missing", missing);
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->losses)
			backends[i]->losses(targets, losses);
	return 0;
}
