// SPDX-License-Identifier: Apache-2.0
/*
 * Arming: who is meant, whether the requester may, and the steps of a recording in the order that
 * leaves nothing out. Each refusal is one sentence for the client, and undoes what was begun. What
 * takes long happens between targets_arm() and arming_finish(), see daemon/target/work.c; until
 * then the target is in no list.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/base/wall_clock.h"
#include "common/base/raw_clock.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/stack_probe.h"
#include "daemon/target/target_internal.h"
#include "daemon/target/unit_watch.h"

#define ARMING_SECONDS 60

int arming_open_failed(int r, char *why, size_t size)
{
	if (r == PROC_E_GONE)
		return refusal(why, size, TARGET_E_GONE, "no such process");
	if (r == PROC_E_MISMATCH)
		return refusal(why, size, TARGET_E_BAD, "the pidfd is not of that process");
	if (r == -EMFILE || r == -ENFILE)
		return refusal(why, size, TARGET_E_BUSY, "tracerd is out of file descriptors");
	return refusal(why, size, r, "/proc: %s", strerror(-r));
}

static int identify_process(struct target *target, const struct target_request *req, char *why,
			    size_t size)
{
	pid_t pid = req->pid;
	char path[32];
	int r;

	if (req->scope == TARGET_THREAD) {
		if (req->tid <= 0)
			return refusal(why, size, TARGET_E_BAD, "no thread named");
		if (!pid && req->pidfd < 0) {
			r = proc_thread_group(req->tid, &pid);
			if (r != 0)
				return arming_open_failed(r, why, size);
		}
	}
	r = proc_open(pid, req->pidfd, &target->proc);
	if (r != 0)
		return arming_open_failed(r, why, size);
	if (req->scope == TARGET_THREAD) {
		(void)snprintf(path, sizeof(path), "task/%d", (int)req->tid);
		if (faccessat(target->proc.dirfd, path, F_OK, 0) < 0)
			return refusal(why, size, TARGET_E_GONE, "process %d has no thread %d",
				       (int)target->proc.pid, (int)req->tid);
		target->tid = req->tid;
	}
	return 0;
}

int arming_may(const struct target_request *req, const struct proc *proc, uid_t *ret_uid,
	       int *ret_maps_fd, char *why, size_t size)
{
	char exe[PATH_MAX];
	int r;

	r = proc_strict_uid(proc->dirfd, ret_uid);
	if (r == -ENOENT || r == -ESRCH)
		return refusal(why, size, TARGET_E_GONE, "no such process");
	if (r < 0)
		return refusal(why, size, r, "/proc: %s", strerror(-r));
	if (!req->admin) {
		if (*ret_uid != req->uid)
			return refusal(why, size, TARGET_E_NOT_PERMITTED, "owned by uid %u%s",
				       (unsigned int)*ret_uid, *ret_uid ? "" : ", or not dumpable");
		if (req->maps_fd < 0)
			return refusal(
				why, size, TARGET_E_NOT_PERMITTED,
				"pass an open descriptor of /proc/PID/maps to prove the right to trace it");
		/* Checked on a thread: a process can hang whoever looks at its maps. */
		*ret_maps_fd = fcntl(req->maps_fd, F_DUPFD_CLOEXEC, 3);
		if (*ret_maps_fd < 0)
			return refusal(why, size, TARGET_E_BUSY,
				       "tracerd is out of file descriptors");
	}
	r = proc_exe_read(proc->dirfd, exe, sizeof(exe));
	if (r == -ENOENT)
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "a kernel thread: it has no user code");
	return 0;
}

/* It is looked for later: there may be thousands of cgroups. */
static int name_unit(struct target *target, const struct target_request *req, char *why,
		     size_t size)
{
	/* The processes of the host are those of the root group. */
	const char *name = req->scope == TARGET_HOST ? "/" : req->unit;

	if (!name || !*name)
		return refusal(why, size, TARGET_E_BAD, "no unit named");
	if (!req->admin)
		return refusal(why, size, TARGET_E_NOT_PERMITTED,
			       "only an administrator may arm a unit or the host");
	target->unit = strdup(name);
	return target->unit ? 0 : refusal(why, size, -ENOMEM, "out of memory");
}

static bool same_subject(const struct target *a, const struct target *b)
{
	if (a->scope != b->scope || a->owner != b->owner)
		return false;
	/*
	 * One that follows its unit may not have noticed yet that the control group is another one.
	 */
	if (target_scope_is_group(a->scope))
		return strcmp(a->cgroup.path, b->cgroup.path) == 0;
	return a->proc.pid == b->proc.pid && a->proc.start_time == b->proc.start_time &&
	       a->tid == b->tid;
}

static struct target *armed_already(const struct target *target)
{
	struct target *other;

	TAILQ_FOREACH(other, &target->targets->list, link)
		if (other->state == TARGET_ARMED && same_subject(other, target))
			return other;
	return NULL;
}

/*
 * Two armings at a time would both record it. The cgroup of a unit may not be known yet: then its
 * path is empty, its inode number 0.
 */
static bool being_armed(const struct target *target)
{
	const struct arming *arming;

	TAILQ_FOREACH(arming, &target->targets->armings, link)
		if (arming->target != target && !arming->answer &&
		    same_subject(arming->target, target) &&
		    (!target_scope_is_group(target->scope) || target->cgroup.ino))
			return true;
	return false;
}

/* Whether the one that is armed records all that this one would. */
static bool is_enough(const struct target *other, const struct target *target)
{
	return other->backend == target->backend &&
	       (other->kernel_stacks || !target->kernel_stacks) &&
	       (other->children || !target->children) && other->keep_ns >= target->keep_ns &&
	       !target->arming->filtered &&
	       (other->wait_min_ns <= target->wait_min_ns || !target->arming->wait_min) &&
	       target_visible(other, target->owner, target->owner_admin);
}

static int only_one(struct target *target, char *why, size_t size)
{
	const struct target *other = armed_already(target);

	if (other && !target_is_implicit(other) && is_enough(other, target)) {
		target->arming->existing = other->id;
		return refusal(why, size, TARGET_E_EXISTS, "armed already as %s", other->name);
	}
	if (other && !target_is_implicit(other))
		return refusal(why, size, TARGET_E_BUSY,
			       "armed already as %s, in another way: disarm it first", other->name);
	if (being_armed(target))
		return refusal(why, size, TARGET_E_EXISTS, "another request is arming it");
	return 0;
}

static struct target *target_with_id(const struct targets *targets, uint64_t id)
{
	struct target *target = id ? targets_next(targets, id - 1) : NULL;

	return target && target->id == id ? target : NULL;
}

static int charge_target(struct target *target, const struct target_request *req, char *why,
			 size_t size)
{
	int r = quota_charge(target->targets->quota, req->uid, QUOTA_TARGETS, 1,
			     &target->charge_target);

	return r > 0 ? refusal(why, size, TARGET_E_QUOTA, "uid %u has as many targets as it may",
			       (unsigned int)req->uid)
		     : r;
}

/* Targets that nobody armed have a limit of their own, that of producers. */
static bool is_full(const struct targets *targets)
{
	return targets->n_armed - targets->n_events + targets->n_suspended + targets->n_exited +
		       targets->n_armings >=
	       targets->config->max_targets;
}

static int begin_target(struct target *target, const struct target_request *req, char *why,
			size_t size)
{
	int r;

	r = charge_target(target, req, why, size);
	if (r != 0)
		return r;
	if (is_full(target->targets))
		return refusal(why, size, TARGET_E_BUSY,
			       "tracerd has as many targets as it may (max_targets)");
	r = target_watch(target);
	return r < 0 ? refusal(why, size, r, "out of memory") : 0;
}

static int find_backend(const struct targets *targets, const struct target_request *req,
			const struct backend **ret, char *why, size_t size)
{
	*ret = backend_find(targets, req->backend);
	return *ret ? 0
		    : refusal(why, size, TARGET_E_UNSUPPORTED, "no such back end: %.32s",
			      req->backend);
}

static void arming_free(struct arming *arming)
{
	struct targets *targets = arming->target->targets;

	if (arming->link.tqe_prev) {
		TAILQ_REMOVE(&targets->armings, arming, link);
		targets->n_armings--;
	}
	if (arming->limit)
		event_free(arming->limit);
	(void)close_fd(arming->maps_fd);
	(void)target_free(arming->target);
	free(arming);
	if (!targets_record(targets))
		sideband_events_stop(targets->sideband);
}

static void arming_freep(struct arming **arming)
{
	if (*arming)
		arming_free(*arming);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct target *target = arg;

	if (target->hanging)
		arming_refuse(
			target, TARGET_E_BUSY,
			"its memory map could not be read in time: its lock is held, a file system does not answer, or the machine is busy");
	else if (!work_queue_may(target))
		arming_refuse(target, TARGET_E_BUSY,
			      "all threads that may read processes of its user hang in other ones");
	else
		arming_refuse(target, TARGET_E_BUSY, "reading it took too long");
}

static int set_limit(struct arming *arming)
{
	const struct timeval limit = {.tv_sec = ARMING_SECONDS};

	arming->limit = evtimer_new(arming->target->targets->base, on_limit, arming->target);
	return arming->limit && event_add(arming->limit, &limit) == 0 ? 0 : -ENOMEM;
}

/*
 * By its name below procfs, and not by its inode: ProtectKernelTunables= puts an empty file over it
 * where the unit looks. No process has files of these names there.
 */
static bool is_of_proc(int fd, const char *name)
{
	char link[64], path[64];
	const char *base;
	struct statfs fs;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return false;
	path[n] = '\0';
	base = strrchr(path, '/');
	return base && strcmp(base + 1, name) == 0;
}

static int keep(int fd, int *ret_fd, char *why, size_t size)
{
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *ret_fd < 0 ? refusal(why, size, TARGET_E_BUSY, "tracerd is out of file descriptors")
			   : 0;
}

/*
 * What of the kernel a client hands over, since the unit may not open it. Whether kallsyms shows
 * addresses is decided by who opened it (CAP_SYSLOG), and kcore asks for CAP_SYS_RAWIO there alone.
 * Only what traces the kernel needs that.
 */
static int take_kernel(struct target *target, const struct target_request *req, char *why,
		       size_t size)
{
	int r = 0;

	/*
	 * Without --kernel a client offers it unasked, and in a container another file may be over
	 * it.
	 */
	if (req->kallsyms_fd >= 0 && req->admin) {
		if (is_of_proc(req->kallsyms_fd, "kallsyms"))
			r = keep(req->kallsyms_fd, &target->kallsyms_fd, why, size);
		else if (req->kernel_stacks)
			r = refusal(why, size, TARGET_E_BAD,
				    "the descriptor \"kallsyms\" is not of /proc/kallsyms");
	}
	/* The back end says what it means that there is none. */
	if (r == 0 && req->kcore_fd >= 0 && target->kernel_stacks &&
	    target->backend == &backend_pt && is_of_proc(req->kcore_fd, "kcore"))
		r = keep(req->kcore_fd, &target->kcore_fd, why, size);
	return r;
}

static int check(struct target *target, const struct target_request *req, char *why, size_t size)
{
	int r;

	/*
	 * What the processor wrote of a process that its user may not look into cannot be taken out
	 * again.
	 */
	if (req->children && !req->admin && target->backend != &backend_sample)
		return refusal(
			why, size, TARGET_E_NOT_PERMITTED,
			"only an administrator may record the processes that it starts by the back end %s",
			target->backend->name);
	if (req->kernel_stacks && !req->admin)
		return refusal(
			why, size, TARGET_E_NOT_PERMITTED,
			"only root and the members of the socket's group may record the kernel");
	if (req->kernel_stacks && target->backend != &backend_sample &&
	    target->backend != &backend_pt)
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "the kernel is recorded by the back ends sample and pt, not by %s",
			       target->backend->name);
	if (req->keep_ns && !target->backend->look_back)
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "how far back it reaches can be asked of samples, not of %s",
			       target->backend->name);
	r = take_kernel(target, req, why, size);
	if (r != 0)
		return r;
	if (req->children && req->scope == TARGET_THREAD)
		return refusal(why, size, TARGET_E_BAD,
			       "a single thread, or also what its process starts, but not both");
	if (target_scope_is_group(req->scope)) {
		r = name_unit(target, req, why, size);
	} else {
		r = identify_process(target, req, why, size);
		if (r == 0)
			r = arming_may(req, &target->proc, &target->uid, &target->arming->maps_fd,
				       why, size);
		if (r == 0)
			r = only_one(target, why, size);
	}
	return r != 0 ? r : begin_target(target, req, why, size);
}

int targets_arm(struct targets *targets, const struct target_request *req, targets_armed_fn fn,
		void *arg, struct arming **ret, struct target **ret_existing, char *why,
		size_t why_size)
{
	_cleanup_(arming_freep) struct arming *arming = NULL;
	const struct backend *backend = NULL;
	struct target *target;
	int r;

	*ret_existing = NULL;
	if (targets->stopping)
		return refusal(why, why_size, TARGET_E_STOPPING, "tracerd is stopping");
	r = find_backend(targets, req, &backend, why, why_size);
	if (r == 0 && req->n_filters && backend != &backend_pt)
		r = refusal(
			why, why_size, TARGET_E_UNSUPPORTED,
			"address filters need Intel PT, which this target would not be recorded by");
	if (r == 0)
		r = target_new(targets, backend, req, &target, why, why_size);
	if (r != 0)
		return r;
	arming = calloc(1, sizeof(*arming));
	if (!arming) {
		(void)target_free(target);
		return -ENOMEM;
	}
	target->arming = arming;
	arming->target = target;
	arming->maps_fd = -1;
	arming->fn = fn;
	arming->arg = arg;
	arming->filtered = req->n_filters > 0 || req->step_fd >= 0;
	arming->wait_min = req->wait_min_ns != NULL;
	r = check(target, req, why, why_size);
	if (r == TARGET_E_EXISTS && arming->existing) {
		*ret_existing = target_with_id(targets, arming->existing);
		return r;
	}
	if (r == 0)
		r = set_limit(arming);
	if (r != 0)
		return r;
	TAILQ_INSERT_TAIL(&targets->armings, arming, link);
	targets->n_armings++;
	target_refresh(target);
	work_queue_look(targets);
	*ret = take_ptr(arming);
	return 0;
}

/* ---- on the way */

void arming_refuse(struct target *target, int answer, const char *why)
{
	struct arming *arming = target->arming;

	if (arming->answer)
		return;
	arming->answer = answer;
	(void)snprintf(arming->why, sizeof(arming->why), "%s", why);
	/* Keeps no more records of it. */
	target->state = TARGET_EXITED;
	work_queue_look(target->targets);
}

void targets_arm_cancel(struct arming *arming)
{
	arming->fn = NULL;
	arming_refuse(arming->target, TARGET_E_GONE, "nobody waits for it");
}

bool targets_stop(struct targets *targets)
{
	struct arming *arming;

	targets->stopping = true;
	TAILQ_FOREACH(arming, &targets->armings, link)
		arming_refuse(arming->target, TARGET_E_STOPPING, "tracerd is stopping");
	return TAILQ_EMPTY(&targets->armings);
}

void armings_reap(struct targets *targets)
{
	struct arming *arming, *next;

	for (arming = TAILQ_FIRST(&targets->armings); arming; arming = next) {
		targets_armed_fn fn = arming->fn;
		char why[sizeof(arming->why)];
		void *arg = arming->arg;
		const uint64_t existing = arming->existing;
		int answer = arming->answer;

		next = TAILQ_NEXT(arming, link);
		if (!answer)
			continue;
		memcpy(why, arming->why, sizeof(why));
		arming_free(arming);
		if (fn)
			fn(arg, answer, target_with_id(targets, existing), why);
	}
}

static void refuse(struct target *target, int answer, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void refuse(struct target *target, int answer, const char *fmt, ...)
{
	char why[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	arming_refuse(target, answer, why);
}

bool arming_proved(struct target *target, int r)
{
	const int pid = (int)target->proc.pid;
	char exe[PATH_MAX];

	/* First the records of what it has done since the request. */
	if (r != 0)
		sideband_events_drain(target->targets->sideband);
	/* A process that exits loses its memory, and so its program, before it disappears. */
	if (r != 0 && (!proc_alive(&target->proc) ||
		       proc_exe_read(target->proc.dirfd, exe, sizeof(exe)) == -ENOENT))
		arming_read_failed(target, PROC_E_GONE);
	else if (r == PROC_E_MISMATCH)
		refuse(target, TARGET_E_NOT_PERMITTED,
		       "the descriptor is not of /proc/%d/maps, or the process has executed another program",
		       pid);
	/* The client could open it: what is missing is a right of ours. */
	else if (r == -EACCES || r == -EPERM)
		refuse(target, TARGET_E_UNSUPPORTED,
		       "tracerd itself may not read /proc/%d/maps: it needs CAP_SYS_PTRACE for "
		       "other users' processes",
		       pid);
	else if (r != 0)
		refuse(target, r, "/proc/%d/maps: %s", pid, strerror(-r));
	return r == 0;
}

bool arming_found(struct target *target, int result, struct cgroup *cgroup)
{
	char why[200];
	int r;

	switch (result) {
	case 0:
		break;
	case CGROUP_E_NONE:
		refuse(target, TARGET_E_GONE, "no such unit or cgroup");
		return false;
	case CGROUP_E_BAD_NAME:
		refuse(target, TARGET_E_BAD, "neither the name of a unit nor the path of a cgroup");
		return false;
	case CGROUP_E_MANY:
		refuse(target, TARGET_E_BAD, "several cgroups have this name: give the path");
		return false;
	case CGROUP_E_THREADED:
		refuse(target, TARGET_E_UNSUPPORTED,
		       "a threaded cgroup, which has no list of processes: arm %s",
		       cgroup->path[1] ? cgroup->path : "the host");
		return false;
	case -E2BIG:
		refuse(target, TARGET_E_UNSUPPORTED, "too many processes in the unit");
		return false;
	default:
		refuse(target, result, "cgroup: %s", strerror(-result));
		return false;
	}
	target->cgroup = *cgroup;
	cgroup->dirfd = -1;
	r = only_one(target, why, sizeof(why));
	if (r != 0)
		arming_refuse(target, r, why);
	return r == 0;
}

/* The history begins before anything is read from /proc, so that no mapping falls in between. */
void arming_begin(struct target *target)
{
	struct targets *targets = target->targets;
	int r;

	r = sideband_events_start(targets->sideband);
	targets->sideband_error = r < 0 ? r : 0;
	target->sideband_lost_at = sideband_events_lost(targets->sideband);
	target->armed_ns = clock_raw_ns();
}

void arming_read_failed(struct target *target, int r)
{
	if (r == PROC_E_GONE || r == -ESRCH)
		refuse(target, TARGET_E_GONE, "no such process");
	else if (r == -E2BIG)
		refuse(target, TARGET_E_UNSUPPORTED, "too many processes");
	else if (r == -EMFILE || r == -ENFILE)
		refuse(target, TARGET_E_BUSY, "tracerd is out of file descriptors");
	else if (r == -ENOBUFS)
		refuse(target, TARGET_E_BUSY,
		       "no locked memory is left for its side-band events (CAP_IPC_LOCK, LimitMEMLOCK=)");
	else if (r == -EACCES || r == -EPERM)
		refuse(target, TARGET_E_UNSUPPORTED,
		       "not permitted to record it: %s (tracerd needs CAP_PERFMON and "
		       "CAP_SYS_PTRACE)",
		       strerror(-r));
	else
		refuse(target, r, "/proc or perf events: %s", strerror(-r));
}

/* One that nobody armed becomes what `armed` is, which is freed; its id and its triggers stay. */
static void upgrade(struct target *target, struct target *armed)
{
	struct member *member;

	members_end(target, 0);
	while ((member = TAILQ_FIRST(&target->members)) != NULL)
		(void)member_free(member);
	sideband_log_fini(&target->log);
	target->targets->n_events--;
	target->stacks_asked = armed->stacks_asked;
	target->stacks = armed->stacks;
	target->waits = armed->waits;
	target->kernel_stacks = armed->kernel_stacks;
	target->keep_ns = armed->keep_ns;
	target->wait_min_ns = armed->wait_min_ns;
	close_fdp(&target->kallsyms_fd);
	target->kallsyms_fd = take_fd(&armed->kallsyms_fd);
	close_fdp(&target->kcore_fd);
	target->kcore_fd = take_fd(&armed->kcore_fd);
	target->uid = armed->uid;
	target->owner_admin = armed->owner_admin;
	target->admin_only = target->admin_only || armed->admin_only;
	target->backend = armed->backend;
	target->recording = take_ptr(armed->recording);
	target->beside = take_ptr(armed->beside);
	armed->backend = NULL;
	/* All that was begun, and what it costs. */
	TAILQ_FOREACH(member, &armed->members, link)
		member->target = target;
	TAILQ_CONCAT(&target->members, &armed->members, link);
	target->n_members = armed->n_members;
	target->n_living = armed->n_living;
	target->children = armed->children;
	target->left_out = armed->left_out;
	target->refused = armed->refused;
	target->log = armed->log;
	target->images = take_ptr(armed->images);
	target->n_images = armed->n_images;
	target->images_room = armed->images_room;
	target->images_missing = armed->images_missing;
	memcpy(target->why, armed->why, sizeof(target->why));
	memcpy(target->warnings, armed->warnings, sizeof(target->warnings));
	target->n_why = armed->n_why;
	target->n_warnings = armed->n_warnings;
	target->sideband_lost_at = armed->sideband_lost_at;
	target->lost_ns = armed->lost_ns;
	target->work = armed->work;
	target->armed_unix_ns = armed->armed_unix_ns;
	target->state_unix_ns = armed->state_unix_ns;
	target->armed_ns = armed->armed_ns;
	target->charge_target = armed->charge_target;
	target->charge_fds = armed->charge_fds;
	if (target->backend->moved)
		target->backend->moved(target);
	armed->n_members = armed->n_living = armed->n_images = armed->n_why = armed->n_warnings = 0;
	armed->log = (struct sideband_log){0};
	armed->charge_target = armed->charge_fds = (struct quota_charge){0};
	(void)target_free(armed);
	target_refresh(target);
}

/* It has its members, and records. */
void arming_finish(struct target *target)
{
	struct targets *targets = target->targets;
	struct arming *arming = target->arming;
	targets_armed_fn fn = arming->fn;
	void *arg = arming->arg;
	struct target *implicit;
	uid_t strict;

	/* What was read is of this process only if it still exists. */
	if (target->proc.pid && !proc_alive(&target->proc)) {
		arming_refuse(target, TARGET_E_GONE, "no such process: it has just ended");
		return;
	}
	/* One that has gained privileges since it was looked at is not its user's to record. */
	if (target->proc.pid && !target->owner_admin &&
	    (proc_strict_uid(target->proc.dirfd, &strict) < 0 || strict != target->uid)) {
		arming_refuse(target, TARGET_E_GONE, "its credentials have changed meanwhile");
		return;
	}
	target->armed_unix_ns = wall_clock_ns();
	TAILQ_REMOVE(&targets->armings, arming, link);
	targets->n_armings--;
	target->arming = NULL;
	event_free(arming->limit);
	free(arming);
	/* A target that the process has by registering, perhaps meanwhile, becomes this one. */
	implicit = armed_already(target);
	if (implicit) {
		upgrade(implicit, target);
		target = implicit;
	} else {
		target->id = ++targets->last_id;
		(void)snprintf(target->name, sizeof(target->name), "t%llu",
			       (unsigned long long)target->id);
		targets_add(targets, target);
		unit_watch_set(targets->unit_watch, target);
	}
	if (target->work)
		target_work(target, 0);
	if (targets->callbacks.changed)
		targets->callbacks.changed(targets->callbacks.arg, target);
	stackprobe_target(targets->probe, target);
	target_emit(target, NULL);
	if (fn)
		fn(arg, 0, target, NULL);
}
