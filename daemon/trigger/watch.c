// SPDX-License-Identifier: Apache-2.0
/*
 * A trigger on a place in code: keeps breakpoints (daemon/trigger/probe.h) in the processes of its
 * target, as they come, go and execute other programs. Between a hit and the end of the cooldown
 * they are off, so that a place where the program comes by a million times a second costs it, and
 * us, some hits for each snapshot; what comes by meanwhile nobody counts. Uprobes are closed then:
 * one that is off still stops the program wherever it is in its code.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/control/json.h"
#include "daemon/target/target.h"
#include "daemon/trigger/probe.h"
#include "daemon/trigger/trigger_internal.h"

/* How many processes of a target one trigger watches. */
#define PROCESSES_MAX 256u
/* Processes come, and map files, by the thousand a second. */
#define UPDATE_MS 100
/*
 * However short the cooldown is: switching an event off and on takes the kernel some microseconds.
 */
#define OFF_MIN_NS 100000000ULL
#define OFF_NS_PER_FD 200000ULL
/* So many are switched on the loop, together, and others on a thread. */
#define AT_ONCE_FDS 64u
/*
 * Processes that are looked at again, since they executed something or mapped the file, in
 * RELOOK_MS: to read a large memory map takes ten milliseconds.
 */
#define RELOOKS_MAX 8u
#define RELOOK_MS 1000
/*
 * A process that could not be opened now is tried again, each time after twice as long: five
 * minutes in all.
 */
#define RETRIES_MAX 14u
#define RETRY_MS 100u
#define RETRY_DOUBLINGS 9u

struct watched_process {
	LIST_ENTRY(watched_process) link;
	struct watch *watch; /* back pointer */
	struct probe *probe; /* owned */
	/* it has mapped the file since it was looked at, or something else where that was */
	bool again;
	bool found;	     /* while the list is compared with the target's */
};

struct watch {
	struct trigger *t; /* back pointer */
	struct probe_place place;
	LIST_HEAD(, watched_process) processes;
	size_t n, left_out;
	size_t busy; /* of those left out: they may be tried again */
	unsigned int retries;
	bool on;
	bool closed; /* uprobes, while it is off */
	uint64_t relooks_ns; /* since when these were counted */
	unsigned int relooks;
	struct event *update, *retry, *rearm;
	trigger_settled_fn settled; /* NULL: nobody waits */
	void *settled_arg;
};

static void update_in(struct watch *w, long ms)
{
	const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (!event_pending(w->update, EV_TIMEOUT, NULL))
		(void)event_add(w->update, &tv);
}

static size_t count(const struct watch *w, enum probe_state state)
{
	const struct watched_process *p;
	size_t n = 0;

	LIST_FOREACH(p, &w->processes, link)
		n += probe_state(p->probe) == state;
	return n;
}

static size_t count_fds(const struct watch *w)
{
	const struct watched_process *p;
	size_t n = 0;

	LIST_FOREACH(p, &w->processes, link)
		n += probe_fds(p->probe);
	return n;
}

/* ---- hits */

static void switch_all(struct watch *w, bool on)
{
	struct watched_process *p;
	uint64_t late = 0;
	size_t fds = 0;

	w->on = on;
	if (on && w->closed) {
		w->closed = false;
		update_in(w, 0);
	}
	LIST_FOREACH(p, &w->processes, link) {
		fds += probe_fds(p->probe);
		late += probe_enable(p->probe, on, fds <= AT_ONCE_FDS);
	}
	trigger_hits_missed(w->t, late);
}

static void rearm_in(struct watch *w, uint64_t ns)
{
	const uint64_t us = (ns + 999) / 1000;
	const struct timeval tv = {.tv_sec = (time_t)(us / 1000000),
				   .tv_usec = (suseconds_t)(us % 1000000)};

	(void)event_add(w->rearm, &tv);
}

/* Until the next hit may be a snapshot again. */
static void rest(struct watch *w, uint64_t cooldown_ns)
{
	const uint64_t ns = OFF_MIN_NS + count_fds(w) * OFF_NS_PER_FD;

	rearm_in(w, cooldown_ns > ns ? cooldown_ns : ns);
}

static void on_rearm(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	const uint64_t left = trigger_cooldown_left(w->t);

	/* A hit would be one for nothing while the last one's snapshot is made. */
	if (w->t->running || w->t->waiting)
		rest(w, 0);
	else if (left)
		/*
		 * The loop's timers may be some ms early: a hit now would be one for nothing, and
		 * cost another whole cooldown.
		 */
		rearm_in(w, left);
	else
		switch_all(w, true);
}

static void on_hit(void *arg, struct probe *probe, const struct probe_hit *first, uint64_t n)
{
	struct watched_process *p = arg;
	struct watch *w = p->watch;

	/* The freeze comes first. */
	trigger_hit(w->t, probe_pid(probe), first);
	trigger_hits_missed(w->t, n - 1);
	if (!w->on)
		return;
	switch_all(w, false);
	rest(w, w->t->cooldown_ns);
	/* Not here: it is the probe that calls. */
	if (probe_used(probe) == PROBE_UPROBE)
		update_in(w, 0);
}

static void on_changed(void *arg, struct probe *probe)
{
	const struct watched_process *p = arg;

	if (probe_state(probe) == PROBE_FAILED)
		log_notice("trigger %s on %s does not reach pid %d: %s", p->watch->t->name,
			   p->watch->t->safe_region, (int)probe_pid(probe), probe_why(probe));
	/*
	 * One that came while the last answer was looked at is looked at now; who waits for the
	 * first one does so now.
	 */
	update_in(p->watch, p->watch->settled ? 0 : UPDATE_MS);
}

static const struct probe_callbacks callbacks = {.hit = on_hit, .changed = on_changed};

/* ---- processes */

static void process_free(struct watched_process *p)
{
	(void)probe_free(p->probe);
	LIST_REMOVE(p, link);
	p->watch->n--;
	free(p);
}

static struct watched_process *find(const struct watch *w, const struct target_process *process)
{
	struct watched_process *p;

	LIST_FOREACH(p, &w->processes, link)
		if (probe_pid(p->probe) == process->pid &&
		    probe_start_time(p->probe) == process->start_time)
			return p;
	return NULL;
}

static int process_new(struct watch *w, const struct target_process *process)
{
	const struct trigger *t = w->t;
	const char *why;
	const struct probe_process who = {
		.pid = process->pid,
		.tid = target_tid(t->target),
		.start_time = process->start_time,
		.uid = t->owner,
		.any_user = t->admin,
		.of = target_uid(t->target),
		/* What comes after the hit is wanted, too. */
		.trace = t->after_ns ? NULL : target_pausable(t->target, &why),
	};
	struct watched_process *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->watch = w;
	r = probe_new(t->ts->probes, &w->place, &who, &callbacks, p, &p->probe);
	if (r < 0) {
		free(p);
		return r;
	}
	(void)probe_enable(p->probe, w->on, true);
	p->found = true;
	LIST_INSERT_HEAD(&w->processes, p, link);
	w->n++;
	return 0;
}

/* Whether it is to be looked at anew. */
static bool is_over(const struct watched_process *p)
{
	const enum probe_state state = probe_state(p->probe);

	return state == PROBE_ENDED || (p->again && state != PROBE_OPENING);
}

/* Who waits for the first look is told of it as it is. */
static bool is_to_be_closed(const struct watched_process *p)
{
	const struct watch *w = p->watch;

	return !w->on && !w->settled && probe_state(p->probe) == PROBE_OPEN &&
	       probe_used(p->probe) == PROBE_UPROBE;
}

static bool may_look_again(struct watch *w)
{
	const uint64_t now = clock_raw_ns();

	if (now - w->relooks_ns >= RELOOK_MS * 1000000ULL) {
		w->relooks_ns = now;
		w->relooks = 0;
	}
	if (w->relooks >= RELOOKS_MAX)
		return false;
	w->relooks++;
	return true;
}

/* By a timer of its own, which does not keep what happens meanwhile from being looked at. */
static void retry_later(struct watch *w)
{
	const unsigned int doublings = w->retries < RETRY_DOUBLINGS ? w->retries : RETRY_DOUBLINGS;
	const unsigned int ms = RETRY_MS << doublings;
	const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (!w->busy) {
		w->retries = 0;
		(void)event_del(w->retry);
		return;
	}
	if (event_pending(w->retry, EV_TIMEOUT, NULL))
		return;
	if (w->retries >= RETRIES_MAX) {
		if (w->retries++ == RETRIES_MAX)
			log_notice(
				"trigger %s on %s leaves out %zu processes: they cannot be read, or too many events are being closed",
				w->t->name, w->t->safe_region, w->busy);
		return;
	}
	w->retries++;
	(void)event_add(w->retry, &tv);
}

/* Only a target that records has processes that may be looked into. */
static void compare(struct watch *w)
{
	struct target_process list[PROCESSES_MAX];
	const size_t all = target_state(w->t->target) == TARGET_ARMED
				   ? target_processes(w->t->target, list, PROCESSES_MAX)
				   : 0;
	const size_t n = all < PROCESSES_MAX ? all : PROCESSES_MAX;
	struct watched_process *p, *next;
	int r;

	w->left_out = all - n;
	w->busy = 0;
	LIST_FOREACH(p, &w->processes, link)
		p->found = false;
	for (size_t i = 0; i < n; i++) {
		p = find(w, &list[i]);
		if (p && is_to_be_closed(p)) {
			process_free(p);
			p = NULL;
			w->closed = true;
		}
		if (!p && w->closed)
			continue;
		if (p && is_over(p)) {
			if (may_look_again(w)) {
				process_free(p);
				p = NULL;
			} else {
				update_in(w, RELOOK_MS);
			}
		}
		r = p ? 0 : process_new(w, &list[i]);
		if (p)
			p->found = true;
		w->left_out += r < 0;
		w->busy += r == -EBUSY || r == -ENOMEM;
	}
	for (p = LIST_FIRST(&w->processes); p; p = next) {
		next = LIST_NEXT(p, link);
		if (!p->found)
			process_free(p);
	}
	retry_later(w);
}

/* Why it is watched nowhere. */
static int nowhere(const struct watch *w, const char **ret_why)
{
	const struct watched_process *p;

	switch (target_state(w->t->target)) {
	case TARGET_SUSPENDED:
		*ret_why = "the target is suspended, and records nothing: arm it again";
		break;
	case TARGET_EXITED:
		*ret_why = "the target has exited: arm the process that runs now";
		break;
	default:
		*ret_why = "the target has no living process";
	}
	if (w->busy)
		*ret_why =
			"the process hangs whoever reads it, or too many events are being closed: try it again";
	if (count(w, PROBE_NOT_MAPPED))
		*ret_why = "no process of the target has this code mapped";
	LIST_FOREACH(p, &w->processes, link)
		if (probe_state(p->probe) == PROBE_FAILED)
			*ret_why = probe_why(p->probe);
	return w->n ? TRIGGER_E_UNSUPPORTED : w->busy ? TRIGGER_E_BUSY : TRIGGER_E_GONE;
}

static void on_update(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	struct trigger *t = w->t;
	trigger_settled_fn settled = w->settled;
	char why[200] = "";
	const char *text;
	int answer = 0;

	compare(w);
	if (!settled || count(w, PROBE_OPENING))
		return;
	w->settled = NULL;
	if (!count(w, PROBE_OPEN)) {
		answer = nowhere(w, &text);
		(void)snprintf(why, sizeof(why), "%s", text);
	}
	if (!w->on)
		update_in(w, 0);
	settled(w->settled_arg, answer, why);
	if (answer)
		triggers_remove(t->ts, t);
}

void watch_changed(struct watch *w)
{
	update_in(w, UPDATE_MS);
}

static bool is_watched(const struct probe *probe, uint64_t begin, uint64_t end)
{
	const struct probe_copies *copies = probe_copies(probe);
	bool found = false;

	for (size_t i = 0; i < copies->n; i++)
		found |= copies->at[i] >= begin && copies->at[i] < end;
	return found;
}

/* Whether that changes what is watched: the kernel says what is mapped, not what is unmapped. */
static bool is_changed_by(const struct watched_process *p, const struct target_mapping *m)
{
	const struct probe_place *place = &p->watch->place;
	const bool file = m->ino == place->ino && m->maj == place->maj && m->min == place->min;

	if (probe_pid(p->probe) != m->pid)
		return false;
	if (probe_state(p->probe) != PROBE_OPEN)
		return file;
	/* A uprobe is in the file's code wherever that is. */
	return probe_used(p->probe) == PROBE_BREAKPOINT &&
	       file != is_watched(p->probe, m->start, m->end);
}

void watch_mapped(struct watch *w, const struct target_mapping *mapping)
{
	struct watched_process *p;
	bool any = false;

	LIST_FOREACH(p, &w->processes, link) {
		const bool changed = is_changed_by(p, mapping);

		p->again |= changed;
		any |= changed;
	}
	if (any)
		update_in(w, UPDATE_MS);
}

/* ---- life */

static bool parse_by(const char *name, enum probe_by *ret)
{
	for (enum probe_by by = PROBE_AUTO; by <= PROBE_UPROBE; by++)
		if (strcmp(name, probe_by_name(by)) == 0) {
			*ret = by;
			return true;
		}
	return false;
}

int watch_new(struct trigger *t, const struct trigger_hit *hit, struct watch **ret)
{
	struct triggers *ts = t->ts;
	struct watch *w;
	int r;

	if (!ts->probes) {
		r = probes_new(ts->c.base, ts->c.quota, &ts->probes);
		if (r < 0)
			return r;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*ret = w; /* the trigger frees it */
	*w = (struct watch){.t = t,
			    .on = true,
			    .place = {.maj = hit->maj,
				      .min = hit->min,
				      .ino = hit->ino,
				      .offset = hit->offset}};
	LIST_INIT(&w->processes);
	if (!parse_by(hit->by, &w->place.by))
		return TRIGGER_E_BAD;
	w->update = evtimer_new(ts->c.base, on_update, w);
	w->retry = evtimer_new(ts->c.base, on_update, w);
	w->rearm = evtimer_new(ts->c.base, on_rearm, w);
	if (!w->update || !w->retry || !w->rearm)
		return -ENOMEM;
	update_in(w, 0);
	return 0;
}

struct watch *watch_free(struct watch *w)
{
	if (!w)
		return NULL;
	while (!LIST_EMPTY(&w->processes))
		process_free(LIST_FIRST(&w->processes));
	if (w->update)
		event_free(w->update);
	if (w->retry)
		event_free(w->retry);
	if (w->rearm)
		event_free(w->rearm);
	if (w->settled)
		w->settled(w->settled_arg, TRIGGER_E_GONE, "the target or the trigger went first");
	free(w);
	return NULL;
}

void watch_when_settled(struct watch *w, trigger_settled_fn fn, void *arg)
{
	w->settled = fn;
	w->settled_arg = arg;
}

/* ---- coverage */

void watch_add_json(const struct watch *w, struct json_object *o)
{
	const struct watched_process *p;
	const char *why = NULL;
	uint64_t threads = 0, pausing = 0, uprobes = 0, copies = 0, unsure = 0;
	const struct pausable *trace;
	const char *not_paused;
	bool on = w->on;

	LIST_FOREACH(p, &w->processes, link) {
		/* A thread does that, and it may be at it. */
		on &= probe_is_on(p->probe);
		if (probe_state(p->probe) == PROBE_FAILED)
			why = probe_why(p->probe);
		if (probe_state(p->probe) != PROBE_OPEN)
			continue;
		threads += probe_threads(p->probe);
		pausing += probe_pausing(p->probe);
		uprobes += probe_used(p->probe) == PROBE_UPROBE;
		copies += probe_copies(p->probe)->left_out;
		unsure += probe_unsure(p->probe);
	}
	trace = target_pausable(w->t->target, &not_paused);
	if (trace && w->t->after_ns)
		not_paused = "what comes after the hit is wanted (after_ns)";
	else if (trace && pausing < threads)
		not_paused =
			"threads that have inherited their trace are stopped some microseconds later";
	o = json_add_new_object(o, "coverage");
	json_add_uint(o, "processes", count(w, PROBE_OPEN));
	json_add_uint(o, "by_uprobe", uprobes);
	json_add_uint(o, "threads", threads);
	json_add_uint(o, "threads_unsure", unsure);
	json_add_uint(o, "pausing", pausing);
	json_add_string(o, "not_paused", not_paused);
	json_add_bool(o, "new_threads", target_tid(w->t->target) == 0 && !uprobes);
	json_add_uint(o, "opening", count(w, PROBE_OPENING));
	json_add_uint(o, "without_code", count(w, PROBE_NOT_MAPPED));
	json_add_uint(o, "failed", count(w, PROBE_FAILED));
	json_add_uint(o, "left_out", w->left_out);
	json_add_uint(o, "copies_left_out", copies);
	json_add_string(o, "why", why);
	json_add_bool(o, "resting", !on);
}
