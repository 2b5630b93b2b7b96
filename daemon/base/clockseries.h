/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's series of clock brackets (design 4.4): one when recording starts, one each second
 * while a target is armed, one at each freeze. With nothing armed there is no timer. Armed targets
 * share the timer, one wake-up a second; with fewer brackets the error from RAW to MONOTONIC would
 * grow with NTP's corrections in between.
 */
#pragma once

#include <event2/event.h>

#include "common/bundle/clocks.h"

struct clockseries;

/* `wanted` is asked each second whether to go on. */
typedef bool (*clockseries_wanted_fn)(void *arg);
int clockseries_new(struct event_base *base, clockseries_wanted_fn wanted, void *arg,
		    struct clockseries **ret) _must_check_;
void clockseries_free(struct clockseries *s);
DEFINE_CLEANUP(struct clockseries *, clockseries_free)

/* A target was armed: takes a bracket and starts the timer. Idempotent. */
void clockseries_start(struct clockseries *s);

/* Takes a bracket now. */
void clockseries_take(struct clockseries *s);

const struct clocks *clockseries_get(const struct clockseries *s);

/*
 * How fast the TSC counts, measured against CLOCK_MONOTONIC_RAW since the start or the last
 * suspend: the longer, the better. `now`: a bracket of this moment, NULL: it is read. 0: it cannot
 * be used, or the daemon has just started.
 */
uint64_t clockseries_ticks_per_second(const struct clockseries *s,
				      const struct clocks_bracket *now);
