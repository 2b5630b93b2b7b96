// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/timeconv.h"

#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define MAX_SHIFT 31
#define TRIES 64

uint64_t timeconv_ns(const struct timeconv *c, uint64_t ticks)
{
	const uint64_t whole = ticks >> c->shift, rest = ticks & ((UINT64_C(1) << c->shift) - 1);

	return c->zero + whole * c->mult + (rest * c->mult >> c->shift);
}

struct timeconv timeconv_anchor(uint32_t shift, uint32_t mult, const struct timeconv_moment *anchor)
{
	struct timeconv c = {.shift = shift, .mult = mult};

	c.zero = anchor->ns - timeconv_ns(&c, anchor->ticks);
	return c;
}

struct timeconv timeconv_fit(const struct timeconv_moment *first,
			     const struct timeconv_moment *last,
			     const struct timeconv_moment *anchor)
{
	uint64_t ticks = last->ticks - first->ticks, ns = last->ns - first->ns, mult;
	uint32_t shift = MAX_SHIFT;

	if (last->ticks <= first->ticks || last->ns <= first->ns)
		ticks = ns = 1;
	while (shift > 0 && ((unsigned __int128)ns << shift) / ticks > UINT32_MAX)
		shift--;
	mult = (uint64_t)(((unsigned __int128)ns << shift) / ticks);
	return timeconv_anchor(shift, mult ? (uint32_t)mult : 1, anchor);
}

struct timeconv_moment timeconv_now(uint64_t *ret_width_ticks)
{
	struct timeconv_moment best = {0};
	uint64_t width = UINT64_MAX;

#if defined(__x86_64__)
	for (int i = 0; i < TRIES; i++) {
		struct timespec t = {0};
		uint64_t before, after;
		unsigned int aux;

		before = __rdtscp(&aux);
		(void)clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		after = __rdtscp(&aux);
		if (after - before >= width)
			continue;
		width = after - before;
		best.ticks = before + width / 2;
		best.ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	}
#endif
	*ret_width_ticks = width;
	return best;
}
