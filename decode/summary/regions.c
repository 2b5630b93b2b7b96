/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's regions in a summary: sums by name, and the slowest ones with the waits within
 * them. A wait may be reported before the region ends in which it was, or (drawn later) after it.
 */
#include "config.h"

#include "decode/summary/summary_internal.h"

#include <errno.h>
#include <string.h>

void summary_focus_region(struct summary *s, const char *name, uint32_t tid, uint64_t over_ns)
{
	s->region.name = name;
	s->region.tid = tid;
	s->region.over_ns = over_ns;
}

void summary_focus_thread(struct summary *s, uint32_t thread)
{
	s->region.thread = thread;
	s->region.thread_known = s->region.name != NULL;
}

void summary_regions_fini(struct regions_sums *r)
{
	for (uint32_t i = 0; i < r->max_watched; i++)
		free(r->watched[i]);
	free(r->watched);
	free(r->names);
	hashmap_fini(&r->by_name);
}

/* ---- the waits of threads with regions */

void summary_watch(struct summary *s, uint32_t thread)
{
	struct regions_sums *r = &s->regions;

	if (summary_reach((void **)&r->watched, &r->max_watched, thread, sizeof(*r->watched)) < 0)
		return; /* its regions are shown without their waits */
	if (!r->watched[thread] && r->n_watched < MAX_WATCHED) {
		r->watched[thread] = calloc(1, sizeof(*r->watched[thread]));
		r->n_watched += r->watched[thread] != NULL;
	}
	if (r->watched[thread])
		r->watched[thread]->n = 0;
}

/* Of too many, the shortest of the older half goes: long ones stay, and so do the last ones. */
static void watched_add(struct watched *k, const struct summary_wait *w)
{
	uint32_t out = 0;

	if (k->n == WATCHED_WAITS) {
		for (uint32_t i = 1; i < WATCHED_WAITS / 2; i++)
			if (k->waits[i].end - k->waits[i].begin <
			    k->waits[out].end - k->waits[out].begin)
				out = i;
		k->n--;
		memmove(&k->waits[out], &k->waits[out + 1], (k->n - out) * sizeof(*k->waits));
	}
	k->waits[k->n++] = *w;
}

static void slow_add_wait(const struct summary *s, struct slow_region *slow,
			  const struct summary_wait *w)
{
	struct wait_place p;
	uint32_t i;

	if (!slow->region.own_waits || slow->region.thread != w->thread ||
	    !summary_wait_within(s, w, slow->region.begin, slow->region.end, &p))
		return;
	for (i = slow->n_waits; i > 0 && slow->waits[i - 1].inside_ns < p.inside_ns; i--)
		if (i < REGION_WAITS)
			slow->waits[i] = slow->waits[i - 1];
	if (i < REGION_WAITS)
		slow->waits[i] = p;
	if (slow->n_waits < REGION_WAITS)
		slow->n_waits++;
}

void summary_regions_wait(struct summary *s, const struct summary_wait *w)
{
	struct regions_sums *r = &s->regions;

	if (w->thread < r->max_watched && r->watched[w->thread])
		watched_add(r->watched[w->thread], w);
	for (uint32_t i = 0; i < r->n_slowest; i++)
		slow_add_wait(s, &r->slowest[i], w);
}

/* ---- regions */

static int sums_get(struct regions_sums *r, const struct summary_region *region,
		    struct region_sums **ret)
{
	uint32_t i = hashmap_index(&r->by_name, 0, region->name_id);
	int k;

	if (!i) {
		if (r->n_names == r->max_names) {
			uint32_t max = r->max_names ? r->max_names * 2 : 64;
			struct region_sums *p = reallocarray(r->names, max, sizeof(*p));

			if (!p)
				return -ENOMEM;
			r->names = p;
			r->max_names = max;
		}
		i = r->n_names + 1;
		k = hashmap_put(&r->by_name, 0, region->name_id, i);
		if (k < 0)
			return k;
		r->names[r->n_names++] = (struct region_sums){.name = region->name};
	}
	*ret = &r->names[i - 1];
	return 0;
}

static uint64_t length(const struct summary_region *region)
{
	return region->end - region->begin;
}

int summary_region(struct summary *s, const struct summary_region *region)
{
	struct regions_sums *r = &s->regions;
	uint64_t ns = length(region);
	struct region_sums *sums;
	struct slow_region *slow;
	uint32_t i;
	int k = sums_get(r, region, &sums);

	if (k < 0)
		return k;
	r->count++;
	sums->count++;
	sums->total_ns += ns;
	sums->self_ns += region->self_ns;
	if (ns > sums->max_ns)
		sums->max_ns = ns;
	if (r->n_slowest == TOP_REGIONS && ns <= length(&r->slowest[TOP_REGIONS - 1].region))
		return 0;
	if (r->n_slowest < TOP_REGIONS)
		r->n_slowest++;
	for (i = r->n_slowest - 1; i > 0 && length(&r->slowest[i - 1].region) < ns; i--)
		r->slowest[i] = r->slowest[i - 1];
	slow = &r->slowest[i];
	*slow = (struct slow_region){.region = *region};
	if (region->thread < r->max_watched && r->watched[region->thread])
		for (i = 0; i < r->watched[region->thread]->n; i++)
			slow_add_wait(s, slow, &r->watched[region->thread]->waits[i]);
	return 0;
}

static uint64_t weight(const struct summary_goroutines *g)
{
	return g->running_ns + g->runnable_ns;
}

void summary_goroutines(struct summary *s, const struct summary_goroutines *g)
{
	uint32_t i = s->n_goroutines;

	if (i == TOP_GOROUTINES) {
		s->goroutines_omitted++;
		if (weight(g) <= weight(&s->goroutines[--i]))
			return;
	} else {
		s->n_goroutines++;
	}
	for (; i > 0 && weight(&s->goroutines[i - 1]) < weight(g); i--)
		s->goroutines[i] = s->goroutines[i - 1];
	s->goroutines[i] = *g;
}

uint32_t summary_regions_top(const struct regions_sums *r, uint32_t *ret, uint32_t max)
{
	uint32_t n = 0, at;

	for (uint32_t i = 0; i < r->n_names; i++) {
		if (n == max && r->names[ret[n - 1]].max_ns >= r->names[i].max_ns)
			continue;
		if (n < max)
			n++;
		for (at = n - 1; at > 0 && r->names[ret[at - 1]].max_ns < r->names[i].max_ns; at--)
			ret[at] = ret[at - 1];
		ret[at] = i;
	}
	return n;
}
