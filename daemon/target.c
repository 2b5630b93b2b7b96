// SPDX-License-Identifier: Apache-2.0
#include "daemon/target.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "daemon/backend.h"
#include "daemon/config.h"
#include "daemon/stackprobe.h"
#include "daemon/subscribe.h"
#include "daemon/synth.h"
#include "daemon/targetstate.h"

#define HISTORY_RESYNC_BATCH 16
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
	if (target->targets->sampler && !history_running(target->targets->history))
		target_warn(target, "no machine-wide history (%s): events on its tasks instead",
			    strerror(-target->targets->history_error));
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
	if (!o)
		return;
	if (state)
		json_object_object_add(o, "state", json_object_new_string(state));
	hub_emit(target->targets->hub, "target.state", target->owner, o);
}

void target_set_state(struct target *target, enum target_state state)
{
	/* The edges of the picture in target.h. */
	assert(state != TARGET_ARMED && target->state != TARGET_EXITED && target->state != state);
	(*state_count(target->targets, target->state))--;
	target->state = state;
	(*state_count(target->targets, state))++;
}

static bool is_watched(const struct target *target)
{
	if (target->state != TARGET_ARMED)
		return false;
	return target->scope == TARGET_UNIT ||
	       (target->n_sources && target->sources[0].set->spec.kind == SET_CGROUP);
}

static void end_recording(struct target *target, uint64_t at_ns)
{
	target->probe_waits = false;
	target->ended_ns = at_ns;
	members_end(target, at_ns);
	target->backend->stop(target);
}

void target_suspend(struct target *target, uint64_t at_ns, const char *why)
{
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

	/* Its last records are in the rings already; they say when. */
	history_drain(target->targets->history);
	target_exited(target, raw_now_ns());
}

static void on_gone(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	targets_disarm(target->targets, target);
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	target->backend->settle(target);
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
		return; /* what was read may be of nobody, or of the next one with this number */
	/* What was recorded until it was noticed may be of the stricter time. */
	target->admin_only = true;
	if (target->owner_admin)
		target->uid = strict;
	else
		target_suspend(target, raw_now_ns(), "its credentials have changed");
}

uint64_t target_oldest_ns(struct target *target)
{
	uint64_t oldest = target->armed_ns;
	const struct set_survey *survey;

	if (target->n_sources == 0)
		return oldest;
	survey = sample_set_survey(target->sources[0].set);
	if (target->n_sources > 1) {
		const struct source *before = &target->sources[1];
		const struct set_survey *old = sample_set_survey(before->set);

		/* The ring from before a change reaches back further, unless the new one has lost some itself. */
		if (survey && old && survey->oldest_ns <= target->sources[0].from_ns)
			survey = old;
	} else if (target->sources[0].from_ns > oldest) {
		oldest = target->sources[0].from_ns;
	}
	return survey && survey->oldest_ns > oldest ? survey->oldest_ns : oldest;
}

int target_charge_fds(struct target *target, size_t n)
{
	uint64_t before = target->charge_fds.amount;
	int r;

	quota_release(&target->charge_fds);
	r = quota_charge(target->targets->quota, target->owner, QUOTA_FDS, n + OWN_FDS, &target->charge_fds);
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

static void watch(struct target *target)
{
	bool added = false;
	int r;

	if (target->scope == TARGET_UNIT) {
		r = members_scan(target, &added);
		if (r < 0)
			log_debug("%s: looking at its members: %s", target->name, strerror(-r));
		if (added)
			(void)members_filter_all(target);
		if (cgroup_gone(&target->cgroup)) {
			target_exited(target, raw_now_ns());
			return;
		}
	}
	r = target->backend->review(target, added);
	if (r < 0)
		log_debug("%s: choosing its rings again: %s", target->name, strerror(-r));
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (is_watched(target))
			watch(target);
	tick_needed(targets);
}

static void resync_members(struct target *target)
{
	struct member *member;

	if (target->state != TARGET_ARMED)
		return;
	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX)
			(void)!targetlog_resync(target, member);
}

void target_resync(struct target *target)
{
	if (event_pending(target->targets->resync, EV_TIMEOUT, NULL))
		resync_members(target);
}

/* The kernel had no room for some records: what they may have told is read from /proc instead. */
static void on_resync(evutil_socket_t fd, short what, void *arg)
{
	struct targets *targets = arg;
	struct timeval now = {0};
	struct target *target;
	unsigned int n = 0;

	while (n < HISTORY_RESYNC_BATCH && (target = targets_next(targets, targets->resync_next)) != NULL) {
		targets->resync_next = target->id;
		resync_members(target);
		n++;
	}
	if (n == HISTORY_RESYNC_BATCH)
		(void)event_add(targets->resync, &now);
	else
		targets->resync_next = 0;
}

/* ---- all targets */

DEFINE_CLEANUP(struct targets *, targets_free)

int targets_new(struct event_base *base, const struct config *config, struct quota *quota, struct hub *hub,
		struct targets **ret)
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
	r = images_new(config->images_max, &targets->images);
	if (r < 0)
		return r;
	r = history_new(base, targetlog_record, targets, &targets->history);
	if (r < 0)
		return r;
	r = sampler_new(base, config, &targets->sampler);
	if (r < 0)
		return r;
	targets->tick = evtimer_new(base, on_tick, targets);
	targets->resync = evtimer_new(base, on_resync, targets);
	if (!targets->tick || !targets->resync)
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
	while (!TAILQ_EMPTY(&targets->list))
		targets_disarm(targets, TAILQ_FIRST(&targets->list));
	(void)stackprobe_free(targets->probe);
	if (targets->tick)
		event_free(targets->tick);
	if (targets->resync)
		event_free(targets->resync);
	(void)sampler_free(targets->sampler);
	(void)history_free(targets->history);
	(void)images_free(targets->images);
	(void)close_fd(targets->cgroup_fd);
	(void)close_fd(targets->vdso_fd);
	free(targets);
	return NULL;
}

static struct target *target_free(struct target *target)
{
	struct member *member;

	if (!target)
		return NULL;
	target->probe_waits = false;
	if (target->exit_event)
		event_free(target->exit_event);
	if (target->gone_event)
		event_free(target->gone_event);
	if (target->settle_event)
		event_free(target->settle_event);
	members_end(target, 0);
	if (target->backend)
		target->backend->disarm(target);
	while ((member = TAILQ_FIRST(&target->members)) != NULL)
		(void)member_free(member);
	targetlog_free_images(target);
	histlog_fini(&target->log);
	notes_clear(target->why, &target->n_why);
	notes_clear(target->warnings, &target->n_warnings);
	quota_release(&target->charge_target);
	quota_release(&target->charge_rings);
	quota_release(&target->charge_fds);
	cgroup_close(&target->cgroup);
	proc_close(&target->proc);
	free(target->unit);
	free(target->exe);
	free(target);
	return NULL;
}

void targets_disarm(struct targets *targets, struct target *target)
{
	target_emit(target, "disarmed");
	TAILQ_REMOVE(&targets->list, target, link);
	(*state_count(targets, target->state))--;
	(void)target_free(target);
	if (TAILQ_EMPTY(&targets->list))
		history_stop(targets->history);
}

/* ---- arming */

static int say(char *why, size_t size, int answer, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int say(char *why, size_t size, int answer, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(why, size, fmt, args);
	va_end(args);
	return answer;
}

static int open_failed(int r, char *why, size_t size)
{
	if (r == PROC_E_GONE)
		return say(why, size, TARGET_E_GONE, "no such process");
	if (r == PROC_E_MISMATCH)
		return say(why, size, TARGET_E_BAD, "the pidfd is not of that process");
	if (r == -EMFILE || r == -ENFILE)
		return say(why, size, TARGET_E_BUSY, "tracerd is out of file descriptors");
	return say(why, size, r, "/proc: %s", strerror(-r));
}

/* The process of a thread. */
static int thread_group(pid_t tid, pid_t *ret)
{
	_cleanup_close_ int fd = -1;
	struct proc_status status;
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)tid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? PROC_E_GONE : -errno;
	r = proc_status_read(fd, &status);
	if (r < 0)
		return r == -ESRCH || r == -ENOENT ? PROC_E_GONE : r;
	*ret = status.tgid;
	return 0;
}

static int identify_process(struct target *target, const struct target_request *req, char *why, size_t size)
{
	pid_t pid = req->pid;
	char path[32];
	int r;

	if (req->scope == TARGET_THREAD) {
		if (req->tid <= 0)
			return say(why, size, TARGET_E_BAD, "no thread named");
		if (!pid && req->pidfd < 0) {
			r = thread_group(req->tid, &pid);
			if (r != 0)
				return open_failed(r, why, size);
		}
	}
	r = proc_open(pid, req->pidfd, &target->proc);
	if (r != 0)
		return open_failed(r, why, size);
	if (req->scope == TARGET_THREAD) {
		(void)snprintf(path, sizeof(path), "task/%d", (int)req->tid);
		if (faccessat(target->proc.dirfd, path, F_OK, 0) < 0)
			return say(why, size, TARGET_E_GONE, "process %d has no thread %d", (int)target->proc.pid,
				   (int)req->tid);
		target->tid = req->tid;
	}
	return 0;
}

static int authorize_process(struct target *target, const struct target_request *req, char *why, size_t size)
{
	char exe[PATH_MAX];
	int r;

	r = proc_strict_uid(target->proc.dirfd, &target->uid);
	if (r == -ENOENT || r == -ESRCH)
		return say(why, size, TARGET_E_GONE, "no such process");
	if (r < 0)
		return say(why, size, r, "/proc: %s", strerror(-r));
	if (!req->admin) {
		if (target->uid != req->uid)
			return say(why, size, TARGET_E_NOT_PERMITTED, "owned by uid %u%s", (unsigned int)target->uid,
				   target->uid ? "" : ", or not dumpable");
		if (req->maps_fd < 0)
			return say(why, size, TARGET_E_NOT_PERMITTED,
				   "a user proves the right to trace by passing an fd of /proc/PID/maps");
		r = proc_maps_fd_check(&target->proc, req->maps_fd);
		if (r == PROC_E_MISMATCH)
			return say(why, size, TARGET_E_NOT_PERMITTED,
				   "the fd is not /proc/%d/maps of the program that runs there now", (int)target->proc.pid);
		if (r < 0)
			return say(why, size, r, "/proc/%d/maps: %s", (int)target->proc.pid, strerror(-r));
	}
	r = proc_exe_read(target->proc.dirfd, exe, sizeof(exe));
	if (r == -ENOENT)
		return say(why, size, TARGET_E_UNSUPPORTED, "a kernel thread: it has no user code");
	return 0;
}

static int identify_unit(struct target *target, const struct target_request *req, char *why, size_t size)
{
	int r;

	if (!req->unit || !*req->unit)
		return say(why, size, TARGET_E_BAD, "no unit named");
	if (!req->admin)
		return say(why, size, TARGET_E_NOT_PERMITTED, "only an administrator may arm a unit");
	r = cgroup_open(target->targets->cgroup_fd, req->unit, &target->cgroup);
	switch (r) {
	case 0:
		break;
	case CGROUP_E_NONE:
		return say(why, size, TARGET_E_GONE, "no such unit or cgroup");
	case CGROUP_E_BAD_NAME:
		return say(why, size, TARGET_E_BAD, "not the name of a unit or the path of a cgroup");
	case CGROUP_E_MANY:
		return say(why, size, TARGET_E_BAD, "several cgroups have this name: give the path");
	default:
		return say(why, size, r, "cgroup: %s", strerror(-r));
	}
	target->unit = strdup(req->unit);
	return target->unit ? 0 : say(why, size, -ENOMEM, "out of memory");
}

static bool same_subject(const struct target *a, const struct target *b)
{
	if (a->scope != b->scope || a->owner != b->owner)
		return false;
	if (a->scope == TARGET_UNIT)
		return a->cgroup.ino == b->cgroup.ino;
	return a->proc.pid == b->proc.pid && a->proc.start_time == b->proc.start_time && a->tid == b->tid;
}

static struct target *armed_already(const struct target *target)
{
	struct target *other;

	TAILQ_FOREACH(other, &target->targets->list, link)
		if (other->state == TARGET_ARMED && same_subject(other, target))
			return other;
	return NULL;
}

/* The history begins before anything is read from /proc, so that no mapping falls in between. */
static int begin_history(struct target *target, char *why, size_t size)
{
	struct targets *targets = target->targets;
	struct member *member;
	bool added;
	int r;

	r = history_start(targets->history);
	targets->history_error = r < 0 ? r : 0;
	target->history_lost_at = history_lost(targets->history);
	target->armed_ns = raw_now_ns();
	if (target->scope == TARGET_UNIT) {
		r = members_scan(target, &added);
		if (r == -E2BIG)
			return say(why, size, TARGET_E_UNSUPPORTED, "too many processes in the unit");
	} else {
		r = member_add(target, target->proc.pid, target->proc.dirfd, target->armed_ns, &member);
		if (r == 0)
			r = targetlog_synth(target, member, target->proc.dirfd, SYNTH_ALL);
		if (r == 0)
			r = member_follow(member);
	}
	if (r == PROC_E_GONE)
		return say(why, size, TARGET_E_GONE, "no such process");
	if (r == -EACCES || r == -EPERM)
		return say(why, size, TARGET_E_UNSUPPORTED, "not permitted to record it: %s (tracerd needs CAP_PERFMON and "
							    "CAP_SYS_PTRACE)", strerror(-r));
	return r < 0 ? say(why, size, r, "/proc or perf events: %s", strerror(-r)) : 0;
}

static int watch_exit(struct target *target)
{
	struct targets *targets = target->targets;

	if (target->scope == TARGET_UNIT)
		return 0;
	target->exit_event = event_new(targets->base, target->proc.pidfd, EV_READ, on_pidfd, target);
	return target->exit_event && event_add(target->exit_event, NULL) == 0 ? 0 : -ENOMEM;
}

static int begin_target(struct target *target, const struct target_request *req, char *why, size_t size)
{
	struct targets *targets = target->targets;
	struct timespec now;
	int r;

	r = quota_charge(targets->quota, req->uid, QUOTA_TARGETS, 1, &target->charge_target);
	if (r != 0)
		return r > 0 ? say(why, size, TARGET_E_QUOTA, "uid %u has as many targets as it may", (unsigned int)req->uid)
			     : r;
	if (targets->n_armed + targets->n_suspended + targets->n_exited >= targets->config->max_targets)
		return say(why, size, TARGET_E_BUSY, "tracerd has as many targets as it may (max_targets)");
	target->gone_event = evtimer_new(targets->base, on_gone, target);
	target->settle_event = evtimer_new(targets->base, on_settle, target);
	if (!target->gone_event || !target->settle_event)
		return say(why, size, -ENOMEM, "out of memory");
	target_refresh(target);
	r = begin_history(target, why, size);
	if (r != 0)
		return r;
	r = target->backend->arm(target, why, size);
	if (r != 0)
		return r;
	/* Whatever was read above was of this process only if it is still there. */
	if (target->proc.pid && !proc_alive(&target->proc))
		return say(why, size, TARGET_E_GONE, "no such process: it has just ended");
	r = watch_exit(target);
	if (r < 0)
		return say(why, size, r, "out of memory");
	(void)clock_gettime(CLOCK_REALTIME, &now);
	target->armed_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return 0;
}

struct arming {
	struct target *target;
};

static void arming_cleanup(struct arming *arming)
{
	struct targets *targets = arming->target ? arming->target->targets : NULL;

	(void)target_free(arming->target);
	if (targets && TAILQ_EMPTY(&targets->list))
		history_stop(targets->history);
}

int targets_arm(struct targets *targets, const struct target_request *req, struct target **ret_target, char *why,
		size_t why_size)
{
	_cleanup_(arming_cleanup) struct arming arming = {0};
	struct target *target, *other;
	int r;

	if (req->backend && strcmp(req->backend, "auto") != 0 && strcmp(req->backend, "sample") != 0)
		return say(why, why_size, TARGET_E_UNSUPPORTED, "no such back end: %.32s", req->backend);
	target = arming.target = calloc(1, sizeof(*target));
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
	histlog_init(&target->log, (size_t)targets->config->history_mib << 20);

	if (req->scope == TARGET_UNIT) {
		r = identify_unit(target, req, why, why_size);
	} else {
		r = identify_process(target, req, why, why_size);
		if (r == 0)
			r = authorize_process(target, req, why, why_size);
	}
	if (r != 0)
		return r;
	other = armed_already(target);
	if (other) {
		*ret_target = other;
		return say(why, why_size, TARGET_E_EXISTS, "armed already as %s", other->name);
	}
	target->backend = &backend_sample;
	target->id = ++targets->last_id;
	(void)snprintf(target->name, sizeof(target->name), "t%llu", (unsigned long long)target->id);
	r = begin_target(target, req, why, why_size);
	if (r != 0)
		return r;

	TAILQ_INSERT_TAIL(&targets->list, target, link);
	targets->n_armed++;
	arming.target = NULL;
	tick_needed(targets);
	if (req->stacks == STACKS_AUTO)
		stackprobe_target(targets->probe, target);
	target_emit(target, NULL);
	*ret_target = target;
	return 0;
}

/* ---- asking */

struct target *targets_find(const struct targets *targets, const char *name)
{
	struct target *target, *found = NULL;
	char *end;
	long pid;

	TAILQ_FOREACH(target, &targets->list, link)
		if (strcmp(target->name, name) == 0)
			return target;
	errno = 0;
	pid = strtol(name, &end, 10);
	if (errno || end == name || *end || pid <= 0)
		return NULL;
	/* The newest, but one that records before one that does not. */
	TAILQ_FOREACH(target, &targets->list, link)
		if (target->scope != TARGET_UNIT && target->proc.pid == pid &&
		    (!found || target->state == TARGET_ARMED || found->state != TARGET_ARMED))
			found = target;
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
	return *state_count((struct targets *)(uintptr_t)targets, state);
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
