/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall clock, for what people read and for names. It can be set back: no time is measured with
 * it (io_now_ns()).
 */
#pragma once

#include <stdint.h>
#include <time.h>

/* Nanoseconds since 1970. */
static inline uint64_t wall_clock_ns(void)
{
	struct timespec t = {0};

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
