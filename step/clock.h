/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a stepped recording: ticks as TSC packets carry them, and what a tick is on the clock of the side-band
 * records. Ticks are the processor's TSC where it can be trusted, else nanoseconds of MONOTONIC_RAW.
 *
 * The clock of the records is perf's own where the kernel says how the TSC is converted to it, else
 * MONOTONIC_RAW by a pair of brackets: one taken at the start, one when it is read. So times are kept as ticks and
 * converted when they are written.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/bundle/clocks.h"

struct step_clock {
	bool tsc;	 /* ticks are of the TSC */
	bool perf_clock; /* of the records; else MONOTONIC_RAW */
	bool raw;	 /* that is wanted; what was last is what counts, and has the least error */
	uint64_t last;
	struct clocks_bracket first;
	/* ns = zero + ticks * mult / 2^shift; valid after step_clock_settle(), with perf_clock from the start */
	uint32_t shift, mult;
	uint64_t zero;
};

/* `raw`: the records' clock shall be MONOTONIC_RAW. */
void step_clock_init(struct step_clock *c, bool raw);

/* Ticks now; each answer lies so far behind the one before that their nanoseconds differ, too. */
uint64_t step_clock_now(struct step_clock *c);

/* Finds the conversion; again, and better, whenever the recording is read while it goes on. */
void step_clock_settle(struct step_clock *c);

/* As perf does it, to the nanosecond. */
uint64_t step_clock_ns(const struct step_clock *c, uint64_t ticks);

/* Frequency of the ticks in 100 MHz, as the "max non-turbo ratio"; at least 1. */
uint32_t step_clock_ratio(const struct step_clock *c);
