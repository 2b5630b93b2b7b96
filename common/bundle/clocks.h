/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A series of brackets: the clocks of the host read at one moment, so that times of one clock can
 * be given on another, with a stated error. Suspends and steps of the wall clock show as events.
 * Who reads them when is the owner's matter (daemon/base/clockseries.c). Not thread-safe; copy the
 * struct to hand it on.
 *
 * Samples carry MONOTONIC_RAW, rings the TSC, Go MONOTONIC; the trace is written on MONOTONIC.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define CLOCKS_MAX_BRACKETS 512
#define CLOCKS_MAX_EVENTS 32

struct clocks_bracket {
	uint64_t tsc; /* 0: no usable TSC */
	uint64_t monotonic, raw, realtime, boottime;
	uint64_t width_ns; /* all were read within this time */
};

enum clock_event_kind { CLOCK_EVENT_SUSPEND, CLOCK_EVENT_STEP };

struct clock_event {
	enum clock_event_kind kind;
	uint64_t monotonic; /* of the bracket that showed it: it happened since the one before */
	int64_t amount_ns;  /* slept; or how far the wall clock jumped */
};

/*
 * Zeroed is empty. Brackets are in the order of time; when full, every second old one is dropped.
 */
struct clocks {
	struct clocks_bracket brackets[CLOCKS_MAX_BRACKETS];
	size_t n_brackets;
	struct clock_event events[CLOCKS_MAX_EVENTS];
	size_t n_events;
	uint64_t suspends, steps; /* all that were ever seen */
	bool tsc_usable;
};

/* Reads all clocks a few times and keeps the narrowest. */
void clocks_read(bool tsc, struct clocks_bracket *ret);

/* The CPU's TSC is invariant and the kernel's own clocksource trusts it. */
bool clocks_tsc_usable(void);
/* The kernel's clocks are made of the TSC: MONOTONIC_RAW runs at its pace. */
bool clocks_tsc_is_source(void);

/* Appends a bracket and notices suspend and steps. */
void clocks_add(struct clocks *c, const struct clocks_bracket *b);
/* clocks_read() and clocks_add(). */
void clocks_take(struct clocks *c);

/*
 * Adds each suspend since then to a list of gaps, from the bracket before it to that after it, on
 * MONOTONIC_RAW.
 */
void clocks_add_suspends(const struct clocks *c, uint64_t from_monotonic_ns,
			 struct json_object *gaps);

/* Drops brackets that are older than `monotonic_ns`, but for the last of them. */
void clocks_forget(struct clocks *c, uint64_t monotonic_ns);

/*
 * RAW to MONOTONIC between (or, by the nearest pair, beside) the brackets. *ret_error_ns bounds the
 * error: width of the brackets, and outside of them the drift that NTP may add (500 ppm). -ENODATA
 * without a bracket.
 */
int clocks_raw_to_monotonic(const struct clocks *c, uint64_t raw, uint64_t *ret_monotonic,
			    uint64_t *ret_error_ns) _must_check_;
int clocks_tsc_to_monotonic(const struct clocks *c, uint64_t tsc, uint64_t *ret_monotonic,
			    uint64_t *ret_error_ns) _must_check_;

/*
 * MONOTONIC to RAW, before the brackets by the rate of the first two; without any the clocks are
 * taken for the same. The decoder's way back is to the same time. It never falls where `monotonic`
 * rises. *segment, 0 at first, is where it is looked for first.
 */
uint64_t clocks_monotonic_to_raw(const struct clocks *c, uint64_t monotonic, size_t *segment);

/*
 * "clocks" of meta.json:
 * {"tsc_usable","brackets":[{"monotonic","raw","realtime","boottime","tsc","width_ns"}],
 * "events":[{"kind","monotonic","amount_ns"}]}, brackets since `from_monotonic_ns` and the one
 * before. from_json answers -EPROTO for what is not that.
 */
struct json_object *clocks_to_json(const struct clocks *c, uint64_t from_monotonic_ns);
int clocks_from_json(struct json_object *json, struct clocks *ret) _must_check_;
