// SPDX-License-Identifier: Apache-2.0
/* Pieces of a stack that ended without a return, and may turn out to go on. */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

void cs_park_drop(struct callstack *cs, uint32_t i)
{
	free(cs->parked[i].frames);
	cs->parked[i] = cs->parked[--cs->n_parked];
}

static void drop_oldest(struct callstack *cs)
{
	uint32_t oldest = 0;

	for (uint32_t i = 1; i < cs->n_parked; i++)
		if (cs->parked[i].age < cs->parked[oldest].age)
			oldest = i;
	cs_park_drop(cs, oldest);
}

void cs_park(struct callstack *cs, const struct frame *frames, uint32_t n)
{
	struct frame *v;

	if (n == 0 || n > MAX_PARKED_DEPTH)
		return;
	if (!cs->parked)
		cs->parked = calloc(MAX_PARKED_PIECES, sizeof(*cs->parked));
	v = cs->parked ? malloc(n * sizeof(*v)) : NULL;
	if (!v)
		return;
	memcpy(v, frames, n * sizeof(*v));
	if (cs->n_parked == MAX_PARKED_PIECES)
		drop_oldest(cs);
	cs->parked[cs->n_parked++] = (struct parked){.frames = v, .n = n, .age = ++cs->clock};
}

/* What was parked as piece `i` goes on, but for its frames from `k`, the call that returns. */
static void go_on(struct callstack *cs, uint64_t time, uint32_t i, uint32_t k)
{
	struct frame *frames = cs->parked[i].frames;
	const uint32_t n = cs->parked[i].n;

	cs->parked[i] = cs->parked[--cs->n_parked];
	cs_park(cs, frames + k + 1, n - k - 1);
	for (uint32_t j = 0; j < k; j++)
		cs_push(cs, time, &frames[j], CALLSTACK_RESUMED);
	free(frames);
	cs->stats.switches++;
}

bool cs_unpark(struct callstack *cs, uint64_t time, uint64_t to)
{
	for (uint32_t i = cs->n_parked; i > 0; i--)
		for (uint32_t k = cs->parked[i - 1].n; k > 1; k--)
			if (cs->parked[i - 1].frames[k - 1].back == to) {
				go_on(cs, time, i - 1, k - 1);
				return true;
			}
	return false;
}
