// SPDX-License-Identifier: Apache-2.0
/* Stacks that do not run: of coroutines, and what may turn out to be one. */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

void cs_park_drop(struct callstack *cs, uint32_t i)
{
	cs->parked_bytes -= cs->parked[i].n * sizeof(*cs->parked[i].frames);
	free(cs->parked[i].frames);
	cs->parked[i] = cs->parked[--cs->n_parked];
}

static bool is_stack(const struct frame *frames)
{
	return frames[0].is_base;
}

/* Gives up the oldest of its kind. */
static void give_up(struct callstack *cs, bool stack)
{
	uint32_t oldest = UINT32_MAX;

	for (uint32_t i = 0; i < cs->n_parked; i++)
		if (is_stack(cs->parked[i].frames) == stack && (oldest == UINT32_MAX || cs->parked[i].age < cs->parked[oldest].age))
			oldest = i;
	if (oldest == UINT32_MAX)
		return;
	cs_park_drop(cs, oldest);
	cs->stats.given_up += stack;
}

/* Room for one more, of so many bytes. */
static bool make_room(struct callstack *cs, size_t bytes, bool stack)
{
	uint32_t same = 0;

	for (uint32_t i = 0; i < cs->n_parked; i++)
		same += is_stack(cs->parked[i].frames) == stack;
	if (same == (stack ? MAX_PARKED_STACKS : MAX_PARKED_PIECES))
		give_up(cs, stack);
	while (cs->n_parked && cs->parked_bytes + bytes > MAX_PARKED_BYTES) {
		const uint32_t n = cs->n_parked;

		give_up(cs, false);
		if (cs->n_parked == n)
			give_up(cs, true);
	}
	if (cs->n_parked == cs->room_parked) {
		const uint32_t room = cs->room_parked ? cs->room_parked * 2 : 8;
		struct parked *v = reallocarray(cs->parked, room, sizeof(*v));

		if (!v)
			return false;
		cs->parked = v;
		cs->room_parked = room;
	}
	return true;
}

void cs_park(struct callstack *cs, const struct frame *frames, uint32_t n)
{
	struct parked *p;

	if (n == 0)
		return;
	if (n > MAX_PARKED_DEPTH || !make_room(cs, n * sizeof(*frames), is_stack(frames))) {
		cs->stats.given_up += is_stack(frames);
		return;
	}
	p = &cs->parked[cs->n_parked];
	p->frames = malloc(n * sizeof(*frames));
	if (!p->frames) {
		cs->stats.given_up += is_stack(frames);
		return;
	}
	cs->parked_bytes += n * sizeof(*frames);
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

/* A stack whose innermost call returns to `to`. */
static bool waits(const struct parked *p, uint64_t to)
{
	return p->n > 1 && is_stack(p->frames) && p->frames[p->n - 1].back == to;
}

static bool is_same(const struct parked *a, const struct parked *b)
{
	for (uint32_t j = 0; j < a->n && a->n == b->n; j++)
		if (a->frames[j].f != b->frames[j].f || (j && a->frames[j].back != b->frames[j].back))
			return false;
	return a->n == b->n;
}

/* What was parked as piece `i` goes on, but for its frames from `k`, the call that returns. */
static void go_on(struct callstack *cs, uint64_t time, uint32_t i, uint32_t k)
{
	struct frame *frames = cs->parked[i].frames;
	const uint32_t n = cs->parked[i].n;

	cs->parked_bytes -= n * sizeof(*frames);
	cs->parked[i] = cs->parked[--cs->n_parked];
	if (k + 1 < n) {
		frames[k + 1].doubted |= frames[0].doubted;
		cs_park(cs, frames + k + 1, n - k - 1);
	}
	if (frames[0].is_base)
		frames[0].back = cs_leave_stack(cs, time);
	cs->stats.doubted += frames[0].doubted;
	for (uint32_t j = 0; j < k; j++)
		cs_push(cs, time, &frames[j], j == 0 && frames[0].doubted ? CALLSTACK_DOUBTED : CALLSTACK_RESUMED);
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
	bool differ = false;

	for (uint32_t i = 0; i < cs->n_parked; i++) {
		if (!waits(&cs->parked[i], to))
			continue;
		differ |= best >= 0 && !is_same(&cs->parked[best], &cs->parked[i]);
		if (best < 0 || cs->parked[i].age < cs->parked[best].age)
			best = i;
	}
	/* which of them is which is not known from now on */
	for (uint32_t i = 0; i < cs->n_parked && differ; i++)
		if (waits(&cs->parked[i], to))
			cs->parked[i].frames[0].doubted = true;
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
