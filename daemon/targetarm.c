// SPDX-License-Identifier: Apache-2.0
/*
 * Arming: who is meant, whether the requester may, and the beginning of a recording in the order that
 * leaves nothing out. Each way out says one sentence for the client and undoes what was begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/backend.h"
#include "daemon/config.h"
#include "daemon/stackprobe.h"
#include "daemon/synth.h"
#include "daemon/targetstate.h"

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
		/* The client could open it: what is missing is a right of ours. */
		if (r == -EACCES || r == -EPERM)
			return say(why, size, TARGET_E_UNSUPPORTED, "tracerd itself may not read /proc/%d/maps: it needs "
				   "CAP_SYS_PTRACE for other users' processes", (int)target->proc.pid);
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
	if (r == -ENOBUFS)
		return say(why, size, TARGET_E_BUSY, "no locked memory is left for its history (CAP_IPC_LOCK, LimitMEMLOCK=)");
	if (r == -EACCES || r == -EPERM)
		return say(why, size, TARGET_E_UNSUPPORTED, "not permitted to record it: %s (tracerd needs CAP_PERFMON and "
							    "CAP_SYS_PTRACE)", strerror(-r));
	return r < 0 ? say(why, size, r, "/proc or perf events: %s", strerror(-r)) : 0;
}

static int charge_target(struct target *target, const struct target_request *req, char *why, size_t size)
{
	int r = quota_charge(target->targets->quota, req->uid, QUOTA_TARGETS, 1, &target->charge_target);

	return r > 0 ? say(why, size, TARGET_E_QUOTA, "uid %u has as many targets as it may", (unsigned int)req->uid) : r;
}

static int begin_recording(struct target *target, char *why, size_t size)
{
	struct timespec now;
	int r;

	r = begin_history(target, why, size);
	if (r != 0)
		return r;
	r = target->backend->arm(target, why, size);
	if (r != 0)
		return r;
	/* Whatever was read above was of this process only if it is still there. */
	if (target->proc.pid && !proc_alive(&target->proc))
		return say(why, size, TARGET_E_GONE, "no such process: it has just ended");
	(void)clock_gettime(CLOCK_REALTIME, &now);
	target->armed_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return 0;
}

static int begin_target(struct target *target, const struct target_request *req, char *why, size_t size)
{
	struct targets *targets = target->targets;
	int r;

	r = charge_target(target, req, why, size);
	if (r != 0)
		return r;
	/* Those of registered programs have a limit of their own. */
	if (targets->n_armed - targets->n_events + targets->n_suspended + targets->n_exited >= targets->config->max_targets)
		return say(why, size, TARGET_E_BUSY, "tracerd has as many targets as it may (max_targets)");
	r = target_watch(target);
	if (r < 0)
		return say(why, size, r, "out of memory");
	target_refresh(target);
	return begin_recording(target, why, size);
}

/* Which stacks are right is found out for samples only. */
static void probe_stacks(struct target *target, const struct target_request *req)
{
	if (req->stacks == STACKS_AUTO && target->backend == &backend_sample)
		stackprobe_target(target->targets->probe, target);
}

/* One that its program made by registering becomes one that records; `asked` has what is wanted. */
static int upgrade(struct target *target, struct target *asked, const struct backend *backend,
		   const struct target_request *req, char *why, size_t size)
{
	int r;

	target_upgrade_begin(target);
	target->stacks_asked = asked->stacks_asked;
	target->stacks = asked->stacks;
	target->waits = asked->waits;
	target->uid = asked->uid;
	target->owner_admin = asked->owner_admin;
	target->backend = backend;
	target->step_fd = take_fd(&asked->step_fd);
	r = charge_target(target, req, why, size);
	if (r == 0)
		r = begin_recording(target, why, size);
	if (r != 0) {
		target_upgrade_undo(target);
		return r;
	}
	probe_stacks(target, req);
	target_emit(target, NULL);
	return 0;
}

/* Who steps costs its program nearly everything: that is never chosen for anybody. */
static int choose_backend(const struct target_request *req, const struct backend **ret, char *why, size_t size)
{
	const bool step = req->backend && strcmp(req->backend, backend_step.name) == 0;

	if (req->backend && !step && strcmp(req->backend, "auto") != 0 && strcmp(req->backend, "sample") != 0)
		return say(why, size, TARGET_E_UNSUPPORTED, "no such back end: %.32s", req->backend);
	if (step && req->step_fd < 0)
		return say(why, size, TARGET_E_BAD, "back end step: the connection of a stepper (descriptor \"step\") is missing");
	if (!step && req->step_fd >= 0)
		return say(why, size, TARGET_E_BAD, "a stepper's connection (descriptor \"step\") is for the back end step");
	if (step && req->scope != TARGET_PROCESS)
		return say(why, size, TARGET_E_BAD, "only a process can be stepped, with all its threads and what it starts");
	*ret = step ? &backend_step : &backend_sample;
	return 0;
}

struct arming {
	struct target *target;
};

static void arming_cleanup(struct arming *arming)
{
	struct targets *targets = arming->target ? arming->target->targets : NULL;

	(void)target_free(arming->target);
	if (targets && !targets_record(targets))
		history_stop(targets->history);
}

/* What was asked for; nothing of it is begun. */
static struct target *target_new(struct targets *targets, const struct target_request *req)
{
	struct target *target = calloc(1, sizeof(*target));

	if (!target)
		return NULL;
	target->targets = targets;
	target->scope = req->scope;
	target->state = TARGET_ARMED;
	target->proc = (struct proc)PROC_INIT;
	target->cgroup = (struct cgroup)CGROUP_INIT;
	target->owner = req->uid;
	target->owner_admin = req->admin;
	target->stacks_asked = req->stacks;
	/* auto begins with the stacks that are right for any code; see daemon/stackprobe.h. */
	target->stacks = req->stacks == STACKS_DWARF || (req->stacks == STACKS_AUTO && sampler_can(targets->sampler)->dwarf)
				 ? STACKS_DWARF
				 : STACKS_FP;
	target->waits = req->waits;
	TAILQ_INIT(&target->members);
	histlog_init(&target->log, (size_t)targets->config->history_mib << 20);
	target->step_fd = -1;
	return target;
}

/* What a stepper records has no samples, and so neither stacks nor waits of its own. */
static int take_stepper(struct target *target, const struct target_request *req, char *why, size_t size)
{
	target->stacks_asked = target->stacks = STACKS_FP;
	target->waits = false;
	target->step_fd = fcntl(req->step_fd, F_DUPFD_CLOEXEC, 3);
	return target->step_fd < 0 ? say(why, size, TARGET_E_BUSY, "tracerd is out of file descriptors") : 0;
}

int targets_arm(struct targets *targets, const struct target_request *req, struct target **ret_target, char *why,
		size_t why_size)
{
	_cleanup_(arming_cleanup) struct arming arming = {0};
	const struct backend *backend = NULL;
	struct target *target, *other;
	int r;

	r = choose_backend(req, &backend, why, why_size);
	if (r != 0)
		return r;
	target = arming.target = target_new(targets, req);
	if (!target)
		return -ENOMEM;
	if (backend == &backend_step)
		r = take_stepper(target, req, why, why_size);
	if (r != 0)
		return r;
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
	if (other && target_is_implicit(other)) {
		*ret_target = other;
		return upgrade(other, target, backend, req, why, why_size);
	}
	if (other) {
		*ret_target = other;
		return say(why, why_size, TARGET_E_EXISTS, "armed already as %s", other->name);
	}
	target->backend = backend;
	target->id = ++targets->last_id;
	(void)snprintf(target->name, sizeof(target->name), "t%llu", (unsigned long long)target->id);
	r = begin_target(target, req, why, why_size);
	if (r != 0)
		return r;

	targets_add(targets, take_ptr(arming.target));
	probe_stacks(target, req);
	target_emit(target, NULL);
	*ret_target = target;
	return 0;
}
