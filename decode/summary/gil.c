/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who held the lock of CPython's interpreter. Who ended a wait for it does not tell: who has waited
 * for some ms takes it without being woken when it is free, and so its holders change unseen. But
 * who has it runs, or wants to: where one thread of the process did nearly all the time, in Python,
 * and the others that did not wait for the lock slept, it was that one. Otherwise it is not known.
 *
 * What is kept for that, of all threads from the first such wait on: when each ran or was
 * preempted, but for when it was in a wait for the lock (it runs for a moment each time that it
 * asks again), and in what functions it was seen then.
 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/waitfor.h"
#include "decode/summary/summary_internal.h"

#define MAX_KEPT (1u << 18)
#define NEARLY_ALL(ns) ((ns) - (ns) / 10)
#define MAX_STACKS_LOOKED_AT 4096u

void summary_gil_fini(struct gil *g)
{
	free(g->spans);
	free(g->sights);
	free(g->last);
}

/*
 * Makes element `i` exist. Where that cannot be, what was then is not known, nor what comes after
 * it.
 */
static bool has_room(struct gil *g, void **array, uint32_t *max, uint32_t i, size_t size,
		     uint64_t from)
{
	if (i < MAX_KEPT && summary_reach(array, max, i, size) == 0)
		return true;
	if (from < g->until)
		g->until = from;
	return false;
}

static void keep_span(struct gil *g, const struct gil_span *span)
{
	if (span->to > span->from && has_room(g, (void **)&g->spans, &g->max_spans, g->n_spans,
					      sizeof(*g->spans), span->from))
		g->spans[g->n_spans++] = *span;
}

void summary_gil_begin(struct gil *g, uint64_t now)
{
	if (g->seen)
		return;
	g->seen = true;
	g->since = now;
	g->until = UINT64_MAX;
}

void summary_gil_active(struct gil *g, uint32_t thread, uint64_t from, uint64_t to)
{
	struct gil_span *last;

	if (!g->seen ||
	    !has_room(g, (void **)&g->last, &g->max_last, thread, sizeof(*g->last), from))
		return;
	last = &g->last[thread];
	if (last->to && from >= last->from && from <= last->to) {
		if (to > last->to)
			last->to = to;
		return;
	}
	keep_span(g, last);
	*last = (struct gil_span){.thread = thread, .from = from, .to = to};
}

void summary_gil_inactive(struct gil *g, uint32_t thread, uint64_t since)
{
	if (thread < g->max_last && g->last[thread].from >= since)
		g->last[thread].to = g->last[thread].from;
}

void summary_gil_sight(struct gil *g, uint32_t thread, uint64_t ts, uint32_t stack, uint64_t ns)
{
	if (g->seen && stack &&
	    has_room(g, (void **)&g->sights, &g->max_sights, g->n_sights, sizeof(*g->sights), ts))
		g->sights[g->n_sights++] =
			(struct gil_sight){.ts = ts, .ns = ns, .thread = thread, .stack = stack};
}

static uint64_t span_within(const struct gil_span *span, const struct summary_wait *w)
{
	const uint64_t from = span->from > w->begin ? span->from : w->begin,
		       to = span->to < w->end ? span->to : w->end;

	return to > from ? to - from : 0;
}

/* The depth of what two stacks share. */
static uint32_t shared_depth(const struct stacktab *st, uint32_t a, uint32_t b)
{
	while (a != b) {
		if (stacktab_depth(st, a) >= stacktab_depth(st, b))
			a = stacktab_parent(st, a);
		else
			b = stacktab_parent(st, b);
	}
	return stacktab_depth(st, a);
}

static bool is_within(const struct gil_sight *sight, uint32_t thread, const struct summary_wait *w)
{
	return sight->thread == thread && sight->ts >= w->begin && sight->ts < w->end;
}

/*
 * The innermost of the functions of `stack` that it was in for more than half of the time, as far
 * as it was seen.
 */
static uint32_t mostly_in(const struct summary *s, uint32_t thread, const struct summary_wait *w,
			  uint32_t stack)
{
	const struct gil *g = &s->gil;
	uint64_t ns[STACKTAB_MAX_DEPTH + 1] = {0}, all = 0, inner = 0;
	uint32_t looked_at = 0;

	for (uint32_t i = 0; i < g->n_sights && looked_at < MAX_STACKS_LOOKED_AT; i++) {
		if (!is_within(&g->sights[i], thread, w))
			continue;
		looked_at++;
		all += g->sights[i].ns;
		ns[shared_depth(s->st, stack, g->sights[i].stack)] += g->sights[i].ns;
	}
	for (; stack; stack = stacktab_parent(s->st, stack)) {
		inner += ns[stacktab_depth(s->st, stack)];
		if (inner > all / 2)
			break;
	}
	return stack;
}

/* The heaviest one is a way into what it was mostly in. */
static uint32_t heaviest(const struct summary *s, uint32_t thread, const struct summary_wait *w)
{
	const struct gil *g = &s->gil;
	uint64_t most = 0;
	uint32_t stack = STACKTAB_ROOT;

	for (uint32_t i = 0; i < g->n_sights; i++) {
		if (!is_within(&g->sights[i], thread, w) || g->sights[i].ns <= most)
			continue;
		most = g->sights[i].ns;
		stack = g->sights[i].stack;
	}
	return stack;
}

static bool is_in_python(const struct summary *s, uint32_t stack)
{
	for (; stack; stack = stacktab_parent(s->st, stack)) {
		struct frame_info info;

		stacktab_info(s->st, stacktab_leaf(s->st, stack), &info);
		if (info.kind == FRAME_KIND_PYTHON || waitfor_is_python(info.name))
			return true;
	}
	return false;
}

/* `active`: for each thread, how long it was in the wait. */
static void find(const struct summary *s, struct wait_place *p, uint64_t *active,
		 const struct summary_threads *threads)
{
	const struct summary_wait *w = &p->longest;
	const struct gil *g = &s->gil;
	const uint64_t length = w->end - w->begin;
	uint64_t others = g->since > w->begin ? g->since - w->begin : 0;
	struct summary_thread who, waits;
	uint32_t most = UINT32_MAX, stack;

	if (w->end > g->until || w->uncertain || w->thread >= threads->n)
		return;
	for (uint32_t i = 0; i < threads->n; i++)
		active[i] = 0;
	for (uint32_t i = 0; i < g->n_spans; i++)
		if (g->spans[i].thread < threads->n && g->spans[i].thread != w->thread)
			active[g->spans[i].thread] += span_within(&g->spans[i], w);
	threads->ask(threads->arg, w->thread, &waits);
	for (uint32_t i = 0; i < threads->n; i++) {
		if (!active[i])
			continue;
		threads->ask(threads->arg, i, &who);
		if (who.pid != waits.pid)
			continue;
		if (most == UINT32_MAX || active[i] > active[most]) {
			others += most == UINT32_MAX ? 0 : active[most];
			most = i;
		} else {
			others += active[i];
		}
	}
	if (most == UINT32_MAX || active[most] < NEARLY_ALL(length) ||
	    others > length - NEARLY_ALL(length))
		return;
	stack = mostly_in(s, most, w, heaviest(s, most, w));
	if (!is_in_python(s, stack))
		return;
	threads->ask(threads->arg, most, &who);
	p->holder = (struct wait_holder){.tid = who.tid,
					 .name = who.name,
					 .stack = stack,
					 .ran_ns = active[most]};
}

static void find_shown(const struct summary *s, struct waits_ranking *k, uint64_t *active,
		       const struct summary_threads *threads)
{
	for (uint32_t i = 0; i < k->n && i < TOP_WAITS; i++)
		if (k->places[i].holder.of_gil)
			find(s, &k->places[i], active, threads);
}

int summary_gil_finish(struct summary *s, const struct summary_threads *threads)
{
	_cleanup_free_ uint64_t *active = NULL;
	struct window *const windows[] = {&s->all, &s->focus, &s->region.own};
	struct gil *g = &s->gil;

	if (!g->seen)
		return 0;
	active = calloc((size_t)threads->n + 1, sizeof(*active));
	if (!active)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->max_last; i++) {
		keep_span(g, &g->last[i]);
		g->last[i].to = g->last[i].from;
	}
	for (size_t i = 0; i < ARRAY_SIZE(windows); i++)
		for (unsigned int k = 0; k < N_WAITS_KINDS; k++)
			find_shown(s, &windows[i]->waits[k], active, threads);
	for (uint32_t i = 0; i < s->regions.n_slowest; i++)
		for (uint32_t k = 0; k < s->regions.slowest[i].n_waits; k++)
			if (s->regions.slowest[i].waits[k].holder.of_gil)
				find(s, &s->regions.slowest[i].waits[k], active, threads);
	return 0;
}
