// SPDX-License-Identifier: Apache-2.0
#include "common/base/raw_clock.h"

#include <time.h>

uint64_t clock_raw_ns(void)
{
	struct timespec ts = {0};

	(void)clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
