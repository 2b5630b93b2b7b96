// SPDX-License-Identifier: Apache-2.0
/*
 * Callers that were there all along: no branch shows them, but a stack that was found otherwise. It
 * must be one with the calls that branches have shown.
 */
#include "decode/calls/callstack_internal.h"

#include <stdlib.h>
#include <string.h>

void cs_push_outer(struct callstack *cs, uint64_t time)
{
	const uint32_t n = cs->n_outer;

	cs->n_outer = 0;
	cs->stats.seen += n;
	for (uint32_t i = 0; i < n; i++)
		cs_push_outside(cs, time, &cs->outer[i], n - 1 - i, cs->outer_why);
}

void cs_forget_outer(struct callstack *cs)
{
	if (cs->n_outer == 0)
		return;
	cs->n_outer = 0;
	cs->frames[0].back = 0;
}

/* What is left are the `keep` outermost of them, or fewer, if there was no memory for them. */
static void end_inside(struct callstack *cs, uint64_t time, uint32_t keep)
{
	cs->stats.skipped += cs->n + cs->n_outer - keep;
	cs_pop(cs, time, cs->n);
	cs_push_outer(cs, time);
	if (cs->n > keep)
		cs_pop(cs, time, cs->n - keep);
	cs->over = cs->over && cs->n < keep ? keep - cs->n : 0;
}

bool cs_return_to_outer(struct callstack *cs, uint64_t time, uint64_t to)
{
	for (uint32_t k = cs->n_outer; k > 0; k--) {
		if (cs->outer[k - 1].back != to)
			continue;
		end_inside(cs, time, k - 1);
		if (cs->n == 0)
			cs_caller(cs, time, to);
		return true;
	}
	return false;
}

bool cs_unwind_to_outer(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t pad)
{
	uint32_t keep = 0;

	for (uint32_t k = cs->n_outer; k > 0 && f->known; k--) {
		const struct frame *callee = k == cs->n_outer ? &cs->frames[0] : &cs->outer[k];

		if (cs->outer[k - 1].f != f && !f->is_part)
			continue;
		if (keep == 0 && cs->outer[k - 1].f == f)
			keep = k;
		if (!cs->ops.lands(cs->arg, callee->back - 1, pad))
			continue;
		keep = k;
		break;
	}
	if (keep == 0)
		return false;
	cs->stats.unwound++;
	end_inside(cs, time, keep);
	return true;
}

/* ---- a stack and the calls */

static bool is_kernel(const struct frame *fr)
{
	return fr->ip >> 63;
}

/*
 * So many frames, the outermost, are what `ip` is within: of the thread where it stopped, or where
 * it has called the kernel, which is traced, too. That it is the return address of some call of the
 * program says nothing: it may be there, or about to call again.
 */
static uint32_t find_depth(const struct callstack *cs, uint64_t ip)
{
	if (ip == 0)
		return 0;
	if (cs->stopped && (ip == cs->stop_ip || ip == cs->stop_back))
		return cs->n;
	for (uint32_t k = cs->n; k > 1 && is_kernel(&cs->frames[k - 1]); k--)
		if (!is_kernel(&cs->frames[k - 2]))
			return cs->frames[k - 1].back == ip ? k - 1 : 0;
	return 0;
}

/*
 * Goes over what the frame returns to; false: that is something else. A stack that is cut may end
 * anywhere.
 */
static bool match(const struct frame *fr, const struct stack_place *places, uint32_t n, bool cut,
		  uint32_t *at)
{
	const uint32_t i = *at;

	if (i + fr->is_signal >= n) {
		*at = n;
		return cut;
	}
	if (fr->is_signal) {
		/* the kernel's way back from the handler, and where that interrupted */
		*at = i + 2;
		return places[i + 1].ip == fr->resume || places[i + 1].ip == fr->back;
	}
	*at = i + 1;
	return !places[i].ip || places[i].ip == fr->back;
}

/*
 * Whether the stack goes through all frames that are known, from the innermost of so many; and
 * where it leaves them.
 */
static bool match_all(const struct callstack *cs, uint32_t depth, const struct stack_place *places,
		      uint32_t n, bool cut, uint32_t *ret_outside)
{
	uint32_t at = 1;
	bool agrees = true;

	for (uint32_t k = depth; k > 1 && agrees; k--)
		agrees = match(&cs->frames[k - 1], places, n, cut, &at);
	*ret_outside = at;
	if (agrees && cs->frames[0].begins)
		return at == n;
	if (agrees && cs->frames[0].back)
		agrees = match(&cs->frames[0], places, n, cut, &at);
	for (uint32_t k = cs->n_outer; k > 1 && agrees; k--)
		agrees = match(&cs->outer[k - 1], places, n, cut, &at);
	return agrees;
}

size_t callstack_outer_size(uint32_t n)
{
	return n * sizeof(struct frame);
}

/* These are outside of all frames: the first is what the outermost frame returns to. */
static void take(struct callstack *cs, const struct stack_place *places, uint32_t n, bool cut)
{
	struct frame *v;
	uint32_t known = 0;

	while (known < n && places[known].ip)
		known++;
	cut |= known < n; /* a caller without a name hides those around it */
	n = known;
	if (n <= cs->n_outer || (cs->frames[0].back && !cs->n_outer))
		return;
	v = reallocarray(cs->outer, n, sizeof(*v));
	if (!v) {
		cs->stats.too_deep += n;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct stack_place *p = &places[n - 1 - i];
		/* of the call: after the last one of a function another function begins */
		uint64_t ip = p->exact ? p->ip : p->ip - 1;
		const struct callfunc *f = cs_function(cs, ip, NULL);

		/*
		 * or nobody has called there: a stack was made to begin so, in front of which there
		 * is nothing
		 */
		if (!f->known) {
			ip = p->ip;
			f = cs_function(cs, ip, NULL);
		}
		v[i] = (struct frame){.f = f, .ip = ip, .seen = true, .back = i ? p[1].ip : 0};
	}
	v[0].cut = cut;
	cs->frames[0].back = places[0].ip;
	cs->frames[0].cut = false;
	cs->outer = v;
	cs->n_outer = n;
	cs->outer_why = CALLSTACK_SEEN;
	cs->n_before = 0; /* it is better known now */
}

enum callstack_seen callstack_seen(struct callstack *cs, uint64_t time,
				   const struct stack_place *places, uint32_t n, bool cut)
{
	const bool unsure = cs->in_gap || cs->hidden || cs->over || n == 0;
	const uint32_t depth = unsure ? 0 : find_depth(cs, places[0].ip);
	uint32_t outside;
	bool agrees;

	if (depth == 0 || cs->frames[0].is_signal)
		return CALLSTACK_ELSEWHERE;
	agrees = match_all(cs, depth, places, n, cut, &outside);
	if (!agrees && cs->believed && cs->believed == cs->n) {
		/* it is no call that has disagreed, but what was believed since a gap */
		cs_disprove(cs, time, places[0].ip);
		agrees = match_all(cs, 1, places, n, cut, &outside);
	}
	if (!agrees) {
		cs->stats.stacks_disagree++;
		return CALLSTACK_DISAGREES;
	}
	cs->stats.stacks_agree++;
	cs->believed = 0;
	if (!cs->frames[0].begins)
		take(cs, places + outside, n - outside, cut);
	return CALLSTACK_AGREES;
}
