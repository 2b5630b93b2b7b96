/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversion of ticks to nanoseconds as perf.data has it (TIME_CONV, AUXTRACE_INFO): a shift, a
 * multiplier and an offset. Computes it from two moments at which both clocks were read. It does
 * not know which clocks they are.
 */
#pragma once

#include <stdint.h>

struct timeconv { /* ns = zero + ticks * mult / 2^shift, modulo 2^64 */
	uint32_t shift, mult;
	uint64_t zero;
};

struct timeconv_moment {
	uint64_t ticks, ns;
};

/*
 * Exact at `anchor`, which is one of the two. Where a clock stood still or went back, no conversion
 * is right: 1 ns a tick.
 */
struct timeconv timeconv_fit(const struct timeconv_moment *first,
			     const struct timeconv_moment *last,
			     const struct timeconv_moment *anchor);
/* The same with a known pace. */
struct timeconv timeconv_anchor(uint32_t shift, uint32_t mult,
				const struct timeconv_moment *anchor);

/* As perf does it, to the nanosecond. */
uint64_t timeconv_ns(const struct timeconv *c, uint64_t ticks);

/*
 * Reads the TSC and MONOTONIC_RAW at one moment; *ret_width_ticks bounds the error. x86-64 only:
 * elsewhere all is 0.
 */
struct timeconv_moment timeconv_now(uint64_t *ret_width_ticks);
