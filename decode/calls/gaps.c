// SPDX-License-Identifier: Apache-2.0
/*
 * Gaps in what is told: the frames from before one are a hypothesis, which what comes after it
 * proves.
 */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

uint32_t cs_piece_of(const struct callstack *cs, uint32_t i)
{
	while (i && !cs->before[i].apart)
		i--;
	return i;
}

/* A return that leaves the outermost frame of which it is known where it returns to. */

/* Nothing is around it. */
static bool is_outermost(const struct frame *fr)
{
	return fr->begins || fr->first;
}

/*
 * How much of what was before earlier gaps is kept, with so many more frames: all, or the first
 * piece.
 */
static uint32_t kept_before(struct callstack *cs, uint32_t more)
{
	uint32_t n = cs->n_before;

	if (n == 0 || is_outermost(&cs->frames[0]))
		return 0;
	if (n + more <= MAX_BEFORE)
		return n;
	for (uint32_t i = 1; i < n; i++)
		if (cs->before[i].apart) {
			cs->stats.forgotten += n - i;
			return i;
		}
	return n;
}

/* The frames that there are become a piece of the hypothesis. */
static void remember(struct callstack *cs)
{
	const uint32_t more = cs->n_outer + cs->n;
	uint32_t kept, n;
	struct frame *v;

	/* code that nobody knows says nothing of who is around it */
	if (cs->n_before && more == 1 && !is_outermost(&cs->frames[0]) && !cs->frames[0].f->known)
		return;
	kept = kept_before(cs, more);
	n = kept + more;
	v = cs_charge(cs, &cs->charged_before, n) ? reallocarray(cs->before, n, sizeof(*v)) : NULL;
	if (!v) {
		cs->stats.forgotten += more;
		cs->n_before = kept;
		return;
	}
	if (cs->n_outer)
		memcpy(v + kept, cs->outer, cs->n_outer * sizeof(*v));
	memcpy(v + kept + cs->n_outer, cs->frames, cs->n * sizeof(*v));
	for (uint32_t i = kept; i < n; i++)
		v[i].apart = kept && i == kept;
	cs->before = v;
	cs->n_before = n - v[n - 1].pending;
}

void callstack_gap(struct callstack *cs, uint64_t time)
{
	if (cs->waiting)
		waiting_miss(cs->waiting);
	way_close(&cs->way);
	if (cs->n && !cs->in_gap)
		remember(cs);
	cs_drop(cs, time);
	cs->is_new = false;
	cs->in_gap = true;
	cs->stopped = false;
}

/*
 * So many frames of what was before gaps go on, from the first of their piece on: taken for proven,
 * until a return goes elsewhere.
 */
static void believe(struct callstack *cs, uint64_t time, uint32_t n)
{
	const uint32_t first = cs_piece_of(cs, n - 1);

	for (uint32_t j = first; j < n; j++)
		cs_push(cs, time, &cs->before[j], CALLSTACK_GAP);
	cs->stats.adopted += n - first;
	cs->believed = cs->n;
	cs->n_before = first;
}

/*
 * Found after a gap. In a function that was running when it began: it is the same call more often
 * than not; a return will tell. A frame deeper than that is as likely to be another call, unless it
 * is where that has been called to return to.
 */
static bool was_before(struct callstack *cs, uint64_t time, uint64_t ip, const struct callfunc *f)
{
	if (!f->known || !cs->n_before)
		return false;
	if (cs->before[cs->n_before - 1].f == f) {
		believe(cs, time, cs->n_before);
		return true;
	}
	for (uint32_t k = cs->n_before; k > 1; k--) {
		if (cs->before[k - 1].back != ip || cs->before[k - 1].apart ||
		    cs->before[k - 2].f != f)
			continue;
		believe(cs, time, k - 1);
		return true;
	}
	return false;
}

void callstack_resync(struct callstack *cs, uint64_t time, uint64_t ip)
{
	const struct callfunc *f = cs_function(cs, ip, NULL);

	if (cs->hidden) /* the parent's: as good as what was before a gap */
		callstack_gap(cs, time);

	cs->in_gap = false;
	cs->stopped = false;
	cs->is_new = false;
	cs_drop(cs, time);
	if (!was_before(cs, time, ip, f))
		cs_base(cs, time, ip, CALLSTACK_FOUND);
}
