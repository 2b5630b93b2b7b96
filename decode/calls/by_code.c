// SPDX-License-Identifier: Apache-2.0
/*
 * The rules that go by what code does to the stack: returns that are jumps, and jumps that come
 * back.
 */
#include "decode/calls/callstack_internal.h"

/* Bytes, with what may be around it. */
#define LONGEST_RETURN 3u

enum callstack_slot cs_slot_before(struct callstack *cs, uint64_t from)
{
	return cs->ops.slot ? cs->ops.slot(cs->arg, from) : CALLSTACK_SLOT_PLAIN;
}

bool cs_to_origin(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
		  const struct callfunc *f)
{
	struct frame fr;
	uint32_t i;

	for (i = cs->n; i > 0 && cs->frames[i - 1].origin != f; i--)
		if (cs->frames[i - 1].f == f)
			return false;
	if (i == 0 || !f->known)
		return false;
	for (uint32_t k = i; k > 1; k--)
		if (cs->frames[k - 2].f == f && cs->frames[k - 1].back &&
		    cs->ops.lands(cs->arg, cs->frames[k - 1].back - 1, to))
			return false;
	if (i < cs->n)
		cs_unwind_to(cs, time, i);
	fr = *cs_top(cs);
	cs_pop(cs, time, 1);
	fr.f = f;
	fr.ip = to;
	fr.site = from;
	fr.origin = fr.part = NULL;
	fr.loaded = fr.called = false;
	cs_push(cs, time, &fr, CALLSTACK_BACK);
	return true;
}

void cs_replace_by_jump(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t to,
			uint64_t from, bool indirect)
{
	const struct callfunc *of = cs_top(cs)->f;
	enum callstack_slot slot;

	if (of->known && !cs_top(cs)->origin) {
		slot = indirect ? cs_slot_before(cs, from) : CALLSTACK_SLOT_PLAIN;
		/*
		 * a direct one to what has no name, of which nothing says that it is a part, may
		 * come back as well
		 */
		if (slot == CALLSTACK_SLOT_PUSHED ||
		    (indirect ? !f->known && !cs_slot_loads(slot) : f->is_unnamed))
			cs_top(cs)->origin = of;
	}
	cs_replace(cs, time, f, to, from);
}

bool cs_is_same_call(const struct callstack *cs, uint64_t to, const struct callfunc *f)
{
	const struct frame *top;

	if (cs->n < 2 || cs->over || !f->known)
		return false;
	top = &cs->frames[cs->n - 1];
	return top->f != f && cs->frames[cs->n - 2].f == f && top->back &&
	       to - top->back - 1 < LONGEST_RETURN;
}

bool cs_is_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	const enum callstack_slot slot = cs_slot_before(cs, from);
	const struct callfunc *f;
	bool first;

	if (cs_top(cs)->half && cs->n > 1) {
		/*
		 * It takes its own address from the stack, or puts another one in its place:
		 * nothing returns to it.
		 */
		cs_pop(cs, time, 1);
		if (slot == CALLSTACK_SLOT_PLAIN || cs_slot_loads(slot))
			return false;
		callstack_jump(cs, time, from, to, true);
		return true;
	}
	if (slot != CALLSTACK_SLOT_PUSHED)
		return false;
	f = cs_function(cs, to, &first);
	if (f == cs_top(cs)->f && f->known && !first)
		return true;
	if (!first || f->is_plt)
		return false;
	cs->stats.tails++;
	cs_replace(cs, time, f, to, from);
	return true;
}
