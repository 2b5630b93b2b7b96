/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's series of clock brackets (design 4.4): one bracket when somebody starts to hold it (arming), one each
 * second while at least one does, one at each freeze. With nothing armed there is no timer. The timer costs one
 * wake-up a second for the whole host, however many targets are armed: less often, and the error of
 * RAW to MONOTONIC would grow with what NTP changes in between.
 */
#pragma once

#include <event2/event.h>

#include "common/clocks.h"

struct clockseries;

int clockseries_new(struct event_base *base, struct clockseries **ret) _must_check_;
void clockseries_free(struct clockseries *s);
DEFINE_CLEANUP(struct clockseries *, clockseries_free)

/* Counted: arm holds, disarm (or the end of what is kept of it) releases. */
void clockseries_hold(struct clockseries *s);
void clockseries_release(struct clockseries *s);

/* Takes a bracket now. */
void clockseries_take(struct clockseries *s);

const struct clocks *clockseries_get(const struct clockseries *s);
