// SPDX-License-Identifier: Apache-2.0
/*
 * Snapshots that a producer asks for. It may ask for its own process, with the rights of its own
 * user, and as often as the configuration allows for each target. The library keeps the interval as
 * well, but nobody relies on that.
 */
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "daemon/config.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger_internal.h"

#define MS 1000000ULL
/* Targets that one process is looked for in. */
#define CANDIDATES_MAX 64

/* How well a target fits a request of one of its processes; 0: not at all. */
static unsigned fitness(const struct target *target, uid_t uid, uint32_t tid)
{
	unsigned points = 1;

	switch (target_scope(target)) {
	case TARGET_PROCESS:
		points += 2;
		break;
	case TARGET_THREAD:
		if ((uint32_t)target_tid(target) != tid)
			return 0;
		break;
	case TARGET_UNIT:
	case TARGET_HOST:
		/* It has other processes, too: only who armed all of them may take them. */
		if (!target_visible(target, uid, false))
			return 0;
		break;
	}
	/* Of others it would be refused. */
	if (target_gives(target, uid))
		points += 16;
	if (target_owner(target) == uid)
		points += 1;
	if (target_state(target) != TARGET_EXITED)
		points += 4;
	/* One that somebody armed has stacks and waits as well. */
	return points +
	       (target_is_implicit(target) || target_state(target) == TARGET_SUSPENDED ? 0 : 8);
}

static struct target *choose(struct triggers *ts, const struct producer *producer, uint32_t tid)
{
	struct target *candidates[CANDIDATES_MAX], *best = NULL;
	unsigned most = 0;
	size_t n;

	n = targets_having(ts->c.targets, producer_pid(producer), producer_start_time(producer),
			   candidates, CANDIDATES_MAX);
	for (size_t i = 0; i < n; i++) {
		unsigned points = fitness(candidates[i], producer_uid(producer), tid);

		if (points > most) {
			most = points;
			best = candidates[i];
		}
	}
	return best;
}

static struct request_limiter *request_limiter_get(struct triggers *ts, uint64_t target)
{
	struct request_limiter *q;

	LIST_FOREACH(q, &ts->limiters, link)
		if (q->target == target)
			return q;
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->target = target;
	LIST_INSERT_HEAD(&ts->limiters, q, link);
	return q;
}

void request_limiter_forget(struct triggers *ts, uint64_t target)
{
	struct request_limiter *q;

	LIST_FOREACH(q, &ts->limiters, link)
		if (q->target == target)
			break;
	if (!q)
		return;
	if (q->running)
		snapshots_forget_waiter(ts->c.snapshots, q);
	LIST_REMOVE(q, link);
	free(q);
}

static void on_done(struct snapshot *snapshot, void *arg)
{
	struct request_limiter *q = arg;

	q->running = false;
}

static enum suppressed check(const struct config *c, struct request_limiter *q, uint64_t now_ns)
{
	switch (trigger_limit_check(&q->limit, now_ns, c->program_interval_ms * MS,
				    c->program_snapshots_per_hour)) {
	case TRIGGER_LIMIT_COOLDOWN:
		return SUPPRESSED_COOLDOWN;
	case TRIGGER_LIMIT_PER_HOUR:
		return SUPPRESSED_PER_HOUR;
	case TRIGGER_LIMIT_PASS:
		break;
	}
	return q->running ? SUPPRESSED_BUSY : NOT_SUPPRESSED;
}

static enum suppressed take(struct triggers *ts, struct request_limiter *q, struct target *target,
			    const struct cause *cause, struct snapshot **ret)
{
	uint64_t now = clock_raw_ns();
	enum suppressed why = check(ts->c.config, q, now);

	if (why != NOT_SUPPRESSED)
		return why;
	trigger_limit_tried(&q->limit, now);
	why = trigger_snapshot(ts, target, cause, cause->end_raw_ns, false, on_done, q, ret);
	if (why == NOT_SUPPRESSED) {
		q->running = true;
		trigger_limit_count(&q->limit, now);
	}
	return why;
}

void triggers_request(struct triggers *ts, struct producer *producer,
		      const struct producer_cause *pc)
{
	struct target *target = choose(ts, producer, pc->tid);
	struct request_limiter *q = target ? request_limiter_get(ts, target_id(target)) : NULL;
	struct snapshot *snapshot = NULL;
	enum suppressed why;
	struct cause cause = {
		.kind = CAUSE_PROGRAM,
		.uid = producer_uid(producer),
		.pid = producer_pid(producer),
		.tid = pc->tid,
		.begin_raw_ns = pc->begin_raw_ns,
		.end_raw_ns = pc->end_raw_ns,
	};

	cause_program_reason(&cause, pc->text);
	ts->requests.hits++;
	if (!q) {
		counts_add(&ts->requests, SUPPRESSED_GONE);
		return;
	}
	why = take(ts, q, target, &cause, &snapshot);
	counts_add(&ts->requests, why);
	trigger_report(ts, target_name(target), cause.uid, &cause, snapshot, why, &q->reported_ns);
}
