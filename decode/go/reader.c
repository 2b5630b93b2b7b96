// SPDX-License-Identifier: Apache-2.0
#include "decode/go/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/go/cursor.h"
#include "decode/go/frontier.h"
#include "decode/go/order.h"

struct goreader {
	struct gostream stream;
	struct gobatch batch;
	bool has_spill; /* `batch` is the first of the next generation (before 1.26) */
	struct budget *budget;
	int version;
	struct gogeneration g;
	bool has_generation;
	struct goorder *order;
	bool has_more; /* it has made more events than one */
	struct gocursor *cursors;
	uint32_t max_cursors;
	struct gofrontier frontier;
	uint32_t next_sample;
	uint64_t last_time, syncs, generations, retries;
	bool ended; /* nothing follows but the answer in `result` */
	int result;
	/* the answer after the generation that is read now; GOREADER_EVENT: there is none */
	int deferred;
	char why[256], deferred_why[256];
};

int goreader_new(gobatch_read_fn read, void *arg, struct budget *budget, struct goreader **ret)
{
	_cleanup_(goreader_freep) struct goreader *r = calloc(1, sizeof(*r));
	int k;

	if (!r)
		return -ENOMEM;
	r->budget = budget;
	r->deferred = GOREADER_EVENT;
	gostream_init(&r->stream, read, arg);
	gogeneration_init(&r->g, budget);
	r->frontier.budget = budget;
	k = goorder_new(budget, &r->g, r->why, sizeof(r->why), &r->order);
	if (k < 0)
		return k;
	*ret = take_ptr(r);
	return 0;
}

struct goreader *goreader_free(struct goreader *r)
{
	if (!r)
		return NULL;
	gogeneration_fini(&r->g);
	goorder_free(r->order);
	gofrontier_fini(&r->frontier);
	budget_give(r->budget, (uint64_t)r->max_cursors * sizeof(*r->cursors));
	free(r->cursors);
	free(r);
	return NULL;
}

const char *goreader_why(const struct goreader *r)
{
	return r->why;
}

int goreader_version(const struct goreader *r)
{
	return r->version;
}

const struct gogeneration *goreader_generation(const struct goreader *r)
{
	return r->has_generation ? &r->g : NULL;
}

uint64_t goreader_offset(const struct goreader *r)
{
	return r->stream.offset;
}

uint64_t goreader_generations(const struct goreader *r)
{
	return r->generations;
}

static int end(struct goreader *r, int result)
{
	r->ended = true;
	r->result = result;
	return result;
}

static int broken(struct goreader *r, const char *why)
{
	if (why != r->why)
		(void)snprintf(r->why, sizeof(r->why), "%s", why);
	return end(r, GOREADER_BROKEN);
}

/* ---- generations */

/* The trace is about to be given up or over: a last event, then that answer. */
static int last_sync(struct goreader *r, int result, struct goevent *ret)
{
	r->has_generation = false;
	*ret = (struct goevent){.kind = GOEVENT_SYNC,
				.type = GOFMT_SYNC,
				.m = GOFMT_NO_ID,
				.p = GOFMT_NO_ID,
				.g = GOFMT_NO_ID,
				.time = r->last_time,
				.raw_time = r->last_time,
				.id = ++r->syncs};
	(void)end(r, result);
	return GOREADER_EVENT;
}

static int grow_cursors(struct goreader *r)
{
	const uint32_t n = r->g.n_threads;

	if (n <= r->max_cursors)
		return 0;
	if (!budget_take(r->budget, (uint64_t)(n - r->max_cursors) * sizeof(*r->cursors)))
		return -ENOMEM;
	free(r->cursors);
	r->max_cursors = n;
	r->cursors = calloc(n, sizeof(*r->cursors));
	return r->cursors ? 0 : -ENOMEM;
}

/* All is there: the first event of each thread, and the event that begins it. */
static int begin_generation(struct goreader *r, struct goevent *ret)
{
	int k;

	r->has_generation = true;
	r->next_sample = 0;
	if (r->g.n_threads > GOREADER_MAX_THREADS)
		return broken(r, "too large: more than 65536 threads in a generation");
	k = grow_cursors(r);
	if (k == 0)
		k = gofrontier_reset(&r->frontier, r->g.n_threads);
	if (k < 0)
		return end(r, k);
	for (uint32_t i = 0; i < r->g.n_threads; i++) {
		struct gocursor *c = &r->cursors[i];

		gocursor_init(c, &r->g.threads[i]);
		k = gocursor_next(c, &r->g, r->why, sizeof(r->why));
		if (k == GOCURSOR_BROKEN)
			return broken(r, r->why);
		if (k == GOCURSOR_EVENT)
			gofrontier_add(&r->frontier, c);
	}
	r->generations++;
	*ret = (struct goevent){.kind = GOEVENT_SYNC,
				.type = GOFMT_SYNC,
				.m = GOFMT_NO_ID,
				.p = GOFMT_NO_ID,
				.g = GOFMT_NO_ID,
				.id = ++r->syncs,
				.time = gogeneration_ns(&r->g, r->g.min_time),
				.clock = r->g.has_clock ? &r->g.clock : NULL};
	ret->raw_time = ret->time;
	return GOREADER_EVENT;
}

/* Up to the end of a generation: 1.26 and later. */
static int read_marked(struct goreader *r)
{
	int k;

	for (bool any = false;; any = true) {
		k = gostream_next(&r->stream, &r->batch, r->why, sizeof(r->why));
		if (k == GOBATCH_END && r->g.has_events) {
			(void)snprintf(r->why, sizeof(r->why),
				       "incomplete generation found; trace likely truncated");
			return GOREADER_BROKEN;
		}
		if (k == GOBATCH_END)
			return GOREADER_END;
		if (k < 0)
			return k;
		if (k == GOBATCH_BROKEN)
			return GOREADER_BROKEN;
		if (r->batch.is_end)
			return GOREADER_EVENT;
		if (r->batch.gen == 0) {
			(void)snprintf(r->why, sizeof(r->why), "invalid generation number 0");
			return GOREADER_BROKEN;
		}
		if (any && r->batch.gen != r->g.gen) {
			(void)snprintf(
				r->why, sizeof(r->why),
				"broken trace: missing end-of-generation event, or generations are interleaved");
			return GOREADER_BROKEN;
		}
		r->g.gen = r->batch.gen;
		k = gogeneration_add(&r->g, r->version, &r->batch, r->why, sizeof(r->why));
		if (k != 0)
			return k < 0 ? k : GOREADER_BROKEN;
	}
}

/*
 * Up to the first batch of the next one, which is kept; what is wrong with that comes after this
 * generation.
 */
static int read_spilling(struct goreader *r)
{
	int k = 0;

	if (r->has_spill) {
		r->g.gen = r->batch.gen;
		k = gogeneration_add(&r->g, r->version, &r->batch, r->why, sizeof(r->why));
		r->has_spill = false;
	}
	while (k == 0) {
		k = gostream_next(&r->stream, &r->batch, r->why, sizeof(r->why));
		if (k < 0)
			return k;
		if (k == GOBATCH_END) {
			r->deferred = GOREADER_END;
			return GOREADER_EVENT;
		}
		if (k == GOBATCH_BROKEN) {
			if (!r->g.gen)
				return GOREADER_BROKEN;
			r->deferred = GOREADER_BROKEN;
			memcpy(r->deferred_why, r->why, sizeof(r->why));
			return GOREADER_EVENT;
		}
		if (r->batch.gen == 0) {
			(void)snprintf(r->why, sizeof(r->why), "invalid generation number 0");
			return GOREADER_BROKEN;
		}
		if (!r->g.gen)
			r->g.gen = r->batch.gen;
		if (r->batch.gen == r->g.gen + 1) {
			r->has_spill = true;
			return GOREADER_EVENT;
		}
		if (r->batch.gen != r->g.gen) {
			(void)snprintf(r->why, sizeof(r->why), "generations out of order");
			return GOREADER_BROKEN;
		}
		k = gogeneration_add(&r->g, r->version, &r->batch, r->why, sizeof(r->why));
	}
	return k < 0 ? k : GOREADER_BROKEN;
}

static __attribute__((noinline)) int next_generation(struct goreader *r, struct goevent *ret)
{
	int k;

	if (r->deferred != GOREADER_EVENT) {
		memcpy(r->why, r->deferred_why, sizeof(r->why));
		return last_sync(r, r->deferred, ret);
	}
	gogeneration_clear(&r->g);
	k = r->version >= 26 ? read_marked(r) : read_spilling(r);
	if (k == GOREADER_EVENT) {
		k = gogeneration_finish(&r->g, r->version, r->why, sizeof(r->why));
		k = k == 0 ? GOREADER_EVENT : k < 0 ? k : GOREADER_BROKEN;
	}
	if (k < 0)
		return end(r, k);
	return k == GOREADER_EVENT ? begin_generation(r, ret) : last_sync(r, k, ret);
}

/* ---- */

/* Whether the strings and stacks that the event has are in its generation's tables. */
static bool has_all(const struct gogeneration *g, const struct goraw_event *ev)
{
	for (unsigned int left = ev->spec->strings; left; left &= left - 1)
		if (!gogeneration_has_string(g, ev->args[__builtin_ctz(left)]))
			return false;
	for (unsigned int left = ev->spec->stacks; left; left &= left - 1)
		if (!gogeneration_has_stack(g, ev->args[__builtin_ctz(left)]))
			return false;
	return true;
}

/* Says which of them is the first that is not. */
static __attribute__((noinline, cold)) int lacks(struct goreader *r, const struct goevent *e)
{
	const struct gofmt_spec *spec = gofmt_spec(e->type);

	for (unsigned int i = 0; i < spec->n_args; i++) {
		const bool string = spec->strings >> i & 1;

		if (string ? gogeneration_has_string(&r->g, e->args[i])
			   : !(spec->stacks >> i & 1) || gogeneration_has_stack(&r->g, e->args[i]))
			continue;
		(void)snprintf(r->why, sizeof(r->why),
			       "found invalid %s ID %" PRIu64 " for event %s",
			       string ? "string" : "stack", e->args[i], spec->name);
		break;
	}
	return GOORDER_BROKEN;
}

/* Takes the event of that cursor, if it is next: enum goorder_answer, or -errno. */
static inline int try_one(struct goreader *r, uint32_t i, struct goevent *ret)
{
	struct gocursor *c = r->frontier.heap[i].cursor;
	bool more, whole;
	int k = goorder_advance(r->order, &c->ev, ret);

	if (k != GOORDER_DONE && k != GOORDER_MORE)
		return k;
	more = k == GOORDER_MORE;
	whole = has_all(&r->g, &c->ev);
	k = gocursor_next(c, &r->g, r->why, sizeof(r->why));
	if (k == GOCURSOR_BROKEN)
		return GOORDER_BROKEN;
	if (!whole)
		return lacks(r, ret);
	if (k == GOCURSOR_EVENT)
		gofrontier_moved(&r->frontier, i);
	else
		gofrontier_remove(&r->frontier, i);
	r->has_more = more;
	return GOORDER_DONE;
}

/* The earliest event has to wait: the first of the others that has not. */
static __attribute__((noinline)) int try_others(struct goreader *r, struct goevent *ret)
{
	int k = GOORDER_WAIT;

	gofrontier_sort(&r->frontier);
	r->retries += r->frontier.n;
	if (r->retries > GOREADER_MAX_RETRIES) {
		(void)snprintf(r->why, sizeof(r->why),
			       "too large: events wait for each other too often");
		return GOORDER_BROKEN;
	}
	for (uint32_t i = 1; i < r->frontier.n && k == GOORDER_WAIT; i++)
		k = try_one(r, i, ret);
	if (k == GOORDER_WAIT) {
		(void)snprintf(r->why, sizeof(r->why),
			       "broken trace: failed to advance: frontier:");
		return GOORDER_BROKEN;
	}
	return k;
}

static void sample(struct goreader *r, struct goevent *ret)
{
	const struct gosample *s = &r->g.samples[r->next_sample++];

	*ret = (struct goevent){.kind = GOEVENT_STACK_SAMPLE,
				.type = GOFMT_CPU_SAMPLE,
				.m = s->m,
				.p = s->p,
				.g = s->g,
				.time = s->time,
				.raw_time = s->time,
				.stack = gogeneration_has_stack(&r->g, s->stack) ? s->stack : 0};
}

static int next(struct goreader *r, struct goevent *ret)
{
	int k;

	if (!r->version) {
		r->version = gostream_version(&r->stream, r->why, sizeof(r->why));
		if (r->version <= 0) {
			k = r->version;
			r->version = 0;
			return end(r, k < 0 ? k : GOREADER_BROKEN);
		}
	}
	if (r->has_more) {
		r->has_more = goorder_next(r->order, ret);
		if (r->has_more)
			return GOREADER_EVENT;
	}
	if (r->ended)
		return r->result;
	if (r->frontier.n == 0 && r->next_sample == r->g.n_samples)
		return next_generation(r, ret);
	if (r->next_sample < r->g.n_samples &&
	    (r->frontier.n == 0 ||
	     (int64_t)r->g.samples[r->next_sample].time < r->frontier.heap[0].time)) {
		sample(r, ret);
		return GOREADER_EVENT;
	}
	k = try_one(r, 0, ret);
	if (k == GOORDER_WAIT)
		k = try_others(r, ret);
	if (k == GOORDER_DONE)
		return GOREADER_EVENT;
	return k < 0 ? end(r, k) : broken(r, r->why);
}

int goreader_next(struct goreader *r, struct goevent *ret)
{
	int k = next(r, ret);

	if (k != GOREADER_EVENT)
		return k;
	if ((int64_t)ret->time <= (int64_t)r->last_time)
		ret->time = r->last_time + 1;
	r->last_time = ret->time;
	return GOREADER_EVENT;
}
