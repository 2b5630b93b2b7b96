/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a stepped recording: ticks, which TSC packets carry, and their conversion to the
 * clock of the side-band records. Ticks are the processor's TSC where it is reliable, else
 * nanoseconds of MONOTONIC_RAW.
 *
 * The records are on perf's own clock where the kernel exports the conversion, else on
 * MONOTONIC_RAW, by two brackets: one taken at the start, one when the recording is written. So
 * times are kept as ticks until then.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/bundle/clocks.h"
#include "common/bundle/timeconv.h"

struct step_clock {
	bool tsc;	 /* ticks are of the TSC */
	bool perf_clock; /* of the records; else MONOTONIC_RAW */
	bool raw;	 /* MONOTONIC_RAW is wanted, most exact at the end of the recording */
	uint64_t last;
	struct clocks_bracket first;
	struct timeconv conv; /* valid after step_clock_settle(), with perf_clock from the start */
};

/* `raw`: the records are to be on MONOTONIC_RAW. */
void step_clock_init(struct step_clock *c, bool raw);

/*
 * Ticks now; each result is so much later than the one before that their nanoseconds differ, too.
 */
uint64_t step_clock_now(struct step_clock *c);

/* Computes the conversion; more exactly each time it is called during the recording. */
void step_clock_settle(struct step_clock *c);

/* As perf does it, to the nanosecond. */
uint64_t step_clock_ns(const struct step_clock *c, uint64_t ticks);

/* Frequency of the ticks in 100 MHz, as the "max non-turbo ratio"; at least 1. */
uint32_t step_clock_ratio(const struct step_clock *c);
