// SPDX-License-Identifier: Apache-2.0
#include "step/pt_encoder.h"

#include <errno.h>
#include <intel-pt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* No packet is longer. */
#define PACKET_MAX 16
#define BLOCK_MIN 256u
#define TNT_MAX 47u
#define TNT_SHORT_MAX 6u
#define RETURNS 64u
#define TSC_MASK ((UINT64_C(1) << 56) - 1)

struct block {
	TAILQ_ENTRY(block) in_store;	/* the oldest first */
	TAILQ_ENTRY(block) in_stream;
	struct pt_encoder_stream *pt;
	uint64_t tsc, end; /* its first and last time stamp */
	uint8_t *bytes; /* owned */
	uint32_t used, size;
};

struct pt_encoder_stream {
	LIST_ENTRY(pt_encoder_stream) in_store;
	struct pt_encoder_store *store;
	TAILQ_HEAD(block_list, block) blocks; /* only the last one grows */
	uint64_t bytes, overwritten;
	uint64_t last_ip;
	bool last_ip_known; /* an address was sent since the last PSB */
	uint64_t tnt;
	unsigned int n_tnt;
	uint64_t returns[RETURNS]; /* a ring; `n_returns` of it below `top` */
	unsigned int top, n_returns;
	bool on, is64;
	bool mode_sent; /* MODE.Exec says `is64` */
	bool renew;	/* the last block is complete */
	bool closed;
};

struct pt_encoder_store {
	struct pt_encoder_config config;
	struct pt_encoder *encoder;
	uint8_t packet[PACKET_MAX];
	TAILQ_HEAD(, block) blocks;
	LIST_HEAD(, pt_encoder_stream) streams;
	uint64_t bytes, overwritten;
	uint64_t lost_until; /* the latest time stamp in dropped blocks */
};

int pt_encoder_store_new(const struct pt_encoder_config *config, struct pt_encoder_store **ret)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = calloc(1, sizeof(*s));
	struct pt_config pt;

	if (!s)
		return -ENOMEM;
	s->config = *config;
	TAILQ_INIT(&s->blocks);
	LIST_INIT(&s->streams);
	/* One packet at a time: the encoder always begins at the start of its buffer. */
	pt_config_init(&pt);
	pt.begin = s->packet;
	pt.end = s->packet + sizeof(s->packet);
	s->encoder = pt_alloc_encoder(&pt);
	if (!s->encoder)
		return -ENOMEM;
	*ret = take_ptr(s);
	return 0;
}

struct pt_encoder_store *pt_encoder_store_free(struct pt_encoder_store *s)
{
	if (!s)
		return NULL;
	while (!LIST_EMPTY(&s->streams))
		(void)pt_encoder_stream_free(LIST_FIRST(&s->streams));
	pt_free_encoder(s->encoder);
	free(s);
	return NULL;
}

bool pt_encoder_store_full(const struct pt_encoder_store *s)
{
	return !s->config.overwrite && s->bytes >= s->config.max_bytes;
}

uint64_t pt_encoder_store_bytes(const struct pt_encoder_store *s)
{
	return s->bytes;
}

uint64_t pt_encoder_store_overwritten(const struct pt_encoder_store *s)
{
	return s->overwritten;
}

uint64_t pt_encoder_store_first_tsc(const struct pt_encoder_store *s)
{
	const struct block *b = TAILQ_FIRST(&s->blocks);

	return b ? b->tsc : 0;
}

uint64_t pt_encoder_store_since(const struct pt_encoder_store *s)
{
	return s->lost_until ? s->lost_until : pt_encoder_store_first_tsc(s);
}

int pt_encoder_stream_new(struct pt_encoder_store *store, struct pt_encoder_stream **ret)
{
	struct pt_encoder_stream *pt = calloc(1, sizeof(*pt));

	if (!pt)
		return -ENOMEM;
	pt->store = store;
	TAILQ_INIT(&pt->blocks);
	LIST_INSERT_HEAD(&store->streams, pt, in_store);
	*ret = pt;
	return 0;
}

void pt_encoder_close(struct pt_encoder_stream *pt)
{
	pt->closed = true;
}

void pt_encoder_renew(struct pt_encoder_stream *pt)
{
	pt->renew = true;
}

/* ---- blocks */

static struct block *last_block(struct pt_encoder_stream *pt)
{
	return TAILQ_LAST(&pt->blocks, block_list);
}

static void drop_block(struct block *b)
{
	struct pt_encoder_stream *pt = b->pt;

	TAILQ_REMOVE(&pt->blocks, b, in_stream);
	TAILQ_REMOVE(&pt->store->blocks, b, in_store);
	pt->bytes -= b->used;
	pt->overwritten += b->used;
	pt->store->bytes -= b->used;
	pt->store->overwritten += b->used;
	if (b->end > pt->store->lost_until)
		pt->store->lost_until = b->end;
	free(b->bytes);
	free(b);
}

struct pt_encoder_stream *pt_encoder_stream_free(struct pt_encoder_stream *pt)
{
	if (!pt)
		return NULL;
	while (!TAILQ_EMPTY(&pt->blocks))
		drop_block(TAILQ_FIRST(&pt->blocks));
	LIST_REMOVE(pt, in_store);
	free(pt);
	return NULL;
}

void pt_encoder_store_drop_before(struct pt_encoder_store *s, uint64_t tsc)
{
	struct block *b, *next;

	/* Blocks are sorted by time. */
	for (b = TAILQ_FIRST(&s->blocks); b && b->tsc < tsc; b = next) {
		next = TAILQ_NEXT(b, in_store);
		if (b != last_block(b->pt) || !b->pt->on)
			drop_block(b);
	}
}

/*
 * Drops the oldest blocks until there is room again. An open stream keeps its last block, so that
 * it has its end and no hole.
 */
static void make_room(struct pt_encoder_store *s)
{
	struct block *b, *next;

	for (b = TAILQ_FIRST(&s->blocks); b && s->bytes > s->config.max_bytes; b = next) {
		next = TAILQ_NEXT(b, in_store);
		if (b != last_block(b->pt) || b->pt->closed)
			drop_block(b);
	}
}

/* Gives back the memory that a block does not need. */
static void complete_block(struct block *b)
{
	uint8_t *p = realloc(b->bytes, b->used);

	if (p) {
		b->bytes = p;
		b->size = b->used;
	}
}

static int new_block(struct pt_encoder_stream *pt, uint64_t tsc)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	if (last_block(pt))
		complete_block(last_block(pt));
	b->bytes = malloc(BLOCK_MIN);
	if (!b->bytes) {
		free(b);
		return -ENOMEM;
	}
	b->size = BLOCK_MIN;
	b->pt = pt;
	b->tsc = b->end = tsc;
	TAILQ_INSERT_TAIL(&pt->blocks, b, in_stream);
	TAILQ_INSERT_TAIL(&pt->store->blocks, b, in_store);
	pt->renew = false;
	if (pt->store->config.overwrite)
		make_room(pt->store);
	return 0;
}

static int append(struct pt_encoder_stream *pt, const uint8_t *bytes, uint32_t n)
{
	struct block *b = last_block(pt);

	if (b->size - b->used < n) {
		uint8_t *p = realloc(b->bytes, (size_t)b->size * 2);

		if (!p)
			return -ENOMEM;
		b->bytes = p;
		b->size *= 2;
	}
	memcpy(b->bytes + b->used, bytes, n);
	b->used += n;
	pt->bytes += n;
	pt->store->bytes += n;
	return 0;
}

/* ---- packets */

static int put(struct pt_encoder_stream *pt, const struct pt_packet *packet)
{
	struct pt_encoder_store *s = pt->store;
	int n;

	if (pt_enc_sync_set(s->encoder, 0) < 0)
		return -EIO;
	n = pt_enc_next(s->encoder, packet);
	return n < 0 ? -EIO : append(pt, s->packet, (uint32_t)n);
}

static int put_plain(struct pt_encoder_stream *pt, enum pt_packet_type type)
{
	const struct pt_packet p = {.type = type};

	return put(pt, &p);
}

static int put_tsc(struct pt_encoder_stream *pt, uint64_t tsc)
{
	const struct pt_packet p = {.type = ppt_tsc, .payload.tsc.tsc = tsc & TSC_MASK};

	last_block(pt)->end = tsc;

	return put(pt, &p);
}

static int put_mode(struct pt_encoder_stream *pt)
{
	struct pt_packet p = {.type = ppt_mode};

	p.payload.mode.leaf = pt_mol_exec;
	p.payload.mode.bits.exec = pt_set_exec_mode(pt->is64 ? ptem_64bit : ptem_32bit);
	pt->mode_sent = true;
	return put(pt, &p);
}

static int flush_tnt(struct pt_encoder_stream *pt)
{
	struct pt_packet p = {.type = pt->n_tnt <= TNT_SHORT_MAX ? ppt_tnt_8 : ppt_tnt_64};

	if (pt->n_tnt == 0)
		return 0;
	p.payload.tnt.bit_size = (uint8_t)pt->n_tnt;
	p.payload.tnt.payload = pt->tnt;
	pt->n_tnt = 0;
	pt->tnt = 0;
	return put(pt, &p);
}

/*
 * How to compress the address. As in hardware, the first one after a PSB is complete: perf 6.1
 * accepts no other there.
 */
static enum pt_ip_compression compression(const struct pt_encoder_stream *pt, uint64_t ip)
{
	const uint64_t differs = ip ^ pt->last_ip;

	if (!pt->last_ip_known)
		return (uint64_t)((int64_t)(ip << 16) >> 16) == ip ? pt_ipc_sext_48 : pt_ipc_full;
	if (differs >> 16 == 0)
		return pt_ipc_update_16;
	if (differs >> 32 == 0)
		return pt_ipc_update_32;
	return differs >> 48 == 0 ? pt_ipc_update_48 : pt_ipc_full;
}

static int put_ip(struct pt_encoder_stream *pt, enum pt_packet_type type, uint64_t ip)
{
	struct pt_packet p = {.type = type};

	p.payload.ip.ip = ip;
	p.payload.ip.ipc = compression(pt, ip);
	pt->last_ip = ip;
	pt->last_ip_known = true;
	return put(pt, &p);
}

static int put_disable(struct pt_encoder_stream *pt)
{
	struct pt_packet p = {.type = ppt_tip_pgd};

	p.payload.ip.ipc = pt_ipc_suppressed;
	pt->on = false;
	return put(pt, &p);
}

static int put_branch(struct pt_encoder_stream *pt, bool taken)
{
	pt->tnt = pt->tnt << 1 | taken;
	pt->n_tnt++;
	return pt->n_tnt == TNT_MAX ? flush_tnt(pt) : 0;
}

static int put_target(struct pt_encoder_stream *pt, uint64_t ip)
{
	int r = flush_tnt(pt);

	return r < 0 ? r : put_ip(pt, ppt_tip, ip);
}

/*
 * A new block: PSB+, with the address if tracing is on. The decoder forgets calls and addresses
 * here, and so do we.
 */
static int put_sync(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip)
{
	int r = 0;

	if (last_block(pt))
		r = flush_tnt(pt);
	if (r == 0)
		r = new_block(pt, tsc);
	if (r == 0)
		r = put_plain(pt, ppt_psb);
	pt->last_ip = 0;
	pt->last_ip_known = false;
	pt->n_returns = 0;
	if (r == 0)
		r = put_tsc(pt, tsc);
	if (r == 0)
		r = put_mode(pt);
	if (r == 0 && pt->on)
		r = put_ip(pt, ppt_fup, ip);
	return r < 0 ? r : put_plain(pt, ppt_psbend);
}

/* ---- what a thread does */

bool pt_encoder_sync_due(const struct pt_encoder_stream *pt)
{
	const struct block *b = TAILQ_LAST(&pt->blocks, block_list);

	return !b || pt->renew || b->used >= pt->store->config.psb_bytes;
}

int pt_encoder_sync(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip)
{
	return put_sync(pt, tsc, ip);
}

int pt_encoder_begin(struct pt_encoder_stream *pt, uint64_t tsc, uint64_t ip, bool is64)
{
	int r;

	if (is64 != pt->is64) {
		pt->is64 = is64;
		pt->mode_sent = false;
	}
	if (pt_encoder_sync_due(pt)) {
		r = put_sync(pt, tsc, 0);
	} else {
		r = put_tsc(pt, tsc);
		if (r == 0 && !pt->mode_sent)
			r = put_mode(pt);
	}
	if (r == 0)
		r = put_ip(pt, ppt_tip_pge, ip);
	pt->n_returns = 0;
	pt->on = true;
	return r;
}

int pt_encoder_end(struct pt_encoder_stream *pt)
{
	int r = flush_tnt(pt);

	return r < 0 ? r : put_disable(pt);
}

int pt_encoder_interrupt(struct pt_encoder_stream *pt, uint64_t ip)
{
	int r = flush_tnt(pt);

	if (r == 0)
		r = put_ip(pt, ppt_fup, ip);
	return r < 0 ? r : put_disable(pt);
}

int pt_encoder_time(struct pt_encoder_stream *pt, uint64_t tsc)
{
	int r = flush_tnt(pt);

	return r < 0 ? r : put_tsc(pt, tsc);
}

static void push_return(struct pt_encoder_stream *pt, uint64_t ip)
{
	pt->returns[pt->top++ % RETURNS] = ip;
	if (pt->n_returns < RETURNS)
		pt->n_returns++;
}

/*
 * For a return that is not compressed the manual and perf pop the newest call, libipt 2.0.5 does
 * not. All agree on later calls, so only those count from then on.
 */
static int put_return(struct pt_encoder_stream *pt, uint64_t next)
{
	if (pt->n_returns > 0 && !pt->store->config.plain_returns &&
	    pt->returns[(pt->top - 1) % RETURNS] == next) {
		pt->n_returns--;
		pt->top--;
		return put_branch(pt, true);
	}
	pt->n_returns = 0;
	return put_target(pt, next);
}

static int put_far(struct pt_encoder_stream *pt, uint64_t next, bool is64)
{
	int r = flush_tnt(pt);

	if (r == 0 && is64 != pt->is64) {
		pt->is64 = is64;
		r = put_mode(pt);
	}
	return r < 0 ? r : put_ip(pt, ppt_tip, next);
}

int pt_encoder_retire(struct pt_encoder_stream *pt, const struct insn *insn, uint64_t ip,
		      uint64_t next, bool taken, bool is64)
{
	const uint64_t mask = pt->is64 ? UINT64_MAX : UINT32_MAX;
	const uint64_t after = (ip + insn->length) & mask,
		       target = (after + (uint64_t)(int64_t)insn->offset) & mask;

	switch ((enum insn_kind)insn->kind) {
	case INSN_OTHER:
	case INSN_PTWRITE:
	case INSN_MOV_CR3:
		return next == after ? 0 : PT_ENCODER_E_UNEXPECTED;
	case INSN_COND:
		if (next != target && next != after)
			return PT_ENCODER_E_UNEXPECTED;
		return put_branch(pt, target == after ? taken : next == target);
	case INSN_JUMP:
		return next == target ? 0 : PT_ENCODER_E_UNEXPECTED;
	case INSN_CALL:
	case INSN_CALL_NEXT:
		if (next != target)
			return PT_ENCODER_E_UNEXPECTED;
		if (insn->kind == INSN_CALL)
			push_return(pt, after);
		return 0;
	case INSN_JUMP_INDIRECT:
		return put_target(pt, next);
	case INSN_CALL_INDIRECT:
		push_return(pt, after);
		return put_target(pt, next);
	case INSN_RET:
		return put_return(pt, next);
	case INSN_FAR_CALL:
	case INSN_FAR_RET:
	case INSN_FAR_JUMP:
		return put_far(pt, next, is64);
	}
	return PT_ENCODER_E_UNEXPECTED;
}

/* ---- reading */

uint64_t pt_encoder_bytes(const struct pt_encoder_stream *pt)
{
	return pt->bytes;
}

uint64_t pt_encoder_overwritten(const struct pt_encoder_stream *pt)
{
	return pt->overwritten;
}

uint64_t pt_encoder_first_tsc(const struct pt_encoder_stream *pt)
{
	const struct block *b = TAILQ_FIRST(&pt->blocks);

	return b ? b->tsc : 0;
}

int pt_encoder_flush(struct pt_encoder_stream *pt)
{
	return flush_tnt(pt);
}

int pt_encoder_read(const struct pt_encoder_stream *pt, pt_encoder_fn fn, void *arg)
{
	const struct block *b;
	int r = 0;

	TAILQ_FOREACH(b, &pt->blocks, in_stream)
		if (r == 0)
			r = fn(arg, b->bytes, b->used);
	return r;
}
