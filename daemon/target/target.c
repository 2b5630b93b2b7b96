// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/target.h"

#include <assert.h>
#include <errno.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"
#include "daemon/backend/backend.h"
#include "daemon/base/clock.h"
#include "daemon/base/closer.h"
#include "daemon/config.h"
#include "daemon/control/subscribers.h"
#include "daemon/target/arming.h"
#include "daemon/target/stack_probe.h"
#include "daemon/target/target_internal.h"

#define OWN_FDS 2 /* of a target beside its files: pidfd and /proc directory */

/* ---- notes for people */

static void notes_clear(char **notes, size_t *n)
{
	while (*n > 0)
		free(notes[--*n]);
}

static void note_add(char **notes, size_t *n, const char *fmt, va_list args)
{
	char *text;

	if (*n == TARGET_WARNINGS_MAX || vasprintf(&text, fmt, args) < 0)
		return;
	notes[(*n)++] = text;
}

void target_warn(struct target *target, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	note_add(target->warnings, &target->n_warnings, fmt, args);
	va_end(args);
}

void target_say_why(struct target *target, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	note_add(target->why, &target->n_why, fmt, args);
	va_end(args);
}

void target_clear_notes(struct target *target)
{
	notes_clear(target->why, &target->n_why);
	notes_clear(target->warnings, &target->n_warnings);
	if (!sideband_events_running(target->targets->sideband))
		target_warn(target, "no machine-wide history (%s): events on its tasks instead",
			    strerror(-target->targets->sideband_error));
}

const char *stacks_mode_name(enum stacks_mode mode)
{
	static const char *const names[] = {"auto", "fp", "dwarf"};

	return names[mode];
}

/* ---- states */

static size_t *state_count(struct targets *targets, enum target_state state)
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

void target_emit(struct target *target, const char *state)
{
	struct json_object *o;

	if (!target->targets->hub)
		return;
	o = target_to_json(target);
	if (state)
		json_add_string(o, "state", state);
	hub_emit(target->targets->hub, "target.state", target->owner, o);
}

void target_set_state(struct target *target, enum target_state state)
{
	bool events = target_is_implicit(target);

	/* The edges of the picture in target.h. */
	assert(target->state != state &&
	       (events && target->state == TARGET_EXITED ? state == TARGET_ARMED
							 : state != TARGET_ARMED && target->state != TARGET_EXITED));
	(*state_count(target->targets, target->state))--;
	if (events && target->state == TARGET_ARMED)
		target->targets->n_events--;
	if (events && state == TARGET_ARMED)
		target->targets->n_events++;
	target->state = state;
	(*state_count(target->targets, state))++;
}

static bool is_watched(const struct target *target)
{
	if (target->state != TARGET_ARMED)
		return false;
	return target->scope == TARGET_UNIT || (target->backend->is_watched && target->backend->is_watched(target));
}

static void end_recording(struct target *target, uint64_t at_ns)
{
	target->probe_waits = false;
	target->ended_ns = at_ns;
	members_end(target, at_ns);
	if (target->backend->stop)
		target->backend->stop(target);
}

void target_suspend(struct target *target, uint64_t at_ns, const char *why)
{
	if (target->arming) {
		arming_refuse(target, TARGET_E_GONE, why);
		return;
	}
	if (target->state != TARGET_ARMED)
		return;
	target_set_state(target, TARGET_SUSPENDED);
	end_recording(target, at_ns);
	target_warn(target, "suspended: %s", why);
	log_info("%s (pid %d) is suspended: %s", target->name, (int)target->proc.pid, why);
	target_emit(target, NULL);
}

void target_exited(struct target *target, uint64_t at_ns)
{
	struct timeval keep = {.tv_sec = (time_t)target->targets->config->exited_keep_s};
	bool was_armed = target->state == TARGET_ARMED;

	if (target->arming) {
		arming_refuse(target, TARGET_E_GONE, "no such process: it has just ended");
		return;
	}
	if (target->state == TARGET_EXITED)
		return;
	target_set_state(target, TARGET_EXITED);
	if (was_armed)
		end_recording(target, at_ns);
	if (target->exit_event)
		(void)event_del(target->exit_event);
	(void)event_add(target->gone_event, &keep);
	target_emit(target, NULL);
}

static void on_pidfd(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	/* Its last records are in the rings already. */
	sideband_events_drain(target->targets->sideband);
	target_exited(target, clock_raw_ns());
}

static void on_gone(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	targets_disarm(target->targets, target);
}

int target_watch(struct target *target)
{
	struct targets *targets = target->targets;

	target->gone_event = evtimer_new(targets->base, on_gone, target);
	if (!target->gone_event)
		return -ENOMEM;
	if (target->scope == TARGET_UNIT)
		return 0;
	target->exit_event = event_new(targets->base, target->proc.pidfd, EV_READ, on_pidfd, target);
	return target->exit_event && event_add(target->exit_event, NULL) == 0 ? 0 : -ENOMEM;
}

/* ---- what may change */

void target_refresh(struct target *target)
{
	struct member *member;
	char path[PATH_MAX];
	char *exe;

	if (!target->proc.pid)
		return;
	if (proc_comm_read(target->proc.dirfd, target->comm, sizeof(target->comm)) == 0) {
		member = member_find(target, target->proc.pid);
		if (member)
			memcpy(member->comm, target->comm, sizeof(member->comm));
	}
	if (proc_exe_read(target->proc.dirfd, path, sizeof(path)) == 0 && (exe = strdup(path)) != NULL) {
		free(target->exe);
		target->exe = exe;
	}
	target_recheck(target);
}

void target_recheck(struct target *target)
{
	uid_t strict;

	if (target->state != TARGET_ARMED || !target->proc.pid || proc_strict_uid(target->proc.dirfd, &strict) < 0 ||
	    strict == target->uid)
		return;
	if (!proc_alive(&target->proc))
		return; /* what was read may be of the next process with this pid */
	/* What was recorded before this moment may already be of the stricter time. */
	target->admin_only = true;
	if (target->owner_admin)
		target->uid = strict;
	else
		target_suspend(target, clock_raw_ns(), "its credentials have changed");
}

/* Whether a survey of `only`, or without it of all that this user may see, includes the target. */
static bool is_surveyed(const struct target *target, const struct target *only, uid_t uid, bool admin)
{
	return target->backend->survey && (only ? target == only : target_visible(target, uid, admin));
}

void targets_survey(struct targets *targets, struct target *only, uid_t uid, bool admin)
{
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_surveyed(target, only, uid, admin))
			target->backend->survey(target);
}

bool targets_surveying(const struct targets *targets, const struct target *only, uid_t uid, bool admin)
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

/* Without the machine-wide events, which are the daemon's. Events on tasks are most of it: one for each thread and CPU. */
static size_t fds_held(const struct target *target)
{
	const struct member *member;
	size_t n = OWN_FDS + target->n_images + (target->backend->fds ? target->backend->fds(target) : 0);

	TAILQ_FOREACH(member, &target->members, link)
		if (member->follow)
			n += sideband_follow_fds(member->follow);
	return n;
}

int target_charge_fds(struct target *target, size_t more)
{
	uint64_t before = target->charge_fds.amount;
	int r;

	quota_release(&target->charge_fds);
	r = quota_charge(target->targets->quota, target->owner, QUOTA_FDS, fds_held(target) + more, &target->charge_fds);
	if (r != 0)
		(void)!quota_charge_forced(target->targets->quota, target->owner, QUOTA_FDS, before, &target->charge_fds);
	return r;
}

/* ---- the second's tick, while units or cgroups are watched */

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

/* Only asks for work: no target leaves the list meanwhile. */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (!is_watched(target))
			continue;
		if (target->scope == TARGET_UNIT)
			target_work(target, WORK_SCAN);
		else if (target->backend->review)
			target->backend->review(target, false);
	}
	tick_needed(targets);
}

/* The kernel had no room for some records: what they may have said is read from /proc instead. */
void targets_resync(struct targets *targets)
{
	uint64_t now = clock_raw_ns();
	struct arming *arming;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
	{
		if (target->state != TARGET_ARMED || target_is_implicit(target))
			continue;
		/* Of several losses the time of the first: what is read is valid from then on. */
		if (!(target->work & WORK_RESYNC))
			target->lost_ns = now;
		target_work(target, WORK_RESYNC);
	}
	TAILQ_FOREACH(arming, &targets->armings, link)
	{
		arming->target->lost_ns = now;
		target_work(arming->target, WORK_RESYNC);
	}
}

void targets_add(struct targets *targets, struct target *target)
{
	TAILQ_INSERT_TAIL(&targets->list, target, link);
	targets->n_armed++;
	tick_needed(targets);
}

/* ---- all targets */

static void on_image_settled(void *arg)
{
	struct targets *targets = arg;

	stackprobe_images_settled(targets->probe);
}

DEFINE_CLEANUP(struct targets *, targets_free)

int targets_new(struct event_base *base, const struct config *config, struct quota *quota, struct hub *hub,
		struct openings *openings, struct targets **ret)
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
	targets->openings = openings;
	r = closer_new(base, &targets->closer);
	if (r < 0)
		return r;
	r = images_new(base, targets->closer, config->images_max, openings, quota, on_image_settled, targets, &targets->images);
	if (r < 0)
		return r;
	r = sideband_events_new(base, targets->closer, sideband_on_record, targets, &targets->sideband);
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
	targets->tick = evtimer_new(base, on_tick, targets);
	if (!targets->tick)
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
	if (targets->tick)
		event_free(targets->tick);
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

int target_new(struct targets *targets, const struct backend *backend, const struct target_request *req, struct target **ret,
	       char *why, size_t why_size)
{
	struct target *target = calloc(1, sizeof(*target));
	int r;

	if (!target)
		return -ENOMEM;
	target->targets = targets;
	target->scope = req->scope;
	target->state = TARGET_ARMED;
	target->proc = (struct proc)PROC_INIT;
	target->cgroup = (struct cgroup)CGROUP_INIT;
	target->owner = req->uid;
	target->owner_admin = req->admin;
	target->stacks_asked = req->stacks;
	target->stacks = req->stacks == STACKS_DWARF ? STACKS_DWARF : STACKS_FP;
	target->waits = req->waits;
	TAILQ_INIT(&target->members);
	LIST_INIT(&target->waiting);
	sideband_log_init(&target->log, (size_t)targets->config->history_mib << 20);
	target->backend = backend;
	r = backend->init ? backend->init(target, req, why, why_size) : 0;
	if (r != 0) {
		(void)target_free(target);
		return r;
	}
	*ret = target;
	return 0;
}

struct target *target_free(struct target *target)
{
	struct member *member;

	if (!target)
		return NULL;
	target->probe_waits = false;
	work_queue_forget(target);
	if (target->exit_event)
		event_free(target->exit_event);
	if (target->gone_event)
		event_free(target->gone_event);
	members_end(target, 0);
	if (target->backend && target->backend->disarm)
		target->backend->disarm(target);
	while ((member = TAILQ_FIRST(&target->members)) != NULL)
		(void)member_free(member);
	sideband_free_images(target);
	sideband_log_fini(&target->log);
	notes_clear(target->why, &target->n_why);
	notes_clear(target->warnings, &target->n_warnings);
	quota_release(&target->charge_target);
	quota_release(&target->charge_fds);
	cgroup_close(&target->cgroup);
	proc_close(&target->proc);
	free(target->unit);
	free(target->exe);
	free(target);
	return NULL;
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
	(*state_count(targets, target->state))--;
	if (target->state == TARGET_ARMED && target_is_implicit(target))
		targets->n_events--;
	(void)target_free(target);
	if (!targets_record(targets))
		sideband_events_stop(targets->sideband);
}

/* ---- asking */

/* What a snapshot of it would have: 2 present samples, 1 present events, 0 what is left. */
static int value_of(const struct target *target)
{
	return target->state != TARGET_ARMED ? 0 : target_is_implicit(target) ? 1 : 2;
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
		if (target->scope == TARGET_UNIT || target->proc.pid != pid || !target_visible(target, uid, admin) ||
		    (found && value_of(target) < value_of(found)))
			continue;
		/* another process had this pid, or records less: no rival */
		other = found && value_of(target) == value_of(found) && target->proc.start_time == found->proc.start_time ?
				found : NULL;
		found = target;
	}
	if (ret_other)
		*ret_other = other;
	return found;
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
	size_t n = *state_count((struct targets *)(uintptr_t)targets, state);

	return state == TARGET_ARMED ? n - targets->n_events : n;
}

uint64_t target_id(const struct target *target)
{
	return target->id;
}

const char *target_name(const struct target *target)
{
	return target->name;
}

pid_t target_pid(const struct target *target)
{
	const struct member *first = TAILQ_FIRST(&target->members);

	return target->proc.pid ? target->proc.pid : first ? first->pid : 0;
}

const char *target_comm(const struct target *target)
{
	const struct member *first = TAILQ_FIRST(&target->members);

	return target->comm[0] || !first ? target->comm : first->comm;
}

enum target_scope target_scope(const struct target *target)
{
	return target->scope;
}

pid_t target_tid(const struct target *target)
{
	return target->scope == TARGET_THREAD ? target->tid : 0;
}

uid_t target_uid(const struct target *target)
{
	return target->uid;
}

uid_t target_owner(const struct target *target)
{
	return target->owner;
}

enum target_state target_state(const struct target *target)
{
	return target->state;
}

bool target_visible(const struct target *target, uid_t uid, bool admin)
{
	return admin || (target->owner == uid && !target->admin_only);
}
