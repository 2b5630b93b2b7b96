// SPDX-License-Identifier: Apache-2.0
/*
 * Finds each end's begin among the records, which are in the order of time.
 *
 * Regions nest on a stack, a thread's or a fiber's, whichever rings their records are in. Two
 * walks:
 *
 *  1. Forwards, an end looks for the begin that has its stamp and name among those that are open.
 *     Those above it are closed with it and stay without an end of their own. So the pairs never
 *     cross.
 *  2. Backwards, an end without a begin opens an interval that goes back to when it began. It lives
 *     if it crosses no pair; then a begin is made for it, right after the record before which it
 *     began.
 *
 * Each record is put on a stack once and taken off once, and searched for by halving: what the
 * program wrote does not change how long this takes.
 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "decode/rings/events_internal.h"

/* Begins at the very same time on one stack that are looked through for the right one. */
#define MAX_TIES 64u

#define NO_RECORD UINT32_MAX

struct early {
	struct ringrec rec;
	uint32_t at; /* it comes before this record */
	uint32_t turn;
};

struct join {
	struct ringevents *r;
	struct early *earlies;
	size_t n_earlies, cap_earlies;
	uint64_t floor; /* nothing is drawn before */
	/* for each stack: where its piece of `open` begins, and how much of it is in use */
	uint32_t *base, *depth, *open;
};

/* The place of the first record that is not before `ts`. */
static uint32_t place_of(const struct ringevents *r, uint64_t ts)
{
	size_t lo = 0, hi = r->n_recs;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->recs[mid].ts < ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return (uint32_t)lo;
}

/* ---- begins that are made */

static void end_drop(struct ringevents *r, uint32_t end, uint64_t *count)
{
	r->recs[end].flags |= RINGREC_DROPPED;
	++*count;
}

/* `at` is the least place that it may have; it is further back where its time says so. */
static int early_add(struct join *j, uint32_t end, uint32_t at)
{
	struct ringevents *r = j->r;
	struct early e = {.rec = r->recs[end], .turn = (uint32_t)j->n_earlies};
	uint32_t by_time;

	if (j->n_earlies == j->cap_earlies) {
		size_t cap = j->cap_earlies ? j->cap_earlies * 2 : 64;
		struct early *v;

		if (!ringevents_charge(r, (cap - j->cap_earlies) *
						  (sizeof(*v) + sizeof(struct ringrec)))) {
			end_drop(r, end, &r->losses.over_memory);
			return 0;
		}
		v = reallocarray(j->earlies, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		j->earlies = v;
		j->cap_earlies = cap;
	}
	e.rec.kind = e.rec.kind == RINGEVENT_TASK_END ? RINGEVENT_TASK_BEGIN
						      : RINGEVENT_REGION_BEGIN;
	e.rec.flags = RINGREC_EARLY | RINGREC_JOINED;
	e.rec.ts = e.rec.began < j->floor ? j->floor : e.rec.began;
	by_time = place_of(r, e.rec.ts);
	e.at = at > by_time ? at : by_time;
	j->earlies[j->n_earlies++] = e;
	return 0;
}

/* Of two at one place the outer one was added later. */
static int early_compare(const void *a, const void *b)
{
	const struct early *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	if (x->rec.ts != y->rec.ts)
		return x->rec.ts < y->rec.ts ? -1 : 1;
	return x->turn > y->turn ? -1 : x->turn < y->turn;
}

/* ---- regions */

static bool is_pair(const struct ringrec *begin, const struct ringrec *end)
{
	return begin->ts == end->began && begin->name == end->name;
}

/*
 * How many of a stack's open begins are below the one that ends here; NO_RECORD: it is not among
 * them.
 */
static uint32_t open_find(const struct join *j, uint32_t stack, const struct ringrec *end)
{
	const struct ringevents *r = j->r;
	const uint32_t *open = j->open + j->base[stack];
	uint32_t lo = 0, hi = j->depth[stack];

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (r->recs[open[mid]].ts <= end->began)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (uint32_t i = lo; i > 0 && lo - i < MAX_TIES && r->recs[open[i - 1]].ts == end->began;
	     i--)
		if (is_pair(&r->recs[open[i - 1]], end))
			return i - 1;
	return NO_RECORD;
}

static void join_forwards(struct join *j)
{
	struct ringevents *r = j->r;

	for (size_t i = 0; i < r->n_recs; i++) {
		struct ringrec *rec = &r->recs[i];
		const uint32_t stack = r->segs[rec->seg].stack;
		uint32_t below;

		if (rec->kind == RINGEVENT_REGION_BEGIN)
			j->open[j->base[stack] + j->depth[stack]++] = (uint32_t)i;
		if (rec->kind != RINGEVENT_REGION_END)
			continue;
		if (rec->began == 0 || rec->began > rec->ts) {
			end_drop(r, (uint32_t)i, &r->losses.ends_without_begin);
			continue;
		}
		below = open_find(j, stack, rec);
		if (below == NO_RECORD)
			continue;
		j->depth[stack] = below;
		rec->flags |= RINGREC_JOINED;
		r->recs[j->open[j->base[stack] + below]].flags |= RINGREC_JOINED;
	}
}

/* Those of a stack that began at `ts` or later get their begins, after place `at`. */
static int close_since(struct join *j, uint32_t stack, uint64_t ts, uint32_t at)
{
	const uint32_t *open = j->open + j->base[stack];
	struct ringevents *r = j->r;
	int ret = 0;

	while (ret == 0 && j->depth[stack] > 0) {
		const uint32_t end = open[j->depth[stack] - 1];

		if ((r->recs[end].flags & RINGREC_JOINED) || r->recs[end].began < ts)
			break;
		j->depth[stack]--;
		ret = early_add(j, end, at);
	}
	return ret;
}

static int on_begin_backwards(struct join *j, uint32_t stack, uint32_t begin)
{
	struct ringevents *r = j->r;
	const uint32_t *open = j->open + j->base[stack];
	int ret = close_since(j, stack, r->recs[begin].ts, begin + 1);

	if (ret < 0 || !(r->recs[begin].flags & RINGREC_JOINED))
		return ret;
	j->depth[stack]--;
	/* what ended after that, and says that it began here, has ended twice */
	while (j->depth[stack] > 0) {
		const uint32_t end = open[j->depth[stack] - 1];

		if ((r->recs[end].flags & RINGREC_JOINED) ||
		    !is_pair(&r->recs[begin], &r->recs[end]))
			break;
		end_drop(r, end, &r->losses.ends_without_begin);
		j->depth[stack]--;
	}
	return 0;
}

static int on_end_backwards(struct join *j, uint32_t stack, uint32_t end)
{
	struct ringevents *r = j->r;
	const struct ringrec *rec = &r->recs[end];
	uint32_t *open = j->open + j->base[stack];
	int ret = close_since(j, stack, rec->ts, end + 1);

	if (ret < 0)
		return ret;
	while (j->depth[stack] > 0) {
		const uint32_t outer = open[j->depth[stack] - 1];

		if (r->recs[outer].began <= rec->began)
			break;
		/* They cross: a pair stays, and of two without a begin the later one. */
		if (!(rec->flags & RINGREC_JOINED)) {
			end_drop(r, end, &r->losses.crossing);
			return 0;
		}
		end_drop(r, outer, &r->losses.crossing);
		j->depth[stack]--;
	}
	open[j->depth[stack]++] = end;
	return 0;
}

static int join_backwards(struct join *j)
{
	struct ringevents *r = j->r;
	int ret = 0;

	for (size_t i = r->n_recs; i-- > 0 && ret == 0;) {
		const struct ringrec *rec = &r->recs[i];
		const uint32_t stack = r->segs[rec->seg].stack;

		if (rec->flags & RINGREC_DROPPED)
			continue;
		if (rec->kind == RINGEVENT_REGION_END)
			ret = on_end_backwards(j, stack, (uint32_t)i);
		else if (rec->kind == RINGEVENT_REGION_BEGIN)
			ret = on_begin_backwards(j, stack, (uint32_t)i);
	}
	for (uint32_t s = 0; s < r->n_stacks && ret == 0; s++)
		ret = close_since(j, s, 0, 0);
	return ret;
}

static int join_regions(struct join *j)
{
	struct ringevents *r = j->r;
	_cleanup_free_ uint32_t *base = calloc((size_t)r->n_stacks + 1, sizeof(*base));
	_cleanup_free_ uint32_t *depth = calloc((size_t)r->n_stacks + 1, sizeof(*depth));
	_cleanup_free_ uint32_t *open = NULL;
	uint32_t sum = 0;

	if (!base || !depth)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_recs; i++) {
		const struct ringrec *rec = &r->recs[i];

		if (rec->kind == RINGEVENT_REGION_BEGIN || rec->kind == RINGEVENT_REGION_END)
			base[r->segs[rec->seg].stack]++;
	}
	for (uint32_t s = 0; s < r->n_stacks; s++) {
		uint32_t n = base[s];

		base[s] = sum;
		sum += n;
	}
	open = calloc((size_t)sum + 1, sizeof(*open));
	if (!open)
		return -ENOMEM;
	j->base = base;
	j->depth = depth;
	j->open = open;
	join_forwards(j);
	memset(depth, 0, ((size_t)r->n_stacks + 1) * sizeof(*depth));
	return join_backwards(j);
}

/* ---- tasks */

static int on_task_end(struct join *j, struct hashmap *tasks, uint32_t end)
{
	struct ringevents *r = j->r;
	struct ringrec *rec = &r->recs[end];
	const uint32_t source = r->segs[rec->seg].source;
	const uint64_t id = ringevents_slot(r, rec).a;
	const uint32_t known = hashmap_index(tasks, source, id);

	if (known) {
		struct ringrec *begin = &r->recs[known - 1];

		/* ended twice, or another one with its number */
		if (begin->kind != RINGEVENT_TASK_BEGIN || (begin->flags & RINGREC_JOINED) ||
		    (rec->began && rec->began != begin->ts)) {
			end_drop(r, end, &r->losses.ends_without_begin);
			return 0;
		}
		begin->flags |= RINGREC_JOINED;
		rec->flags |= RINGREC_JOINED;
		rec->began = begin->ts;
		return 0;
	}
	if (rec->began == 0 || rec->began > rec->ts) {
		end_drop(r, end, &r->losses.ends_without_begin);
		return 0;
	}
	if (hashmap_put(tasks, source, id, end + 1) < 0) {
		end_drop(r, end, &r->losses.over_memory);
		return 0;
	}
	return early_add(j, end, 0);
}

static int join_tasks(struct join *j)
{
	struct ringevents *r = j->r;
	_cleanup_(hashmap_fini) struct hashmap tasks = {.slots = NULL};
	int ret = 0;

	for (size_t i = 0; i < r->n_recs && ret == 0; i++) {
		struct ringrec *rec = &r->recs[i];

		if (rec->kind == RINGEVENT_TASK_BEGIN) {
			const uint32_t source = r->segs[rec->seg].source;

			if (hashmap_put(&tasks, source, ringevents_slot(r, rec).a,
					(uint32_t)i + 1) < 0)
				end_drop(r, (uint32_t)i, &r->losses.over_memory);
		} else if (rec->kind == RINGEVENT_TASK_END) {
			ret = on_task_end(j, &tasks, (uint32_t)i);
		}
	}
	return ret;
}

/* ---- together */

/* Moves the records up, from the last on, and puts the early begins between them. */
static int merge(struct join *j)
{
	struct ringevents *r = j->r;
	size_t from = r->n_recs, to = r->n_recs + j->n_earlies, kept = 0;
	struct ringrec *recs;

	if (j->n_earlies) {
		recs = reallocarray(r->recs, to, sizeof(*recs));
		if (!recs)
			return -ENOMEM;
		r->recs = recs;
		r->n_recs = r->cap_recs = to;
		qsort(j->earlies, j->n_earlies, sizeof(*j->earlies), early_compare);
	}
	for (size_t k = j->n_earlies; k-- > 0;) {
		while (from > j->earlies[k].at)
			r->recs[--to] = r->recs[--from];
		r->recs[--to] = j->earlies[k].rec;
	}
	for (size_t i = 0; i < r->n_recs; i++)
		if (!(r->recs[i].flags & RINGREC_DROPPED))
			r->recs[kept++] = r->recs[i];
	r->n_recs = kept;
	return 0;
}

int ringevents_join(struct ringevents *r)
{
	struct join j = {.r = r};
	int ret = ringevents_sort(r);

	if (ret < 0)
		return ret;
	/*
	 * What began before all that was recorded is drawn from there on: a region that is as old
	 * as the program would make the rest a dot.
	 */
	j.floor = r->n_recs ? r->recs[0].ts : 0;
	for (size_t i = 0; i < r->n_brackets; i++)
		if (r->brackets[i].monotonic && r->brackets[i].monotonic < j.floor)
			j.floor = r->brackets[i].monotonic;
	ret = join_regions(&j);
	if (ret == 0)
		ret = join_tasks(&j);
	if (ret == 0)
		ret = merge(&j);
	free(j.earlies);
	return ret;
}
