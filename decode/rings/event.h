/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the events of the copied rings of a snapshot (common/bundle/ringfile.h), in one order of
 * time: reads the files whole, checks each slot by the ABI's rules, puts records together, joins
 * begins and ends, and hands out one event after the other. Whatever the bytes are, each costs a
 * bounded amount of work and memory, and what cannot be used is counted.
 *
 * It refuses to know what an event looks like in a trace (decode/timeline/timeline.h), and who
 * reads a file's fd.
 *
 * What it settles, so that no later step has to:
 * - Times are ns of the input's clock (MONOTONIC_RAW), converted with the file's own pair of
 *   readings and the brackets of meta.json, and events come in that order. A stamp that the program
 *   cannot have taken, before its start, after the copy, or far from its neighbours in the ring,
 *   makes its record one that is lost.
 * - Regions nest: an end is that of the youngest open begin of its stack which is not `unfinished`,
 *   and those above it end with it. What crossed that was dropped and counted.
 * - A region or task whose begin was overwritten gets one made from the stamp in its end
 *   (`began_early`), at the time it really began, but not before the oldest event or bracket;
 *   `began` is the true time.
 * - tids are the daemon's where they are known: ringfile_ring.host_tid, or no pid namespace, and
 *   then the program may say one that is not its own. Else they are made up, RINGEVENT_TID_MADE +
 *   n, with a name that says so.
 * - Names and texts are escaped (common/base/escape.h), formats of logs are applied, fields are
 *   typed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/clockmap.h"

struct json_object;
struct ringevents;

#define RINGEVENT_MAX_ARGS 24u
#define RINGEVENT_TID_MADE 0x40000000u

enum ringevent_kind {
	RINGEVENT_THREAD, /* this thread wrote from here on; name: its name, or NULL */
	RINGEVENT_REGION_BEGIN,
	/* its begin was handed out before, on the same stack (thread or fiber) */
	RINGEVENT_REGION_END,
	RINGEVENT_INSTANT,
	RINGEVENT_LOG, /* name: the text; args: none; `format` if there was one */
	RINGEVENT_COUNTER,
	RINGEVENT_TASK_BEGIN,
	RINGEVENT_TASK_END,
	RINGEVENT_FLOW,
	RINGEVENT_FIBER, /* id 0: the thread's own stack again */
	RINGEVENT_TRIGGER,
	/*
	 * what was in this ring before (`ts`) is not here; `value.u64`: slots, an event takes one
	 * or more
	 */
	RINGEVENT_LOST,
};

enum ringevent_type {
	RINGEVENT_U64,
	RINGEVENT_I64,
	RINGEVENT_F64,
	RINGEVENT_TEXT,
	RINGEVENT_POINTER
};

struct ringevent_arg {
	const char *key; /* "" if none was given */
	enum ringevent_type type;
	bool cut; /* the text was longer */
	union {
		uint64_t u64;
		int64_t i64;
		double f64;
		const char *text;
	} value;
};

/* Texts live until the next event is asked for; names until the end. */
struct ringevent {
	enum ringevent_kind kind;
	uint64_t ts; /* ns, input clock */
	uint32_t pid, tid;
	const char *name;   /* never NULL, but for RINGEVENT_THREAD */
	const char *format; /* of a log; or NULL */
	uint64_t task;	    /* that it is a part of; a task's own id; 0: none */
	uint64_t parent;    /* of a task */
	uint64_t id;	    /* of a flow or fiber */
	uint64_t fiber;	    /* whose stack the thread runs at this moment; 0: its own */
	/* NULL: not known; of RINGEVENT_FIBER `name` is the one that it is switched to */
	const char *fiber_name;
	/* of an end, a trigger, an early begin: when it began, input clock; 0: not known */
	uint64_t began;
	bool began_early;   /* a begin that was made from its end */
	bool unfinished;    /* a begin whose end is not in the rings */
	/*
	 * RINGEVENT_LOST: the ring has nothing of the time that is decoded; set by who knows that
	 * time
	 */
	bool nothing_left;
	/* the program's runtime tells of it (Go): its tasks' numbers are of its own */
	bool of_runtime;
	uint8_t level;	    /* of a log: enum ring_level */
	uint8_t flow;	    /* enum ring_flow */
	enum ringevent_type value_type; /* of a counter: I64 or F64 */
	union {
		uint64_t u64;
		int64_t i64;
		double f64;
	} value;
	size_t n_args;
	struct ringevent_arg args[RINGEVENT_MAX_ARGS];
};

/*
 * The brackets place a ring's stamps: `source` is the TSC (0: not read), `monotonic` MONOTONIC_RAW.
 * `boottime` tells when a process can have begun.
 */
int ringevents_new(const struct clock_bracket *brackets, size_t n_brackets, struct budget *budget,
		   struct ringevents **ret) _must_check_;
struct ringevents *ringevents_free(struct ringevents *r);
DEFINE_CLEANUP(struct ringevents *, ringevents_free)

enum { RINGEVENTS_E_INVALID = 1 /* no copy of rings, or one that contradicts itself; counted */ };

/*
 * Adds a file, whose fd stays the caller's and may be closed afterwards. 0, RINGEVENTS_E_INVALID,
 * -errno.
 */
int ringevents_add(struct ringevents *r, int fd) _must_check_;

/* Call once, after the last file and before the first event: sorts, joins. 0 or -ENOMEM. */
int ringevents_finish(struct ringevents *r) _must_check_;

/* The time of the next event, UINT64_MAX at the end; and the event itself, false at the end. */
uint64_t ringevents_peek(const struct ringevents *r);
bool ringevents_next(struct ringevents *r, struct ringevent *ret);
size_t ringevents_count(const struct ringevents *r);

/*
 * What the programs and the copy could not keep, by kinds of one word or more: nobody knows when.
 * Damage within the rings is reported among the events.
 */
void ringevents_tell_losses(const struct ringevents *r,
			    void (*tell)(void *arg, const char *kind, uint64_t count), void *arg);

/*
 * Adds to the job's "stats" {"events", "rings", "programs"} and to "losses" what docs/bundle.md has
 * of rings.
 */
void ringevents_report(const struct ringevents *r, struct json_object *stats,
		       struct json_object *losses);
