// SPDX-License-Identifier: Apache-2.0
/* Stacks that do not run: of coroutines, and what may turn out to be one. */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

void cs_park_drop(struct callstack *cs, uint32_t i)
{
	free(cs->parked[i].frames);
	cs->parked[i] = cs->parked[--cs->n_parked];
}

void cs_park(struct callstack *cs, const struct frame *frames, uint32_t n)
{
	struct parked *p;
	uint32_t oldest = 0;

	if (n == 0 || n > MAX_PARKED_DEPTH)
		return;
	if (cs->n_parked == MAX_PARKED) {
		for (uint32_t i = 1; i < cs->n_parked; i++)
			if (cs->parked[i].age < cs->parked[oldest].age)
				oldest = i;
		cs_park_drop(cs, oldest);
	}
	p = &cs->parked[cs->n_parked];
	p->frames = malloc(n * sizeof(*frames));
	if (!p->frames)
		return;
	memcpy(p->frames, frames, n * sizeof(*frames));
	p->n = n;
	p->age = ++cs->clock;
	cs->n_parked++;
}

/* The index of the frame that is the base of another stack than the thread's own, or -1. */
int64_t cs_find_base(const struct callstack *cs)
{
	for (uint32_t i = 0; i < cs->n; i++)
		if (cs->frames[i].is_base)
			return i;
	return -1;
}

/*
 * Another stack takes the place of the one that runs, or stands on top of the thread's own: what called the switch (the frame on
 * top) is called by what goes on there, as far as a tree of calls can say it. Returns where the new base returns to.
 */
uint64_t cs_leave_stack(struct callstack *cs, uint64_t time)
{
	const int64_t at = cs_find_base(cs);
	const uint32_t from = at >= 0 ? (uint32_t)at : cs->n - 1;
	const uint64_t back = cs->frames[from].back;

	if (at >= 0)
		cs_park(cs, cs->frames + from, cs->n - from);
	cs_pop(cs, time, cs->n - from);
	return back;
}

/* What was parked as piece `i` goes on, but for its frames from `k`, the call that returns. */
static void go_on(struct callstack *cs, uint64_t time, uint32_t i, uint32_t k)
{
	struct frame *frames = cs->parked[i].frames;
	const uint32_t n = cs->parked[i].n;

	cs->parked[i] = cs->parked[--cs->n_parked];
	if (k + 1 < n)
		cs_park(cs, frames + k + 1, n - k - 1);
	if (frames[0].is_base)
		frames[0].back = cs_leave_stack(cs, time);
	for (uint32_t j = 0; j < k; j++)
		cs_push(cs, time, &frames[j], CALLSTACK_RESUMED);
	free(frames);
	cs->stats.switches++;
}

/*
 * A parked stack whose innermost call, or one of whose calls, returns to `to`: what is outside of that call goes on. Of stacks that wait at the same
 * place the one that waits longest: they mostly take turns, and the next return outward shows whether that was right.
 */
bool cs_unpark_waiting(struct callstack *cs, uint64_t time, uint64_t to)
{
	int64_t best = -1;

	for (uint32_t i = 0; i < cs->n_parked; i++) {
		const struct parked *p = &cs->parked[i];

		if (p->n > 1 && p->frames[0].is_base && p->frames[p->n - 1].back == to &&
			(best < 0 || p->age < cs->parked[best].age))
			best = i;
	}
	if (best >= 0)
		go_on(cs, time, (uint32_t)best, cs->parked[best].n - 1);
	return best >= 0;
}

bool cs_unpark(struct callstack *cs, uint64_t time, uint64_t to)
{
	if (cs_unpark_waiting(cs, time, to))
		return true;
	for (uint32_t i = cs->n_parked; i > 0; i--)
		for (uint32_t k = cs->parked[i - 1].n; k > 1; k--)
			if (cs->parked[i - 1].frames[k - 1].back == to) {
				go_on(cs, time, i - 1, k - 1);
				return true;
			}
	return false;
}
