// SPDX-License-Identifier: Apache-2.0
/*
 * The list of triggers: added, found, reported, removed, and updated when targets and producers
 * change.
 */
#include "daemon/trigger/trigger.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"
#include "daemon/trigger/probe.h"
#include "daemon/trigger/trigger_internal.h"

/* Processes may join a unit by the thousand a second. */
#define REBIND_MS 100

/* ---- when targets and producers change */

/* How long a region takes is for those only who may have the producer's events. */
static bool is_of(const struct trigger *t, const struct producer *producer)
{
	return !t->on_place && producer_state(producer) == PRODUCER_LIVE &&
	       (t->admin || producer_is_open_to(producer, t->owner)) &&
	       target_has(t->target, producer_pid(producer), producer_start_time(producer));
}

static void bind_or_say(struct trigger *t, struct producer *producer)
{
	int r = trigger_bind(t, producer);

	if (r < 0 && !t->lacks)
		log_notice("trigger %s on region \"%s\" does not reach pid %d: %s", t->name,
			   t->region, (int)producer_pid(producer),
			   r == -ENOSPC ? "the producer has no room for another threshold"
					: strerror(-r));
	t->lacks |= r < 0;
}

static bool is_bound(const struct trigger *t, const struct producer *producer)
{
	const struct binding *b;

	LIST_FOREACH(b, &t->bindings, of_trigger)
		if (b->threshold->page->producer == producer)
			return true;
	return false;
}

/* Programs that it should be in and is not. */
static uint64_t count_lacking(struct trigger *t)
{
	struct producer *producer = NULL;
	uint64_t n = 0;

	while (t->lacks && (producer = producers_next(t->ts->c.producers, producer)) != NULL)
		n += is_of(t, producer) && !is_bound(t, producer);
	t->lacks = n > 0;
	return n;
}

static void bind_all(struct trigger *t)
{
	struct producer *producer;

	for (producer = producers_next(t->ts->c.producers, NULL); producer;
	     producer = producers_next(t->ts->c.producers, producer))
		if (is_of(t, producer))
			bind_or_say(t, producer);
}

static void on_rebind(evutil_socket_t fd, short what, void *arg)
{
	struct triggers *ts = arg;
	struct trigger *t;

	TAILQ_FOREACH(t, &ts->list, link) {
		if (!t->stale)
			continue;
		t->stale = false;
		bind_all(t);
	}
}

static void rebind_soon(struct triggers *ts)
{
	static const struct timeval soon = {.tv_usec = REBIND_MS * 1000};

	if (!event_pending(ts->rebind, EV_TIMEOUT, NULL))
		(void)event_add(ts->rebind, &soon);
}

/* A threshold may be free now. */
static void rebind_lacking(struct triggers *ts)
{
	bool any = false;
	struct trigger *t;

	TAILQ_FOREACH(t, &ts->list, link)
		any |= t->stale |= t->lacks;
	if (any)
		rebind_soon(ts);
}

void triggers_target_changed(struct triggers *ts, struct target *target)
{
	struct trigger *t;
	bool any = false;

	TAILQ_FOREACH(t, &ts->list, link) {
		if (t->target != target)
			continue;
		if (t->watch)
			watch_changed(t->watch);
		else
			t->stale = any = true;
	}
	/* Not here: this may come in the middle of reading records. */
	if (any)
		rebind_soon(ts);
}

void triggers_target_mapped(struct triggers *ts, struct target *target,
			    const struct target_mapping *mapping)
{
	struct trigger *t;

	TAILQ_FOREACH(t, &ts->list, link)
		if (t->target == target && t->watch)
			watch_mapped(t->watch, mapping);
}

void triggers_target_gone(struct triggers *ts, struct target *target)
{
	struct trigger *t, *next;

	for (t = TAILQ_FIRST(&ts->list); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->target == target)
			triggers_remove(ts, t);
	}
	request_limiter_forget(ts, target_id(target));
}

void triggers_producer_changed(struct triggers *ts, struct producer *producer)
{
	struct trigger *t;

	if (producer_state(producer) != PRODUCER_LIVE) {
		page_end(ts, producer);
		return;
	}
	TAILQ_FOREACH(t, &ts->list, link)
		if (is_of(t, producer))
			bind_or_say(t, producer);
}

/* ---- all of them */

int triggers_new(const struct triggers_context *context, struct triggers **ret)
{
	_cleanup_(triggers_freep) struct triggers *ts = calloc(1, sizeof(*ts));

	if (!ts)
		return -ENOMEM;
	ts->c = *context;
	TAILQ_INIT(&ts->list);
	LIST_INIT(&ts->limiters);
	for (size_t i = 0; i < PAGE_BUCKETS; i++)
		LIST_INIT(&ts->pages[i]);
	ts->rebind = evtimer_new(ts->c.base, on_rebind, ts);
	if (!ts->rebind)
		return -ENOMEM;
	*ret = take_ptr(ts);
	return 0;
}

struct triggers *triggers_free(struct triggers *ts)
{
	if (!ts)
		return NULL;
	while (!TAILQ_EMPTY(&ts->list))
		triggers_remove(ts, TAILQ_FIRST(&ts->list));
	while (!LIST_EMPTY(&ts->limiters))
		request_limiter_forget(ts, LIST_FIRST(&ts->limiters)->target);
	for (size_t i = 0; i < PAGE_BUCKETS; i++)
		while (!LIST_EMPTY(&ts->pages[i]))
			page_end(ts, LIST_FIRST(&ts->pages[i])->producer);
	if (ts->rebind)
		event_free(ts->rebind);
	(void)probes_free(ts->probes);
	free(ts);
	return NULL;
}

/* ---- adding and removing */

static int check(const struct triggers *ts, const struct trigger_request *req, char *why,
		 size_t why_size)
{
	const char *name = req->hit ? req->hit->name : req->region,
		   *what = req->hit ? "hit" : "region";
	size_t length = strlen(name);

	if (length == 0)
		return refusal(why, why_size, TRIGGER_E_BAD, "%s: the name is empty", what);
	if (length > RING_CONTROL_NAME)
		return refusal(why, why_size, TRIGGER_E_BAD, "%s: the name is longer than %u bytes",
			       what, RING_CONTROL_NAME);
	if (req->hit && req->region)
		return refusal(why, why_size, TRIGGER_E_BAD,
			       "region, hit: a trigger has one of them");
	if (!req->hit && req->over_ns == 0)
		return refusal(why, why_size, TRIGGER_E_BAD, "over_ns: must be greater than 0");
	if (req->after_ns > ts->c.config->trigger_after_ms * 1000000ULL)
		return refusal(
			why, why_size, TRIGGER_E_BAD,
			"a snapshot may come at most %u ms after the hit (--after; trigger_after_ms of tracerd.conf)",
			ts->c.config->trigger_after_ms);
	if (ts->n >= ts->c.config->max_triggers)
		return refusal(why, why_size, TRIGGER_E_BUSY,
			       "the daemon has no room for another trigger (max_triggers)");
	return 0;
}

void trigger_stop(struct trigger *t)
{
	trigger_unbind_all(t);
	t->watch = watch_free(t->watch);
	trigger_forget_hits(t);
}

static struct trigger *trigger_free(struct trigger *t)
{
	if (!t)
		return NULL;
	trigger_stop(t);
	quota_release(&t->charge);
	free(t);
	return NULL;
}
DEFINE_CLEANUP(struct trigger *, trigger_free)

/*
 * All producers that are there now: a trigger that cannot see one of them is better refused than
 * half there.
 */
static int bind_present(struct trigger *t, char *why, size_t why_size)
{
	struct producer *producer;

	for (producer = producers_next(t->ts->c.producers, NULL); producer;
	     producer = producers_next(t->ts->c.producers, producer)) {
		int r = is_of(t, producer) ? trigger_bind(t, producer) : 0;

		if (r == -ENOSPC) {
			(void)snprintf(why, why_size,
				       "process %d has no room for another threshold (at most %u)",
				       (int)producer_pid(producer), RING_THRESHOLDS);
			return TRIGGER_E_BUSY;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int triggers_add(struct triggers *ts, struct target *target, const struct trigger_request *req,
		 struct trigger **ret, char *why, size_t why_size)
{
	const char *name = req->hit ? req->hit->name : req->region;
	_cleanup_(trigger_freep) struct trigger *t = NULL;
	int r;

	r = check(ts, req, why, why_size);
	if (r != 0)
		return r;
	/* A program that has executed another one may go on with a target that nobody armed. */
	if (!req->hit && target_state(target) == TARGET_EXITED && !target_is_implicit(target))
		return refusal(why, why_size, TRIGGER_E_GONE,
			       "the target has exited: arm the process that runs now");
	if (req->hit && target_scope(target) == TARGET_HOST)
		return refusal(
			why, why_size, TRIGGER_E_BAD,
			"hit: a trigger of the whole host would be in every process: arm the "
			"process or the unit that is meant");
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->ts = ts;
	t->target = target;
	t->owner = req->uid;
	t->admin = req->admin;
	t->on_place = req->hit;
	memcpy(t->region, name, strlen(name));
	(void)escape_text(t->safe_region, sizeof(t->safe_region), t->region, strlen(t->region));
	t->over_ns = req->over_ns;
	t->cooldown_ns = req->cooldown_ns;
	t->after_ns = req->after_ns;
	t->max_per_hour = req->max_per_hour;
	t->created_unix_ns = wall_clock_ns();
	LIST_INIT(&t->bindings);
	r = quota_charge(ts->c.quota, req->uid, QUOTA_TRIGGERS, 1, &t->charge);
	if (r > 0)
		return refusal(why, why_size, TRIGGER_E_QUOTA,
			       "this user may have no more triggers (uid_triggers)");
	if (r < 0)
		return r;
	if (t->after_ns > 0 && trigger_prepare_after(t) < 0)
		return -ENOMEM;
	t->id = ts->last_id + 1;
	(void)cause_trigger(t->name, t->id);
	r = req->hit ? watch_new(t, req->hit, &t->watch) : bind_present(t, why, why_size);
	if (req->hit && r > 0)
		return refusal(why, why_size, r, "hit_by: auto, breakpoint or uprobe");
	if (r != 0)
		return r;
	ts->last_id = t->id;
	ts->n++;
	TAILQ_INSERT_TAIL(&ts->list, t, link);
	*ret = take_ptr(t);
	return 0;
}

void trigger_when_settled(struct trigger *trigger, trigger_settled_fn fn, void *arg)
{
	watch_when_settled(trigger->watch, fn, arg);
}

void triggers_remove(struct triggers *ts, struct trigger *trigger)
{
	TAILQ_REMOVE(&ts->list, trigger, link);
	ts->n--;
	(void)trigger_free(trigger);
	rebind_lacking(ts);
}

/* ---- asking */

bool trigger_visible(const struct trigger *trigger, uid_t uid, bool admin)
{
	/* One that was added as an administrator is an administrator's, whoever has the uid now. */
	return admin || (trigger->owner == uid && !trigger->admin);
}

struct trigger *triggers_find(const struct triggers *ts, const char *id, uid_t uid, bool admin)
{
	struct trigger *t;

	TAILQ_FOREACH(t, &ts->list, link)
		if (!strcmp(t->name, id))
			return trigger_visible(t, uid, admin) ? t : NULL;
	return NULL;
}

struct trigger *triggers_next(const struct triggers *ts, uint64_t after)
{
	struct trigger *t;

	/* New ones go to the tail: the list is in order of id. */
	TAILQ_FOREACH(t, &ts->list, link)
		if (t->id > after)
			return t;
	return NULL;
}

size_t triggers_count(const struct triggers *ts, const struct target *target, uid_t uid, bool admin)
{
	const struct trigger *t;
	size_t n = 0;

	TAILQ_FOREACH(t, &ts->list, link)
		if (t->target == target && trigger_visible(t, uid, admin))
			n++;
	return n;
}

uint64_t trigger_id(const struct trigger *trigger)
{
	return trigger->id;
}

const char *trigger_name(const struct trigger *trigger)
{
	return trigger->name;
}

struct target *trigger_target(const struct trigger *trigger)
{
	return trigger->target;
}

struct json_object *trigger_to_json(struct trigger *t)
{
	struct json_object *o = json_object_new_object();
	const char *comm = target_comm(t->target);
	const struct binding *b;
	uint64_t programs = 0;

	if (!o)
		return NULL;
	trigger_sync(t);
	LIST_FOREACH(b, &t->bindings, of_trigger)
		programs++;
	json_add_string(o, "id", t->name);
	json_add_string(o, "target", target_name(t->target));
	json_add_int(o, "pid", target_pid(t->target));
	json_add_text(o, "comm", comm, strlen(comm));
	if (t->on_place) {
		json_add_string(o, "hit", t->safe_region);
		if (t->watch)
			watch_add_json(t->watch, o);
		else
			json_add_null(o, "coverage");
	} else {
		json_add_string(o, "region", t->safe_region);
		json_add_uint(o, "over_ns", t->over_ns);
	}
	json_add_uint(o, "cooldown_ns", t->cooldown_ns);
	json_add_uint(o, "max_per_hour", t->max_per_hour);
	json_add_uint(o, "after_ns", t->after_ns);
	json_add_uint(o, "owner_uid", t->owner);
	json_add_uint(o, "created_at", t->created_unix_ns);
	json_add_uint(o, "programs", programs);
	json_add_uint(o, "programs_left_out", count_lacking(t));
	if (t->last_hit_unix_ns)
		json_add_uint(o, "last_hit_at", t->last_hit_unix_ns);
	else
		json_add_null(o, "last_hit_at");
	json_add_string(o, "last_snapshot", t->last_snapshot[0] ? t->last_snapshot : NULL);
	counts_add_json(&t->counts, o);
	return o;
}

void triggers_status(struct triggers *ts, struct json_object *status)
{
	struct json_object *o = json_add_new_object(status, "triggers");
	struct trigger *t;

	TAILQ_FOREACH(t, &ts->list, link)
		trigger_sync(t);
	json_add_uint(o, "active", ts->n);
	json_add_uint(o, "limit", ts->c.config->max_triggers);
	counts_add_json(&ts->counts, o);
	counts_add_json(&ts->requests, json_add_new_object(o, "requests"));
}
