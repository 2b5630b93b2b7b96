// SPDX-License-Identifier: Apache-2.0
/*
 * Work on targets that may take long: reading all threads and mappings of processes, opening thousands of events, going
 * through a whole history. One target at a time, in steps: what touches targets is done on the loop, a budget at a time;
 * what may wait for the target or only takes time is done on a thread, on copies and descriptors of its own. A target may go
 * at any step: what was opened for it is closed then.
 *
 *	arm	(list) ─► join ─► read ─► keep ─► choose ⇄ open ─► armed
 *	scan	 list  ─► join ─► read ─► keep ─► review
 *	resync	          join ─► read ─► keep ─► frozen recordings that wait for it go on
 *	rearm	                                  choose ⇄ open
 *	forget	compact ─► replace
 *
 * list, read, open and compact are the thread's. A member joins before it is read, so that what it maps meanwhile is told by
 * the kernel. Users take turns, so that one who arms a lot waits for himself.
 *
 * A process can hang whoever reads it, see daemon/base/readers.h: its work stays where it is, with a thread of its own, other work
 * goes on, and it goes on behind that when the thread comes back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/backend.h"
#include "daemon/base/clock.h"
#include "daemon/base/closer.h"
#include "daemon/base/loop.h"
#include "daemon/base/readers.h"
#include "daemon/target/arming.h"
#include "daemon/target/proc_records.h"
#include "daemon/target/target_internal.h"

/* Events are not opened while more than this wait to be closed: nobody gets both. */
#define CLOSING_FDS_MAX 4096
#define CLOSING_RETRY_US 10000

enum turn {
	TURN_ON,     /* the next step at once, if there is time */
	TURN_LATER,  /* it has asked to be called again */
	TURN_THREAD, /* w->run() goes first */
	TURN_END,
};

/* A process to be read. */
struct entry {
	pid_t pid;
	int dirfd;			/* owned; -1: by number */
	struct history_follow *follow; /* what was opened, not begun */
	int result;
};

/* What is done for one target. */
struct work {
	struct reader_job job; /* first */
	TAILQ_ENTRY(work) link; /* while it is not the current one */
	struct targetwork *all; /* back pointer */
	void (*run)(struct work *w);
	enum turn (*next)(struct work *w, uint64_t deadline); /* NULL: nothing is under way */
	struct target *target; /* NULL: it went meanwhile */
	enum target_work what;
	bool on_thread;
	/* in and out of the thread; nothing of it is the target's */
	atomic_bool cancel;
	int result;
	int maps_fd; /* of who has to prove that he may read it; -1 */
	char *unit;
	int mount_fd; /* the targets' */
	struct cgroup cgroup;
	pid_t *pids;
	size_t n_pids, next_pid;
	bool added;
	struct entry *entries;
	size_t n_entries, entries_room;
	pid_t tid;
	bool follow, children;
	uint64_t time_ns, armed_ns, oldest_ns;
	unsigned int synth;
	struct histlog log;
	struct histlog_view view;
	size_t block, at; /* of the view, what is kept next */
	struct backend_job *backend_job; /* owned; NULL: none was begun */
};

struct targetwork {
	struct targets *targets; /* back pointer */
	struct readers *readers; /* NULL: the daemon ends */
	struct event *turn;
	struct work *current;
	TAILQ_HEAD(work_list, work) hanging, back; /* their threads hang, or did */
	bool after_arm;
	uid_t last_owner;
	uint64_t last_id;
};

static void kick(struct targetwork *all)
{
	const struct timeval now = {0};

	(void)event_add(all->turn, &now);
}

/* ---- what was made and is nobody's */

static void work_run(struct reader_job *job);
static void work_done(struct reader_job *job);
static void work_hangs(struct reader_job *job);

static void reset(struct work *w)
{
	struct targetwork *all = w->all;

	for (size_t i = 0; i < w->n_entries; i++) {
		(void)close_fd(w->entries[i].dirfd);
		(void)history_follow_free(w->entries[i].follow, all->targets->closer);
	}
	if (w->backend_job)
		w->backend_job->free(w->backend_job);
	(void)close_fd(w->maps_fd);
	free(w->unit);
	free(w->pids);
	free(w->entries);
	cgroup_close(&w->cgroup);
	histlog_view_fini(&w->view);
	histlog_fini(&w->log);
	*w = (struct work){
		.all = all,
		.job = {.run = work_run, .done = work_done, .hangs = work_hangs},
		.maps_fd = -1,
		.mount_fd = -1,
		.cgroup = CGROUP_INIT,
	};
}

static struct work *work_new(struct targetwork *all)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	*w = (struct work){.all = all, .maps_fd = -1, .cgroup = CGROUP_INIT};
	reset(w);
	return w;
}

static struct work *work_free(struct work *w)
{
	reset(w);
	free(w);
	return NULL;
}

/* ---- the thread's */

static void run_list(struct work *w)
{
	if (w->unit) {
		w->result = cgroup_open(w->mount_fd, w->unit, &w->cgroup);
		if (w->result != 0)
			return;
	}
	w->result = cgroup_procs(&w->cgroup, &w->pids, &w->n_pids);
	if (w->result == CGROUP_E_MANY)
		w->result = -E2BIG;
	if (w->result == 0)
		pids_sort(w->pids, w->n_pids);
}

static int on_read(void *arg, const struct perf_event_header *h)
{
	struct work *w = arg;

	return atomic_load(&w->cancel) ? -ECANCELED : histlog_append(&w->log, h);
}

static int read_entry(struct work *w, struct entry *entry)
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
	/* Events first, for the same reason as members join first. */
	if (w->follow)
		r = history_follow_open(entry->dirfd, w->tid, w->children, &w->cancel, &entry->follow);
	if (r == -ENOENT || r == -ESRCH)
		return PROC_E_GONE;
	return r < 0 ? r : synth_process(entry->dirfd, entry->pid, w->tid, w->time_ns, w->synth, on_read, w);
}

/* Of the program that runs there since it joined: had it executed another one meanwhile, the kernel would tell. */
static int prove(const struct work *w)
{
	struct proc proc = PROC_INIT;

	if (w->maps_fd < 0) /* nothing is to be proved; of a unit there may be no process, either */
		return 0;
	proc.dirfd = w->entries[0].dirfd;
	return proc_maps_fd_check(&proc, w->maps_fd);
}

static void run_read(struct work *w)
{
	w->result = prove(w);
	if (w->result != 0)
		return;
	for (size_t i = 0; i < w->n_entries && !atomic_load(&w->cancel); i++) {
		w->entries[i].result = read_entry(w, &w->entries[i]);
		w->entries[i].dirfd = close_fd(w->entries[i].dirfd);
	}
}

static void run_backend(struct work *w)
{
	w->backend_job->run(w->backend_job);
}

static void run_compact(struct work *w)
{
	w->oldest_ns = w->armed_ns;
	if (w->backend_job) {
		w->backend_job->run(w->backend_job);
		w->result = w->backend_job->result;
		w->oldest_ns = w->backend_job->oldest_ns;
	}
	if (w->result == 0)
		w->result = histlog_compact(&w->view, w->oldest_ns, &w->log);
}

static void work_run(struct reader_job *job)
{
	struct work *w = (struct work *)job;

	w->run(w);
}

/* ---- recording */

static enum turn refuse(struct work *w, int answer, const char *why)
{
	arming_refuse(w->target, answer, why);
	return TURN_END;
}

static enum turn step_arm(struct work *w, uint64_t deadline)
{
	const struct timeval soon = {.tv_usec = CLOSING_RETRY_US};
	struct target *target = w->target;
	char why[200] = "";
	int r = 0;

	if (closer_waiting(w->all->targets->closer) > CLOSING_FDS_MAX) {
		(void)event_add(w->all->turn, &soon);
		return TURN_LATER;
	}
	if (target->backend->arm)
		r = target->backend->arm(target, &w->backend_job, why, sizeof(why));
	if (r == BACKEND_RUN) {
		w->backend_job->cancel = &w->cancel;
		w->job.patient = w->backend_job->patient;
		w->run = run_backend;
		return TURN_THREAD;
	}
	if (r != 0 && !why[0])
		(void)snprintf(why, sizeof(why), "%s", strerror(r < 0 ? -r : EIO));
	if (w->what == WORK_ARM)
		return r != 0 ? refuse(w, r, why) : (arming_finish(target), TURN_END);
	if (r != 0)
		log_debug("%s: recording it in another way: %s", target->name, why);
	target_emit(target, NULL);
	return TURN_END;
}

static enum turn begin_arm(struct work *w)
{
	w->next = step_arm;
	return TURN_ON;
}

/* ---- what was read */

static int entries_result(const struct work *w)
{
	for (size_t i = 0; i < w->n_entries; i++) {
		const struct entry *entry = &w->entries[i];

		/* One of many may have ended meanwhile. */
		if (entry->result != 0 && (entry->result != PROC_E_GONE || w->target->scope != TARGET_UNIT))
			return entry->result;
	}
	return 0;
}

/* Nobody waits any longer. `log`: what was read again, or NULL. */
static void resync_end(struct target *target, const struct histlog *log)
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

	for (; w->next_pid < w->n_entries && !loop_is_over(deadline); w->next_pid++) {
		struct entry *entry = &w->entries[w->next_pid];
		struct member *member = member_find(target, entry->pid);

		/* Those that were there before pass already. */
		if (w->what == WORK_SCAN && member)
			(void)target_member_changed(target, entry->pid);
		if (!entry->follow || !member || member->follow)
			continue;
		r = history_follow_begin(target->targets->history, entry->follow);
		if (r < 0)
			continue; /* no memory for a watch */
		member->follow = entry->follow;
		entry->follow = NULL;
	}
	if (w->next_pid < w->n_entries) {
		kick(w->all);
		return TURN_LATER;
	}
	target->log.dropped += w->log.dropped;
	switch (w->what) {
	case WORK_ARM:
		return begin_arm(w);
	case WORK_SCAN:
		if (target->backend->review)
			target->backend->review(target, w->added);
		return TURN_END;
	default:
		resync_end(target, &w->log);
		return TURN_END;
	}
}

static enum turn ring_trim(struct work *w, uint64_t deadline)
{
	const uint8_t *block;
	size_t len;

	while ((block = histlog_view_block(&w->view, w->block, &len)) != NULL) {
		while (w->at < len) {
			const struct perf_event_header *h = (const void *)(block + w->at);

			targetlog_keep(w->target, h);
			w->at += h->size;
			if (loop_is_over(deadline)) {
				kick(w->all);
				return TURN_LATER;
			}
		}
		w->block++;
		w->at = 0;
	}
	w->next_pid = 0;
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
		log_debug("%s: reading its processes: %s", w->target->name, r < 0 ? strerror(-r) : "it has ended");
	if (histlog_freeze(&w->log, &w->view) < 0) {
		w->target->log.dropped += w->log.records;
		if (w->what == WORK_ARM)
			return refuse(w, -ENOMEM, "out of memory");
	}
	w->next = ring_trim;
	return TURN_ON;
}

/* ---- who is to be read */

static int entry_add(struct work *w, pid_t pid, int dirfd)
{
	struct entry *entry;

	if (w->n_entries == w->entries_room) {
		size_t room = w->entries_room ? w->entries_room * 2 : 4;
		struct entry *bigger = reallocarray(w->entries, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->entries = bigger;
		w->entries_room = room;
	}
	entry = &w->entries[w->n_entries];
	*entry = (struct entry){.pid = pid, .dirfd = -1};
	if (dirfd >= 0 && (entry->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3)) < 0)
		return -errno;
	w->n_entries++;
	return 0;
}

static enum turn read_entries(struct work *w)
{
	const struct target *target = w->target;

	if (w->what == WORK_ARM)
		w->maps_fd = take_fd(&target->arming->maps_fd);
	w->tid = target->scope == TARGET_THREAD ? target->tid : 0;
	w->follow = w->what != WORK_RESYNC && !history_running(target->targets->history);
	w->children = target->scope == TARGET_UNIT;
	histlog_init(&w->log, target->log.limit);
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
	r = member_add(w->target, pid, dirfd, w->time_ns, &member);
	if (r != 0)
		return r == PROC_E_GONE && w->target->scope == TARGET_UNIT ? 0 : r;
	w->added = true;
	return entry_add(w, pid, dirfd);
}

static enum turn join_failed(struct work *w, int r)
{
	if (w->what == WORK_ARM)
		return arming_read_failed(w->target, r), TURN_END;
	log_debug("%s: looking at its members: %s", w->target->name, r < 0 ? strerror(-r) : "it has ended");
	/* Those that have joined are read in any case. */
	return w->n_entries > 0 ? read_entries(w) : TURN_END;
}

/* Those of a unit, some at a time. */
static enum turn step_join(struct work *w, uint64_t deadline)
{
	if (!members_leave(w->target, w->pids, w->n_pids, w->time_ns, deadline)) {
		kick(w->all);
		return TURN_LATER;
	}
	for (; w->next_pid < w->n_pids; w->next_pid++) {
		int r;

		if (loop_is_over(deadline)) {
			kick(w->all);
			return TURN_LATER;
		}
		r = join_one(w, w->pids[w->next_pid], -1);
		if (r != 0)
			return join_failed(w, r);
	}
	return read_entries(w);
}

static enum turn begin_join(struct work *w)
{
	struct target *target = w->target;
	int r;

	w->synth = SYNTH_ALL;
	if (w->what == WORK_ARM)
		arming_begin(target);
	w->time_ns = w->what == WORK_ARM ? target->armed_ns : clock_raw_ns();
	if (target->scope == TARGET_UNIT) {
		w->next = step_join;
		return TURN_ON;
	}
	r = join_one(w, target->proc.pid, target->proc.dirfd);
	return r != 0 ? join_failed(w, r) : read_entries(w);
}

static enum turn step_listed(struct work *w, uint64_t deadline)
{
	struct target *target = w->target;

	if (w->what != WORK_ARM) {
		if (w->result == 0 && !cgroup_gone(&w->cgroup))
			return begin_join(w);
		if (cgroup_gone(&w->cgroup))
			target_exited(target, clock_raw_ns());
		else
			log_debug("%s: looking at its members: %s", target->name,
				  w->result < 0 ? strerror(-w->result) : "no cgroup");
		return TURN_END;
	}
	if (!arming_found(target, w->result, &w->cgroup))
		return TURN_END;
	return begin_join(w);
}

static enum turn begin_list(struct work *w)
{
	struct target *target = w->target;

	if (w->what == WORK_ARM) {
		w->mount_fd = target->targets->cgroup_fd;
		w->unit = strdup(target->unit);
	} else {
		w->cgroup.dirfd = fcntl(target->cgroup.dirfd, F_DUPFD_CLOEXEC, 3);
	}
	if (w->what == WORK_ARM ? !w->unit : w->cgroup.dirfd < 0)
		return w->what == WORK_ARM ? refuse(w, -ENOMEM, "out of memory") : TURN_END;
	w->run = run_list;
	w->job.patient = true;
	w->next = step_listed;
	return TURN_THREAD;
}

static enum turn begin_resync(struct work *w)
{
	struct target *target = w->target;
	struct member *member;

	/* As of when the loss was told: what has changed since is told by the kernel, at its own time. */
	w->time_ns = target->lost_ns;
	w->synth = SYNTH_THREADS | SYNTH_MAPS;
	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX &&
		    entry_add(w, member->pid, member->pid == target->proc.pid ? target->proc.dirfd : -1) < 0)
			break;
	return read_entries(w);
}

/* ---- forgetting */

static enum turn step_compacted(struct work *w, uint64_t deadline)
{
	struct target *target = w->target;

	if (w->result == 0)
		w->result = histlog_replace(&target->log, &w->view, &w->log);
	if (w->result < 0)
		log_debug("%s: no memory to compact its history", target->name);
	else
		members_prune(target, w->oldest_ns);
	return TURN_END;
}

static enum turn begin_forget(struct work *w)
{
	struct target *target = w->target;

	if (histlog_freeze(&target->log, &w->view) < 0)
		return TURN_END;
	w->armed_ns = target->armed_ns;
	if (target->backend->look_back && target->backend->look_back(target, &w->backend_job) < 0)
		return TURN_END;
	w->run = run_compact;
	w->job.patient = true;
	w->next = step_compacted;
	return TURN_THREAD;
}

/* ---- whose turn it is */

/* Whose process it is that is read, or opened events on. */
static uid_t read_uid(const struct target *target)
{
	return target->scope == TARGET_UNIT ? target->owner : target->uid;
}

static enum turn begin(struct work *w)
{
	w->job.uid = read_uid(w->target);
	switch (w->what) {
	case WORK_ARM:
	case WORK_SCAN:
		return w->target->scope == TARGET_UNIT ? begin_list(w) : begin_join(w);
	case WORK_RESYNC:
		return begin_resync(w);
	case WORK_REARM:
		return begin_arm(w);
	case WORK_FORGET:
		return begin_forget(w);
	}
	return TURN_END;
}

/* What a process that hangs keeps from being done waits for it, and nothing else does. */
static bool is_ready(const struct targetwork *all, const struct target *target)
{
	return !target->hanging && readers_may(all->readers, read_uid(target));
}

static struct arming *pick_arming(struct targetwork *all)
{
	struct arming *arming, *first = NULL;

	TAILQ_FOREACH(arming, &all->targets->armings, link)
	{
		if (!is_ready(all, arming->target))
			continue;
		if (arming->target->owner != all->last_owner)
			return arming;
		first = first ? first : arming;
	}
	return first;
}

/* Somebody waits for it; the next one in order of id. */
static struct target *pick_armed(struct targetwork *all)
{
	struct target *target, *next = NULL, *first = NULL;

	TAILQ_FOREACH(target, &all->targets->list, link)
	{
		if (!target->work || !is_ready(all, target))
			continue;
		if ((target->work & WORK_RESYNC) && !LIST_EMPTY(&target->waiting))
			return target;
		first = first ? first : target;
		if (!next && target->id > all->last_id)
			next = target;
	}
	return next ? next : first;
}

static bool pick(struct targetwork *all)
{
	struct arming *arming = pick_arming(all);
	struct target *target = pick_armed(all);
	struct work *w = all->current;

	if (arming && (!target || !all->after_arm)) {
		w->target = arming->target;
		w->what = WORK_ARM;
		all->after_arm = true;
		all->last_owner = w->target->owner;
		return true;
	}
	all->after_arm = false;
	if (!target)
		return false;
	w->target = target;
	all->last_id = target->id;
	w->what = (enum target_work)(target->work & -target->work);
	target->work &= ~(unsigned int)w->what;
	return true;
}

/* Only what records is worth it. */
static bool is_wanted(const struct work *w)
{
	if (!w->target)
		return false;
	return w->target->arming ? !w->target->arming->answer
				 : w->target->state == TARGET_ARMED && !target_is_implicit(w->target);
}

static void end(struct work *w)
{
	if (w->target && w->what == WORK_RESYNC)
		resync_end(w->target, NULL);
	reset(w);
}

/* Work that hung goes on when nothing else is under way, and would not wait for other work that hangs. */
static bool take_back(struct targetwork *all)
{
	struct work *w;

	TAILQ_FOREACH(w, &all->back, link)
		if (!w->target || readers_may(all->readers, w->job.uid))
			break;
	if (!w)
		return false;
	TAILQ_REMOVE(&all->back, w, link);
	all->current = (work_free(all->current), w);
	return true;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct targetwork *all = arg;
	uint64_t deadline = loop_deadline();
	struct work *w;
	enum turn turn;

	/* Also while the thread is at work: whoever is refused does not wait for it. */
	armings_reap(all->targets);
	while (!(w = all->current)->on_thread) {
		if (w->next && !is_wanted(w))
			end(w);
		if (w->next) {
			turn = w->next(w, deadline);
		} else {
			armings_reap(all->targets);
			if (take_back(all))
				continue;
			if (!pick(all))
				return;
			turn = is_wanted(w) ? begin(w) : TURN_END;
		}
		if (turn == TURN_LATER)
			return;
		if (turn == TURN_THREAD) {
			w->on_thread = true;
			readers_submit(all->readers, &w->job);
			return;
		}
		if (turn == TURN_END)
			end(w);
		if (loop_is_over(deadline)) {
			kick(all);
			return;
		}
	}
}

/* Its thread waits for the process: another thread, and other work, go on. */
static void work_hangs(struct reader_job *job)
{
	struct work *w = (struct work *)job, *other = work_new(w->all);
	struct targetwork *all = w->all;

	if (w->target) {
		w->target->hanging = true;
		resync_end(w->target, NULL);
	}
	if (!other)
		return; /* then the rest waits for it too */
	all->current = other;
	TAILQ_INSERT_TAIL(&all->hanging, w, link);
	kick(all);
}

static void work_done(struct reader_job *job)
{
	struct work *w = (struct work *)job;
	struct targetwork *all = w->all;

	w->on_thread = false;
	if (w->target)
		w->target->hanging = false;
	if (!all->readers)
		return; /* targetwork_free() */
	if (w != all->current) {
		TAILQ_REMOVE(&all->hanging, w, link);
		TAILQ_INSERT_TAIL(&all->back, w, link);
	}
	on_turn(-1, 0, all);
}

/* ---- asked by others */

void target_work(struct target *target, unsigned int what)
{
	target->work |= what;
	if (!target->arming)
		kick(target->targets->work);
}

bool target_has_work(const struct target *target, enum target_work what)
{
	const struct targetwork *all = target->targets->work;

	/* What hangs is not worth waiting for. */
	if (target->hanging)
		return false;
	return (target->work & (unsigned int)what) || (all && all->current->target == target && all->current->what == what);
}

size_t targetwork_hanging(const struct targets *targets)
{
	return readers_hanging(targets->work->readers);
}

bool targetwork_may(const struct target *target)
{
	return readers_may(target->targets->work->readers, read_uid(target));
}

/* The n-th that is under way or was. */
static struct work *work_nth(struct targetwork *all, size_t n)
{
	struct work *w;

	if (n-- == 0)
		return all->current;
	TAILQ_FOREACH(w, &all->hanging, link)
		if (n-- == 0)
			return w;
	TAILQ_FOREACH(w, &all->back, link)
		if (n-- == 0)
			return w;
	return NULL;
}

void targetwork_look(struct targets *targets)
{
	struct targetwork *all = targets->work;
	struct work *w;

	for (size_t i = 0; (w = work_nth(all, i)) != NULL; i++)
		if (w->next && !is_wanted(w))
			atomic_store(&w->cancel, true);
	kick(all);
}

void targetwork_forget(struct target *target)
{
	struct targetwork *all = target->targets->work;
	struct work *w;

	resync_end(target, NULL);
	for (size_t i = 0; all && (w = work_nth(all, i)) != NULL; i++) {
		if (w->target != target)
			continue;
		w->target = NULL;
		atomic_store(&w->cancel, true);
		if (!w->on_thread)
			kick(all);
	}
}

int targetwork_new(struct targets *targets, struct targetwork **ret)
{
	struct targetwork *all = calloc(1, sizeof(*all));
	int r;

	if (!all)
		return -ENOMEM;
	all->targets = targets;
	TAILQ_INIT(&all->hanging);
	TAILQ_INIT(&all->back);
	all->turn = evtimer_new(targets->base, on_turn, all);
	all->current = work_new(all);
	r = all->turn && all->current ? readers_new(targets->base, &all->readers) : -ENOMEM;
	if (r < 0) {
		(void)targetwork_free(all);
		return r;
	}
	*ret = all;
	return 0;
}

struct targetwork *targetwork_free(struct targetwork *all)
{
	struct readers *readers;
	struct work *w, *next;

	if (!all)
		return NULL;
	for (size_t i = 0; (w = work_nth(all, i)) != NULL; i++)
		atomic_store(&w->cancel, true);
	readers = all->readers;
	all->readers = NULL;
	(void)readers_free(readers);
	TAILQ_CONCAT(&all->back, &all->hanging, link);
	if (all->current)
		TAILQ_INSERT_TAIL(&all->back, all->current, link);
	for (w = TAILQ_FIRST(&all->back); w; w = next) {
		next = TAILQ_NEXT(w, link);
		/* Of one whose thread was left nothing is touched. */
		if (!w->on_thread)
			(void)work_free(w);
	}
	if (all->turn)
		event_free(all->turn);
	free(all);
	return NULL;
}
