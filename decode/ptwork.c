// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/ptwork.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"
#include "common/json.h"
#include "decode/budget.h"
#include "decode/ptaux.h"
#include "decode/ptcode.h"
#include "decode/ptowner.h"
#include "decode/workers.h"

#define CODE_BYTES (16u << 20) /* of blocks that one thread keeps for one address space */
#define SPACES 4u	      /* address spaces whose blocks one thread keeps */
#define AHEAD 3u	      /* blocks in flight for each thread */
#define MAX_SPANS 64u
#define NEXT_HEADER 512u /* of the next block's PSB+, which the walk goes up to */
/* A block is followed so far in one go; what is left of it is, when what came of it has been handed out. */
#define WINDOW_BYTES (256u << 10)
#define ALL_EVENTS (1u << 20) /* of all blocks in memory, about */
#define MAX_EVENTS (1u << 17) /* of one block at a time */
#define MIN_EVENTS 256u

/* The code of one address space as one thread has found it. */
struct known {
	const struct ptcode_version *version;
	struct codeblocks *code;
	uint64_t used;
};

struct context { /* of one thread */
	struct known known[SPACES];
	uint64_t clock;
	struct codeblocks *nothing; /* where no code is known */
	struct ptflow_event *batch;
	uint64_t busy_ns;
};

struct owner {
	uint32_t pid, tid;
};

/* A block on its way: read by the caller, followed by a worker, handed out by the caller. */
struct block {
	struct work work; /* first */
	struct ptwork *w;
	const struct ptaux_block *b;
	struct context *context; /* whose turn it is */
	struct ptflow *flow;
	struct pttime time;
	const struct ptcode_version *version; /* of who was entered last */
	uint64_t at;			      /* what was followed of it */
	uint8_t *bytes;
	size_t n_bytes;
	struct ptflow_event *events;
	size_t n, cap;
	struct owner *owners; /* by ptflow_event.owner - 1 */
	uint32_t n_owners;
	struct ptflow_stats stats;
	int error;
	bool submitted, handed; /* to the workers: and not waited for */
	bool more;
	enum ptflow_state end; /* how the walk stood there */
	uint64_t end_ip;
	uint64_t ns; /* it begins, at the earliest */
};

struct stream { /* a buffer, as its events are handed out */
	size_t at, end_at; /* blocks[] that are left */
	size_t next;	/* event of blocks[at] */
	uint64_t ns;	/* of the next event, at the earliest */
	bool started;	/* blocks[at] has been waited for */
	uint64_t insns; /* in front of blocks[at] */
	uint64_t told;	/* insns of the event that was handed out last */
	/* of the block before */
	bool any;
	enum ptflow_state end;
	uint64_t end_ip;
};

struct ptwork {
	struct ptwork_options o;
	const struct ptaux_config *config;
	struct context *contexts;
	unsigned int n_contexts;
	struct block *blocks;
	size_t n_blocks;
	uint64_t charged;
	size_t *order; /* blocks by time */
	size_t next_submit, in_flight; /* submitted, and not yet a stream's turn */
	size_t max_events;	       /* of one block at a time */
	struct pterrata errata;
	struct stream *streams;
	uint32_t *heap; /* streams that have something, the earliest on top */
	size_t n_heap;
	struct ptflow_stats stats;
	uint64_t backwards, unowned, cut;
	uint64_t wait_ns; /* the caller for the workers */
	bool settled;	  /* the earliest event is on top, and nobody has taken it */
};

/* ---- on the workers */

static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	return ptcode_read(arg, ip, ret, buffer, n);
}

static size_t read_nothing(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	(void)arg;
	(void)ip;
	(void)ret;
	(void)buffer;
	(void)n;
	return 0;
}

/* A jump that stays in its function is nothing to the stack: most of them are never handed out. */
static void tag_block(void *arg, struct codeblock *b)
{
	const uint64_t last = b->start + b->to_last;
	bool first;

	if (b->kind != INSN_COND && b->kind != INSN_JUMP)
		return;
	b->tag = ptcode_function(arg, last, &first) !=
		 ptcode_function(arg, last + b->last_bytes + (uint64_t)(int64_t)b->offset, &first);
}

static struct codeblocks *code_of(struct block *b, const struct ptcode_version *v)
{
	struct context *c = b->context;
	struct known *k = &c->known[0];

	if (!v)
		return c->nothing;
	for (size_t i = 0; i < SPACES; i++) {
		if (c->known[i].version == v) {
			c->known[i].used = ++c->clock;
			return c->known[i].code;
		}
		if (c->known[i].used < k->used)
			k = &c->known[i];
	}
	codeblocks_free(k->code);
	*k = (struct known){0};
	if (codeblocks_new(read_code, tag_block, (void *)(uintptr_t)v, CODE_BYTES, &k->code) < 0) {
		b->error = -ENOMEM;
		return c->nothing;
	}
	k->version = v;
	k->used = ++c->clock;
	return k->code;
}

static uint32_t owner_number(struct block *b, struct owner o)
{
	struct owner *v;

	for (uint32_t i = b->n_owners; i > 0; i--)
		if (b->owners[i - 1].pid == o.pid && b->owners[i - 1].tid == o.tid)
			return i;
	v = reallocarray(b->owners, b->n_owners + 1, sizeof(*v));
	if (!v) {
		b->error = -ENOMEM;
		return 0;
	}
	b->owners = v;
	v[b->n_owners] = o;
	return ++b->n_owners;
}

/* The stamp behind which this one's true time cannot lie. */
static uint64_t latest(const struct block *b, uint64_t ns)
{
	const struct ptwork *w = b->w;
	const size_t i = (size_t)(b - w->blocks);

	/* MTC or CYC keep the time going; without them it stands still until the next TSC. */
	if (w->config->time.tsc_ctc_n)
		return ns;
	return i + 1 < w->n_blocks && w->blocks[i + 1].b->buffer == b->b->buffer ? w->blocks[i + 1].ns : UINT64_MAX;
}

/* Who runs: by the switches of the CPU, among those that may, who has code at the address. */
static struct codeblocks *on_enter(void *arg, uint64_t stamp, uint64_t ip, uint32_t *owner)
{
	struct block *b = arg;
	struct ptwork *w = b->w;
	const struct ptaux_buffer *buffer = ptaux_buffer(w->o.aux, b->b->buffer);
	const uint64_t ns = ptaux_ns(w->config, stamp);
	const struct ptcode_version *version = NULL;
	struct owner o = {0};

	if (buffer->tid > 0) {
		o.tid = (uint32_t)buffer->tid;
		o.pid = ptowner_process(w->o.owner, o.tid);
		version = ptcode_at(w->o.code, o.pid, ns);
	} else {
		struct ptowner_span spans[MAX_SPANS];
		const unsigned int n =
			ptowner_find(w->o.owner, buffer->cpu, ns, latest(b, ns), spans, MAX_SPANS);

		for (unsigned int i = 0; i < n; i++) {
			const uint64_t at = spans[i].from > ns ? spans[i].from : ns;
			const struct ptcode_version *v = ptcode_at(w->o.code, spans[i].pid, at);

			if (i == 0) {
				o = (struct owner){.pid = spans[i].pid, .tid = spans[i].tid};
				version = v;
			}
			if (spans[i].tid && v && ptcode_is_mapped(v, ip)) {
				o = (struct owner){.pid = spans[i].pid, .tid = spans[i].tid};
				version = v;
				break;
			}
		}
	}
	*owner = owner_number(b, o);
	b->version = version;
	return code_of(b, version);
}

static int on_events(void *arg, const struct ptflow_event *events, size_t n)
{
	struct block *b = arg;
	struct ptflow_event *v;

	if (b->cap - b->n < n) {
		const size_t cap = b->cap ? b->cap * 2 : PTFLOW_BATCH;

		v = reallocarray(b->events, cap < b->n + n ? b->n + n : cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		b->events = v;
		b->cap = cap < b->n + n ? b->n + n : cap;
	}
	memcpy(b->events + b->n, events, n * sizeof(*events));
	b->n += n;
	return b->error ? b->error : b->n >= b->w->max_events;
}

/* The block's turn on this thread: its first, or where it was left. */
static int take_up(struct block *b, struct context *c)
{
	const struct ptflow_options fo = {.code = c->nothing,
		.enter = on_enter,
		.time = &b->time,
		.sink = on_events,
		.arg = b,
		.batch = c->batch,
		.errata = b->w->errata,
		.all = b->w->o.all};

	b->context = c;
	if (b->flow) {
		ptflow_rebind(b->flow, code_of(b, b->version), b, c->batch);
		return 0;
	}
	pttime_init(&b->time, &b->w->config->time);
	return ptflow_new(&fo, &b->flow);
}

static void run(struct work *work, unsigned int worker)
{
	struct block *b = (struct block *)work;
	struct context *c = &b->w->contexts[worker];
	const uint64_t began = io_now_ns(), left = b->b->bytes - b->at;
	const uint8_t *end = b->bytes + b->n_bytes;
	size_t used = 0;
	uint32_t owner;
	int r = take_up(b, c);

	if (r == 0)
		r = ptflow_feed(b->flow, b->bytes, end, b->n_bytes > left ? b->bytes + left : NULL, b->more, &used);
	b->more = r == PTFLOW_MORE;
	if (r < 0)
		b->error = r;
	b->at += used;
	if (!b->more && b->flow) {
		b->end = ptflow_where(b->flow, &b->end_ip, &owner);
		b->stats = *ptflow_stats(b->flow);
		b->flow = ptflow_free(b->flow);
	}
	free(b->bytes);
	b->bytes = NULL;
	c->busy_ns += io_now_ns() - began;
}

/* ---- in the caller */

/* Hands the next piece of a block to a worker: a window, or up to the header of the block behind it. */
static int submit(struct ptwork *w, struct block *b)
{
	const uint64_t left = b->b->bytes - b->at + (b->b->joined ? NEXT_HEADER : 0);
	const size_t room = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;

	b->bytes = malloc(room ? room : 1);
	if (!b->bytes)
		return -ENOMEM;
	b->n_bytes = ptaux_read(w->o.aux, b->b->buffer, b->b->offset + b->at, b->bytes, room);
	b->more = room < left && b->n_bytes == room;
	b->n = 0;
	b->submitted = b->handed = true;
	workers_submit(w->o.workers, &b->work);
	return 0;
}

static int await(struct ptwork *w, struct block *b)
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

static int submit_ahead(struct ptwork *w)
{
	while (w->next_submit < w->n_blocks && w->in_flight < (size_t)w->n_contexts * AHEAD) {
		struct block *b = &w->blocks[w->order[w->next_submit++]];
		int r = b->submitted ? 0 : submit(w, b);

		if (r < 0)
			return r;
		w->in_flight += b->handed;
	}
	return 0;
}

static int order_compare(const void *a, const void *b, void *arg)
{
	const struct ptwork *w = arg;
	const size_t x = *(const size_t *)a, y = *(const size_t *)b;

	if (w->blocks[x].ns != w->blocks[y].ns)
		return w->blocks[x].ns < w->blocks[y].ns ? -1 : 1;
	return x < y ? -1 : x > y;
}

static bool earlier(const struct ptwork *w, uint32_t a, uint32_t b)
{
	return w->streams[a].ns != w->streams[b].ns ? w->streams[a].ns < w->streams[b].ns : a < b;
}

static void sift_down(struct ptwork *w, size_t i)
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

static void make_heap(struct ptwork *w)
{
	for (uint32_t i = 0; i < ptaux_n_buffers(w->o.aux); i++)
		if (w->streams[i].at < w->streams[i].end_at)
			w->heap[w->n_heap++] = i;
	for (size_t i = w->n_heap; i > 0; i--)
		sift_down(w, i - 1);
}

/*
 * Whether the stamp of a block is damaged: it is later than what follows, and what was before fits to that. `before`:
 * of the last block that has one, 0: none.
 */
static bool is_outlier(const struct ptwork *w, size_t i, uint64_t before)
{
	const struct ptaux_block *b = ptaux_block(w->o.aux, i);
	unsigned int n = 0, lower = 0;

	for (size_t k = i + 1; k < w->n_blocks && n < 2; k++) {
		const struct ptaux_block *next = ptaux_block(w->o.aux, k);

		if (next->buffer != b->buffer)
			break;
		if (!next->tsc)
			continue;
		n++;
		lower += next->tsc < b->tsc;
		if (before && next->tsc < b->tsc && next->tsc >= before)
			return true;
	}
	return lower == 2;
}

/* When each block begins, at the earliest: in a buffer never before the one in front of it. */
static void date_blocks(struct ptwork *w, size_t from, size_t to)
{
	uint64_t tsc = 0;

	for (size_t i = from; i < to; i++) {
		const uint64_t own = w->blocks[i].b->tsc;

		if (own > tsc && !is_outlier(w, i, tsc))
			tsc = own;
		w->blocks[i].ns = ptaux_ns(w->config, tsc);
	}
	for (size_t i = to; i > from; i--)
		if (w->blocks[i - 1].ns == 0 && i < to)
			w->blocks[i - 1].ns = w->blocks[i].ns;
}

static void make_blocks(struct ptwork *w)
{
	for (size_t i = 0; i < w->n_blocks; i++) {
		struct block *b = &w->blocks[i];
		struct stream *s;

		b->w = w;
		b->work.run = run;
		b->b = ptaux_block(w->o.aux, i);
		s = &w->streams[b->b->buffer];
		if (s->end_at == 0)
			s->at = i;
		s->end_at = i + 1;
		w->order[i] = i;
	}
	for (size_t i = 0; i < ptaux_n_buffers(w->o.aux); i++) {
		struct stream *s = &w->streams[i];

		date_blocks(w, s->at, s->end_at);
		if (s->at < s->end_at)
			s->ns = w->blocks[s->at].ns;
	}
	qsort_r(w->order, w->n_blocks, sizeof(*w->order), order_compare, w);
}

static int make_context(struct context *c)
{
	int r = codeblocks_new(read_nothing, NULL, NULL, 1u << 20, &c->nothing);

	if (r < 0)
		return r;
	c->batch = malloc(PTFLOW_BATCH * sizeof(*c->batch));
	return c->batch ? 0 : -ENOMEM;
}

static size_t max_events(size_t blocks)
{
	const size_t n = ALL_EVENTS / (blocks ? blocks : 1);

	return n > MAX_EVENTS ? MAX_EVENTS : n < MIN_EVENTS ? MIN_EVENTS : n;
}

int ptwork_new(const struct ptwork_options *options, struct ptwork **ret)
{
	_cleanup_(ptwork_freep) struct ptwork *w = calloc(1, sizeof(*w));
	const size_t n_buffers = ptaux_n_buffers(options->aux);

	if (!w)
		return -ENOMEM;
	w->o = *options;
	w->config = ptaux_config(options->aux);
	pterrata_of(w->config->family, w->config->model, &w->errata);
	w->charged = ptaux_n_blocks(options->aux) * (sizeof(*w->blocks) + sizeof(*w->order));
	if (!budget_take(options->budget, w->charged)) {
		w->charged = 0;
		return -ENOMEM;
	}
	w->n_blocks = ptaux_n_blocks(options->aux);
	w->blocks = calloc(w->n_blocks + 1, sizeof(*w->blocks));
	w->order = calloc(w->n_blocks + 1, sizeof(*w->order));
	w->streams = calloc(n_buffers + 1, sizeof(*w->streams));
	w->heap = calloc(n_buffers + 1, sizeof(*w->heap));
	w->n_contexts = workers_count(options->workers);
	w->contexts = calloc(w->n_contexts, sizeof(*w->contexts));
	if (!w->blocks || !w->order || !w->streams || !w->heap || !w->contexts)
		return -ENOMEM;
	for (unsigned int i = 0; i < w->n_contexts; i++) {
		int r = make_context(&w->contexts[i]);

		if (r < 0)
			return r;
	}
	w->max_events = max_events(n_buffers + (size_t)w->n_contexts * AHEAD);
	make_blocks(w);
	make_heap(w);
	*ret = take_ptr(w);
	return 0;
}

static void free_block(struct block *b)
{
	ptflow_free(b->flow);
	free(b->bytes);
	free(b->events);
	free(b->owners);
	b->flow = NULL;
	b->bytes = NULL;
	b->events = NULL;
	b->owners = NULL;
}

struct ptwork *ptwork_free(struct ptwork *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < w->n_blocks && w->blocks; i++) {
		if (w->blocks[i].handed)
			workers_wait(w->o.workers, &w->blocks[i].work);
		free_block(&w->blocks[i]);
	}
	for (unsigned int i = 0; i < w->n_contexts && w->contexts; i++) {
		for (size_t k = 0; k < SPACES; k++)
			codeblocks_free(w->contexts[i].known[k].code);
		codeblocks_free(w->contexts[i].nothing);
		free(w->contexts[i].batch);
	}
	budget_give(w->o.budget, w->charged);
	free(w->contexts);
	free(w->blocks);
	free(w->order);
	free(w->streams);
	free(w->heap);
	free(w);
	return NULL;
}

static void add_stats(struct ptwork *w, const struct block *b)
{
	w->stats.insns += b->stats.insns;
	w->stats.blocks += b->stats.blocks;
	w->stats.packets += b->stats.packets;
	w->stats.bytes += b->stats.bytes;
	w->stats.skipped_bytes += b->stats.skipped_bytes;
	w->stats.overflows += b->stats.overflows;
	for (size_t i = 0; i < _PTFLOW_E_MAX; i++)
		w->stats.errors[i] += b->stats.errors[i];
	w->cut += b->error == -ENOMEM;
	w->backwards += b->time.backwards;
}

/* The first event of a block says whether it goes on where the one before ended. */
static void join(struct stream *s, struct block *b)
{
	struct ptflow_event *e = &b->events[0];

	if (b->b->lost_before)
		s->end = PTFLOW_UNKNOWN;
	if (!s->any || b->n == 0 || e->kind != PTFLOW_ENABLE)
		return;
	if (e->at_psb && s->end == PTFLOW_ON && s->end_ip == e->to)
		s->next = 1; /* nothing happened: a new block of the same trace */
	else if (e->at_psb || s->end != PTFLOW_OFF)
		e->kind = PTFLOW_FOUND;
}

/* The stream's block is waited for, if it is on its way. */
static int start_block(struct ptwork *w, struct stream *s)
{
	struct block *b = &w->blocks[s->at];
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
	return 0;
}

/* What came of it was handed out: on with it, if something is left. */
static int go_on(struct ptwork *w, struct stream *s)
{
	struct block *b = &w->blocks[s->at];
	int r = submit(w, b);

	s->next = 0;
	return r < 0 ? r : await(w, b);
}

static void end_block(struct ptwork *w, struct stream *s)
{
	struct block *b = &w->blocks[s->at];

	add_stats(w, b);
	s->any = true;
	s->end = b->end;
	s->end_ip = b->end_ip;
	s->insns += b->stats.insns;
	s->started = false;
	s->at++;
	free_block(b);
	if (s->at < s->end_at && w->blocks[s->at].ns > s->ns)
		s->ns = w->blocks[s->at].ns;
}

/* Between what was handed out before, and the next block: an estimate may be too late, and a damaged stamp anything. */
static uint64_t event_ns(const struct ptwork *w, const struct stream *s, const struct ptflow_event *e)
{
	uint64_t ns = ptaux_ns(w->config, e->time);

	if (s->at + 1 < s->end_at && ns > w->blocks[s->at + 1].ns)
		ns = w->blocks[s->at + 1].ns;
	return ns > s->ns ? ns : s->ns;
}

/* Brings the earliest event to the top. 1: there is one; 0: the end; -errno. */
static int settle(struct ptwork *w)
{
	while (w->n_heap && !w->settled) {
		struct stream *s = &w->streams[w->heap[0]];
		struct block *b = &w->blocks[s->at];
		int r = submit_ahead(w);

		if (r == 0 && !s->started)
			r = start_block(w, s);
		if (r < 0)
			return r;
		if (s->next < b->n) {
			const uint64_t ns = event_ns(w, s, &b->events[s->next]);

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

int ptwork_next(struct ptwork *w, struct ptwork_event *ret)
{
	int r = settle(w);
	struct stream *s;
	struct block *b;

	if (r <= 0)
		return r;
	w->settled = false;
	s = &w->streams[w->heap[0]];
	b = &w->blocks[s->at];
	*ret = (struct ptwork_event){.ns = s->ns, .buffer = w->heap[0], .flow = b->events[s->next++]};
	ret->flow.insns += s->insns;
	ret->flow.offset += b->b->offset;
	ret->insns = ret->flow.insns - s->told;
	s->told = ret->flow.insns;
	if (ret->flow.owner) {
		ret->pid = b->owners[ret->flow.owner - 1].pid;
		ret->tid = b->owners[ret->flow.owner - 1].tid;
	}
	if (ret->tid == 0)
		w->unowned++;
	return 1;
}

int ptwork_peek(struct ptwork *w, uint64_t *ret_ns)
{
	int r = settle(w);

	if (r > 0)
		*ret_ns = w->streams[w->heap[0]].ns;
	return r;
}

uint64_t ptwork_wait_ns(const struct ptwork *w)
{
	return w->wait_ns;
}

void ptwork_report_times(const struct ptwork *w, struct json_object *stages)
{
	struct json_object *each = json_add_new_array(stages, "following_each_ns");
	uint64_t sum = 0;

	for (unsigned int i = 0; i < w->n_contexts; i++) {
		sum += w->contexts[i].busy_ns;
		if (each)
			json_append(each, json_object_new_uint64(w->contexts[i].busy_ns));
	}
	json_add_uint(stages, "following_ns", sum);
}

void ptwork_report(const struct ptwork *w, struct json_object *stats, struct json_object *losses)
{
	static const char *const names[_PTFLOW_E_MAX] = {
		[PTFLOW_E_NO_CODE] = "pt_no_code",
		[PTFLOW_E_MISMATCH] = "pt_mismatch",
		[PTFLOW_E_PACKET] = "pt_bad_packets",
		[PTFLOW_E_RETURN] = "pt_bad_returns",
		[PTFLOW_E_RUNAWAY] = "pt_runaway",
	};

	json_add_uint(stats, "instructions", w->stats.insns);
	json_add_uint(stats, "pt_packets", w->stats.packets);
	for (size_t i = 1; i < _PTFLOW_E_MAX; i++)
		if (w->stats.errors[i])
			json_add_uint(losses, names[i], w->stats.errors[i]);
	if (w->stats.overflows)
		json_add_uint(losses, "pt_overflows", w->stats.overflows);
	if (w->stats.skipped_bytes)
		json_add_uint(losses, "pt_bytes_skipped", w->stats.skipped_bytes);
	if (w->unowned)
		json_add_uint(losses, "pt_branches_of_nobody", w->unowned);
	if (w->cut)
		json_add_uint(losses, "pt_blocks_cut", w->cut);
	if (w->backwards)
		json_add_uint(losses, "pt_time_backwards", w->backwards);
}
