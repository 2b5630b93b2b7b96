/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of a recording: CLOCK_MONOTONIC_RAW, which the records of the kernel carry. The wall
 * clock, which is only shown, is in common/base/wall_clock.h. Timeouts use io_now_ns(), which
 * follows NTP's corrections.
 */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC_RAW in nanoseconds. */
uint64_t clock_raw_ns(void);
