// SPDX-License-Identifier: Apache-2.0
#include "client/lib/stamp.h"

bool stamp_is_tsc;
static bool chosen;

void stamp_choose(enum ring_clock clock)
{
	if (chosen)
		return;
#if defined(__x86_64__)
	stamp_is_tsc = clock == RING_CLOCK_TSC;
#endif
	chosen = true;
}

enum ring_clock stamp_clock(void)
{
	return stamp_is_tsc ? RING_CLOCK_TSC : RING_CLOCK_MONOTONIC_RAW;
}

enum ring_clock events_clock(void)
{
	return stamp_clock();
}

uint64_t events_now(void)
{
	return stamp_now();
}
