/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the triggers share: trigger.c (the list), bind.c (thresholds in control pages),
 * watch.c (a place in code), hit.c (what happens at a hit), request.c (what producers ask for).
 * Nobody else includes this.
 */
#pragma once

#include <event2/event.h>
#include <sys/queue.h>

#include "common/bundle/ringabi.h"
#include "daemon/control/quota.h"
#include "daemon/snapshot/cause.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/trigger/limit.h"
#include "daemon/trigger/trigger.h"

/* Why a hit became no snapshot. */
enum suppressed {
	SUPPRESSED_COOLDOWN,
	SUPPRESSED_PER_HOUR,
	SUPPRESSED_BUSY,
	SUPPRESSED_QUOTA,
	SUPPRESSED_NO_SPACE,
	SUPPRESSED_PROGRAM,
	SUPPRESSED_BELOW,
	SUPPRESSED_GONE,
	_SUPPRESSED_MAX,
	NOT_SUPPRESSED = _SUPPRESSED_MAX,
};

/*
 * A snapshot takes longer than this: what would hit again sooner is kept in the producer, or costs
 * no more here than a look at the clock.
 */
#define TRIGGER_COOLDOWN_MIN_NS 1000000ULL

struct trigger_counts {
	uint64_t hits, snapshots, suppressed[_SUPPRESSED_MAX];
};

/*
 * A name in the control page of a producer: for all triggers on it, with the lowest of their
 * numbers.
 */
struct threshold {
	LIST_ENTRY(threshold) link;
	struct page *page; /* back pointer */
	uint32_t id;
	uint64_t over_ns, cooldown_ns;
	uint64_t suppressed_seen; /* of what the producer kept to itself */
	LIST_HEAD(, binding) bindings;
	char region[RING_CONTROL_NAME + 1];
};

/* That a threshold is there for a trigger. */
struct binding {
	LIST_ENTRY(binding) of_threshold, of_trigger;
	struct threshold *threshold;
	struct trigger *trigger;
};

/* A living producer that has or had thresholds. */
struct page {
	LIST_ENTRY(page) link;
	struct producer *producer; /* referenced */
	uint32_t last_id;
	LIST_HEAD(, threshold) thresholds;
};

struct watch;

struct trigger {
	TAILQ_ENTRY(trigger) link;
	struct triggers *ts; /* back pointer */
	uint64_t id;
	char name[CAUSE_TRIGGER_MAX];
	struct target *target; /* borrowed: the trigger goes before it does */
	uid_t owner;
	bool admin;
	bool on_place;
	struct watch *watch; /* of a place; NULL: it is on a region, or stopped */
	/* the region's name; or the place's */
	char region[RING_CONTROL_NAME + 1], safe_region[RING_CONTROL_NAME * 4 + 1];
	uint64_t over_ns, cooldown_ns, after_ns;
	uint32_t max_per_hour;
	uint64_t created_unix_ns;
	LIST_HEAD(, binding) bindings;
	bool stale; /* producers may have come to its target */
	bool lacks; /* one of them had no room for it */
	struct quota_charge charge;
	/* hits */
	struct trigger_limit limit;
	struct trigger_counts counts;
	uint64_t last_hit_unix_ns, reported_ns;
	char last_snapshot[SPOOL_ID_LEN + 1];
	bool running;	      /* a snapshot of it has not ended */
	struct event *after;  /* NULL if it does not wait */
	struct cause *waiting; /* of the hit whose time after_ns runs */
	uint64_t due_ns;       /* until then, MONOTONIC_RAW */
};

/* How often the producers of one target may have a snapshot that they ask for. */
struct request_limiter {
	LIST_ENTRY(request_limiter) link;
	uint64_t target; /* its id */
	struct trigger_limit limit;
	uint64_t reported_ns;
	bool running;
};

#define PAGE_BUCKETS 64

struct triggers {
	struct triggers_context c;
	TAILQ_HEAD(trigger_list, trigger) list;
	size_t n;
	uint64_t last_id;
	struct probes *probes; /* NULL: no trigger had a place in code so far */
	LIST_HEAD(, page) pages[PAGE_BUCKETS]; /* by the producer's id */
	struct event *rebind;
	LIST_HEAD(, request_limiter) limiters;
	/* since the start: of triggers, and of what producers asked for */
	struct trigger_counts counts, requests;
};

/* trigger.c */
const char *suppressed_name(enum suppressed s);

/* bind.c */
/* 0, -ENOSPC (the page is full), -ENOMEM. Idempotent. */
int trigger_bind(struct trigger *t, struct producer *producer) _must_check_;
void trigger_unbind_all(struct trigger *t);
struct threshold *threshold_find(struct triggers *ts, const struct producer *producer, uint32_t id);
/* The producer has ended: nothing is put into its page any more. */
void page_end(struct triggers *ts, const struct producer *producer);
/* Counts what producers have kept to themselves since the last time. */
void trigger_sync(struct trigger *t);

/* watch.c */
/* 0, TRIGGER_E_BAD, -ENOMEM, or what made threads impossible. */
int watch_new(struct trigger *t, const struct trigger_hit *hit, struct watch **ret) _must_check_;
/* Closes all; who waits for it is answered with TRIGGER_E_GONE. */
struct watch *watch_free(struct watch *w);
void watch_when_settled(struct watch *w, trigger_settled_fn fn, void *arg);
/* Processes have come, gone, or mapped the file. */
void watch_changed(struct watch *w);
void watch_mapped(struct watch *w, const struct target_mapping *mapping);
void watch_add_json(const struct watch *w, struct json_object *o);

/* hit.c */
/* A hit of a place, whatever comes of it; and others that were too soon after it. */
struct probe_hit;
void trigger_hit(struct trigger *t, pid_t pid, const struct probe_hit *hit);
void trigger_hits_missed(struct trigger *t, uint64_t n);
/* For so long a hit would be within the cooldown. */
uint64_t trigger_cooldown_left(const struct trigger *t);
/* Begins a snapshot at once, of a moment that has just been: NOT_SUPPRESSED, or why not. */
enum suppressed trigger_snapshot(struct triggers *ts, struct target *target,
				 const struct cause *cause, uint64_t meant_raw_ns, bool admin,
				 snapshot_done_fn done, void *arg, struct snapshot **ret);
/* Administrators hear of it, and the user whose it is. */
void trigger_report(struct triggers *ts, const char *target, uid_t whose, struct cause *cause,
		    struct snapshot *snapshot, enum suppressed why, uint64_t *reported_ns);
void counts_add(struct trigger_counts *counts, enum suppressed why);
void counts_add_json(const struct trigger_counts *counts, struct json_object *o);
/* Makes the timer of after_ns. 0, -ENOMEM. */
int trigger_prepare_after(struct trigger *t) _must_check_;
/* Of one that is removed. */
void trigger_forget_hits(struct trigger *t);

/* request.c */
void triggers_request(struct triggers *ts, struct producer *producer,
		      const struct producer_cause *cause);
void request_limiter_forget(struct triggers *ts, uint64_t target);
