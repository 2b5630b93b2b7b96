/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the clock of events: the TSC where the daemon can use it, else CLOCK_MONOTONIC_RAW, which
 * the vDSO reads without a system call.
 */
#pragma once

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "client/lib/eventlib.h"

#pragma GCC visibility push(hidden)

extern bool stamp_is_tsc;

/* The first choice counts: stamps that are kept (regions, tasks) must go on meaning the same. */
void stamp_choose(enum ring_clock clock);
enum ring_clock stamp_clock(void);
uint64_t stamp_raw(void);

static inline uint64_t stamp_now(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(stamp_is_tsc, 1))
		return __rdtsc();
#endif
	return stamp_raw();
}

#pragma GCC visibility pop
