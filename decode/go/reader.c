// SPDX-License-Identifier: Apache-2.0
#include "decode/go/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/go/order.h"

/* Where the events of one thread are; the next of them is read ahead. */
struct cursor {
	const uint8_t *p, *end; /* of the chunk */
	uint32_t next;		/* chunk, index + 1; 0: there is no more */
	uint64_t base, last;	/* times: of the chunk, and of the event before; 0: that of the chunk */
	struct goraw_event ev;
};

/* `time` is that of the cursor's event, so that the heap need not look at cursors. */
struct place {
	int64_t time;
	struct cursor *cursor;
};

struct goreader {
	struct gostream stream;
	struct gobatch batch;
	bool has_spill; /* `batch` is the first of the next generation (before 1.26) */
	struct budget *budget;
	int version;
	struct gogeneration g;
	bool has_generation;
	struct goorder *order;
	struct cursor *cursors;
	struct place *heap, *sorted;
	uint32_t n_heap, max_cursors;
	uint32_t next_sample;
	uint64_t last_time, syncs, generations, retries;
	bool ended; /* nothing follows but the answer in `result` */
	int result;
	int deferred; /* the answer after the generation that is read now; GOREADER_EVENT: there is none */
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
	k = goorder_new(budget, &r->order);
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
	budget_give(r->budget, (uint64_t)r->max_cursors * (sizeof(*r->cursors) + 2 * sizeof(*r->heap)));
	free(r->cursors);
	free(r->heap);
	free(r->sorted);
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

/* ---- the events of a thread */

static int broken_event(struct goreader *r, const struct cursor *c)
{
	(void)snprintf(r->why, sizeof(r->why),
		       c->ev.type >= GOFMT_N_TYPES ? "found invalid event type: %d" : "found event without a timestamp: type=%d", c->ev.type);
	return broken(r, r->why);
}

/* The next event of the cursor; GOREADER_END: there is none. */
static int cursor_next(struct goreader *r, struct cursor *c)
{
	const struct gofmt_spec *spec;
	uint64_t dt;
	int n;

	while (c->p == c->end) {
		const struct gochunk *chunk;

		if (!c->next)
			return GOREADER_END;
		chunk = &r->g.chunks[c->next - 1];
		c->p = r->g.bytes + chunk->at;
		c->end = c->p + chunk->size;
		c->next = chunk->next;
		c->base = gogeneration_ns(&r->g, chunk->time);
		c->last = 0;
	}
	c->ev.type = *c->p++;
	spec = gofmt_spec(c->ev.type);
	if (!spec->timed)
		return broken_event(r, c);
	n = gofmt_uvarint(c->p, (uint64_t)(c->end - c->p), &dt);
	if (n <= 0)
		return broken(r, "found invalid uvarint for timestamp");
	c->p += n;
	memset(c->ev.args, 0, sizeof(c->ev.args));
	for (unsigned int i = 0; i < spec->n_args; i++) {
		n = gofmt_uvarint(c->p, (uint64_t)(c->end - c->p), &c->ev.args[i]);
		if (n <= 0)
			return broken(r, "found invalid uvarint");
		c->p += n;
	}
	c->last = (c->last ? c->last : c->base) + gogeneration_ns(&r->g, dt);
	c->ev.time = c->last;
	return GOREADER_EVENT;
}

/* ---- the cursors, that of the earliest event first: a heap, in the order that Go's has where times are the same */

static struct place place_of(struct cursor *c)
{
	return (struct place){.time = (int64_t)c->ev.time, .cursor = c};
}

static uint32_t sift_up(struct place *h, uint32_t i)
{
	const struct place p = h[i];

	for (; i > 0 && h[(i - 1) / 2].time > p.time; i = (i - 1) / 2)
		h[i] = h[(i - 1) / 2];
	h[i] = p;
	return i;
}

static void sift_down(struct place *h, uint32_t n, uint32_t i)
{
	const struct place p = h[i];

	for (;;) {
		uint32_t least = 2 * i + 1;

		if (least + 1 < n && h[least].time > h[least + 1].time)
			least++;
		if (least >= n || h[least].time >= p.time)
			break;
		h[i] = h[least];
		i = least;
	}
	h[i] = p;
}

static void swap(struct place *h, uint32_t a, uint32_t b)
{
	const struct place p = h[a];

	h[a] = h[b];
	h[b] = p;
}

static void heap_remove(struct goreader *r, uint32_t i)
{
	for (; i > 0; i = (i - 1) / 2)
		swap(r->heap, i, (i - 1) / 2);
	swap(r->heap, 0, --r->n_heap);
	sift_down(r->heap, r->n_heap, 0);
}

/* Stable. */
static void merge_sort(struct place *v, struct place *room, uint32_t n)
{
	uint32_t half = n / 2, a = 0, b = half;

	if (n <= 12) {
		for (uint32_t i = 1; i < n; i++)
			for (uint32_t k = i; k > 0 && v[k - 1].time > v[k].time; k--)
				swap(v, k, k - 1);
		return;
	}
	merge_sort(v, room, half);
	merge_sort(v + half, room, n - half);
	memcpy(room, v, n * sizeof(*room));
	for (uint32_t i = 0; i < n; i++)
		v[i] = b == n || (a < half && room[a].time <= room[b].time) ? room[a++] : room[b++];
}

/* ---- generations */

/* The trace is about to be given up or over: a last event, then that answer. */
static int last_sync(struct goreader *r, int result, struct goevent *ret)
{
	r->has_generation = false;
	*ret = (struct goevent){.kind = GOEVENT_SYNC, .type = GOFMT_SYNC, .m = GOFMT_NO_ID, .p = GOFMT_NO_ID, .g = GOFMT_NO_ID,
		.time = r->last_time, .raw_time = r->last_time, .id = ++r->syncs};
	(void)end(r, result);
	return GOREADER_EVENT;
}

static int grow_cursors(struct goreader *r)
{
	const uint32_t n = r->g.n_threads;

	if (n <= r->max_cursors)
		return 0;
	if (!budget_take(r->budget, (uint64_t)(n - r->max_cursors) * (sizeof(*r->cursors) + 2 * sizeof(*r->heap))))
		return -ENOMEM;
	free(r->cursors);
	free(r->heap);
	free(r->sorted);
	r->max_cursors = n;
	r->cursors = calloc(n, sizeof(*r->cursors));
	r->heap = calloc(n, sizeof(*r->heap));
	r->sorted = calloc(n, sizeof(*r->sorted));
	return r->cursors && r->heap && r->sorted ? 0 : -ENOMEM;
}

/* All is there: the first event of each thread, and the event that begins it. */
static int begin_generation(struct goreader *r, struct goevent *ret)
{
	int k;

	r->has_generation = true;
	r->n_heap = r->next_sample = 0;
	if (r->g.n_threads > GOREADER_MAX_THREADS)
		return broken(r, "too large: more than 65536 threads in a generation");
	k = grow_cursors(r);
	if (k < 0)
		return end(r, k);
	for (uint32_t i = 0; i < r->g.n_threads; i++) {
		struct cursor *c = &r->cursors[i];

		*c = (struct cursor){.next = r->g.threads[i].first, .ev.m = r->g.threads[i].m};
		k = cursor_next(r, c);
		if (k == GOREADER_BROKEN)
			return k;
		if (k == GOREADER_END)
			continue;
		r->heap[r->n_heap] = place_of(c);
		(void)sift_up(r->heap, r->n_heap++);
	}
	r->generations++;
	*ret = (struct goevent){.kind = GOEVENT_SYNC, .type = GOFMT_SYNC, .m = GOFMT_NO_ID, .p = GOFMT_NO_ID, .g = GOFMT_NO_ID, .id = ++r->syncs,
		.time = gogeneration_ns(&r->g, r->g.min_time), .clock = r->g.has_clock ? &r->g.clock : NULL};
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
			(void)snprintf(r->why, sizeof(r->why), "incomplete generation found; trace likely truncated");
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
			(void)snprintf(r->why, sizeof(r->why), "broken trace: missing end-of-generation event, or generations are interleaved");
			return GOREADER_BROKEN;
		}
		r->g.gen = r->batch.gen;
		k = gogeneration_add(&r->g, r->version, &r->batch, r->why, sizeof(r->why));
		if (k != 0)
			return k < 0 ? k : GOREADER_BROKEN;
	}
}

/* Up to the first batch of the next one, which is kept; what is wrong with that comes after this generation. */
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

static int next_generation(struct goreader *r, struct goevent *ret)
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

/* Takes the event of that cursor, if it is next: enum goorder_answer, or -errno. */
static int try_one(struct goreader *r, uint32_t i, struct goevent *ret)
{
	struct cursor *c = r->heap[i].cursor;
	int k = goorder_advance(r->order, &r->g, &c->ev, ret, r->why, sizeof(r->why));

	if (k != GOORDER_DONE)
		return k;
	k = cursor_next(r, c);
	if (k == GOREADER_BROKEN)
		return GOORDER_BROKEN;
	if (k == GOREADER_END) {
		heap_remove(r, i);
		return GOORDER_DONE;
	}
	r->heap[i] = place_of(c);
	if (sift_up(r->heap, i) == i)
		sift_down(r->heap, r->n_heap, i);
	return GOORDER_DONE;
}

static int advance(struct goreader *r, struct goevent *ret)
{
	int k = try_one(r, 0, ret);

	if (k != GOORDER_WAIT)
		return k;
	merge_sort(r->heap, r->sorted, r->n_heap);
	r->retries += r->n_heap;
	if (r->retries > GOREADER_MAX_RETRIES) {
		(void)snprintf(r->why, sizeof(r->why), "too large: events wait for each other too often");
		return GOORDER_BROKEN;
	}
	for (uint32_t i = 1; i < r->n_heap && k == GOORDER_WAIT; i++)
		k = try_one(r, i, ret);
	if (k == GOORDER_WAIT) {
		(void)snprintf(r->why, sizeof(r->why), "broken trace: failed to advance: frontier:");
		return GOORDER_BROKEN;
	}
	return k;
}

static void sample(struct goreader *r, struct goevent *ret)
{
	const struct gosample *s = &r->g.samples[r->next_sample++];

	*ret = (struct goevent){.kind = GOEVENT_STACK_SAMPLE, .type = GOFMT_CPU_SAMPLE, .m = s->m, .p = s->p, .g = s->g, .time = s->time,
		.raw_time = s->time, .stack = gogeneration_has_stack(&r->g, s->stack) ? s->stack : 0};
}

/* Numbers that the event has must be in its generation's tables. */
static int validate(struct goreader *r, const struct goevent *e)
{
	const struct gofmt_spec *spec = gofmt_spec(e->type);
	if (e->kind == GOEVENT_SYNC || e->kind == GOEVENT_STACK_SAMPLE)
		return 0;
	for (unsigned int left = spec->strings | spec->stacks; left; left &= left - 1) {
		const int i = __builtin_ctz(left);

		if (spec->strings >> i & 1 && !gogeneration_has_string(&r->g, e->args[i])) {
			(void)snprintf(r->why, sizeof(r->why), "found invalid string ID %" PRIu64 " for event %s", e->args[i], spec->name);
			return broken(r, r->why);
		}
		if (spec->stacks >> i & 1 && !gogeneration_has_stack(&r->g, e->args[i])) {
			(void)snprintf(r->why, sizeof(r->why), "found invalid stack ID %" PRIu64 " for event %s", e->args[i], spec->name);
			return broken(r, r->why);
		}
	}
	return 0;
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
	if (goorder_next(r->order, ret))
		return GOREADER_EVENT;
	if (r->ended)
		return r->result;
	if (r->n_heap == 0 && r->next_sample == r->g.n_samples)
		return next_generation(r, ret);
	if (r->next_sample < r->g.n_samples &&
	    (r->n_heap == 0 || (int64_t)r->g.samples[r->next_sample].time < r->heap[0].time)) {
		sample(r, ret);
		return GOREADER_EVENT;
	}
	k = advance(r, ret);
	if (k == GOORDER_DONE)
		return GOREADER_EVENT;
	return k < 0 ? end(r, k) : broken(r, r->why);
}

int goreader_next(struct goreader *r, struct goevent *ret)
{
	int k = next(r, ret);

	if (k != GOREADER_EVENT)
		return k;
	k = validate(r, ret);
	if (k != 0)
		return k;
	if ((int64_t)ret->time <= (int64_t)r->last_time)
		ret->time = r->last_time + 1;
	r->last_time = ret->time;
	return GOREADER_EVENT;
}
