// SPDX-License-Identifier: Apache-2.0
/*
 * Targets and producers, the processes that register event rings. A producer's process is a target
 * from then on: where its user has none of it, one is made that records nothing else (back end
 * "events"). Rings belong to every target that their process is a member of. Keeps no pointer to a
 * producer: looks it up by process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/config.h"
#include "daemon/producer/producer.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

void targets_set_producers(struct targets *targets, struct producers *producers)
{
	targets->producers = producers;
}

bool target_is_implicit(const struct target *target)
{
	return target->backend == &backend_events;
}

bool targets_record(const struct targets *targets)
{
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (!target_is_implicit(target))
			return true;
	return !TAILQ_EMPTY(&targets->armings);
}

/* ---- targets that nobody armed */

static bool is_of(const struct target *target, pid_t pid, uint64_t start_time)
{
	return target->scope == TARGET_PROCESS && target->proc.pid == pid &&
	       target->proc.start_time == start_time;
}

struct target *targets_of_producer(const struct targets *targets, pid_t pid, uint64_t start_time,
				   uid_t owner)
{
	struct target *target, *found = NULL;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_of(target, pid, start_time) && target->owner == owner &&
		    target->state != TARGET_EXITED && (!found || target_is_implicit(found)))
			found = target;
	return found;
}

static void implicit_free(struct target **target)
{
	(void)target_free(*target);
}

static uint64_t program_stack(const struct target *target)
{
	struct proc_stat stat;

	return proc_stat_read(target->proc.dirfd, &stat) == 0 ? stat.stack : 0;
}

/*
 * Its owner is the producer's user. Whom the kernel keeps from tracing the process, the target
 * keeps out, too.
 */
static int implicit_new(struct targets *targets, struct producer *producer)
{
	const struct target_request request = {.scope = TARGET_PROCESS,
					       .uid = producer_uid(producer),
					       .stacks = STACKS_FP};
	_cleanup_(implicit_free) struct target *target = NULL;
	struct member *member;
	char why[80];
	int r;

	r = target_new(targets, &backend_events, &request, &target, why, sizeof(why));
	if (r == 0)
		r = proc_open(producer_pid(producer), -1, &target->proc);
	if (r != 0)
		return r;
	if (target->proc.start_time != producer_start_time(producer))
		return PROC_E_GONE;
	r = proc_strict_uid(target->proc.dirfd, &target->uid);
	if (r < 0)
		return r;
	target->admin_only = target->uid != target->owner;
	target->id = ++targets->last_id;
	(void)snprintf(target->name, sizeof(target->name), "t%llu", (unsigned long long)target->id);
	r = target_watch(target);
	if (r < 0)
		return r;
	target_refresh(target);
	target->armed_ns = clock_raw_ns();
	target->armed_unix_ns = wall_clock_ns();
	target->sideband_lost_at = sideband_events_lost(targets->sideband);
	r = member_add(target, target->proc.pid, target->proc.dirfd, target->armed_ns, &member);
	if (r != 0)
		return r;
	target->program_stack = program_stack(target);
	targets->n_events++;
	targets_add(targets, target);
	target_emit(take_ptr(target), NULL);
	return 0;
}

/*
 * The next program of a process that has executed another one has the same target, with its
 * triggers.
 */
static bool implicit_revive(struct targets *targets, const struct producer *producer)
{
	struct member *member;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_of(target, producer_pid(producer), producer_start_time(producer)) &&
		    target_is_implicit(target) && target->state == TARGET_EXITED &&
		    target->owner == producer_uid(producer))
			break;
	if (!target || event_add(target->exit_event, NULL) < 0)
		return false;
	(void)event_del(target->gone_event);
	target_set_state(target, TARGET_ARMED);
	target->ended_ns = 0;
	target->suspended[0] = '\0';
	while ((member = TAILQ_FIRST(&target->members)) != NULL)
		(void)member_free(member);
	if (member_add(target, target->proc.pid, target->proc.dirfd, clock_raw_ns(),
		       &member) != 0) {
		target_exited(target, clock_raw_ns());
		return false;
	}
	target->program_stack = program_stack(target);
	target_emit(target, NULL);
	target_refresh(target);
	return target->state == TARGET_ARMED;
}

static void producer_came(struct targets *targets, struct producer *producer)
{
	struct target *target;
	int r;

	target = targets_of_producer(targets, producer_pid(producer), producer_start_time(producer),
				     producer_uid(producer));
	if (target && target_is_implicit(target)) {
		target->program_stack = program_stack(target);
		/* it may be another program than before, with other rights */
		target_refresh(target);
	}
	if (target && (!target_is_implicit(target) || target->state == TARGET_ARMED)) {
		target_emit(target, NULL);
		return;
	}
	if (implicit_revive(targets, producer))
		return;
	r = implicit_new(targets, producer);
	if (r != 0)
		log_debug("no target for the events of pid %d: %s", (int)producer_pid(producer),
			  r < 0 ? strerror(-r) : "it has ended");
}

static bool has_living(const struct targets *targets, pid_t pid, uint64_t start_time)
{
	struct producer *p = NULL;

	while ((p = producers_of(targets->producers, pid, start_time, p)) != NULL)
		if (producer_state(p) == PRODUCER_LIVE)
			return true;
	return false;
}

/*
 * Whether it still is the program that registered. A program that has only hung up, as by closing
 * all descriptors, goes on writing. Of one that ends the memory is gone before the connection;
 * where that cannot be seen, the pidfd tells its end.
 */
static bool program_goes_on(const struct target *target)
{
	return proc_alive(&target->proc) && program_stack(target) == target->program_stack;
}

void targets_producer_changed(struct targets *targets, struct producer *producer)
{
	pid_t pid = producer_pid(producer);
	uint64_t start_time = producer_start_time(producer);
	struct target *target;

	if (producer_state(producer) == PRODUCER_LIVE) {
		producer_came(targets, producer);
		return;
	}
	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (!is_of(target, pid, start_time) || target->state == TARGET_EXITED)
			continue;
		if (target_is_implicit(target) && !has_living(targets, pid, start_time) &&
		    !program_goes_on(target))
			target_exited(target, clock_raw_ns());
		else
			target_emit(target, NULL);
	}
}

void targets_producer_gone(struct targets *targets, struct producer *producer)
{
	pid_t pid = producer_pid(producer);
	uint64_t start_time = producer_start_time(producer);
	struct producer *other = NULL;
	struct target *target, *next;

	while ((other = producers_of(targets->producers, pid, start_time, other)) == producer &&
	       other)
		;
	if (other)
		return;
	for (target = TAILQ_FIRST(&targets->list); target; target = next) {
		next = TAILQ_NEXT(target, link);
		if (is_of(target, pid, start_time) && target_is_implicit(target))
			targets_disarm(targets, target);
	}
}

/* ---- disarming it */

int targets_release(struct targets *targets, struct target *target, char *why, size_t why_size)
{
	struct producer *p = NULL, *next;
	uint64_t start_time = target->proc.start_time;
	pid_t pid = target->scope == TARGET_PROCESS ? target->proc.pid : 0;
	struct target *left[1];

	if (target_is_implicit(target) && has_living(targets, pid, start_time)) {
		(void)snprintf(why, why_size,
			       "nobody armed it: it ends when its program unregisters");
		return TARGET_E_BAD;
	}
	targets_disarm(targets, target);
	if (!pid || !targets->producers)
		return 0;
	for (p = producers_of(targets->producers, pid, start_time, NULL); p; p = next) {
		next = producers_of(targets->producers, pid, start_time, p);
		if (producer_state(p) == PRODUCER_LIVE)
			producer_came(targets, p);
		else if (targets_having(targets, pid, start_time, left, 1) == 0)
			producer_collected(p);
	}
	return 0;
}

/* ---- whose rings are whose */

/* A process of a user's target may have become somebody else's: its rings are not for this user. */
static bool may_have(const struct target *target, const struct producer *producer)
{
	return target->owner_admin || target->admin_only ||
	       producer_is_open_to(producer, target->owner);
}

struct producer *target_next_producer(const struct target *target, const struct member **member,
				      struct producer *p)
{
	const struct producers *ps = target->targets->producers;

	if (!ps)
		return NULL;
	for (;;) {
		if (!*member)
			*member = TAILQ_FIRST(&target->members);
		else if (!p)
			*member = TAILQ_NEXT(*member, link);
		if (!*member)
			return NULL;
		while ((*member)->start_time && (p || member_is_first(*member)) &&
		       (p = producers_of(ps, (*member)->pid, (*member)->start_time, p)) != NULL)
			if (may_have(target, p))
				return p;
		p = NULL;
	}
}

static void sum(struct json_object *all, struct json_object *one)
{
	json_object_object_foreach(one, key, value)
	{
		struct json_object *have = json_object_object_get(all, key);

		if (json_object_is_type(value, json_type_object) && have)
			sum(have, value);
		else if (json_object_is_type(value, json_type_int) && have &&
			 strcmp(key, "registered_at") != 0)
			(void)json_object_int_inc(have, json_object_get_int64(value));
	}
}

int target_events_json(struct target *target, struct json_object **ret)
{
	const struct member *member = NULL;
	struct json_object *all = NULL;
	struct producer *p = NULL;

	while ((p = target_next_producer(target, &member, p)) != NULL) {
		struct json_object *one = producer_to_json(p), *first = all;

		if (!one) {
			json_object_put(all);
			return -ENOMEM;
		}
		if (!all) {
			all = one;
			continue;
		}
		if (producer_state(p) == PRODUCER_LIVE &&
		    strcmp(json_get_string(all, "state"), "live") != 0) {
			/*
			 * The numbers are those of the live one: what ended ones left is not added.
			 */
			all = one;
			json_object_put(first);
			continue;
		}
		if (producer_state(p) == PRODUCER_LIVE ||
		    strcmp(json_get_string(all, "state"), "live") != 0)
			sum(all, one);
		json_object_put(one);
	}
	*ret = all;
	return 0;
}
