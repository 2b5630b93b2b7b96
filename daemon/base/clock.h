/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two clocks of a recording: CLOCK_MONOTONIC_RAW, which the records of the kernel carry, and the wall clock, which is
 * only shown. Timeouts use io_now_ns(), which counts with NTP's corrections.
 */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC_RAW. */
uint64_t clock_raw_ns(void);
