/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: how it is made, how long one callback of it may take (one that has more to do
 * goes on at the loop's next turn, or on another thread), and how long its turns are, for status.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"

struct event_base;

/* With memory for that many armed timers, so that arming one cannot fail. 0, -ENOMEM. */
int loop_new(size_t n_timers, struct event_base **ret) _must_check_;

#define LOOP_BUDGET_NS 2000000u

/*
 * When a callback that begins now must have ended; asked between two things that take some
 * microseconds.
 */
static inline uint64_t loop_deadline(void)
{
	return io_now_ns() + LOOP_BUDGET_NS;
}

static inline bool loop_is_over(uint64_t deadline)
{
	return io_now_ns() >= deadline;
}

/*
 * Turns of the loop, by the time that they take of a processor: what waits does not count, and must
 * not be there.
 */
struct loop_meter {
	uint64_t turns, longest_ns;
	uint64_t at_ns; /* CLOCK_THREAD_CPUTIME_ID when the last one ended */
};

/* After each turn; the first call only begins. */
static inline void loop_meter_turn(struct loop_meter *meter)
{
	struct timespec now;
	uint64_t at, took;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	at = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	took = meter->at_ns ? at - meter->at_ns : 0;
	meter->turns += meter->at_ns != 0;
	if (took > meter->longest_ns)
		meter->longest_ns = took;
	meter->at_ns = at;
}
