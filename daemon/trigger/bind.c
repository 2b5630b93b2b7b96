// SPDX-License-Identifier: Apache-2.0
/*
 * Puts triggers into the control pages of producers. A page has one entry for each name, which
 * triggers on the same region share: it has their lowest threshold and shortest cooldown, and the
 * daemon checks each hit against each trigger. The producer's cooldown begins with any hit that it
 * reports: where that is not one of all of them, it is so short that no other is kept back.
 */
#include <errno.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger_internal.h"

/* By the producer's own word: one number may lie, but not outgrow the sums. */
#define SUPPRESSED_AT_ONCE UINT32_MAX
/* Less often than a producer may wake us without being paused. */
#define SHARED_COOLDOWN_NS 5000000ULL

static struct page *page_find(const struct triggers *ts, const struct producer *producer)
{
	struct page *p;

	LIST_FOREACH(p, &ts->pages[producer_id(producer) % PAGE_BUCKETS], link)
		if (p->producer == producer)
			return p;
	return NULL;
}

static struct page *page_get(struct triggers *ts, struct producer *producer)
{
	struct page *p = page_find(ts, producer);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->producer = producer_ref(producer);
	LIST_INIT(&p->thresholds);
	LIST_INSERT_HEAD(&ts->pages[producer_id(producer) % PAGE_BUCKETS], p, link);
	return p;
}

struct threshold *threshold_find(struct triggers *ts, const struct producer *producer, uint32_t id)
{
	const struct page *p = page_find(ts, producer);
	struct threshold *th;

	if (!p)
		return NULL;
	LIST_FOREACH(th, &p->thresholds, link)
		if (th->id == id)
			return th;
	return NULL;
}

/*
 * What the producer kept back was over the lowest threshold; whether over a higher one as well,
 * nobody knows.
 */
static void threshold_sync(struct threshold *th)
{
	uint64_t now = producer_threshold_suppressed(th->page->producer, th->id), more;
	struct binding *b;

	if (now <= th->suppressed_seen)
		return;
	more = now - th->suppressed_seen;
	if (more > SUPPRESSED_AT_ONCE)
		more = SUPPRESSED_AT_ONCE;
	th->suppressed_seen = now;
	LIST_FOREACH(b, &th->bindings, of_threshold) {
		struct trigger *t = b->trigger;

		if (t->over_ns > th->over_ns)
			continue;
		t->counts.hits += more;
		t->counts.suppressed[SUPPRESSED_PROGRAM] += more;
		t->ts->counts.hits += more;
		t->ts->counts.suppressed[SUPPRESSED_PROGRAM] += more;
	}
}

void trigger_sync(struct trigger *t)
{
	struct binding *b;

	LIST_FOREACH(b, &t->bindings, of_trigger)
		threshold_sync(b->threshold);
}

struct wanted {
	uint64_t over_ns, highest_ns, cooldown_ns;
	bool of_thread; /* one of them wants the hits of one thread */
};

static void want(struct wanted *w, const struct trigger *t)
{
	if (t->over_ns < w->over_ns)
		w->over_ns = t->over_ns;
	if (t->over_ns > w->highest_ns)
		w->highest_ns = t->over_ns;
	if (t->cooldown_ns < w->cooldown_ns)
		w->cooldown_ns = t->cooldown_ns;
	w->of_thread |= target_tid(t->target) != 0;
}

/*
 * Brings the entry to the lowest of what its triggers want, and of `t`, which is to become one of
 * them.
 */
static int threshold_put(struct threshold *th, const struct trigger *t)
{
	struct wanted w = {.over_ns = UINT64_MAX, .cooldown_ns = UINT64_MAX};
	const struct binding *b;
	int r;

	if (t)
		want(&w, t);
	LIST_FOREACH(b, &th->bindings, of_threshold)
		want(&w, b->trigger);
	if ((w.highest_ns > w.over_ns || w.of_thread) && w.cooldown_ns > SHARED_COOLDOWN_NS)
		w.cooldown_ns = SHARED_COOLDOWN_NS;
	if (w.cooldown_ns < TRIGGER_COOLDOWN_MIN_NS)
		w.cooldown_ns = TRIGGER_COOLDOWN_MIN_NS;
	if (w.over_ns == th->over_ns && w.cooldown_ns == th->cooldown_ns)
		return 0;
	r = producer_threshold_set(th->page->producer, th->id, th->region, w.over_ns,
				   w.cooldown_ns);
	if (r < 0)
		return r;
	th->over_ns = w.over_ns;
	th->cooldown_ns = w.cooldown_ns;
	return 0;
}

static void threshold_free(struct threshold *th)
{
	producer_threshold_clear(th->page->producer, th->id);
	LIST_REMOVE(th, link);
	free(th);
}

static struct threshold *threshold_get(struct page *p, const char *region)
{
	struct threshold *th;

	LIST_FOREACH(th, &p->thresholds, link)
		if (!strcmp(th->region, region))
			return th;
	th = calloc(1, sizeof(*th));
	if (!th)
		return NULL;
	th->page = p;
	th->id = ++p->last_id;
	memcpy(th->region, region, strlen(region) + 1);
	LIST_INIT(&th->bindings);
	LIST_INSERT_HEAD(&p->thresholds, th, link);
	return th;
}

int trigger_bind(struct trigger *t, struct producer *producer)
{
	struct page *p = page_get(t->ts, producer);
	struct threshold *th = p ? threshold_get(p, t->region) : NULL;
	struct binding *b;
	int r;

	if (!th)
		return -ENOMEM;
	LIST_FOREACH(b, &th->bindings, of_threshold)
		if (b->trigger == t)
			return 0;
	b = calloc(1, sizeof(*b));
	threshold_sync(th);
	r = b ? threshold_put(th, t) : -ENOMEM;
	if (r < 0) {
		free(b);
		if (LIST_EMPTY(&th->bindings))
			threshold_free(th);
		return r;
	}
	b->threshold = th;
	b->trigger = t;
	LIST_INSERT_HEAD(&th->bindings, b, of_threshold);
	LIST_INSERT_HEAD(&t->bindings, b, of_trigger);
	return 0;
}

static void unbind(struct binding *b)
{
	struct threshold *th = b->threshold;

	threshold_sync(th);
	LIST_REMOVE(b, of_threshold);
	LIST_REMOVE(b, of_trigger);
	free(b);
	if (LIST_EMPTY(&th->bindings))
		threshold_free(th);
	else if (threshold_put(th, NULL) < 0)
		log_debug("threshold %u of pid %d stays as it was", th->id,
			  (int)producer_pid(th->page->producer));
}

void trigger_unbind_all(struct trigger *t)
{
	while (!LIST_EMPTY(&t->bindings))
		unbind(LIST_FIRST(&t->bindings));
}

void page_end(struct triggers *ts, const struct producer *producer)
{
	struct page *p = page_find(ts, producer);

	if (!p)
		return;
	while (!LIST_EMPTY(&p->thresholds))
		/* the last of its bindings takes it along */
		unbind(LIST_FIRST(&LIST_FIRST(&p->thresholds)->bindings));
	LIST_REMOVE(p, link);
	(void)producer_unref(p->producer);
	free(p);
}
