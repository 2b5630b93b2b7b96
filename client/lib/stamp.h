/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the clock of events: the TSC where the daemon can use it, else CLOCK_MONOTONIC_RAW, which
 * the vDSO reads without a system call.
 */
#pragma once

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "client/lib/eventlib.h"
#include "common/base/raw_clock.h"

#pragma GCC visibility push(hidden)

extern bool stamp_is_tsc;

/*
 * Only the first choice counts: programs keep stamps in regions and tasks, and those must stay
 * valid.
 */
void stamp_choose(enum ring_clock clock);
enum ring_clock stamp_clock(void);

/* Only if stamp_is_tsc. */
static inline uint64_t stamp_tsc(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return clock_raw_ns();
#endif
}

static inline uint64_t stamp_now(void)
{
	return __builtin_expect(stamp_is_tsc, 1) ? stamp_tsc() : clock_raw_ns();
}

#pragma GCC visibility pop
