/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions in a summary, where every call is known: how long they ran themselves, how often, how
 * long at most.
 */
#include "config.h"

#include "decode/summary/summary_internal.h"

#include <errno.h>

static int make_room(struct window *v, uint32_t thread, uint32_t frame)
{
	int r = summary_reach((void **)&v->threads, &v->max_threads, thread, sizeof(*v->threads));

	return r < 0 ? r
		     : summary_reach((void **)&v->functions, &v->max_functions, frame,
				     sizeof(*v->functions));
}

static int called_in(struct window *v, uint32_t thread, uint32_t frame, uint64_t ts)
{
	int r;

	if (ts < v->from || ts >= v->to)
		return 0;
	r = make_room(v, thread, frame);
	if (r < 0)
		return r;
	v->threads[thread].calls++;
	v->functions[frame].calls++;
	return 0;
}

int summary_called(struct summary *s, uint32_t thread, uint32_t frame, uint64_t ts)
{
	int r = called_in(&s->all, thread, frame, ts);

	return r == 0 && s->has_focus ? called_in(&s->focus, thread, frame, ts) : r;
}

static int ran_in(struct window *v, uint32_t thread, uint32_t frame, uint64_t from, uint64_t to,
		  bool outside)
{
	const uint64_t ns = window_overlap(v, from, to);
	int r;

	if (ns == 0)
		return 0;
	r = make_room(v, thread, frame);
	if (r < 0)
		return r;
	if (outside) {
		v->threads[thread].outside_ns += ns;
		v->functions[frame].outside_ns += ns;
	} else {
		v->threads[thread].traced_ns += ns;
		v->functions[frame].self_ns += ns;
	}
	return 0;
}

int summary_ran(struct summary *s, uint32_t thread, uint32_t frame, uint64_t from, uint64_t to,
		bool outside)
{
	int r = ran_in(&s->all, thread, frame, from, to, outside);

	return r == 0 && s->has_focus ? ran_in(&s->focus, thread, frame, from, to, outside) : r;
}

static void returned_in(struct window *v, uint32_t thread, uint32_t frame, uint64_t begin,
			uint64_t end, uint64_t insns)
{
	struct function_sums *f;

	/*
	 * one that began and ended elsewhere has nothing in here but what was reported as running
	 */
	if (end < v->from || end >= v->to || frame >= v->max_functions || thread >= v->max_threads)
		return;
	f = &v->functions[frame];
	f->insns += insns;
	v->threads[thread].insns += insns;
	if (end - begin > f->max_ns)
		f->max_ns = end - begin;
}

void summary_returned(struct summary *s, uint32_t thread, uint32_t frame, uint64_t begin,
		      uint64_t end, uint64_t own_insns)
{
	returned_in(&s->all, thread, frame, begin, end, own_insns);
	if (s->has_focus)
		returned_in(&s->focus, thread, frame, begin, end, own_insns);
}

/*
 * By time, also that outside; where that says nothing or the clock is too coarse for it, by
 * instructions.
 */
static bool heavier(const struct function_sums *a, const struct function_sums *b, bool by_insns)
{
	const uint64_t x = a->self_ns + a->outside_ns, y = b->self_ns + b->outside_ns;

	return by_insns || x == y ? a->insns > b->insns : x > y;
}

uint32_t summary_functions_top(const struct window *v, bool by_insns, uint32_t *ret, uint32_t max)
{
	uint32_t n = 0, at;

	for (uint32_t i = 0; i < v->max_functions; i++) {
		const struct function_sums *f = &v->functions[i];

		if ((f->calls == 0 && f->self_ns == 0 && f->outside_ns == 0) ||
		    (n == max && !heavier(f, &v->functions[ret[n - 1]], by_insns)))
			continue;
		if (n < max)
			n++;
		for (at = n - 1; at > 0 && heavier(f, &v->functions[ret[at - 1]], by_insns); at--)
			ret[at] = ret[at - 1];
		ret[at] = i;
	}
	return n;
}
