// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the processes of a target: who is in it, what their threads are, which files they map. For
 * an arming, for a unit's second look, and again where the kernel lost records.
 *
 *	arm	(list ─► join) ─► read ─► keep ─► the back end
 *	scan	 list  ─► join ─► read ─► keep ─► the back end's review
 *	resync	          join ─► read ─► keep ─► frozen recordings that wait for it go on
 *
 * list and read are the thread's. A member joins before it is read, so that the kernel reports what
 * it maps meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/pids.h"
#include "common/base/proctree.h"
#include "common/base/raw_clock.h"
#include "daemon/base/loop.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/join.h"
#include "daemon/target/proc_records.h"
#include "daemon/target/work_internal.h"

/* A process to be read. */
struct scan_entry {
	pid_t pid;
	int dirfd;			/* owned; -1: opened by pid */
	struct sideband_follow *follow; /* what was opened, not begun */
	int result;
};

void scan_fini(struct scan *scan, struct closer *closer)
{
	for (size_t i = 0; i < scan->n_entries; i++) {
		(void)close_fd(scan->entries[i].dirfd);
		(void)sideband_follow_free(scan->entries[i].follow, closer);
	}
	(void)close_fd(scan->maps_fd);
	free(scan->unit);
	free(scan->pids);
	free(scan->roots);
	free(scan->entries);
	cgroup_close(&scan->cgroup);
}

/* ---- the thread's */

/* A unit that is started again has a new control group under the same path. */
static int find_group(struct scan *scan)
{
	if (scan->cgroup.dirfd >= 0 && !cgroup_gone(&scan->cgroup))
		return 0;
	cgroup_close(&scan->cgroup);
	return scan->host ? cgroup_open_root(scan->mount_fd, &scan->cgroup)
			  : cgroup_open(scan->mount_fd, scan->unit, &scan->cgroup);
}

static void run_list(struct work *w)
{
	w->result = find_group(&w->scan);
	if (w->result != 0)
		return;
	w->scan.listed_ns = clock_raw_ns();
	w->result = cgroup_procs(&w->scan.cgroup, &w->scan.pids, &w->scan.n_pids);
	if (w->result == CGROUP_E_MANY)
		w->result = -E2BIG;
	if (w->result == 0)
		pids_sort(w->scan.pids, w->scan.n_pids);
}

static int on_read(void *arg, const struct perf_event_header *h)
{
	struct work *w = arg;

	return atomic_load(&w->cancel) ? -ECANCELED : sideband_log_append(&w->log, h);
}

static int read_entry(struct work *w, struct scan_entry *entry)
{
	int r = 0;

	if (entry->dirfd < 0) {
		entry->dirfd = proc_dir_open(entry->pid);
		if (entry->dirfd < 0) {
			r = entry->dirfd == -ENOENT ? PROC_E_GONE : entry->dirfd;
			entry->dirfd = -1;
			return r;
		}
	}
	/* Events first, for the same reason that members join first. */
	if (w->scan.follow)
		r = sideband_follow_open(entry->dirfd, w->scan.tid, w->scan.children, &w->cancel,
					 &entry->follow);
	if (r == -ENOENT || r == -ESRCH)
		return PROC_E_GONE;
	if (r < 0)
		return r;
	return proc_records_read(entry->dirfd, entry->pid, w->scan.tid, w->scan.time_ns,
				 w->scan.records, on_read, w);
}

/*
 * The program runs there since the member joined: had it executed another one, the kernel would
 * have reported it.
 */
static int prove(const struct work *w)
{
	struct proc proc = PROC_INIT;

	if (w->scan.maps_fd < 0) /* an administrator proves nothing; a unit may have no process */
		return 0;
	proc.dirfd = w->scan.entries[0].dirfd;
	return proc_maps_fd_check(&proc, w->scan.maps_fd);
}

static void run_read(struct work *w)
{
	w->result = prove(w);
	if (w->result != 0)
		return;
	for (size_t i = 0; i < w->scan.n_entries && !atomic_load(&w->cancel); i++) {
		w->scan.entries[i].result = read_entry(w, &w->scan.entries[i]);
		w->scan.entries[i].dirfd = close_fd(w->scan.entries[i].dirfd);
	}
}

/* ---- what was read */

/* Whether the target is nothing without this process. */
static bool is_needed(const struct target *target, pid_t pid)
{
	return !target_scope_is_group(target->scope) && target->proc.pid == pid;
}

static int entries_result(struct work *w)
{
	size_t closed = 0;

	for (size_t i = 0; i < w->scan.n_entries; i++) {
		const struct scan_entry *entry = &w->scan.entries[i];
		const bool is_closed = entry->result == -EACCES || entry->result == -EPERM;

		/*
		 * One of many may have ended meanwhile, or be closed even to us, by a security
		 * module or a namespace.
		 */
		if (entry->result == 0 || (!is_needed(w->target, entry->pid) &&
					   (entry->result == PROC_E_GONE || is_closed))) {
			closed += is_closed;
			continue;
		}
		return entry->result;
	}
	/* those that are read again have been counted */
	if (w->what != WORK_RESYNC)
		w->target->n_closed += closed;
	if (closed && w->what == WORK_SCAN)
		target_warn_closed(w->target);
	return 0;
}

/* Nobody waits any longer. `log`: what was read again, or NULL. */
void scan_resync_end(struct target *target, const struct sideband_log *log)
{
	struct resync_wait *wait;

	while ((wait = LIST_FIRST(&target->waiting)) != NULL) {
		LIST_REMOVE(wait, link);
		wait->done(wait, target, log);
	}
}

static enum turn step_kept(struct work *w, uint64_t deadline)
{
	struct target *target = w->target;
	int r;

	for (; w->scan.next_pid < w->scan.n_entries && !loop_is_over(deadline);
	     w->scan.next_pid++) {
		struct scan_entry *entry = &w->scan.entries[w->scan.next_pid];
		struct member *member = member_find(target, entry->pid);

		/* The filter knows the others already. */
		if (w->what == WORK_SCAN && member)
			(void)target_member_changed(target, entry->pid);
		if (!entry->follow || !member || member->follow)
			continue;
		r = sideband_follow_begin(target->targets->sideband, entry->follow);
		if (r < 0)
			continue; /* no memory for a watch */
		member->follow = entry->follow;
		entry->follow = NULL;
	}
	if (w->scan.next_pid < w->scan.n_entries) {
		work_kick(w);
		return TURN_LATER;
	}
	target->log.dropped += w->log.dropped;
	switch (w->what) {
	case WORK_ARM:
		return work_begin_arm(w);
	case WORK_SCAN:
		if (target->backend->review)
			target->backend->review(target, w->scan.added);
		joins_were_read(target);
		return TURN_END;
	default:
		if (target->backend->records_whole && !(target->work & WORK_RESYNC))
			target->backend->records_whole(target);
		scan_resync_end(target, &w->log);
		return TURN_END;
	}
}

static enum turn step_keep(struct work *w, uint64_t deadline)
{
	const uint8_t *block;
	size_t len;

	while ((block = sideband_log_view_block(&w->view, w->scan.block, &len)) != NULL) {
		while (w->scan.at < len) {
			const struct perf_event_header *h = (const void *)(block + w->scan.at);

			sideband_keep(w->target, h);
			w->scan.at += h->size;
			if (loop_is_over(deadline)) {
				work_kick(w);
				return TURN_LATER;
			}
		}
		w->scan.block++;
		w->scan.at = 0;
	}
	w->scan.next_pid = 0;
	w->next = step_kept;
	return TURN_ON;
}

static enum turn step_was_read(struct work *w, uint64_t deadline)
{
	int r;

	if (w->what == WORK_ARM && !arming_proved(w->target, w->result))
		return TURN_END;
	r = entries_result(w);
	if (r != 0 && w->what == WORK_ARM)
		return arming_read_failed(w->target, r), TURN_END;
	if (r != 0)
		log_debug("%s: reading its processes: %s", w->target->name,
			  r < 0 ? strerror(-r) : "it has ended");
	if (sideband_log_freeze(&w->log, &w->view) < 0) {
		w->target->log.dropped += w->log.records;
		if (w->what == WORK_ARM)
			return work_refuse(w, -ENOMEM, "out of memory");
	}
	w->next = step_keep;
	return TURN_ON;
}

/* ---- who is to be read */

static int entry_add(struct work *w, pid_t pid, int dirfd)
{
	struct scan_entry *entry;

	if (w->scan.n_entries == w->scan.entries_room) {
		size_t room = w->scan.entries_room ? w->scan.entries_room * 2 : 4;
		struct scan_entry *bigger = reallocarray(w->scan.entries, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->scan.entries = bigger;
		w->scan.entries_room = room;
	}
	entry = &w->scan.entries[w->scan.n_entries];
	*entry = (struct scan_entry){.pid = pid, .dirfd = -1};
	if (dirfd >= 0 && (entry->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3)) < 0)
		return -errno;
	w->scan.n_entries++;
	return 0;
}

static enum turn read_entries(struct work *w)
{
	const struct target *target = w->target;

	if (w->what == WORK_ARM)
		w->scan.maps_fd = take_fd(&target->arming->maps_fd);
	w->scan.tid = target->scope == TARGET_THREAD ? target->tid : 0;
	w->scan.follow = w->what != WORK_RESYNC &&
			 !sideband_events_running(target->targets->sideband);
	w->scan.children = target->children;
	sideband_log_init(&w->log, target->log.limit);
	w->run = run_read;
	w->job.patient = false;
	w->next = step_was_read;
	return TURN_THREAD;
}

static int join_one(struct work *w, pid_t pid, int dirfd)
{
	struct member *member;
	int r;

	if (member_find(w->target, pid))
		return 0;
	r = member_add(w->target, pid, dirfd, w->scan.time_ns, &member);
	if (r != 0)
		return r == PROC_E_GONE && !is_needed(w->target, pid) ? 0 : r;
	/* Who arms has proven it of the process that he named. */
	if (!is_needed(w->target, pid))
		proof_ask(member);
	w->scan.added = true;
	return entry_add(w, pid, dirfd);
}

static enum turn join_failed(struct work *w, int r)
{
	if (w->what == WORK_ARM)
		return arming_read_failed(w->target, r), TURN_END;
	log_debug("%s: looking at its members: %s", w->target->name,
		  r < 0 ? strerror(-r) : "it has ended");
	/* Reads those that have joined in any case. */
	return w->scan.n_entries > 0 ? read_entries(w) : TURN_END;
}

static enum turn list_family(struct work *w);

/* The processes of a unit or of a family, some at a time. */
static enum turn step_join(struct work *w, uint64_t deadline)
{
	const bool family = target_is_family(w->target);

	if (!family && !members_leave(w->target, w->scan.pids, w->scan.n_pids, w->scan.listed_ns,
				      w->scan.time_ns, deadline)) {
		work_kick(w);
		return TURN_LATER;
	}
	for (; w->scan.next_pid < w->scan.n_pids; w->scan.next_pid++) {
		int r;

		if (loop_is_over(deadline)) {
			work_kick(w);
			return TURN_LATER;
		}
		r = join_one(w, w->scan.pids[w->scan.next_pid], -1);
		if (r != 0)
			return join_failed(w, r);
	}
	/* What they started before they joined, and nobody reported. */
	if (family && w->scan.n_joined != w->scan.n_entries)
		return list_family(w);
	return read_entries(w);
}

static void run_family(struct work *w)
{
	w->result = proctree_below(w->scan.roots, w->scan.n_roots, &w->scan.pids, &w->scan.n_pids);
}

static enum turn step_family(struct work *w, uint64_t deadline)
{
	struct member *member;

	if (w->result < 0)
		return join_failed(w, w->result);
	/* The record of an exit may be what was lost. */
	TAILQ_FOREACH(member, &w->target->members, link)
		if (w->what == WORK_SCAN && member->to_ns == UINT64_MAX)
			family_look(member);
	w->next = step_join;
	return TURN_ON;
}

/*
 * Who has been started by its processes; the processes that are found are among the roots of the
 * next look.
 */
static enum turn list_family(struct work *w)
{
	int r;

	free(w->scan.pids);
	free(w->scan.roots);
	w->scan.pids = w->scan.roots = NULL;
	w->scan.n_pids = w->scan.next_pid = w->scan.n_roots = 0;
	w->scan.n_joined = w->scan.n_entries;
	w->result = 0;
	w->next = step_family;
	if (!w->target->children)
		return TURN_ON;
	r = members_pids(w->target, false, &w->scan.roots, &w->scan.n_roots);
	if (r < 0)
		return join_failed(w, r);
	w->run = run_family;
	w->job.patient = true;
	return TURN_THREAD;
}

/*
 * Those that were asked for; of one that has ended the request is told when the others have been
 * read.
 */
static void join_asked(struct work *w)
{
	pid_t pid;
	int dirfd, r;

	while (joins_next(w->target, &pid, &dirfd)) {
		r = join_one(w, pid, dirfd);
		if (r != 0)
			log_debug("%s: process %d does not join: %s", w->target->name, (int)pid,
				  r < 0 ? strerror(-r) : "it has ended");
	}
}

static enum turn begin_join(struct work *w)
{
	struct target *target = w->target;
	int r;

	w->scan.records = PROC_RECORDS_ALL;
	if (w->what == WORK_ARM)
		arming_begin(target);
	w->scan.time_ns = w->what == WORK_ARM ? target->armed_ns : clock_raw_ns();
	if (target_scope_is_group(target->scope)) {
		w->next = step_join;
		return TURN_ON;
	}
	if (w->what == WORK_SCAN) {
		join_asked(w);
		return list_family(w);
	}
	r = join_one(w, target->proc.pid, target->proc.dirfd);
	if (r != 0)
		return join_failed(w, r);
	return target_is_family(target) ? list_family(w) : read_entries(w);
}

static enum turn step_looked(struct work *w)
{
	struct target *target = w->target;

	/*
	 * Who ended before the list was read is not in it: the record of that end is the target's.
	 */
	sideband_events_drain(target->targets->sideband);
	if (w->scan.cgroup.dirfd < 0 || cgroup_gone(&w->scan.cgroup)) {
		unit_away(target);
		return TURN_END;
	}
	if (w->scan.cgroup.ino != target->cgroup.ino) {
		unit_back(target, &w->scan.cgroup);
		return TURN_END;
	}
	if (w->result == 0)
		return begin_join(w);
	log_debug("%s: looking at its members: %s", target->name,
		  w->result < 0 ? strerror(-w->result) : "no cgroup");
	return TURN_END;
}

static enum turn step_listed(struct work *w, uint64_t deadline)
{
	if (w->what != WORK_ARM)
		return step_looked(w);
	return arming_found(w->target, w->result, &w->scan.cgroup) ? begin_join(w) : TURN_END;
}

static enum turn begin_list(struct work *w)
{
	struct target *target = w->target;

	w->scan.mount_fd = target->targets->cgroup_fd;
	w->scan.host = target->scope == TARGET_HOST;
	w->scan.unit = strdup(w->what == WORK_ARM ? target->unit : target->cgroup.path);
	if (w->what != WORK_ARM) {
		w->scan.cgroup.ino = target->cgroup.ino;
		w->scan.cgroup.dirfd = fcntl(target->cgroup.dirfd, F_DUPFD_CLOEXEC, 3);
		if (w->scan.cgroup.dirfd < 0)
			return TURN_END;
	}
	if (!w->scan.unit)
		return w->what == WORK_ARM ? work_refuse(w, -ENOMEM, "out of memory") : TURN_END;
	w->run = run_list;
	w->job.patient = true;
	w->next = step_listed;
	return TURN_THREAD;
}

enum turn scan_begin_resync(struct work *w)
{
	struct target *target = w->target;
	struct member *member;

	/*
	 * Dated back to the loss: for what has changed since, the kernel has records with their own
	 * time.
	 */
	w->scan.time_ns = target->lost_ns;
	w->scan.records = PROC_RECORDS_THREADS | PROC_RECORDS_MAPS;
	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX &&
		    entry_add(w, member->pid,
			      member->pid == target->proc.pid ? target->proc.dirfd : -1) < 0)
			break;
	return read_entries(w);
}

enum turn scan_begin(struct work *w)
{
	return target_scope_is_group(w->target->scope) ? begin_list(w) : begin_join(w);
}
