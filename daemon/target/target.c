// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/target.h"

#include <assert.h>
#include <errno.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/base/wall_clock.h"
#include "daemon/config.h"
#include "daemon/control/subscribers.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/join.h"
#include "daemon/target/target_internal.h"
#include "daemon/target/unit_watch.h"

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
		target_warn(target,
			    "no machine-wide side-band events (%s): events on its tasks instead",
			    strerror(-target->targets->sideband_error));
	if (target->n_closed)
		target_warn_closed(target);
}

void target_warn_closed(struct target *target)
{
	target_warn(
		target,
		"%zu of its processes may not be read: they are recorded without the names of their functions",
		target->n_closed);
}

const char *stacks_mode_name(enum stacks_mode mode)
{
	static const char *const names[] = {"auto", "fp", "dwarf", "bpf"};

	return names[mode];
}

/* ---- states */

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
	       (events && target->state == TARGET_EXITED
			? state == TARGET_ARMED
			: state != TARGET_ARMED && target->state != TARGET_EXITED));
	(*targets_state_count(target->targets, target->state))--;
	if (events && target->state == TARGET_ARMED)
		target->targets->n_events--;
	if (events && state == TARGET_ARMED)
		target->targets->n_events++;
	target->state = state;
	target->state_unix_ns = wall_clock_ns();
	(*targets_state_count(target->targets, state))++;
}

static void end_recording(struct target *target, uint64_t at_ns)
{
	const uint64_t now = clock_raw_ns();

	target->probe_waits = false;
	target->ended_ns = at_ns;
	target->sideband_lost_end = sideband_events_lost(target->targets->sideband);
	/* What a record tells was somewhat earlier. */
	target->state_unix_ns -= now > at_ns ? now - at_ns : 0;
	joins_refuse(target, "the target has just ended");
	members_end(target, at_ns);
	if (target->backend->stop)
		target->backend->stop(target);
}

uint64_t target_history_lost(const struct target *target)
{
	const uint64_t lost = target->state == TARGET_ARMED
				      ? sideband_events_lost(target->targets->sideband)
				      : target->sideband_lost_end;

	return lost - target->sideband_lost_at;
}

/* Whoever watches its processes sees that they are not to be looked into any more. */
void target_report_end(struct target *target)
{
	struct targets *targets = target->targets;

	target_emit(target, NULL);
	if (targets->callbacks.changed)
		targets->callbacks.changed(targets->callbacks.arg, target);
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
	(void)snprintf(target->suspended, sizeof(target->suspended), "%s", why);
	target_warn(target, "suspended: %s", why);
	log_info("%s (pid %d) is suspended: %s", target->name, (int)target->proc.pid, why);
	target_report_end(target);
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
	target_report_end(target);
}

static void on_pidfd(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	/* Its last records are in the rings already. */
	sideband_events_drain(target->targets->sideband);
	/* What it started may go on. */
	if (!target->arming && target_is_family(target) && target->state == TARGET_ARMED) {
		struct member *member = member_find(target, target->proc.pid);

		(void)event_del(target->exit_event);
		if (member)
			member_end(member, clock_raw_ns());
		if (target->n_living > 0) {
			target_emit(target, NULL);
			return;
		}
	}
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
	if (target_scope_is_group(target->scope))
		return 0;
	target->exit_event =
		event_new(targets->base, target->proc.pidfd, EV_READ, on_pidfd, target);
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
	if (proc_exe_read(target->proc.dirfd, path, sizeof(path)) == 0 &&
	    (exe = strdup(path)) != NULL) {
		free(target->exe);
		target->exe = exe;
	}
	target_recheck(target);
}

void target_recheck(struct target *target)
{
	char path[PROC_MEMORY_PATH];
	uid_t strict;

	if (target->state == TARGET_ARMED && !target->owner_admin && target_is_family(target)) {
		proof_recheck(target);
		return;
	}
	if (target->state != TARGET_ARMED || !target->proc.pid ||
	    proc_strict_uid(target->proc.dirfd, &strict) < 0 || strict == target->uid)
		return;
	if (!proc_alive(&target->proc))
		return; /* what was read may be of the next process with this pid */
	if (proc_memory_path(target->proc.dirfd, path) < 0)
		return; /* it is about to end */
	/* What was recorded before this moment may already be of the stricter time. */
	target->admin_only = true;
	if (target->owner_admin)
		target->uid = strict;
	else
		target_suspend(target, clock_raw_ns(), "its credentials have changed");
}

void target_look(struct target *target)
{
	struct sideband_events *sideband = target->targets->sideband;
	const struct member *member;

	if (target_is_family(target)) {
		proof_look(target);
	} else if (proof_looks_closed(target->proc.pid, target->uid)) {
		/* It may be by an exec, seen or lost: then what was before is its user's. */
		sideband_events_drain(sideband);
		member = member_find(target, target->proc.pid);
		if (!sideband_events_behind(sideband) && member && member->proof == PROOF_GIVEN)
			target_recheck(target);
	}
}

/*
 * Without the machine-wide events, which are the daemon's. Events on tasks are most of it: one for
 * each thread and CPU.
 */
static size_t fds_held(const struct target *target)
{
	const struct member *member;
	size_t n = OWN_FDS + target->n_images +
		   (target->backend->fds ? target->backend->fds(target) : 0);

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
	r = quota_charge(target->targets->quota, target->owner, QUOTA_FDS, fds_held(target) + more,
			 &target->charge_fds);
	if (r != 0)
		(void)!quota_charge_forced(target->targets->quota, target->owner, QUOTA_FDS, before,
					   &target->charge_fds);
	return r;
}

int target_new(struct targets *targets, const struct backend *backend,
	       const struct target_request *req, struct target **ret, char *why, size_t why_size)
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
	target->watched.events = target->watched.parent = -1;
	target->kallsyms_fd = target->kcore_fd = -1;
	target->owner = req->uid;
	target->owner_admin = req->admin;
	target->stacks_asked = req->stacks;
	target->stacks = req->stacks == STACKS_AUTO ? STACKS_FP : req->stacks;
	target->waits = req->waits;
	target->kernel_stacks = req->kernel_stacks && req->admin;
	if (backend->look_back)
		target->keep_ns = req->keep_ns ? req->keep_ns
					       : (uint64_t)targets->config->keep_ms * 1000000;
	target->wait_min_ns = req->wait_min_ns ? *req->wait_min_ns
					       : (uint64_t)targets->config->wait_min_us * 1000;
	target->children = req->children || target_scope_is_group(req->scope);
	TAILQ_INIT(&target->members);
	TAILQ_INIT(&target->joins);
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
	joins_refuse(target, "the target has been disarmed");
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
	unit_watch_clear(target->targets->unit_watch, target);
	cgroup_close(&target->cgroup);
	proc_close(&target->proc);
	close_fdp(&target->kallsyms_fd);
	close_fdp(&target->kcore_fd);
	free(target->unit);
	free(target->exe);
	free(target);
	return NULL;
}

/* ---- asking */

uint64_t target_id(const struct target *target)
{
	return target->id;
}

const char *target_name(const struct target *target)
{
	return target->name;
}

/* The first that lives; of those that have ended the first. */
static const struct member *first_member(const struct target *target)
{
	const struct member *member;

	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX)
			return member;
	return TAILQ_FIRST(&target->members);
}

pid_t target_pid(const struct target *target)
{
	const struct member *first;

	if (target->proc.pid)
		return target->proc.pid;
	first = first_member(target);
	return first ? first->pid : 0;
}

const char *target_unit(const struct target *target)
{
	return target->unit ? target->unit : "";
}

const char *target_comm(const struct target *target)
{
	const struct member *first = target->comm[0] ? NULL : first_member(target);

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

struct pausable *target_pausable(const struct target *target, const char **ret_why)
{
	*ret_why = NULL;
	return target->backend->pausable ? target->backend->pausable(target, ret_why) : NULL;
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

/*
 * What children, or other processes, an administrator has recorded the kernel was not asked for any
 * user.
 */
bool target_is_admins(const struct target *target)
{
	return target->admin_only || (target->owner_admin && target_is_family(target));
}

bool target_gives(const struct target *target, uid_t uid)
{
	return uid == 0 || (target->uid == uid && !target_is_admins(target));
}
