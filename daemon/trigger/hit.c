// SPDX-License-Identifier: Apache-2.0
/*
 * Hits: from a cause that a producer wrote to a snapshot, in the same turn of the loop. The freeze
 * comes first; messages and counts can wait.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/control/subscribers.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"
#include "daemon/trigger/probe.h"
#include "daemon/trigger/trigger_internal.h"

/* Subscribers hear of hits without a snapshot at most this often for each trigger. */
#define REPORT_EVERY_NS 100000000ULL
/* A hit's own time counts as long as it is one of the last moments; it is the producer's word. */
#define HIT_AGE_MAX_NS 1000000000ULL

static const char *const suppressed_names[_SUPPRESSED_MAX] = {
	[SUPPRESSED_COOLDOWN] = "cooldown",
	[SUPPRESSED_PER_HOUR] = "per_hour",
	[SUPPRESSED_BUSY] = "busy",
	[SUPPRESSED_QUOTA] = "quota",
	[SUPPRESSED_NO_SPACE] = "no_space",
	[SUPPRESSED_PROGRAM] = "program",
	[SUPPRESSED_BELOW] = "below",
	[SUPPRESSED_GONE] = "gone",
};

const char *suppressed_name(enum suppressed s)
{
	return s < _SUPPRESSED_MAX ? suppressed_names[s] : "none";
}

/* ---- counts */

void counts_add(struct trigger_counts *counts, enum suppressed why)
{
	if (why == NOT_SUPPRESSED)
		counts->snapshots++;
	else
		counts->suppressed[why]++;
}

void counts_add_json(const struct trigger_counts *counts, struct json_object *o)
{
	struct json_object *suppressed;

	json_add_uint(o, "hits", counts->hits);
	json_add_uint(o, "snapshots", counts->snapshots);
	suppressed = json_add_new_object(o, "suppressed");
	for (int i = 0; i < _SUPPRESSED_MAX; i++)
		json_add_uint(suppressed, suppressed_names[i], counts->suppressed[i]);
}

/* ---- reports */

void trigger_report(struct triggers *ts, const char *target, uid_t whose, struct cause *cause,
		    struct snapshot *snapshot, enum suppressed why, uint64_t *reported_ns)
{
	uint64_t now = clock_raw_ns();
	char name[CAUSE_TRIGGER_MAX];
	struct json_object *o;

	if (why != NOT_SUPPRESSED) {
		if (now - *reported_ns < REPORT_EVERY_NS)
			return;
		*reported_ns = now;
	}
	/* Here, and not before the freeze. */
	if (cause->kind == CAUSE_REGION || cause->kind == CAUSE_HIT)
		cause_own_reason(cause);
	if (why != NOT_SUPPRESSED)
		log_debug("%s of pid %d: no snapshot: %s", cause->reason, (int)cause->pid,
			  suppressed_names[why]);
	else
		log_info("snapshot %s of %s by %s: %s (pid %d, thread %u)", snapshot_id(snapshot),
			 target,
			 cause->trigger ? cause_trigger(name, cause->trigger) : "its producer",
			 *cause->reason ? cause->reason : "no reason given", (int)cause->pid,
			 cause->tid);
	if (!ts->c.hub)
		return;
	o = json_object_new_object();
	json_add_string(o, "trigger", cause->trigger ? cause_trigger(name, cause->trigger) : NULL);
	json_add_string(o, "target", target);
	json_add_string(o, "snapshot", snapshot ? snapshot_id(snapshot) : NULL);
	json_add_string(o, "suppressed", why != NOT_SUPPRESSED ? suppressed_names[why] : NULL);
	json_add(o, "cause", cause_to_json(cause));
	hub_emit(ts->c.hub, "trigger.hit", whose, o);
}

/* ---- snapshots */

enum suppressed trigger_snapshot(struct triggers *ts, struct target *target,
				 const struct cause *cause, uint64_t meant_raw_ns, bool admin,
				 snapshot_done_fn done, void *arg, struct snapshot **ret)
{
	const struct snapshot_request request = {.uid = cause->uid,
						 .admin = admin,
						 .cause = cause,
						 .asked_raw_ns = meant_raw_ns};
	char why[200] = "";
	int r;

	r = snapshots_create(ts->c.snapshots, target, &request, done, arg, ret, why, sizeof(why));
	switch (r) {
	case 0:
		return NOT_SUPPRESSED;
	case SNAPSHOT_E_QUOTA:
		return SUPPRESSED_QUOTA;
	case SNAPSHOT_E_NO_SPACE:
		return SUPPRESSED_NO_SPACE;
	case SNAPSHOT_E_GONE:
		return SUPPRESSED_GONE;
	case SNAPSHOT_E_BUSY:
		return SUPPRESSED_BUSY;
	default:
		log_debug("a trigger's snapshot: %s", strerror(r < 0 ? -r : EIO));
		return SUPPRESSED_BUSY;
	}
}

static void on_done(struct snapshot *snapshot, void *arg)
{
	struct trigger *t = arg;

	t->running = false;
}

static void finish(struct trigger *t, struct cause *cause, struct snapshot *snapshot,
		   enum suppressed why)
{
	counts_add(&t->counts, why);
	counts_add(&t->ts->counts, why);
	if (snapshot)
		(void)snprintf(t->last_snapshot, sizeof(t->last_snapshot), "%s",
			       snapshot_id(snapshot));
	trigger_report(t->ts, target_name(t->target), t->admin ? 0 : t->owner, cause, snapshot, why,
		       &t->reported_ns);
}

static void take(struct trigger *t, struct cause *cause)
{
	struct snapshot *snapshot = NULL;
	enum suppressed why;

	why = trigger_snapshot(t->ts, t->target, cause, cause->end_raw_ns + t->after_ns, t->admin,
			       on_done, t, &snapshot);
	if (why == NOT_SUPPRESSED) {
		t->running = true;
		trigger_limit_count(&t->limit, clock_raw_ns());
	}
	finish(t, cause, snapshot, why);
}

static int sleep_until_due(struct trigger *t, uint64_t now_ns)
{
	const uint64_t left_us = t->due_ns > now_ns ? (t->due_ns - now_ns + 999) / 1000 : 0;
	const struct timeval tv = {.tv_sec = (time_t)(left_us / 1000000),
				   .tv_usec = (suseconds_t)(left_us % 1000000)};

	return event_add(t->after, &tv);
}

/*
 * The loop's clock is coarse: its timers may be some ms early, and what happened last would be
 * missing.
 */
static void on_after(evutil_socket_t fd, short what, void *arg)
{
	struct trigger *t = arg;
	_cleanup_free_ struct cause *cause = NULL;
	const uint64_t now = clock_raw_ns();

	if (now < t->due_ns && sleep_until_due(t, now) == 0)
		return;
	cause = take_ptr(t->waiting);
	take(t, cause);
}

int trigger_prepare_after(struct trigger *t)
{
	t->after = evtimer_new(t->ts->c.base, on_after, t);
	return t->after ? 0 : -ENOMEM;
}

/* From the region's end on, not from when we heard of it. */
static int wait_after(struct trigger *t, const struct cause *cause, uint64_t hit_ns,
		      uint64_t now_ns)
{
	t->waiting = malloc(sizeof(*t->waiting));
	if (!t->waiting)
		return -ENOMEM;
	*t->waiting = *cause;
	t->due_ns = hit_ns + t->after_ns;
	if (sleep_until_due(t, now_ns) == 0)
		return 0;
	free(take_ptr(t->waiting));
	return -ENOMEM;
}

/* ---- hits */

static uint64_t cooldown_of(const struct trigger *t)
{
	return t->cooldown_ns > TRIGGER_COOLDOWN_MIN_NS ? t->cooldown_ns : TRIGGER_COOLDOWN_MIN_NS;
}

uint64_t trigger_cooldown_left(const struct trigger *t)
{
	const uint64_t now = clock_raw_ns(), until = t->limit.last_ns + cooldown_of(t);

	return t->limit.started && now < until ? until - now : 0;
}

static enum suppressed check(struct trigger *t, uint64_t hit_ns)
{
	switch (trigger_limit_check(&t->limit, hit_ns, cooldown_of(t), t->max_per_hour)) {
	case TRIGGER_LIMIT_COOLDOWN:
		return SUPPRESSED_COOLDOWN;
	case TRIGGER_LIMIT_PER_HOUR:
		return SUPPRESSED_PER_HOUR;
	case TRIGGER_LIMIT_PASS:
		break;
	}
	return t->running || t->waiting ? SUPPRESSED_BUSY : NOT_SUPPRESSED;
}

/* `why`: why it is none, if that is clear already. */
static void hit(struct trigger *t, struct cause *cause, enum suppressed why)
{
	uint64_t now = clock_raw_ns(), at = cause->end_raw_ns;

	if (at > now || now - at > HIT_AGE_MAX_NS)
		at = now;
	t->counts.hits++;
	t->ts->counts.hits++;
	cause->uid = t->owner;
	cause->trigger = t->id;
	memcpy(cause->region, t->safe_region, sizeof(t->safe_region));
	if (why == NOT_SUPPRESSED)
		why = check(t, at);
	if (why == NOT_SUPPRESSED) {
		trigger_limit_tried(&t->limit, at);
		if (t->after_ns == 0)
			take(t, cause);
		else if (wait_after(t, cause, at, now) < 0)
			why = SUPPRESSED_BUSY;
	}
	t->last_hit_unix_ns = wall_clock_ns();
	if (why != NOT_SUPPRESSED)
		finish(t, cause, NULL, why);
}

static void region_hit(struct trigger *t, struct producer *producer,
		       const struct producer_cause *pc, enum suppressed why)
{
	struct cause cause = {
		.kind = CAUSE_REGION,
		.pid = producer_pid(producer),
		.tid = pc->tid,
		.over_ns = t->over_ns,
		.begin_raw_ns = pc->begin_raw_ns,
		.end_raw_ns = pc->end_raw_ns,
	};

	hit(t, &cause, why);
}

void trigger_hit(struct trigger *t, pid_t pid, const struct probe_hit *hit_of)
{
	const uint64_t at = hit_of->time_ns;
	struct cause cause = {.kind = CAUSE_HIT,
			      .pid = pid,
			      .tid = hit_of->tid,
			      .begin_raw_ns = at,
			      .end_raw_ns = at,
			      .paused = hit_of->paused};

	hit(t, &cause, NOT_SUPPRESSED);
}

void trigger_hits_missed(struct trigger *t, uint64_t n)
{
	t->counts.hits += n;
	t->ts->counts.hits += n;
	t->counts.suppressed[SUPPRESSED_COOLDOWN] += n;
	t->ts->counts.suppressed[SUPPRESSED_COOLDOWN] += n;
}

static void on_region(struct triggers *ts, struct producer *producer,
		      const struct producer_cause *pc)
{
	const struct threshold *th = threshold_find(ts, producer, pc->trigger);
	uint64_t took = pc->end_raw_ns > pc->begin_raw_ns ? pc->end_raw_ns - pc->begin_raw_ns : 0;
	const struct binding *b;

	if (!th) {
		/* removed while it was on its way, or never ours */
		ts->counts.hits++;
		ts->counts.suppressed[SUPPRESSED_GONE]++;
		return;
	}
	LIST_FOREACH(b, &th->bindings, of_threshold) {
		struct trigger *t = b->trigger;

		if (target_tid(t->target) && (uint32_t)target_tid(t->target) != pc->tid)
			continue;
		if (took >= t->over_ns)
			region_hit(t, producer, pc, NOT_SUPPRESSED);
		else if (took < th->over_ns && t->over_ns == th->over_ns)
			/* The producer had no reason to tell it. */
			region_hit(t, producer, pc, SUPPRESSED_BELOW);
	}
}

void triggers_cause(struct triggers *ts, struct producer *producer,
		    const struct producer_cause *cause)
{
	switch (cause->kind) {
	case RING_CAUSE_REGION:
		on_region(ts, producer, cause);
		break;
	case RING_CAUSE_REQUEST:
		triggers_request(ts, producer, cause);
		break;
	}
}

void trigger_forget_hits(struct trigger *t)
{
	if (t->running)
		snapshots_forget_waiter(t->ts->c.snapshots, t);
	t->running = false;
	if (t->after)
		event_free(t->after);
	t->after = NULL;
	if (t->waiting)
		finish(t, t->waiting, NULL, SUPPRESSED_GONE);
	free(take_ptr(t->waiting));
}
