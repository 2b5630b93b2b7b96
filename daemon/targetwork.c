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
 *	rings	                                  choose ⇄ open ─► take
 *	forget	compact ─► replace
 *
 * list, read, open and compact are the thread's. A member joins before it is read, so that what it maps meanwhile is told by
 * the kernel. Users take turns, so that one who arms a lot waits for himself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/arming.h"
#include "daemon/backend.h"
#include "daemon/closer.h"
#include "daemon/copier.h"
#include "daemon/frozen.h"
#include "daemon/loop.h"
#include "daemon/samplechoice.h"
#include "daemon/synth.h"
#include "daemon/targetstate.h"

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

struct targetwork {
	struct targets *targets; /* back pointer */
	struct copier *thread;
	struct copier_job job;
	struct event *turn;
	void (*run)(struct targetwork *w);
	enum turn (*next)(struct targetwork *w, uint64_t deadline); /* NULL: nothing is under way */
	struct target *target; /* NULL: it went meanwhile */
	enum target_work what;
	atomic_bool cancel;
	bool on_thread, after_arm;
	uid_t last_owner;
	uint64_t last_id;
	/* in and out of the thread; nothing of it is the target's */
	int result;
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
	struct sample_choice choice;
	struct source sources[TARGET_SOURCES_MAX]; /* with references */
	struct set_survey surveys[TARGET_SOURCES_MAX];
	size_t n_sources;
};

static void kick(struct targetwork *w)
{
	const struct timeval now = {0};

	(void)event_add(w->turn, &now);
}

/* ---- what was made and is nobody's */

static void reset(struct targetwork *w)
{
	for (size_t i = 0; i < w->n_entries; i++) {
		(void)close_fd(w->entries[i].dirfd);
		(void)history_follow_free(w->entries[i].follow, w->targets->closer);
	}
	for (size_t i = 0; i < w->n_sources; i++) {
		set_survey_fini(&w->surveys[i]);
		(void)sample_set_put(w->sources[i].set);
	}
	free(w->unit);
	free(w->pids);
	free(w->entries);
	cgroup_close(&w->cgroup);
	histlog_view_fini(&w->view);
	histlog_fini(&w->log);
	sample_choice_fini(&w->choice);
	*w = (struct targetwork){
		.targets = w->targets,
		.thread = w->thread,
		.job = w->job,
		.turn = w->turn,
		.after_arm = w->after_arm,
		.last_owner = w->last_owner,
		.last_id = w->last_id,
		.mount_fd = -1,
		.cgroup = CGROUP_INIT,
		.choice = SAMPLE_CHOICE_INIT,
	};
}

/* ---- the thread's */

static void run_list(struct targetwork *w)
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
	struct targetwork *w = arg;

	return atomic_load(&w->cancel) ? -ECANCELED : histlog_append(&w->log, h);
}

static int read_entry(struct targetwork *w, struct entry *entry)
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

static void run_read(struct targetwork *w)
{
	for (size_t i = 0; i < w->n_entries && !atomic_load(&w->cancel); i++) {
		w->entries[i].result = read_entry(w, &w->entries[i]);
		w->entries[i].dirfd = close_fd(w->entries[i].dirfd);
	}
}

static void run_open(struct targetwork *w)
{
	sample_choice_open(&w->choice);
}

static void run_compact(struct targetwork *w)
{
	for (size_t i = 0; i < w->n_sources; i++) {
		w->result = sample_set_look(w->sources[i].set, &w->surveys[i]);
		if (w->result < 0)
			return;
	}
	w->oldest_ns = sources_oldest_ns(w->sources, w->surveys, w->n_sources, w->armed_ns);
	w->result = histlog_compact(&w->view, w->oldest_ns, &w->log);
}

static void work_run(struct copier_job *job)
{
	struct targetwork *w = (struct targetwork *)((char *)job - offsetof(struct targetwork, job));

	w->run(w);
}

/* ---- rings */

static enum turn refuse(struct targetwork *w, int answer, const char *why)
{
	arming_refuse(w->target, answer, why);
	return TURN_END;
}

static void rings_failed(struct target *target, int r, const char *why)
{
	if (!target->n_sources)
		return;
	if (target->sources[0].set->spec.stacks != sample_stacks(target)) {
		target_warn(target, "stacks=%s could not be had: %s", stacks_mode_name(target->stacks), why);
		target->stacks = target->sources[0].set->spec.stacks;
	}
	log_debug("%s: choosing its rings again: %s", target->name, why);
	target_emit(target, NULL);
}

static enum turn step_choose(struct targetwork *w, uint64_t deadline)
{
	const struct timeval soon = {.tv_usec = CLOSING_RETRY_US};
	struct target *target = w->target;
	struct sample_set *set;
	char why[200] = "";
	int r;

	if (closer_waiting(w->targets->closer) > CLOSING_FDS_MAX) {
		(void)event_add(w->turn, &soon);
		return TURN_LATER;
	}
	r = sample_choose(&w->choice, target, &w->cancel, &set);
	if (r == SAMPLER_OPEN) {
		w->run = run_open;
		return TURN_THREAD;
	}
	if (w->what == WORK_RINGS && target->state != TARGET_ARMED) {
		if (r == 0)
			(void)sample_set_put(set);
		return TURN_END;
	}
	r = r < 0 ? sample_refused(r, why, sizeof(why)) : sample_take(target, set, why, sizeof(why));
	if (w->what == WORK_ARM)
		return r != 0 ? refuse(w, r, why) : (arming_finish(target), TURN_END);
	if (r != 0)
		rings_failed(target, r, why);
	else
		target_emit(target, NULL);
	return TURN_END;
}

static enum turn begin_rings(struct targetwork *w)
{
	target_clear_notes(w->target);
	w->next = step_choose;
	return TURN_ON;
}

/* ---- what was read */

static int entries_result(const struct targetwork *w)
{
	for (size_t i = 0; i < w->n_entries; i++) {
		const struct entry *entry = &w->entries[i];

		/* One of many may have ended meanwhile. */
		if (entry->result != 0 && (entry->result != PROC_E_GONE || w->target->scope != TARGET_UNIT))
			return entry->result;
	}
	return 0;
}

static enum turn step_kept(struct targetwork *w, uint64_t deadline)
{
	struct target *target = w->target;
	struct frozen *frozen;
	int r;

	for (; w->next_pid < w->n_entries && !loop_is_over(deadline); w->next_pid++) {
		struct entry *entry = &w->entries[w->next_pid];
		struct member *member = member_find(target, entry->pid);

		if (!entry->follow || !member || member->follow)
			continue;
		r = history_follow_begin(target->targets->history, entry->follow);
		if (r < 0)
			continue; /* no memory for a watch */
		member->follow = entry->follow;
		entry->follow = NULL;
	}
	if (w->next_pid < w->n_entries) {
		kick(w);
		return TURN_LATER;
	}
	target->log.dropped += w->log.dropped;
	switch (w->what) {
	case WORK_ARM:
		if (target->backend == &backend_sample)
			return begin_rings(w);
		arming_finish(target);
		return TURN_END;
	case WORK_SCAN:
		if (w->added)
			(void)members_filter_all(target);
		r = target->backend->review(target, w->added);
		if (r < 0)
			log_debug("%s: choosing its rings again: %s", target->name, strerror(-r));
		return TURN_END;
	default:
		while ((frozen = LIST_FIRST(&target->waiting)) != NULL)
			frozen_resynced(frozen, target, &w->log);
		return TURN_END;
	}
}

static enum turn step_keep(struct targetwork *w, uint64_t deadline)
{
	const uint8_t *block;
	size_t len;

	while ((block = histlog_view_block(&w->view, w->block, &len)) != NULL) {
		while (w->at < len) {
			const struct perf_event_header *h = (const void *)(block + w->at);

			targetlog_keep(w->target, h);
			w->at += h->size;
			if (loop_is_over(deadline)) {
				kick(w);
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

static enum turn step_was_read(struct targetwork *w, uint64_t deadline)
{
	int r = entries_result(w);

	if (r != 0 && w->what == WORK_ARM)
		return arming_read_failed(w->target, r), TURN_END;
	if (r != 0)
		log_debug("%s: reading its processes: %s", w->target->name, r < 0 ? strerror(-r) : "it has ended");
	if (histlog_freeze(&w->log, &w->view) < 0) {
		w->target->log.dropped += w->log.records;
		if (w->what == WORK_ARM)
			return refuse(w, -ENOMEM, "out of memory");
	}
	w->next = step_keep;
	return TURN_ON;
}

/* ---- who is to be read */

static int entry_add(struct targetwork *w, pid_t pid, int dirfd)
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

static enum turn read_entries(struct targetwork *w)
{
	const struct target *target = w->target;

	w->tid = target->scope == TARGET_THREAD ? target->tid : 0;
	w->follow = w->what != WORK_RESYNC && !history_running(target->targets->history);
	w->children = target->scope == TARGET_UNIT;
	histlog_init(&w->log, target->log.limit);
	w->run = run_read;
	w->next = step_was_read;
	return TURN_THREAD;
}

static int join_one(struct targetwork *w, pid_t pid, int dirfd)
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

static enum turn join_failed(struct targetwork *w, int r)
{
	if (w->what == WORK_ARM)
		return arming_read_failed(w->target, r), TURN_END;
	log_debug("%s: looking at its members: %s", w->target->name, r < 0 ? strerror(-r) : "it has ended");
	/* Those that have joined are read in any case. */
	return w->n_entries > 0 ? read_entries(w) : TURN_END;
}

/* Those of a unit, some at a time. */
static enum turn step_join(struct targetwork *w, uint64_t deadline)
{
	if (!members_leave(w->target, w->pids, w->n_pids, w->time_ns, deadline)) {
		kick(w);
		return TURN_LATER;
	}
	for (; w->next_pid < w->n_pids; w->next_pid++) {
		int r;

		if (loop_is_over(deadline)) {
			kick(w);
			return TURN_LATER;
		}
		r = join_one(w, w->pids[w->next_pid], -1);
		if (r != 0)
			return join_failed(w, r);
	}
	return read_entries(w);
}

static enum turn begin_join(struct targetwork *w)
{
	struct target *target = w->target;
	int r;

	w->synth = SYNTH_ALL;
	if (w->what == WORK_ARM)
		arming_begin(target);
	w->time_ns = w->what == WORK_ARM ? target->armed_ns : raw_now_ns();
	if (target->scope == TARGET_UNIT) {
		w->next = step_join;
		return TURN_ON;
	}
	r = join_one(w, target->proc.pid, target->proc.dirfd);
	return r != 0 ? join_failed(w, r) : read_entries(w);
}

static enum turn step_listed(struct targetwork *w, uint64_t deadline)
{
	struct target *target = w->target;

	if (w->what != WORK_ARM) {
		if (w->result == 0 && !cgroup_gone(&w->cgroup))
			return begin_join(w);
		if (cgroup_gone(&w->cgroup))
			target_exited(target, raw_now_ns());
		else
			log_debug("%s: looking at its members: %s", target->name,
				  w->result < 0 ? strerror(-w->result) : "no cgroup");
		return TURN_END;
	}
	if (!arming_found(target, w->result, &w->cgroup))
		return TURN_END;
	return begin_join(w);
}

static enum turn begin_list(struct targetwork *w)
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
	w->next = step_listed;
	return TURN_THREAD;
}

static enum turn begin_resync(struct targetwork *w)
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

static enum turn step_compacted(struct targetwork *w, uint64_t deadline)
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

static enum turn begin_forget(struct targetwork *w)
{
	struct target *target = w->target;

	if (histlog_freeze(&target->log, &w->view) < 0)
		return TURN_END;
	w->armed_ns = target->armed_ns;
	for (; w->n_sources < target->n_sources; w->n_sources++) {
		w->sources[w->n_sources] = target->sources[w->n_sources];
		(void)sample_set_ref(w->sources[w->n_sources].set);
	}
	w->run = run_compact;
	w->next = step_compacted;
	return TURN_THREAD;
}

/* ---- whose turn it is */

static enum turn begin(struct targetwork *w)
{
	switch (w->what) {
	case WORK_ARM:
	case WORK_SCAN:
		return w->target->scope == TARGET_UNIT ? begin_list(w) : begin_join(w);
	case WORK_RESYNC:
		return begin_resync(w);
	case WORK_RINGS:
		return begin_rings(w);
	case WORK_FORGET:
		return begin_forget(w);
	}
	return TURN_END;
}

static struct arming *pick_arming(struct targetwork *w)
{
	struct arming *arming;

	TAILQ_FOREACH(arming, &w->targets->armings, link)
		if (arming->target->owner != w->last_owner)
			return arming;
	return TAILQ_FIRST(&w->targets->armings);
}

/* Somebody waits for it; the next one in order of id. */
static struct target *pick_armed(struct targetwork *w)
{
	struct target *target, *next = NULL, *first = NULL;

	TAILQ_FOREACH(target, &w->targets->list, link)
	{
		if (!target->work)
			continue;
		if ((target->work & WORK_RESYNC) && !LIST_EMPTY(&target->waiting))
			return target;
		first = first ? first : target;
		if (!next && target->id > w->last_id)
			next = target;
	}
	return next ? next : first;
}

static bool pick(struct targetwork *w)
{
	struct arming *arming = pick_arming(w);
	struct target *target = pick_armed(w);

	if (arming && (!target || !w->after_arm)) {
		w->target = arming->target;
		w->what = WORK_ARM;
		w->after_arm = true;
		w->last_owner = w->target->owner;
		return true;
	}
	w->after_arm = false;
	if (!target)
		return false;
	w->target = target;
	w->last_id = target->id;
	w->what = (enum target_work)(target->work & -target->work);
	target->work &= ~(unsigned int)w->what;
	return true;
}

/* Only what records is worth it. */
static bool is_wanted(const struct targetwork *w)
{
	if (!w->target)
		return false;
	return w->target->arming ? !w->target->arming->answer
				 : w->target->state == TARGET_ARMED && !target_is_implicit(w->target);
}

static void end(struct targetwork *w)
{
	struct target *target = w->target;
	struct frozen *frozen;

	/* Whatever became of it: nobody waits any longer. */
	while (target && w->what == WORK_RESYNC && (frozen = LIST_FIRST(&target->waiting)) != NULL)
		frozen_resynced(frozen, NULL, NULL);
	reset(w);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct targetwork *w = arg;
	uint64_t deadline = loop_deadline();
	enum turn turn;

	/* Also while the thread is at work: whoever is refused does not wait for it. */
	armings_reap(w->targets);
	while (!w->on_thread) {
		if (w->next && !is_wanted(w))
			end(w);
		if (!w->next) {
			armings_reap(w->targets);
			if (!pick(w))
				return;
			turn = is_wanted(w) ? begin(w) : TURN_END;
		} else {
			turn = w->next(w, deadline);
		}
		if (turn == TURN_LATER)
			return;
		if (turn == TURN_THREAD) {
			w->on_thread = true;
			copier_submit(w->thread, &w->job);
			return;
		}
		if (turn == TURN_END)
			end(w);
		if (loop_is_over(deadline)) {
			kick(w);
			return;
		}
	}
}

static void work_done(struct copier_job *job)
{
	struct targetwork *w = (struct targetwork *)((char *)job - offsetof(struct targetwork, job));

	w->on_thread = false;
	on_turn(-1, 0, w);
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
	const struct targetwork *w = target->targets->work;

	return (target->work & (unsigned int)what) || (w && w->target == target && w->what == what);
}

void targetwork_look(struct targets *targets)
{
	struct targetwork *w = targets->work;

	if (w->next && !is_wanted(w))
		atomic_store(&w->cancel, true);
	kick(w);
}

void targetwork_forget(struct target *target)
{
	struct targetwork *w = target->targets->work;
	struct frozen *frozen;

	while ((frozen = LIST_FIRST(&target->waiting)) != NULL)
		frozen_resynced(frozen, NULL, NULL);
	if (!w || w->target != target)
		return;
	w->target = NULL;
	atomic_store(&w->cancel, true);
	if (!w->on_thread)
		kick(w);
}

int targetwork_new(struct targets *targets, struct targetwork **ret)
{
	struct targetwork *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->targets = targets;
	w->job = (struct copier_job){.run = work_run, .done = work_done};
	w->turn = evtimer_new(targets->base, on_turn, w);
	r = w->turn ? copier_new(targets->base, &w->thread) : -ENOMEM;
	if (r < 0) {
		if (w->turn)
			event_free(w->turn);
		free(w);
		return r;
	}
	reset(w);
	*ret = w;
	return 0;
}

struct targetwork *targetwork_free(struct targetwork *w)
{
	if (!w)
		return NULL;
	atomic_store(&w->cancel, true);
	copier_free(w->thread);
	reset(w);
	event_free(w->turn);
	free(w);
	return NULL;
}
