// SPDX-License-Identifier: Apache-2.0
/*
 * All targets together: the list, what they share (side-band events, images, back ends, the work
 * queue), what is done to all of them, and how one is found. The life of one is
 * daemon/target/target.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "daemon/base/closer.h"
#include "daemon/config.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/stack_probe.h"
#include "daemon/target/target_internal.h"
#include "daemon/target/unit_watch.h"

#define UNANSWERED_S 5

/* ---- states */

size_t *targets_state_count(struct targets *targets, enum target_state state)
{
	switch (state) {
	case TARGET_ARMED:
		return &targets->n_armed;
	case TARGET_SUSPENDED:
		return &targets->n_suspended;
	case TARGET_EXITED:
		return &targets->n_exited;
	}
	return NULL;
}

/* ---- the second's tick, while units, cgroups or users' processes are watched */

static bool is_reviewed(const struct target *target)
{
	return target->backend->is_watched && target->backend->is_watched(target);
}

static bool may_hide(const struct target *target)
{
	return !target->owner_admin && !target_is_implicit(target);
}

static bool is_watched(const struct target *target)
{
	return target->state == TARGET_ARMED &&
	       (target_scope_is_group(target->scope) || is_reviewed(target) || may_hide(target));
}

static void tick_needed(struct targets *targets)
{
	struct timeval second = {.tv_sec = 1};
	struct target *target;

	if (event_pending(targets->tick, EV_TIMEOUT, NULL))
		return;
	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (is_watched(target)) {
			(void)event_add(targets->tick, &second);
			return;
		}
	}
}

/* Asks for work, or suspends: no target leaves the list meanwhile. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (!is_watched(target))
			continue;
		target->watched.looks = 0;
		if (target_scope_is_group(target->scope))
			target_work(target, WORK_SCAN);
		else if (is_reviewed(target) && target->backend->review)
			target->backend->review(target, false);
		if (may_hide(target))
			target_look(target);
	}
	tick_needed(targets);
}

/* ---- what is read from /proc once more */

static void read_again(struct target *target, uint64_t now)
{
	/* Of several losses the time of the first: what is read is valid from then on. */
	if (!(target->work & WORK_RESYNC))
		target->lost_ns = now;
	target_work(target, WORK_RESYNC);
}

/* The kernel had no room for some records: what they may have said is read from /proc instead. */
void targets_resync(struct targets *targets, uint64_t whole_ns)
{
	uint64_t now = clock_raw_ns();
	struct arming *arming;
	struct target *target;

	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->records_lost)
			backends[i]->records_lost(targets, whole_ns);

	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (target_is_implicit(target))
			continue;
		/*
		 * An exec may be among what was lost, which ends what is proven: also before a
		 * suspension or an end that was not.
		 */
		proof_again(target, whole_ns);
		if (target->state != TARGET_ARMED)
			continue;
		read_again(target, now);
		/* So may a fork. */
		if (target_is_family(target))
			target_work(target, WORK_SCAN);
	}
	TAILQ_FOREACH(arming, &targets->armings, link)
	{
		arming->target->lost_ns = now;
		target_work(arming->target, WORK_RESYNC);
	}
}

void targets_cpus_changed(struct targets *targets, uint64_t since_ns)
{
	const int r = sideband_events_restart(targets->sideband);

	if (r < 0)
		log_warning("side-band events on the CPUs that are online: %s", strerror(-r));
	targets_resync(targets, since_ns);
}

void targets_add(struct targets *targets, struct target *target)
{
	TAILQ_INSERT_TAIL(&targets->list, target, link);
	targets->n_armed++;
	tick_needed(targets);
}

/* ---- surveys of rings */

/* Whether a survey of `only`, or without it of all that this user may see, includes the target. */
static bool is_surveyed(const struct target *target, const struct target *only, uid_t uid,
			bool admin)
{
	return target->backend->survey &&
	       (only ? target == only : target_visible(target, uid, admin));
}

void targets_survey(struct targets *targets, struct target *only, uid_t uid, bool admin)
{
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_surveyed(target, only, uid, admin))
			target->backend->survey(target);
}

bool targets_surveying(const struct targets *targets, const struct target *only, uid_t uid,
		       bool admin)
{
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_surveyed(target, only, uid, admin) && target->backend->is_surveying(target))
			return true;
	return false;
}

void targets_surveyed(struct targets *targets)
{
	if (targets->callbacks.surveyed)
		targets->callbacks.surveyed(targets->callbacks.arg);
}

void *targets_machine(const struct targets *targets, const struct backend *backend)
{
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i] == backend)
			return targets->machines[i];
	return NULL;
}

/* ---- files of which nobody has answered whether they can be opened */

/* What it maps is read again, which asks for the files that are due. */
static bool ask_again(struct target *target)
{
	bool left = false, due = false;

	for (size_t i = 0; i < target->n_images; i++) {
		left |= image_is_unanswered(target->images[i]);
		due |= image_is_due(target->images[i]);
	}
	if (due)
		read_again(target, clock_raw_ns());
	return left;
}

static void unanswered_needed(struct targets *targets)
{
	static const struct timeval look = {.tv_sec = UNANSWERED_S};

	if (!event_pending(targets->unanswered, EV_TIMEOUT, NULL))
		(void)event_add(targets->unanswered, &look);
}

static void on_unanswered(evutil_socket_t fd, short what, void *arg)
{
	struct targets *targets = arg;
	struct target *target;
	bool left = targets->n_armings > 0;

	TAILQ_FOREACH(target, &targets->list, link)
		if (target->state == TARGET_ARMED && !target_is_implicit(target))
			left |= ask_again(target);
	if (left)
		unanswered_needed(targets);
}

/* ---- life */

static void on_image_settled(void *arg)
{
	struct targets *targets = arg;

	if (images_were_unanswered(targets->images))
		unanswered_needed(targets);
	stackprobe_images_settled(targets->probe);
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i]->images_settled)
			backends[i]->images_settled(targets);
}

DEFINE_CLEANUP(struct targets *, targets_free)

int targets_new(struct event_base *base, const struct config *config, struct quota *quota,
		struct hub *hub, struct openings *openings, struct targets **ret)
{
	_cleanup_(targets_freep) struct targets *targets = NULL;
	int r;

	targets = calloc(1, sizeof(*targets));
	if (!targets)
		return -ENOMEM;
	targets->base = base;
	targets->config = config;
	targets->quota = quota;
	targets->hub = hub;
	targets->cgroup_fd = targets->vdso_fd = -1;
	TAILQ_INIT(&targets->list);
	TAILQ_INIT(&targets->armings);
	TAILQ_INIT(&targets->ending);
	targets->openings = openings;
	r = closer_new(base, &targets->closer);
	if (r < 0)
		return r;
	r = images_new(base, targets->closer, config->images_max, openings, quota, on_image_settled,
		       targets, &targets->images);
	if (r < 0)
		return r;
	r = sideband_events_new(base, targets->closer, sideband_on_record, targets,
				&targets->sideband);
	if (r < 0)
		return r;
	for (size_t i = 0; i < BACKENDS; i++) {
		r = backends[i]->open ? backends[i]->open(targets, &targets->machines[i]) : 0;
		if (r < 0)
			return r;
	}
	r = work_queue_new(targets, &targets->work);
	if (r < 0)
		return r;
	r = unit_watch_new(targets, &targets->unit_watch);
	if (r < 0)
		return r;
	targets->tick = evtimer_new(base, on_tick, targets);
	targets->unanswered = evtimer_new(base, on_unanswered, targets);
	targets->ending_event = evtimer_new(base, family_on_ending, targets);
	if (!targets->tick || !targets->unanswered || !targets->ending_event)
		return -ENOMEM;
	r = stackprobe_new(targets, &targets->probe);
	if (r < 0)
		return r;
	if (cgroup_mount_open(&targets->cgroup_fd) != 0)
		log_debug("no unified cgroup hierarchy");
	r = image_vdso(&targets->vdso_fd);
	if (r < 0)
		log_debug("no copy of the vDSO: %s", strerror(-r));
	*ret = take_ptr(targets);
	return 0;
}

struct targets *targets_free(struct targets *targets)
{
	if (!targets)
		return NULL;
	(void)targets_stop(targets);
	targets->work = work_queue_free(targets->work);
	armings_reap(targets);
	while (!TAILQ_EMPTY(&targets->list))
		targets_disarm(targets, TAILQ_FIRST(&targets->list));
	(void)stackprobe_free(targets->probe);
	targets->unit_watch = unit_watch_free(targets->unit_watch);
	if (targets->unanswered)
		event_free(targets->unanswered);
	if (targets->tick)
		event_free(targets->tick);
	if (targets->ending_event)
		event_free(targets->ending_event);
	(void)sideband_events_free(targets->sideband);
	/* Its thread works for back ends. */
	closer_stop(targets->closer);
	for (size_t i = 0; i < BACKENDS; i++)
		if (targets->machines[i])
			backends[i]->close(targets->machines[i]);
	(void)closer_free(targets->closer);
	(void)images_free(targets->images);
	(void)close_fd(targets->cgroup_fd);
	(void)close_fd(targets->vdso_fd);
	free(targets);
	return NULL;
}

void targets_set_clocks(struct targets *targets, const struct clockseries *clocks)
{
	targets->clocks = clocks;
}

void targets_set_callbacks(struct targets *targets, const struct targets_callbacks *callbacks)
{
	targets->callbacks = *callbacks;
}

void targets_disarm(struct targets *targets, struct target *target)
{
	if (targets->callbacks.gone)
		targets->callbacks.gone(targets->callbacks.arg, target);
	target_emit(target, "disarmed");
	TAILQ_REMOVE(&targets->list, target, link);
	(*targets_state_count(targets, target->state))--;
	if (target->state == TARGET_ARMED && target_is_implicit(target))
		targets->n_events--;
	(void)target_free(target);
	if (!targets_record(targets))
		sideband_events_stop(targets->sideband);
}

/* ---- finding one */

/* What a snapshot of it would have: 2 present samples, 1 present events, 0 what is left. */
static int value_of(const struct target *target)
{
	return target->state != TARGET_ARMED ? 0 : target_is_implicit(target) ? 1 : 2;
}

/* The newest that has this process among those that it follows. */
static struct target *find_family(const struct targets *targets, pid_t pid, uid_t uid, bool admin)
{
	struct member *member = NULL;
	struct target *found = NULL;

	while ((member = member_next(targets, pid, member)) != NULL)
		if (target_is_family(member->target) && !member->target->arming &&
		    target_visible(member->target, uid, admin) &&
		    (!found || member->target->id > found->id))
			found = member->target;
	return found;
}

struct target *targets_find(const struct targets *targets, const char *name, uid_t uid, bool admin,
			    struct target **ret_other)
{
	struct target *target, *found = NULL, *other = NULL;
	char *end;
	long pid;

	if (ret_other)
		*ret_other = NULL;
	TAILQ_FOREACH(target, &targets->list, link)
		if (strcmp(target->name, name) == 0)
			return target_visible(target, uid, admin) ? target : NULL;
	errno = 0;
	pid = strtol(name, &end, 10);
	if (errno || end == name || *end || pid <= 0)
		return NULL;
	/* The newest, but one that records before one that does not. */
	TAILQ_FOREACH(target, &targets->list, link) {
		if (target_scope_is_group(target->scope) || target->proc.pid != pid ||
		    !target_visible(target, uid, admin) ||
		    (found && value_of(target) < value_of(found)))
			continue;
		/* another process had this pid, or records less: no rival */
		other = found && value_of(target) == value_of(found) &&
					target->proc.start_time == found->proc.start_time
				? found
				: NULL;
		found = target;
	}
	if (ret_other)
		*ret_other = other;
	return found ? found : find_family(targets, (pid_t)pid, uid, admin);
}

struct target *targets_next(const struct targets *targets, uint64_t after)
{
	struct target *target;

	/* New ones go to the tail: the list is in order of id. */
	TAILQ_FOREACH(target, &targets->list, link)
		if (target->id > after)
			return target;
	return NULL;
}

size_t targets_count(const struct targets *targets, enum target_state state)
{
	size_t n = *targets_state_count((struct targets *)(uintptr_t)targets, state);

	return state == TARGET_ARMED ? n - targets->n_events : n;
}
