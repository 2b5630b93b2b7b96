// SPDX-License-Identifier: Apache-2.0
/* On the workers: one block is followed, by whoever runs there and the code that it had then. */
#include "config.h"

#include "decode/pt/pipeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/io.h"
#include "decode/object/process_maps.h"
#include "decode/pt/block_cache.h"
#include "decode/pt/code.h"
#include "decode/pt/stack_pointer.h"
#include "decode/pt/who_ran.h"

#define CODE_BYTES (16u << 20) /* of blocks that one thread keeps for one address space */
#define FILES_BYTES (16u << 20) /* and for all of them, by file */
#define MAX_SPANS 64u
/* much more than the kernel takes between the two, if nothing interrupts it */
#define BEFORE_SWITCH_NS 1000000u

static size_t read_nothing(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	(void)arg;
	(void)ip;
	(void)ret;
	(void)buffer;
	(void)n;
	return 0;
}

int pipeline_context_init(struct pipeline_context *c)
{
	int r = codeblocks_new(read_nothing, NULL, NULL, 1u << 20, &c->nothing);

	if (r == 0)
		r = codeblocks_new(read_nothing, NULL, NULL, 1u << 20, &c->others);
	if (r < 0)
		return r;
	c->others->foreign = true;
	return block_cache_new(FILES_BYTES, &c->files);
}

void pipeline_context_fini(struct pipeline_context *c)
{
	for (size_t i = 0; i < PIPELINE_SPACES; i++)
		codeblocks_free(c->known[i].code);
	codeblocks_free(c->nothing);
	codeblocks_free(c->others);
	block_cache_free(c->files);
}

void pipeline_block_fini(struct pipeline_block *b)
{
	ptflow_free(b->flow);
	verify_free(b->verify);
	free(b->bytes);
	free(b->events);
	free(b->threads);
	b->flow = NULL;
	b->verify = NULL;
	b->bytes = NULL;
	b->events = NULL;
	b->threads = NULL;
}

static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct pipeline_known *k = arg;

	return ptcode_read(k->bytes, k->space, ip, ret, buffer, n);
}

static void missing_code(void *arg, uint64_t ip)
{
	const struct pipeline_known *k = arg;

	ptcode_missing(k->bytes, k->space, ip);
}

/*
 * A jump that stays in its function is nothing to the stack: most of them are never handed out. A
 * function that gets back to where it has kept its stack pointer stays on its stack.
 */
static void tag_block(void *arg, struct codeblock *b)
{
	const struct pipeline_known *k = arg;
	const uint64_t last = b->start + b->to_last;
	struct block_place place;
	bool first;

	if ((b->tags & CODEBLOCK_LOADS_SP) &&
	    !stack_pointer_loads(k->bytes, k->space, b->start, last + b->last_bytes, k->code->is64))
		b->tags &= ~(uint32_t)CODEBLOCK_LOADS_SP;
	if ((b->kind == INSN_COND || b->kind == INSN_JUMP) &&
	    ptcode_function(k->bytes, k->space, last, &first) !=
		    ptcode_function(k->bytes, k->space,
				    last + b->last_bytes + (uint64_t)(int64_t)b->offset, &first))
		b->tags |= CODEBLOCK_LEAVES;
	if (block_place_at(k->space, b->start, k->code->is64, &place))
		block_cache_add(k->files, &place, b);
}

static bool known_block(void *arg, uint64_t ip, struct codeblock *ret)
{
	const struct pipeline_known *k = arg;
	struct block_place place;

	return block_place_at(k->space, ip, k->code->is64, &place) &&
	       block_cache_find(k->files, &place, ip, ret);
}

static struct codeblocks *code_of(struct pipeline_block *b, const struct address_space *space)
{
	struct pipeline_context *c = b->context;
	struct pipeline_known *k = &c->known[0];

	if (!space)
		return c->nothing;
	for (size_t i = 0; i < PIPELINE_SPACES; i++) {
		if (c->known[i].space == space) {
			c->known[i].used = ++c->clock;
			return c->known[i].code;
		}
		if (c->known[i].used < k->used)
			k = &c->known[i];
	}
	codeblocks_free(k->code);
	*k = (struct pipeline_known){.bytes = b->w->o.code, .files = c->files};
	if (codeblocks_new(read_code, tag_block, k, CODE_BYTES, &k->code) < 0) {
		b->error = -ENOMEM;
		return c->nothing;
	}
	k->code->on_missing = missing_code;
	k->code->known = known_block;
	k->space = space;
	k->used = ++c->clock;
	return k->code;
}

static uint32_t thread_number(struct pipeline_block *b, struct pipeline_thread o)
{
	struct pipeline_thread *v;

	for (uint32_t i = b->n_threads; i > 0; i--)
		if (b->threads[i - 1].pid == o.pid && b->threads[i - 1].tid == o.tid)
			return i;
	v = reallocarray(b->threads, b->n_threads + 1, sizeof(*v));
	if (!v) {
		b->error = -ENOMEM;
		return 0;
	}
	b->threads = v;
	v[b->n_threads] = o;
	return ++b->n_threads;
}

/*
 * When the next block begins: nothing in this one is later, whatever an estimate or a damaged stamp
 * says.
 */
static uint64_t limit_ns(const struct pipeline_block *b)
{
	const struct pipeline *w = b->w;
	const size_t next = (size_t)(b - w->blocks) + 1;

	return next < w->n_blocks && w->blocks[next].b->buffer == b->b->buffer ? w->blocks[next].ns
									       : UINT64_MAX;
}

/* The stamp after which this one's true time cannot lie. */
static uint64_t latest(const struct pipeline_block *b, uint64_t ns, uint64_t ip)
{
	/* In the kernel a thread is traced a little before it is reported that it runs. */
	if (ip >= KERNEL_HALF && b->w->config->kernel && ns < UINT64_MAX - BEFORE_SWITCH_NS)
		ns += BEFORE_SWITCH_NS;
	/* MTC or CYC keep the time going; without them it stands still until the next TSC. */
	return b->w->config->time.tsc_ctc_n ? ns : limit_ns(b);
}

static void verify_entry(struct pipeline_block *b, uint64_t ip, const struct address_space *space)
{
	if (b->verify && ip && verify_enter(b->verify, ip, space) < 0)
		b->error = -ENOMEM;
}

/*
 * Who runs: by the switches of the CPU, among those that may, who has code at the address. That is
 * so in a buffer of one thread on one CPU, too: perf's events are inherited, and what that thread
 * began writes there as well.
 */
static struct codeblocks *on_enter(void *arg, uint64_t stamp, uint64_t ip, uint32_t *thread)
{
	struct pipeline_block *b = arg;
	struct pipeline *w = b->w;
	const struct auxtrace_buffer *buffer = auxtrace_buffer(w->o.aux, b->b->buffer);
	const uint64_t ns = stamp ? auxtrace_ns(w->config, stamp) : b->ns;
	const struct address_space *space = NULL;
	struct pipeline_thread o = {0};
	struct who_ran_span spans[MAX_SPANS];
	const unsigned int n =
		who_ran_find(w->o.who_ran, buffer->cpu, ns, latest(b, ns, ip), spans, MAX_SPANS);

	if (buffer->tid > 0) {
		o.tid = (uint32_t)buffer->tid;
		o.pid = who_ran_process(w->o.who_ran, o.tid);
		space = process_maps_at(w->o.maps, o.pid, ns);
	}
	for (unsigned int i = 0; i < n; i++) {
		const uint64_t at = spans[i].from > ns ? spans[i].from : ns;
		const struct address_space *s = process_maps_at(w->o.maps, spans[i].pid, at);
		const bool has_code = spans[i].tid && address_space_find(s, ip);

		if (spans[i].tid == PIPELINE_OTHERS) {
			*thread =
				thread_number(b, (struct pipeline_thread){.pid = PIPELINE_OTHERS,
									  .tid = PIPELINE_OTHERS});
			b->space = NULL;
			b->foreign = true;
			verify_entry(b, ip, NULL);
			return b->context->others;
		}
		if (has_code || (i == 0 && buffer->tid <= 0)) {
			o = (struct pipeline_thread){.pid = spans[i].pid, .tid = spans[i].tid};
			space = s;
		}
		if (has_code)
			break;
	}
	*thread = thread_number(b, o);
	b->space = space;
	verify_entry(b, ip, space);
	b->foreign = false;
	return code_of(b, space);
}

/* Room for the next batch, after what there is. */
static int make_room(struct pipeline_block *b)
{
	const size_t least = b->n + PTFLOW_BATCH, most = b->w->max_events + PTFLOW_BATCH;
	size_t cap = least + least / 2;
	struct ptflow_event *v;

	if (b->cap >= least)
		return 0;
	if (cap > most)
		cap = least > most ? least : most;
	v = reallocarray(b->events, cap, sizeof(*v));
	if (!v)
		return -ENOMEM;
	b->events = v;
	b->cap = cap;
	return 0;
}

/* They are where they stay: `events` is after those that there are. */
static int on_events(void *arg, const struct ptflow_event *events, size_t n)
{
	struct pipeline_block *b = arg;
	int r;

	(void)events;
	b->n += n;
	r = make_room(b);
	if (r < 0)
		return r;
	ptflow_use(b->flow, b->events + b->n);
	return b->error ? b->error : b->n >= b->w->max_events;
}

/* The block's turn on this thread: its first, or where it was left. */
static int take_up(struct pipeline_block *b, struct pipeline_context *c)
{
	struct ptflow_options fo = {.code = c->nothing,
		.enter = on_enter,
		.time = &b->time,
		.sink = on_events,
		.arg = b,
		.errata = b->w->errata,
		.all = b->w->o.all};
	int r = make_room(b);

	if (r < 0)
		return r;
	b->context = c;
	if (b->flow) {
		ptflow_rebind(b->flow, b->foreign ? c->others : code_of(b, b->space), b);
		ptflow_use(b->flow, b->events + b->n);
		return 0;
	}
	fo.batch = b->events;
	b->spread.max = b->w->max_held;
	pttime_init(&b->time, &b->w->config->time);
	if (b->w->o.verify)
		r = verify_new(b->w->config, b->w->o.code, b->bytes, b->n_bytes, &b->verify);
	return r < 0 ? r : ptflow_new(&fo, &b->flow);
}

/* Those whose time is not known yet are held back. */
static void settle_times(struct pipeline_block *b)
{
	const size_t final = interpolation_events(&b->spread, b->events, b->n);

	b->held = b->n - final;
	b->n = final;
}

/*
 * The block is over; it was followed up to the stamp of the next one, if nothing is missing
 * between.
 */
static void settle_last_times(struct pipeline_block *b)
{
	interpolation_end(&b->spread, b->events + b->n, b->held,
			  b->end == PTFLOW_ON ? pttime_now(&b->time) : 0, b->stats.insns);
	b->n += b->held;
	b->held = 0;
}

/*
 * A stamp is before the estimates that led up to it: they were too late, and nothing of that is
 * later than the stamp.
 */
static void limit_estimates(struct pipeline_block *b)
{
	for (size_t i = b->n; i > 1; i--) {
		struct ptflow_event *e = &b->events[i - 2];

		if (e->time <= e[1].time || e[1].time == 0)
			continue;
		e->time = e[1].time;
		e->interpolated = true;
	}
}

/* Stamps become times of the perf clock, which do not run backwards. */
static void to_ns(struct pipeline_block *b)
{
	const struct auxtrace_config *config = b->w->config;
	const uint64_t limit = limit_ns(b);
	uint64_t last = b->events_ns > b->ns ? b->events_ns : b->ns, stamp = 0, ns = 0, from = last;
	size_t estimates = 0; /* the last ones, all after `from` */

	limit_estimates(b);
	b->unowned = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct ptflow_event *e = &b->events[i];

		if (e->time != stamp || i == 0) {
			stamp = e->time;
			ns = auxtrace_ns(config, stamp);
			if (ns > limit)
				ns = limit;
		}
		if (ns > last)
			last = ns;
		e->time = last;
		b->unowned += pipeline_is_unowned(b, e);
		if (e->interpolated) {
			estimates++;
			continue;
		}
		interpolation_round(from, e - estimates, estimates);
		estimates = 0;
		from = last;
	}
	interpolation_round(from, b->events + b->n - estimates, estimates);
	b->events_ns = last;
}

void pipeline_follow(struct work *work, unsigned int worker)
{
	struct pipeline_block *b = (struct pipeline_block *)work;
	struct pipeline_context *c = &b->w->contexts[worker];
	const uint64_t began = io_now_ns(), left = b->b->bytes - b->at;
	const size_t before = b->n;
	const uint8_t *end = b->bytes + b->n_bytes;
	size_t used = 0;
	uint32_t thread;
	int r = take_up(b, c);

	if (r == 0)
		r = ptflow_feed(b->flow, b->bytes, end, b->n_bytes > left ? b->bytes + left : NULL,
				b->more, &used);
	b->more = r == PTFLOW_MORE;
	if (r < 0)
		b->error = r;
	b->at += used;
	if (b->verify)
		verify_events(b->verify, b->events + before, b->n - before);
	settle_times(b);
	if (!b->more && b->flow) {
		b->end = ptflow_where(b->flow, &b->end_ip, &thread);
		b->stats = *ptflow_stats(b->flow);
		b->flow = ptflow_free(b->flow);
	}
	if (!b->more && b->verify) {
		verify_end(b->verify, &b->verified);
		b->verify = verify_free(b->verify);
	}
	if (!b->more)
		settle_last_times(b);
	to_ns(b);
	c->busy_ns += io_now_ns() - began;
}
