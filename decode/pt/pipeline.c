// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/base/budget.h"
#include "decode/pt/pipeline_internal.h"

#define AHEAD 32u	 /* blocks in flight for each thread, */
#define ALL_AHEAD 128u	 /* and for all */
#define NEXT_HEADER 512u /* of the next block's PSB+, which the walk goes up to */
/*
 * A block is followed so far in one go; what is left of it is, when what came of it has been handed
 * out.
 */
#define WINDOW_BYTES (256u << 10)
/* a block that is verified is read as a whole, or so much of it; twice, and many are in flight */
#define VERIFY_BYTES (1u << 20)
#define ALL_EVENTS (1u << 20) /* of all blocks in memory, about */
#define MAX_EVENTS (1u << 17) /* of one block at a time */
#define MIN_EVENTS 256u
/* A block that has not more leaves its room to the next one. */
#define SPARE_EVENTS 4096u
#define SPARE_BYTES (32u << 10)
#define MAX_RUN 4096u /* events that are handed out in one go */
/* likewise, but what is held back must not depend on the number of threads */
#define HELD_BLOCKS 24u

static void take_spare(struct pipeline *w, struct pipeline_block *b)
{
	const struct pipeline_spare *s = &w->spares[w->first_spare];

	b->events = s->events;
	b->cap = s->cap;
	b->bytes = s->bytes;
	b->room = s->room;
	w->first_spare = (w->first_spare + 1) % w->max_spares;
	w->n_spares--;
}

static void keep_spare(struct pipeline *w, struct pipeline_block *b)
{
	if (w->n_spares == w->max_spares || b->cap > SPARE_EVENTS || b->room > SPARE_BYTES)
		return;
	w->spares[(w->first_spare + w->n_spares++) % w->max_spares] = (struct pipeline_spare){
		.events = b->events, .cap = b->cap, .bytes = b->bytes, .room = b->room};
	b->events = NULL;
	b->bytes = NULL;
	b->cap = b->room = 0;
}

/*
 * Hands the next piece of a block to a worker: a window, or up to the header of the block after it.
 */
static int submit(struct pipeline *w, struct pipeline_block *b)
{
	const uint64_t left = b->b->bytes - b->at + (b->b->joined ? NEXT_HEADER : 0);
	const size_t window = w->o.verify ? VERIFY_BYTES : WINDOW_BYTES,
		     room = left < window ? (size_t)left : window;

	if (!b->events && !b->bytes && w->n_spares)
		take_spare(w, b);
	if (b->room < room) {
		free(b->bytes);
		b->room = 0;
		b->bytes = malloc(room);
		if (!b->bytes)
			return -ENOMEM;
		b->room = room;
	}
	b->n_bytes = auxtrace_read(w->o.aux, b->b->buffer, b->b->offset + b->at, b->bytes, room);
	b->more = room < left && b->n_bytes == room;
	if (b->held)
		memmove(b->events, b->events + b->n, b->held * sizeof(*b->events));
	b->n = b->held;
	b->submitted = b->handed = true;
	workers_submit(w->o.workers, &b->work);
	return 0;
}

static int await(struct pipeline *w, struct pipeline_block *b)
{
	const uint64_t began = io_now_ns();

	workers_wait(w->o.workers, &b->work);
	b->handed = false;
	w->wait_ns += io_now_ns() - began;
	if (b->error == -ENOMEM) {
		b->more = false;
		return 0;
	}
	return b->error;
}

/*
 * When half of those ahead are used up others follow, so that a thread that sleeps is not woken for
 * each.
 */
static int submit_ahead(struct pipeline *w)
{
	if (w->in_flight > w->most_ahead / 2)
		return 0;
	while (w->next_submit < w->n_blocks && w->in_flight < w->most_ahead) {
		struct pipeline_block *b = &w->blocks[w->order[w->next_submit++]];
		int r = b->submitted ? 0 : submit(w, b);

		if (r < 0)
			return r;
		w->in_flight += b->handed;
	}
	return 0;
}

static bool earlier(const struct pipeline *w, uint32_t a, uint32_t b)
{
	return w->streams[a].ns != w->streams[b].ns ? w->streams[a].ns < w->streams[b].ns : a < b;
}

static void sift_down(struct pipeline *w, size_t i)
{
	for (;;) {
		size_t least = i;

		for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < w->n_heap; k++)
			if (earlier(w, w->heap[k], w->heap[least]))
				least = k;
		if (least == i)
			return;
		const uint32_t t = w->heap[i];

		w->heap[i] = w->heap[least];
		w->heap[least] = t;
		i = least;
	}
}

static void make_heap(struct pipeline *w)
{
	for (uint32_t i = 0; i < auxtrace_n_buffers(w->o.aux); i++)
		if (w->streams[i].at < w->streams[i].end_at)
			w->heap[w->n_heap++] = i;
	for (size_t i = w->n_heap; i > 0; i--)
		sift_down(w, i - 1);
}

static size_t max_events(size_t blocks)
{
	const size_t n = ALL_EVENTS / (blocks ? blocks : 1);

	return n > MAX_EVENTS ? MAX_EVENTS : n < MIN_EVENTS ? MIN_EVENTS : n;
}

int pipeline_new(const struct pipeline_options *options, struct pipeline **ret)
{
	_cleanup_(pipeline_freep) struct pipeline *w = calloc(1, sizeof(*w));
	const size_t n_buffers = auxtrace_n_buffers(options->aux);

	if (!w)
		return -ENOMEM;
	w->o = *options;
	w->config = auxtrace_config(options->aux);
	pterrata_of(w->config->family, w->config->model, &w->errata);
	w->charged = auxtrace_n_blocks(options->aux) * (sizeof(*w->blocks) + sizeof(*w->order));
	if (!budget_take(options->budget, w->charged)) {
		w->charged = 0;
		return -ENOMEM;
	}
	w->n_blocks = auxtrace_n_blocks(options->aux);
	w->blocks = calloc(w->n_blocks + 1, sizeof(*w->blocks));
	w->order = calloc(w->n_blocks + 1, sizeof(*w->order));
	w->streams = calloc(n_buffers + 1, sizeof(*w->streams));
	w->heap = calloc(n_buffers + 1, sizeof(*w->heap));
	w->n_contexts = workers_count(options->workers);
	w->contexts = calloc(w->n_contexts, sizeof(*w->contexts));
	w->most_ahead = w->n_contexts < ALL_AHEAD / AHEAD ? w->n_contexts * AHEAD : ALL_AHEAD;
	w->max_spares = w->most_ahead;
	w->spares = calloc(w->max_spares, sizeof(*w->spares));
	if (!w->spares || !w->blocks || !w->order || !w->streams || !w->heap || !w->contexts)
		return -ENOMEM;
	for (unsigned int i = 0; i < w->n_contexts; i++) {
		int r = pipeline_context_init(&w->contexts[i]);

		if (r < 0)
			return r;
	}
	w->max_events = max_events(n_buffers + w->most_ahead);
	w->max_held = (uint32_t)max_events(n_buffers + HELD_BLOCKS);
	pipeline_make_blocks(w);
	make_heap(w);
	*ret = take_ptr(w);
	return 0;
}

struct pipeline *pipeline_free(struct pipeline *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < w->n_blocks && w->blocks; i++) {
		if (w->blocks[i].handed)
			workers_wait(w->o.workers, &w->blocks[i].work);
		pipeline_block_fini(&w->blocks[i]);
	}
	for (unsigned int i = 0; i < w->n_contexts && w->contexts; i++)
		pipeline_context_fini(&w->contexts[i]);
	while (w->n_spares) {
		const struct pipeline_spare *s =
			&w->spares[(w->first_spare + --w->n_spares) % w->max_spares];

		free(s->events);
		free(s->bytes);
	}
	free(w->spares);
	verify_report_fini(&w->verify);
	budget_give(w->o.budget, w->charged);
	free(w->contexts);
	free(w->blocks);
	free(w->order);
	free(w->streams);
	free(w->heap);
	free(w);
	return NULL;
}

static void add_unknown(struct pipeline *w, const struct pipeline_block *b,
			const struct ptflow_unknown *u)
{
	struct ptflow_unknown *new = ptflow_unknown_add(w->unknown, PIPELINE_UNKNOWN, u);

	if (!new)
		return;
	new->offset += b->b->offset;
	w->unknown_buffer[new - w->unknown] = b->b->buffer;
}

static void add_stats(struct pipeline *w, const struct pipeline_block *b)
{
	w->stats.insns += b->stats.insns;
	w->stats.blocks += b->stats.blocks;
	w->stats.packets += b->stats.packets;
	w->stats.bytes += b->stats.bytes;
	w->stats.skipped_bytes += b->stats.skipped_bytes;
	w->stats.overflows += b->stats.overflows;
	for (size_t i = 0; i < _PTFLOW_E_MAX; i++)
		w->stats.errors[i] += b->stats.errors[i];
	for (size_t i = 0; i < PTFLOW_UNKNOWN_KINDS && b->stats.unknown[i].times; i++)
		add_unknown(w, b, &b->stats.unknown[i]);
	w->cut += b->error == -ENOMEM;
	w->backwards += b->time.backwards;
}

/* The first event of a block says whether it goes on where the one before ended. */
static void join(struct pipeline_stream *s, struct pipeline_block *b)
{
	struct ptflow_event *e;
	size_t i = 0;

	if (b->b->lost_before)
		s->end = PTFLOW_UNKNOWN;
	while (i < b->n && b->events[i].kind == PTFLOW_NOTE)
		i++;
	e = &b->events[i];
	if (!s->any || i == b->n || e->kind != PTFLOW_ENABLE)
		return;
	/* (with an address in the header, what it notes comes after that) */
	if (i == 0 && e->at_psb && s->end == PTFLOW_ON && s->end_ip == e->to) {
		s->next = 1; /* nothing happened: a new block of the same trace */
		b->unowned -= pipeline_is_unowned(b, e);
	} else if (e->at_psb || s->end != PTFLOW_OFF)
		e->kind = PTFLOW_RESYNC;
}

/* The stream's block is waited for, if it is on its way. */
static int start_block(struct pipeline *w, struct pipeline_stream *s)
{
	struct pipeline_block *b = &w->blocks[s->at];
	int r = 0;

	if (b->submitted)
		w->in_flight--;
	else
		r = submit(w, b);
	if (r == 0)
		r = await(w, b);
	if (r < 0)
		return r;
	s->started = true;
	s->next = 0;
	join(s, b);
	w->unowned += b->unowned;
	return 0;
}

/* What came of it was handed out: on with it, if something is left. */
static int go_on(struct pipeline *w, struct pipeline_stream *s)
{
	struct pipeline_block *b = &w->blocks[s->at];
	int r = submit(w, b);

	s->next = 0;
	if (r == 0)
		r = await(w, b);
	if (r == 0)
		w->unowned += b->unowned;
	return r;
}

static void end_block(struct pipeline *w, struct pipeline_stream *s)
{
	struct pipeline_block *b = &w->blocks[s->at];

	add_stats(w, b);
	if (w->o.verify)
		verify_report_add(&w->verify, &b->verified, b->b->buffer, b->b->offset);
	s->any = true;
	s->end = b->end;
	s->end_ip = b->end_ip;
	s->insns += b->stats.insns;
	s->started = false;
	s->at++;
	keep_spare(w, b);
	pipeline_block_fini(b);
	if (s->at < s->end_at && w->blocks[s->at].ns > s->ns)
		s->ns = w->blocks[s->at].ns;
}

/* Brings the earliest event to the top. 1: there is one; 0: the end; -errno. */
static int settle(struct pipeline *w)
{
	while (w->n_heap && !w->settled) {
		struct pipeline_stream *s = &w->streams[w->heap[0]];
		struct pipeline_block *b = &w->blocks[s->at];
		int r = submit_ahead(w);

		if (r == 0 && !s->started)
			r = start_block(w, s);
		if (r < 0)
			return r;
		if (s->next < b->n) {
			const uint64_t ns = b->events[s->next].time;

			w->settled = ns == s->ns;
			if (w->settled)
				break;
			s->ns = ns;
			sift_down(w, 0);
			w->settled = &w->streams[w->heap[0]] == s;
			continue;
		}
		if (b->more) {
			r = go_on(w, s);
			if (r < 0)
				return r;
			continue;
		}
		end_block(w, s);
		if (s->at == s->end_at)
			w->heap[0] = w->heap[--w->n_heap];
		sift_down(w, 0);
	}
	return w->n_heap ? 1 : 0;
}

/* How many of the stream's events come before those of all others, and before `before`. */
static size_t count_run(const struct pipeline *w, uint64_t before)
{
	const uint32_t top = w->heap[0];
	const struct pipeline_stream *s = &w->streams[top];
	const struct pipeline_block *b = &w->blocks[s->at];
	size_t low = s->next, high = b->n - s->next > MAX_RUN ? s->next + MAX_RUN : b->n;

	for (size_t k = 1; k <= 2 && k < w->n_heap; k++) {
		const uint64_t other = w->streams[w->heap[k]].ns,
			       until = other + (top < w->heap[k] && other < UINT64_MAX);

		before = until < before ? until : before;
	}
	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (b->events[mid].time < before)
			low = mid + 1;
		else
			high = mid;
	}
	return low - s->next;
}

int pipeline_run(struct pipeline *w, uint64_t before, struct pipeline_run *ret)
{
	int r = settle(w);
	struct pipeline_stream *s;
	struct pipeline_block *b;

	if (r <= 0)
		return r;
	s = &w->streams[w->heap[0]];
	b = &w->blocks[s->at];
	*ret = (struct pipeline_run){.events = b->events + s->next,
		.n = count_run(w, before),
		.buffer = w->heap[0],
		.insns = s->insns,
		.offset = b->b->offset,
		.insns_before = s->insns_before,
		.threads = b->threads};
	if (ret->n == 0)
		return 1;
	s->next += ret->n;
	s->insns_before = ret->insns + ret->events[ret->n - 1].insns;
	s->ns = ret->events[ret->n - 1].time;
	w->settled = false;
	sift_down(w, 0);
	return 1;
}

int pipeline_peek(struct pipeline *w, uint64_t *ret_ns)
{
	int r = settle(w);

	if (r > 0)
		*ret_ns = w->streams[w->heap[0]].ns;
	return r;
}

uint64_t pipeline_wait_ns(const struct pipeline *w)
{
	return w->wait_ns;
}
