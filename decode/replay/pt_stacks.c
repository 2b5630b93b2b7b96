// SPDX-License-Identifier: Apache-2.0
/*
 * Stacks that samples, waits and a freeze have brought, and who is around a thread's calls by them
 * (callstack_seen()). The time of such a stack is that of the kernel, in which the thread is not
 * traced: so it is where the trace has stopped. Where the trace's times are coarse that may come
 * later.
 */
#include "config.h"

#include "decode/replay/pt_internal.h"

#include <stdlib.h>
#include <string.h>

#include "decode/stack/walk.h"

static void forget(struct pt_thread *t)
{
	budget_give(t->p->budget, t->n_later * sizeof(*t->later));
	free(t->later);
	t->later = NULL;
}

void pt_stacks_end(struct pt_thread *t)
{
	if (!t->later)
		return;
	t->p->stacks_elsewhere++;
	forget(t);
}

static void keep(struct pt_thread *t, const struct stackwalk *w)
{
	const size_t bytes = w->n_places * sizeof(*t->later);

	if (!budget_take(t->p->budget, bytes)) {
		t->p->stacks_dropped++;
		return;
	}
	t->later = malloc(bytes);
	if (!t->later) {
		budget_give(t->p->budget, bytes);
		t->p->stacks_dropped++;
		return;
	}
	memcpy(t->later, w->places, bytes);
	t->n_later = w->n_places;
	t->later_cut = w->places_cut;
}

/*
 * Whether there is room for all of it around the thread's calls. What the largest took stays taken.
 */
static bool has_room(struct pt_thread *t, uint32_t n_places)
{
	const size_t bytes = callstack_outer_size(n_places);

	if (bytes <= t->outer_bytes)
		return true;
	if (!budget_take(t->p->budget, bytes - t->outer_bytes)) {
		t->p->stacks_dropped++;
		return false;
	}
	t->outer_bytes = bytes;
	return true;
}

void pt_stacks_free(struct pt_thread *t)
{
	pt_stacks_end(t);
	budget_give(t->p->budget, t->outer_bytes);
	t->outer_bytes = 0;
}

int replay_pt_seen(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns,
		   const struct stackwalk *w)
{
	struct pt_thread *t = hashmap_pointer(&p->threads, tid);

	if (!t || !t->space || w->n_places == 0 || p->kind == DUMP_BRANCHES ||
	    p->kind == DUMP_INSNS)
		return 0;
	pt_stacks_end(t);
	if (!has_room(t, w->n_places))
		return 0;
	p->s = s;
	p->ns = ns > p->ns ? ns : p->ns;
	p->interpolated = false;
	if (callstack_seen(t->calls, p->ns, w->places, w->n_places, w->places_cut) ==
	    CALLSTACK_ELSEWHERE)
		keep(t, w);
	return p->error;
}

int pt_stacks_stopped(struct pt_thread *t)
{
	if (!t->later)
		return 0;
	if (callstack_seen(t->calls, t->p->ns, t->later, t->n_later, t->later_cut) ==
	    CALLSTACK_ELSEWHERE)
		t->p->stacks_elsewhere++;
	forget(t);
	return t->p->error;
}
