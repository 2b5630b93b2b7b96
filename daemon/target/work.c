// SPDX-License-Identifier: Apache-2.0
/*
 * Work on targets that may take long: reading all threads and mappings of processes
 * (daemon/target/scan.c), opening thousands of events (the back end's jobs), going through a whole
 * history. One target at a time, in steps: what touches targets is done on the loop, a budget at a
 * time; what may wait for the target or only takes time is done on a thread, on copies and
 * descriptors of its own. A target may go at any step: what was opened for it is closed then.
 *
 *	arm	(scan) ─► the back end's arm ⇄ its job ─► armed
 *	rearm	          the back end's arm ⇄ its job
 *	forget	compact ─► replace
 *
 * Users take turns, so that one who arms a lot waits for himself.
 *
 * A process can hang whoever reads it, see daemon/base/readers.h: its work stays where it is, with
 * a thread of its own. Other work goes on; this work goes on after it when the thread comes back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "daemon/base/closer.h"
#include "daemon/base/loop.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/work_internal.h"

/*
 * Opens no events while more than this wait to be closed: arming and disarming in turn must not use
 * up descriptors.
 */
#define CLOSING_FDS_MAX 4096
#define CLOSING_RETRY_US 10000

struct work_queue {
	struct targets *targets; /* back pointer */
	struct readers *readers; /* NULL: the daemon ends */
	struct event *turn;
	struct work *current;
	TAILQ_HEAD(work_list, work) hanging, back; /* their threads hang, or did */
	bool after_arm;
	uid_t last_owner;
	uint64_t last_id;
};

static void kick(struct work_queue *queue)
{
	const struct timeval now = {0};

	(void)event_add(queue->turn, &now);
}

void work_kick(struct work *w)
{
	kick(w->queue);
}

/* ---- life of a piece of work */

static void work_run(struct reader_job *job);
static void work_done(struct reader_job *job);
static void work_hangs(struct reader_job *job);

static void reset(struct work *w)
{
	struct work_queue *queue = w->queue;

	scan_fini(&w->scan, queue->targets->closer);
	if (w->backend_job)
		w->backend_job->free(w->backend_job);
	sideband_log_view_fini(&w->view);
	sideband_log_fini(&w->log);
	*w = (struct work){
		.queue = queue,
		.job = {.run = work_run, .done = work_done, .hangs = work_hangs},
		.scan = SCAN_INIT,
	};
}

static struct work *work_new(struct work_queue *queue)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	*w = (struct work){.queue = queue, .scan = SCAN_INIT};
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
		w->result = sideband_log_compact(&w->view, w->oldest_ns, &w->log);
}

static void work_run(struct reader_job *job)
{
	struct work *w = (struct work *)job;

	w->run(w);
}

/* ---- recording */

enum turn work_refuse(struct work *w, int answer, const char *why)
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

	if (closer_waiting(w->queue->targets->closer) > CLOSING_FDS_MAX) {
		(void)event_add(w->queue->turn, &soon);
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
		return r != 0 ? work_refuse(w, r, why) : (arming_finish(target), TURN_END);
	if (r != 0)
		log_debug("%s: recording it in another way: %s", target->name, why);
	target_emit(target, NULL);
	return TURN_END;
}

enum turn work_begin_arm(struct work *w)
{
	w->next = step_arm;
	return TURN_ON;
}

/* ---- forgetting */

static enum turn step_compacted(struct work *w, uint64_t deadline)
{
	struct target *target = w->target;

	if (w->result == 0)
		w->result = sideband_log_replace(&target->log, &w->view, &w->log);
	if (w->result < 0)
		log_debug("%s: no memory to compact its history", target->name);
	else
		members_prune(target, w->oldest_ns);
	return TURN_END;
}

static enum turn begin_forget(struct work *w)
{
	struct target *target = w->target;

	if (sideband_log_freeze(&target->log, &w->view) < 0)
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

/* The user whose process is read, or has events opened on it. */
static uid_t read_uid(const struct target *target)
{
	return target_scope_is_group(target->scope) ? target->owner : target->uid;
}

static enum turn begin(struct work *w)
{
	w->job.uid = read_uid(w->target);
	switch (w->what) {
	case WORK_ARM:
	case WORK_SCAN:
		return scan_begin(w);
	case WORK_RESYNC:
		return scan_begin_resync(w);
	case WORK_REARM:
		/* What is gone has no events. */
		return w->target->away_ns ? TURN_END : work_begin_arm(w);
	case WORK_FORGET:
		return begin_forget(w);
	}
	return TURN_END;
}

/* Only the work on a process that hangs waits for it. */
static bool is_ready(const struct work_queue *queue, const struct target *target)
{
	return !target->hanging && readers_may(queue->readers, read_uid(target));
}

static struct arming *pick_arming(struct work_queue *queue)
{
	struct arming *arming, *first = NULL;

	TAILQ_FOREACH(arming, &queue->targets->armings, link)
	{
		if (!is_ready(queue, arming->target))
			continue;
		if (arming->target->owner != queue->last_owner)
			return arming;
		first = first ? first : arming;
	}
	return first;
}

/* First one that somebody waits for; else the next in order of id. */
static struct target *pick_armed(struct work_queue *queue)
{
	struct target *target, *next = NULL, *first = NULL;

	TAILQ_FOREACH(target, &queue->targets->list, link)
	{
		if (!target->work || !is_ready(queue, target))
			continue;
		if ((target->work & WORK_RESYNC) && !LIST_EMPTY(&target->waiting))
			return target;
		first = first ? first : target;
		if (!next && target->id > queue->last_id)
			next = target;
	}
	return next ? next : first;
}

static bool pick(struct work_queue *queue)
{
	struct arming *arming = pick_arming(queue);
	struct target *target = pick_armed(queue);
	struct work *w = queue->current;

	if (arming && (!target || !queue->after_arm)) {
		w->target = arming->target;
		w->what = WORK_ARM;
		queue->after_arm = true;
		queue->last_owner = w->target->owner;
		return true;
	}
	queue->after_arm = false;
	if (!target)
		return false;
	w->target = target;
	queue->last_id = target->id;
	w->what = (enum target_work)(target->work & -target->work);
	target->work &= ~(unsigned int)w->what;
	return true;
}

/* Only for targets that record, or are going to. */
static bool is_wanted(const struct work *w)
{
	if (!w->target)
		return false;
	return w->target->arming
		       ? !w->target->arming->answer
		       : w->target->state == TARGET_ARMED && !target_is_implicit(w->target);
}

static void end(struct work *w)
{
	if (w->target && w->what == WORK_RESYNC)
		scan_resync_end(w->target, NULL);
	reset(w);
}

/*
 * Work that hung goes on when nothing else is under way, unless it would wait for other work that
 * hangs.
 */
static bool take_back(struct work_queue *queue)
{
	struct work *w;

	TAILQ_FOREACH(w, &queue->back, link)
		if (!w->target || readers_may(queue->readers, w->job.uid))
			break;
	if (!w)
		return false;
	TAILQ_REMOVE(&queue->back, w, link);
	queue->current = (work_free(queue->current), w);
	return true;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct work_queue *queue = arg;
	uint64_t deadline = loop_deadline();
	struct work *w;
	enum turn turn;

	/* Also while the thread works: a refusal does not wait for it. */
	armings_reap(queue->targets);
	while (!(w = queue->current)->on_thread) {
		if (w->next && !is_wanted(w))
			end(w);
		if (w->next) {
			turn = w->next(w, deadline);
		} else {
			armings_reap(queue->targets);
			if (take_back(queue))
				continue;
			if (!pick(queue))
				return;
			turn = is_wanted(w) ? begin(w) : TURN_END;
		}
		if (turn == TURN_LATER)
			return;
		if (turn == TURN_THREAD) {
			w->on_thread = true;
			readers_submit(queue->readers, &w->job);
			return;
		}
		if (turn == TURN_END)
			end(w);
		if (loop_is_over(deadline)) {
			kick(queue);
			return;
		}
	}
}

/* Its thread waits for the process; another thread goes on with other work. */
static void work_hangs(struct reader_job *job)
{
	struct work *w = (struct work *)job, *other = work_new(w->queue);
	struct work_queue *queue = w->queue;

	if (w->target) {
		w->target->hanging = true;
		scan_resync_end(w->target, NULL);
	}
	if (!other)
		return; /* then the rest waits for it too */
	queue->current = other;
	TAILQ_INSERT_TAIL(&queue->hanging, w, link);
	kick(queue);
}

static void work_done(struct reader_job *job)
{
	struct work *w = (struct work *)job;
	struct work_queue *queue = w->queue;

	w->on_thread = false;
	if (w->target)
		w->target->hanging = false;
	if (!queue->readers)
		return; /* work_queue_free() */
	if (w != queue->current) {
		TAILQ_REMOVE(&queue->hanging, w, link);
		TAILQ_INSERT_TAIL(&queue->back, w, link);
	}
	on_turn(-1, 0, queue);
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
	const struct work_queue *queue = target->targets->work;

	/* Nobody waits for what hangs. */
	if (target->hanging)
		return false;
	return (target->work & (unsigned int)what) ||
	       (queue && queue->current->target == target && queue->current->what == what);
}

size_t work_queue_hanging(const struct targets *targets)
{
	return readers_hanging(targets->work->readers);
}

bool work_queue_may(const struct target *target)
{
	return readers_may(target->targets->work->readers, read_uid(target));
}

bool work_queue_read(const struct target *target, struct reader_job *job)
{
	job->uid = read_uid(target);
	if (target->hanging || !work_queue_may(target))
		return false;
	readers_submit(target->targets->work->readers, job);
	return true;
}

/* The n-th that is under way or was. */
static struct work *work_nth(struct work_queue *queue, size_t n)
{
	struct work *w;

	if (n-- == 0)
		return queue->current;
	TAILQ_FOREACH(w, &queue->hanging, link)
		if (n-- == 0)
			return w;
	TAILQ_FOREACH(w, &queue->back, link)
		if (n-- == 0)
			return w;
	return NULL;
}

void work_queue_look(struct targets *targets)
{
	struct work_queue *queue = targets->work;
	struct work *w;

	for (size_t i = 0; (w = work_nth(queue, i)) != NULL; i++)
		if (w->next && !is_wanted(w))
			atomic_store(&w->cancel, true);
	kick(queue);
}

void work_queue_forget(struct target *target)
{
	struct work_queue *queue = target->targets->work;
	struct work *w;

	scan_resync_end(target, NULL);
	for (size_t i = 0; queue && (w = work_nth(queue, i)) != NULL; i++) {
		if (w->target != target)
			continue;
		w->target = NULL;
		atomic_store(&w->cancel, true);
		if (!w->on_thread)
			kick(queue);
	}
}

int work_queue_new(struct targets *targets, struct work_queue **ret)
{
	struct work_queue *queue = calloc(1, sizeof(*queue));
	int r;

	if (!queue)
		return -ENOMEM;
	queue->targets = targets;
	TAILQ_INIT(&queue->hanging);
	TAILQ_INIT(&queue->back);
	queue->turn = evtimer_new(targets->base, on_turn, queue);
	queue->current = work_new(queue);
	r = queue->turn && queue->current ? readers_new(targets->base, &queue->readers) : -ENOMEM;
	if (r < 0) {
		(void)work_queue_free(queue);
		return r;
	}
	*ret = queue;
	return 0;
}

struct work_queue *work_queue_free(struct work_queue *queue)
{
	struct readers *readers;
	struct work *w, *next;

	if (!queue)
		return NULL;
	for (size_t i = 0; (w = work_nth(queue, i)) != NULL; i++)
		atomic_store(&w->cancel, true);
	readers = queue->readers;
	queue->readers = NULL;
	(void)readers_free(readers);
	TAILQ_CONCAT(&queue->back, &queue->hanging, link);
	if (queue->current)
		TAILQ_INSERT_TAIL(&queue->back, queue->current, link);
	for (w = TAILQ_FIRST(&queue->back); w; w = next) {
		next = TAILQ_NEXT(w, link);
		/* One whose thread was left stays as it is. */
		if (!w->on_thread)
			(void)work_free(w);
	}
	if (queue->turn)
		event_free(queue->turn);
	free(queue);
	return NULL;
}
