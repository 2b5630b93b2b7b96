/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triggers: "when this region of this target takes so long", or "when it comes to this place of its
 * code, take a snapshot", with what keeps a cheap event from becoming an expensive habit. Owns the
 * list of them, their cooldowns and their counts; puts thresholds into the control pages of the
 * target's producers (daemon/producer/producer.h), and turns the causes that come back into
 * snapshots. Also the snapshots that producers ask for themselves, which have limits but no
 * trigger.
 *
 * Every hit is counted once: as a snapshot, or as suppressed, by why: cooldown, per_hour, busy (one
 * of it runs or the queue is full), quota, no_space, program (kept back by the producer itself
 * within the cooldown), below (the producer's numbers do not reach the threshold), gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct config;
struct event_base;
struct hub;
struct json_object;
struct producer;
struct producer_cause;
struct producers;
struct quota;
struct snapshots;
struct target;
struct target_mapping;
struct targets;
struct trigger;
struct triggers;

/* A place in code, see daemon/trigger/probe.h. */
struct trigger_hit {
	const char *name; /* as the client calls it, 1..RING_CONTROL_NAME bytes */
	uint32_t maj, min;
	uint64_t ino, offset;
	const char *by; /* "auto", "breakpoint", "uprobe" */
};

enum {
	TRIGGER_E_QUOTA = 1, /* of this user: uid_triggers */
	/* of the daemon: max_triggers; or the producer's control page is full */
	TRIGGER_E_BUSY,
	TRIGGER_E_BAD,
	TRIGGER_E_UNSUPPORTED, /* the place cannot be watched in any of the target's processes */
	TRIGGER_E_GONE,
};

struct trigger_request {
	uid_t uid;
	bool admin;
	const char *region; /* 1..RING_CONTROL_NAME bytes; NULL: it has a hit */
	const struct trigger_hit *hit;
	uint64_t over_ns, cooldown_ns, after_ns;
	uint32_t max_per_hour; /* 0: no limit of its own */
};

struct triggers_context { /* all borrowed */
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct hub *hub;
	struct targets *targets;
	struct producers *producers;
	struct snapshots *snapshots;
};

int triggers_new(const struct triggers_context *context, struct triggers **ret) _must_check_;
struct triggers *triggers_free(struct triggers *ts);
DEFINE_CLEANUP(struct triggers *, triggers_free)

/*
 * 0, TRIGGER_E_*, -ENOMEM. One with a hit is in the list at once, but not armed yet: see
 * trigger_when_settled().
 */
int triggers_add(struct triggers *ts, struct target *target, const struct trigger_request *request,
		 struct trigger **ret, char *why, size_t why_size) _must_check_;
/*
 * Calls `fn` once, never from here: with 0 when the place is watched in one process at least, else
 * with TRIGGER_E_* and a sentence, and the trigger is removed after that. NULL: nobody waits any
 * more.
 */
typedef void (*trigger_settled_fn)(void *arg, int answer, const char *why);
void trigger_when_settled(struct trigger *trigger, trigger_settled_fn fn, void *arg);
/* Takes it out of the producers and gives up what waits: its counts are the last. */
void trigger_stop(struct trigger *trigger);
/* The pointer is invalid afterwards. */
void triggers_remove(struct triggers *ts, struct trigger *trigger);
/* By id ("g3"), among those that this user may see; NULL. */
struct trigger *triggers_find(const struct triggers *ts, const char *id, uid_t uid, bool admin);
/* In order of id: the first whose number is greater than `after`. */
struct trigger *triggers_next(const struct triggers *ts, uint64_t after);
uint64_t trigger_id(const struct trigger *trigger);
const char *trigger_name(const struct trigger *trigger);
/* A trigger goes with its target. */
struct target *trigger_target(const struct trigger *trigger);
/* How many a user may see of a target. */
size_t triggers_count(const struct triggers *ts, const struct target *target, uid_t uid,
		      bool admin);
bool trigger_visible(const struct trigger *trigger, uid_t uid, bool admin);
/* G of the protocol. */
struct json_object *trigger_to_json(struct trigger *trigger);

/*
 * From the targets and producers: what a target consists of has changed; it is about to be
 * forgotten.
 */
void triggers_target_changed(struct triggers *ts, struct target *target);
void triggers_target_gone(struct triggers *ts, struct target *target);
/* A process of it has mapped code. */
void triggers_target_mapped(struct triggers *ts, struct target *target,
			    const struct target_mapping *mapping);
void triggers_producer_changed(struct triggers *ts, struct producer *producer);
/* From the producers: a producer has written a cause. */
void triggers_cause(struct triggers *ts, struct producer *producer,
		    const struct producer_cause *cause);

/* Adds "triggers" to the status object. */
void triggers_status(struct triggers *ts, struct json_object *status);
