// SPDX-License-Identifier: Apache-2.0
#include "decode/go/generation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BROKEN 1

/* What is said of the batch that is being read. */
struct in {
	const uint8_t *p, *end;
	char *why;
	size_t size;
};

static int broken(struct in *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int broken(struct in *in, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(in->why, in->size, format, ap);
	va_end(ap);
	return BROKEN;
}

void gogeneration_init(struct gogeneration *g, struct budget *budget)
{
	*g = (struct gogeneration){.budget = budget};
	idmap_init(&g->by_m, budget);
	idmap_init(&g->by_string, budget);
	idmap_init(&g->by_stack, budget);
}

void gogeneration_clear(struct gogeneration *g)
{
	g->gen = g->min_time = g->frequency = 0;
	g->has_events = g->has_clock = false;
	g->n_bytes = 0;
	g->n_chunks = g->n_threads = g->n_samples = g->n_strings = g->n_frames = g->n_places =
		g->n_stacks = 0;
	idmap_clear(&g->by_m);
	idmap_clear(&g->by_string);
	idmap_clear(&g->by_stack);
	hashmap_fini(&g->by_pc);
	g->by_pc = (struct hashmap){0};
}

void gogeneration_fini(struct gogeneration *g)
{
	free(g->bytes);
	free(g->chunks);
	free(g->threads);
	free(g->samples);
	free(g->strings);
	free(g->frames);
	free(g->places);
	free(g->stacks);
	idmap_fini(&g->by_m);
	idmap_fini(&g->by_string);
	idmap_fini(&g->by_stack);
	hashmap_fini(&g->by_pc);
	if (g->budget)
		budget_give(g->budget, g->taken);
	g->taken = 0;
}

/* Room for one more in an array that is kept for the generations to come. */
static int room(struct gogeneration *g, void *array, uint32_t n, uint32_t *max, size_t size)
{
	void **p = array, *v;
	const uint32_t more = *max ? *max : 64;

	if (n < *max)
		return 0;
	if (*max > UINT32_MAX / 2 || !budget_take(g->budget, more * size))
		return -ENOMEM;
	v = reallocarray(*p, *max + more, size);
	if (!v) {
		budget_give(g->budget, more * size);
		return -ENOMEM;
	}
	g->taken += more * size;
	*p = v;
	*max += more;
	return 0;
}

static int keep(struct gogeneration *g, const uint8_t *p, size_t n, uint64_t *ret_at)
{
	if (!g->bytes || g->n_bytes + n > g->max_bytes) {
		size_t max = g->max_bytes ? g->max_bytes : 1u << 18;
		uint8_t *v;

		/*
		 * large ones are moved by the kernel, which copies nothing: small steps waste less
		 */
		while (max < g->n_bytes + n)
			max += max / 4;
		if (!budget_take(g->budget, max - g->max_bytes))
			return -ENOMEM;
		v = realloc(g->bytes, max);
		if (!v) {
			budget_give(g->budget, max - g->max_bytes);
			return -ENOMEM;
		}
		g->taken += max - g->max_bytes;
		g->bytes = v;
		g->max_bytes = max;
	}
	*ret_at = g->n_bytes;
	memcpy(g->bytes + g->n_bytes, p, n);
	g->n_bytes += n;
	return 0;
}

static bool next(struct in *in, uint64_t *ret)
{
	const int n = gofmt_uvarint(in->p, (uint64_t)(in->end - in->p), ret);

	in->p += n > 0 ? n : 0;
	return n > 0;
}

/* ---- tables */

static int add_string(struct gogeneration *g, struct in *in)
{
	struct gostring old;
	struct gotext text;
	uint64_t id, len, left;
	int r;

	if (!next(in, &id))
		return broken(in, "reading string ID: EOF");
	if (!next(in, &len))
		return broken(in, "reading string length: EOF");
	if (len > GOFMT_MAX_STRING)
		return broken(in, "invalid string size %" PRIu64 ", maximum is %u", len,
			      GOFMT_MAX_STRING);
	left = (uint64_t)(in->end - in->p);
	if (len > left)
		return broken(in,
			      "failed to read full string: read %" PRIu64 " but wanted %" PRIu64,
			      left, len);
	if (gogeneration_string(g, id, &old))
		return broken(in,
			      "multiple strings with the same ID: id=%" PRIu64
			      ", new=%.*s, existing=%.*s",
			      id, (int)len, (const char *)in->p, (int)old.len, old.p);
	r = keep(g, in->p, len, &text.at);
	text.len = (uint32_t)len;
	if (r == 0)
		r = room(g, &g->strings, g->n_strings, &g->max_strings, sizeof(*g->strings));
	if (r < 0)
		return r;
	g->strings[g->n_strings++] = text;
	in->p += len;
	return idmap_put(&g->by_string, id, g->n_strings);
}

static int add_strings(struct gogeneration *g, struct in *in)
{
	int r = 0;

	while (in->p < in->end && r == 0) {
		if (*in->p++ != GOFMT_STRING)
			return broken(in, "expected string event, got %d", in->p[-1]);
		r = add_string(g, in);
	}
	return r;
}

/* What a place is called is what its first frame says. */
static int add_frame(struct gogeneration *g, const struct goraw *f)
{
	uint64_t i = hashmap_get(&g->by_pc, 0, f->pc);
	size_t more;
	int r;

	if (!i) {
		more = hashmap_more_bytes(&g->by_pc);
		if (more && !budget_take(g->budget, more))
			return -ENOMEM;
		g->taken += more;
		r = room(g, &g->frames, g->n_frames, &g->max_frames, sizeof(*g->frames));
		if (r < 0)
			return r;
		g->frames[g->n_frames++] = *f;
		i = g->n_frames;
		r = hashmap_put(&g->by_pc, 0, f->pc, i);
		if (r < 0)
			return r;
	}
	r = room(g, &g->places, g->n_places, &g->max_places, sizeof(*g->places));
	if (r == 0)
		g->places[g->n_places++] = (uint32_t)i - 1;
	return r;
}

static int add_stack(struct gogeneration *g, struct in *in)
{
	static const char *const parts[] = {"PC", "funcID", "fileID", "line"};
	struct gostack stack = {.first = g->n_places};
	uint64_t v[4] = {0}, n;
	int r;

	if (!next(in, &stack.id))
		return broken(in, "reading stack ID: EOF");
	if (!next(in, &n))
		return broken(in, "reading stack size: EOF");
	if (n > GOFMT_MAX_FRAMES)
		return broken(in, "invalid stack size %" PRIu64 ", maximum is %u", n,
			      GOFMT_MAX_FRAMES);
	stack.n = (uint32_t)n;
	for (uint32_t i = 0; i < stack.n; i++) {
		for (unsigned int k = 0; k < 4; k++)
			if (!next(in, &v[k]))
				return broken(in,
					      "reading frame %u's %s for stack %" PRIu64 ": EOF",
					      i + 1, parts[k], stack.id);
		r = add_frame(
			g, &(struct goraw){.pc = v[0], .func = v[1], .file = v[2], .line = v[3]});
		if (r < 0)
			return r;
	}
	if (gogeneration_has_stack(g, stack.id))
		return broken(in, "multiple trace.stacks with the same ID: id=%" PRIu64, stack.id);
	r = room(g, &g->stacks, g->n_stacks, &g->max_stacks, sizeof(*g->stacks));
	if (r < 0)
		return r;
	g->stacks[g->n_stacks++] = stack;
	return idmap_put(&g->by_stack, stack.id, g->n_stacks);
}

static int add_stacks(struct gogeneration *g, struct in *in)
{
	int r = 0;

	while (in->p < in->end && r == 0) {
		if (*in->p++ != GOFMT_STACK)
			return broken(in, "expected stack event, got %d", in->p[-1]);
		r = add_stack(g, in);
	}
	return r;
}

static int add_samples(struct gogeneration *g, struct in *in)
{
	struct gosample s;
	int r = 0;

	while (in->p < in->end && r == 0) {
		if (*in->p++ != GOFMT_CPU_SAMPLE)
			return broken(in, "expected CPU sample event, got %d", in->p[-1]);
		if (!next(in, &s.time) || !next(in, &s.m) || !next(in, &s.p) || !next(in, &s.g) ||
		    !next(in, &s.stack))
			return broken(in, "failed to read CPU sample: EOF");
		/* no goroutine is 0 there */
		if (s.g == 0)
			s.g = GOFMT_NO_ID;
		r = room(g, &g->samples, g->n_samples, &g->max_samples, sizeof(*g->samples));
		if (r == 0)
			g->samples[g->n_samples++] = s;
	}
	return r;
}

static int set_frequency(struct gogeneration *g, struct in *in)
{
	uint64_t frequency;

	if (!next(in, &frequency))
		return broken(in, "reading frequency: EOF");
	if (g->frequency)
		return broken(in, "found multiple frequency events");
	/* Go goes on with times that are infinite */
	if (frequency == 0)
		return broken(in, "the frequency of the trace's clock is 0");
	g->frequency = frequency;
	g->ns_per_unit = 1.0 / ((double)frequency / 1e9);
	return 0;
}

static int set_clock(struct gogeneration *g, struct in *in, uint64_t time)
{
	uint64_t dt;

	if (g->has_clock)
		return broken(in, "found multiple clock snapshot events");
	if (!next(in, &dt) || !next(in, &g->clock.mono) || !next(in, &g->clock.sec) ||
	    !next(in, &g->clock.nsec))
		return broken(in, "reading clock snapshot: EOF");
	g->has_clock = true;
	g->clock_units = time + dt;
	return 0;
}

static int add_sync(struct gogeneration *g, struct in *in, uint64_t time)
{
	int r = 0;

	while (in->p < in->end && r == 0) {
		const uint8_t type = *in->p++;

		if (type == GOFMT_FREQUENCY)
			r = set_frequency(g, in);
		else if (type == GOFMT_CLOCK_SNAPSHOT)
			r = set_clock(g, in, time);
		else
			return broken(in, "expected frequency or clock snapshot event, got %d",
				      type);
	}
	return r;
}

static int add_events(struct gogeneration *g, const struct gobatch *b)
{
	struct gochunk chunk = {.time = b->time, .size = b->size};
	uint32_t i = idmap_get(&g->by_m, b->m);
	struct gothread *t;
	int r = keep(g, b->data, b->size, &chunk.at);

	if (r == 0)
		r = room(g, &g->chunks, g->n_chunks, &g->max_chunks, sizeof(*g->chunks));
	if (r == 0 && !i)
		r = room(g, &g->threads, g->n_threads, &g->max_threads, sizeof(*g->threads));
	if (r < 0)
		return r;
	g->has_events = true;
	if (!i) {
		g->threads[g->n_threads++] = (struct gothread){.m = b->m};
		i = g->n_threads;
		r = idmap_put(&g->by_m, b->m, i);
		if (r < 0)
			return r;
	}
	g->chunks[g->n_chunks++] = chunk;
	t = &g->threads[i - 1];
	if (t->last)
		g->chunks[t->last - 1].next = g->n_chunks;
	else
		t->first = g->n_chunks;
	t->last = g->n_chunks;
	return 0;
}

int gogeneration_add(struct gogeneration *g, int version, const struct gobatch *b, char *why,
		     size_t size)
{
	struct in in = {.p = b->data, .end = b->data + b->size, .why = why, .size = size};
	const uint8_t type = b->size ? b->data[0] : 0;

	if (g->min_time == 0 || b->time < g->min_time)
		g->min_time = b->time;
	if (b->experiment) /* nobody reads them */
		return 0;
	in.p += b->size ? 1 : 0;
	if (type == GOFMT_STRINGS)
		return add_strings(g, &in);
	if (type == GOFMT_STACKS)
		return add_stacks(g, &in);
	if (type == GOFMT_CPU_SAMPLES)
		return add_samples(g, &in);
	if (type == GOFMT_FREQUENCY && version < 25) {
		in.p = b->data;
		return add_sync(g, &in, b->time);
	}
	if (type == GOFMT_SYNC && version >= 25)
		return add_sync(g, &in, b->time);
	return add_events(g, b);
}

/* ---- the whole */

static int compare_samples(const void *a, const void *b)
{
	const struct gosample *x = a, *y = b;

	return x->time < y->time ? -1 : x->time > y->time;
}

/* Whether all names of the stack are known; `in` is told of the first that is not. */
static bool has_names(const struct gogeneration *g, const struct gostack *s, struct in *in)
{
	struct gostring text;

	for (uint32_t k = 0; k < s->n; k++) {
		const struct goraw *f = &g->frames[g->places[s->first + k]];
		const bool func = gogeneration_string(g, f->func, &text);

		if (func && gogeneration_string(g, f->file, &text))
			continue;
		if (in)
			(void)broken(in,
				     "found invalid %s string ID %" PRIu64 " for stack %" PRIu64,
				     func ? "file" : "func", func ? f->file : f->func, s->id);
		return false;
	}
	return true;
}

int gogeneration_finish(struct gogeneration *g, int version, char *why, size_t size)
{
	struct in in = {.why = why, .size = size};
	const struct gostack *bad = NULL;

	if (!g->frequency)
		return broken(&in, "no frequency event found");
	if (version >= 25 && !g->has_clock)
		return broken(&in, "no clock snapshot event found");
	for (uint32_t i = 0; i < g->n_stacks; i++)
		if (!has_names(g, &g->stacks[i], NULL) && (!bad || g->stacks[i].id < bad->id))
			bad = &g->stacks[i];
	if (bad) {
		(void)has_names(g, bad, &in);
		return BROKEN;
	}
	g->clock.trace = gogeneration_ns(g, g->clock_units);
	for (uint32_t i = 0; i < g->n_samples; i++)
		g->samples[i].time = gogeneration_ns(g, g->samples[i].time);
	if (g->n_samples)
		qsort(g->samples, g->n_samples, sizeof(*g->samples), compare_samples);
	return 0;
}

bool gogeneration_string(const struct gogeneration *g, uint64_t id, struct gostring *ret)
{
	const uint32_t i = idmap_get(&g->by_string, id);

	if (i)
		*ret = (struct gostring){.p = (const char *)g->bytes + g->strings[i - 1].at,
					 .len = g->strings[i - 1].len};
	else
		*ret = (struct gostring){.p = ""};
	return i || id == 0;
}

uint32_t gogeneration_stack_depth(const struct gogeneration *g, uint64_t id)
{
	const uint32_t i = idmap_get(&g->by_stack, id);

	return i ? g->stacks[i - 1].n : 0;
}

void gogeneration_frame(const struct gogeneration *g, uint64_t id, uint32_t i, struct goframe *ret)
{
	const struct gostack *s = &g->stacks[idmap_get(&g->by_stack, id) - 1];
	const struct goraw *f = &g->frames[g->places[s->first + i]];

	*ret = (struct goframe){.pc = f->pc, .line = f->line};
	(void)gogeneration_string(g, f->func, &ret->func);
	(void)gogeneration_string(g, f->file, &ret->file);
}
