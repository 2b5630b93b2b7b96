// SPDX-License-Identifier: Apache-2.0
#include "decode/ptflow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/ptpacket.h"

#define RETURNS 64u /* as deep as the processor compresses */
/*
 * Blocks without a decision: what there is at a PSB, what a byte of the trace adds, how many can gather. Code of
 * compilers needs a handful for each decision. Calls are events, too, and a return pays for each.
 */
#define CREDIT_PSB 4096
#define CREDIT_BYTE 256
#define CREDIT_MAX 65536
#define CREDIT_CALL 16

/* For whom the next FUP is. */
enum fup_for { FUP_ASYNC, FUP_TSX, FUP_OTHER };

struct ptflow {
	struct ptflow_options o;
	struct codeblocks *code;
	uint32_t owner;
	bool is64;
	struct ptflow_stats stats;
	const uint8_t *begin, *pos, *end;
	uint64_t base; /* offset of `begin` */
	bool synced, stopping;
	int32_t credit;
	/* the packets */
	uint64_t last_ip;
	enum fup_for fup_for;
	bool has_fup; /* an asynchronous event begins at fup_ip; TIP or PGD says how it goes on */
	uint64_t fup_ip;
	bool in_psb, psb_has_ip, after_ovf;
	bool aborted; /* a transaction: the event that follows says where */
	uint64_t psb_ip;
	int mode64; /* of a MODE.Exec that waits for its address; -1: none */
	int tsx;    /* of a MODE.TSX that waits for its address; -1: none */
	/* the walk */
	bool enabled, lost, speculative;
	uint64_t ip;
	uint32_t block; /* that begins at ip; CODEBLOCK_NONE: not looked up */
	uint64_t epoch;
	struct {
		uint64_t ip;
		uint32_t call; /* the block that ended with it */
	} returns[RETURNS];
	uint32_t top, depth;
	int error; /* of the sink */
	bool pause;
	size_t n_batch;
	struct ptflow_event *batch, *own_batch;
};

int ptflow_new(const struct ptflow_options *options, struct ptflow **ret)
{
	struct ptflow *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->o = *options;
	f->batch = options->batch;
	if (!f->batch)
		f->batch = f->own_batch = malloc(PTFLOW_BATCH * sizeof(*f->batch));
	if (!f->batch) {
		free(f);
		return -ENOMEM;
	}
	ptflow_reset(f);
	*ret = f;
	return 0;
}

struct ptflow *ptflow_free(struct ptflow *f)
{
	if (!f)
		return NULL;
	free(f->own_batch);
	free(f);
	return NULL;
}

const struct ptflow_stats *ptflow_stats(const struct ptflow *f)
{
	return &f->stats;
}

/* ---- out */

static void flush(struct ptflow *f)
{
	if (f->n_batch && !f->error) {
		int r = f->o.sink(f->o.arg, f->batch, f->n_batch);

		if (r < 0)
			f->error = r;
		f->pause |= r > 0;
	}
	f->n_batch = 0;
}

static struct ptflow_event *emit(struct ptflow *f, enum ptflow_kind kind, uint64_t from, uint64_t to)
{
	struct ptflow_event *e;

	if (f->n_batch == PTFLOW_BATCH)
		flush(f);
	e = &f->batch[f->n_batch++];
	*e = (struct ptflow_event){.from = from,
		.to = to,
		.time = f->o.time ? pttime_now(f->o.time) : 0,
		.insns = f->stats.insns,
		.offset = f->base + (uint64_t)(f->pos - f->begin),
		.kind = (uint8_t)kind,
		.owner = f->owner,
		.speculative = f->speculative,
		.is32 = !f->is64};
	return e;
}

/* ---- the walk */

static void lose(struct ptflow *f, enum ptflow_error error)
{
	f->stats.errors[error]++;
	emit(f, PTFLOW_LOST, f->ip, 0)->error = (uint8_t)error;
	f->lost = true;
	f->has_fup = false;
	f->depth = 0;
}

/* At a decision that the packets do not make: up to here it was executed. */
static void lose_at(struct ptflow *f, const struct codeblock *b, enum ptflow_error error)
{
	f->stats.insns += b->insns;
	if (f->o.all)
		emit(f, PTFLOW_RUN, 0, b->start + b->to_last + b->last_bytes)->start = b->start;
	lose(f, error);
}

static void go(struct ptflow *f, uint64_t ip)
{
	f->ip = ip;
	f->block = CODEBLOCK_NONE;
}

/* Tracing begins or goes on here: perhaps somebody else runs now. */
static void enter(struct ptflow *f, uint64_t ip)
{
	f->lost = false;
	f->enabled = true;
	if (f->o.enter) {
		f->code = f->o.enter(f->o.arg, f->o.time ? pttime_now(f->o.time) : 0, ip, &f->owner);
		f->epoch = f->code->epoch - 1; /* numbers of blocks are of another table, perhaps */
	}
	codeblocks_set_mode(f->code, f->is64);
	go(f, ip);
}

/* A packet has an address while the way is lost: from here on it is known again. */
static void find(struct ptflow *f, uint64_t ip)
{
	enter(f, ip);
	emit(f, PTFLOW_FOUND, 0, ip);
}

/* All blocks were forgotten: their numbers mean nothing any more. */
static void forget_blocks(struct ptflow *f)
{
	f->epoch = f->code->epoch;
	f->block = CODEBLOCK_NONE;
	for (size_t i = 0; i < RETURNS; i++)
		f->returns[i].call = CODEBLOCK_NONE;
}

static struct codeblock *here(struct ptflow *f)
{
	if (f->epoch != f->code->epoch)
		forget_blocks(f);
	if (f->block == CODEBLOCK_NONE) {
		f->block = codeblocks_get(f->code, f->ip);
		if (f->epoch != f->code->epoch) {
			const uint32_t block = f->block;

			forget_blocks(f);
			f->block = block;
		}
		if (f->block == CODEBLOCK_NONE) {
			lose(f, PTFLOW_E_NO_CODE);
			return NULL;
		}
	}
	return &f->code->blocks[f->block];
}

static uint64_t behind(const struct codeblock *b)
{
	return b->start + b->to_last + b->last_bytes;
}

/* The block's instructions were executed, its last included. */
static void executed(struct ptflow *f, const struct codeblock *b)
{
	f->stats.insns += b->insns;
	f->stats.blocks++;
}

static void follow(struct ptflow *f, const struct codeblock *b, enum ptflow_kind kind, uint64_t to)
{
	struct ptflow_event *e = emit(f, kind, b->start + b->to_last, to);

	e->start = b->start;
	e->length = b->last_bytes;
}

/* Goes along an edge whose block is remembered in *link once it was found. */
static void go_along(struct ptflow *f, bool taken, uint64_t to)
{
	const uint32_t from = f->block;
	struct codeblock *b = &f->code->blocks[from];
	const uint32_t link = taken ? b->taken : b->fall;
	uint32_t next;

	f->ip = to;
	if (link != CODEBLOCK_NONE) {
		f->block = link;
		return;
	}
	next = codeblocks_get(f->code, to);
	if (f->epoch != f->code->epoch) {
		forget_blocks(f);
	} else if (next != CODEBLOCK_NONE) {
		b = &f->code->blocks[from];
		if (taken)
			b->taken = next;
		else
			b->fall = next;
	}
	f->block = next;
}

static void push_return(struct ptflow *f, uint64_t ip)
{
	f->returns[f->top % RETURNS].ip = ip;
	f->returns[f->top++ % RETURNS].call = f->block;
	if (f->depth < RETURNS)
		f->depth++;
}

/* Finds the block behind the call that ends this one: a return goes there by its number. */
static const struct codeblock *link_back(struct ptflow *f, const struct codeblock *b)
{
	uint32_t next;

	if (b->fall != CODEBLOCK_NONE)
		return b;
	next = codeblocks_get(f->code, behind(b));
	if (f->epoch != f->code->epoch)
		forget_blocks(f);
	else
		f->code->blocks[f->block].fall = next;
	return here(f);
}

static void cond(struct ptflow *f, const struct codeblock *b, bool taken)
{
	const uint64_t to = behind(b) + (taken ? (uint64_t)(int64_t)b->offset : 0);

	executed(f, b);
	if (f->o.all || (taken && b->tag))
		follow(f, b, PTFLOW_COND, to);
	go_along(f, taken, to);
}

/* Over a block that needs no decision; the way is lost if too many came without one. */
static void pass(struct ptflow *f, const struct codeblock *b)
{
	uint64_t next, to;

	f->credit -= b->kind == INSN_CALL ? CREDIT_CALL : 1;
	if (f->credit <= 0) {
		lose(f, PTFLOW_E_RUNAWAY);
		return;
	}

	if (b->kind == INSN_CALL && !(b = link_back(f, b)))
		return;
	next = behind(b);
	to = next + (uint64_t)(int64_t)b->offset;
	executed(f, b);
	switch (b->kind) {
	case INSN_JUMP:
		if (f->o.all || b->tag)
			follow(f, b, PTFLOW_JUMP, to);
		go_along(f, true, to);
		return;
	case INSN_CALL:
		push_return(f, next);
		follow(f, b, PTFLOW_CALL, to);
		go_along(f, true, to);
		return;
	case INSN_CALL_NEXT:
		if (f->o.all)
			follow(f, b, PTFLOW_JUMP, to);
		go_along(f, true, to);
		return;
	default:
		if (f->o.all)
			follow(f, b, PTFLOW_RUN, next);
		go_along(f, false, next);
		return;
	}
}

static bool needs_decision(const struct codeblock *b)
{
	switch (b->kind) {
	case INSN_COND:
	case INSN_RET:
	case INSN_JUMP_INDIRECT:
	case INSN_CALL_INDIRECT:
	case INSN_FAR_CALL:
	case INSN_FAR_RET:
	case INSN_FAR_JUMP:
		return true;
	default:
		return false;
	}
}

/* To the next branch that needs a decision; NULL: the way was lost. */
static const struct codeblock *to_decision(struct ptflow *f)
{
	while (!f->lost) {
		const struct codeblock *b = here(f);

		if (!b || needs_decision(b))
			return b;
		pass(f, b);
	}
	return NULL;
}

/* How many instructions of the block lie in front of `ip`; -1: it is not at the begin of one. */
static int insns_before(const struct codeblock *b, struct codeblocks *code, uint64_t ip)
{
	return codeblocks_count(code, b, ip);
}

/*
 * To `ip`, without a decision: an event happens there. True if it was reached. Otherwise the walk
 * stands at the decision (or the missing code) that was in the way.
 */
static bool walk_to(struct ptflow *f, uint64_t ip)
{
	while (!f->lost) {
		const struct codeblock *b;
		int insns;

		if (f->ip == ip)
			return true;
		b = here(f);
		if (!b)
			return false;
		if (ip > b->start && ip - b->start <= b->to_last) {
			insns = insns_before(b, f->code, ip);
			if (insns >= 0) {
				f->stats.insns += (uint64_t)insns;
				if (f->o.all)
					emit(f, PTFLOW_RUN, 0, ip)->start = b->start;
				go(f, ip);
				return true;
			}
		}
		if (needs_decision(b))
			return false;
		pass(f, b);
	}
	return false;
}

/* An event did not lie on the way. */
static void lose_on_the_way(struct ptflow *f)
{
	const struct codeblock *b = f->lost ? NULL : here(f);

	if (b)
		lose_at(f, b, PTFLOW_E_MISMATCH);
}

/* The branch at the end of `b` goes to `to`, as an address packet says. */
static void branch_to(struct ptflow *f, const struct codeblock *b, uint64_t to)
{
	if (b->kind == INSN_CALL_INDIRECT && !(b = link_back(f, b)))
		return;
	executed(f, b);
	switch (b->kind) {
	case INSN_CALL_INDIRECT:
		push_return(f, behind(b));
		follow(f, b, PTFLOW_CALL_INDIRECT, to);
		break;
	case INSN_JUMP_INDIRECT:
		follow(f, b, PTFLOW_JUMP_INDIRECT, to);
		break;
	case INSN_RET:
		/* Compressed or not, it takes what the last call had put there: else the next one would go astray. */
		if (f->depth) {
			f->depth--;
			f->top--;
		}
		follow(f, b, PTFLOW_RET, to);
		break;
	default:
		follow(f, b, PTFLOW_FAR, to);
		break;
	}
	go(f, to);
}

/* ---- packets */

static void mode(struct ptflow *f)
{
	if (f->mode64 >= 0) {
		f->is64 = f->mode64 == 1;
		codeblocks_set_mode(f->code, f->is64);
	}
	f->mode64 = -1;
}

static void timing(struct ptflow *f, const struct ptpacket *pk)
{
	struct pttime *t = f->o.time;

	if (!t)
		return;
	switch (pk->type) {
	case PT_TSC:
		pttime_tsc(t, pk->value);
		break;
	case PT_TMA:
		pttime_tma(t, pk->value, pk->extra);
		break;
	case PT_MTC:
		pttime_mtc(t, (uint8_t)pk->value);
		break;
	case PT_CYC:
		pttime_cyc(t, pk->value);
		break;
	case PT_CBR:
		pttime_cbr(t, (uint32_t)pk->value);
		break;
	default:
		break;
	}
}

/* How far behind `p` it may be looked: the same whatever pieces the trace comes in. */
static const uint8_t *look_end(const struct ptflow *f, const uint8_t *p)
{
	const size_t far = PTFLOW_LOOKAHEAD - 128;

	return (size_t)(f->end - p) < far ? f->end : p + far;
}

/*
 * The address of an indirect branch that was met while TNT bits are left: the processor may defer
 * the TIP behind the TNT packet that has the bits of later branches.
 */
static bool deferred_tip(struct ptflow *f, const uint8_t *look_end, uint64_t *ret)
{
	struct ptpacket pk;

	for (;;) {
		if (f->pos >= look_end || ptpacket_read(f->pos, f->end, &pk) != 0)
			return false;
		switch (pk.type) {
		case PT_PAD:
		case PT_TSC:
		case PT_TMA:
		case PT_MTC:
		case PT_CYC:
		case PT_CBR:
			f->pos += pk.length;
			timing(f, &pk);
			continue;
		case PT_TIP:
			if (pk.ip == PT_IP_NONE)
				return false;
			f->pos += pk.length;
			(void)ptpacket_apply_ip(&pk, &f->last_ip);
			*ret = f->last_ip;
			return true;
		default:
			return false;
		}
	}
}

/* The type of the next packet that is not about time; _PT_PACKET_MAX: none. */
static enum ptpacket_type peek(const struct ptflow *f)
{
	const uint8_t *end = look_end(f, f->pos);
	struct ptpacket pk;

	for (const uint8_t *p = f->pos; p < end && ptpacket_read(p, f->end, &pk) == 0; p += pk.length) {
		switch (pk.type) {
		case PT_PAD:
		case PT_TSC:
		case PT_TMA:
		case PT_MTC:
		case PT_CYC:
		case PT_CBR:
			continue;
		default:
			return pk.type;
		}
	}
	return _PT_PACKET_MAX;
}

/*
 * The same as the general walk below, for as long as it goes along links that are known: most of a
 * trace. Returns how many bits are left; the walk stands where the general one goes on.
 */
static unsigned int walk_links(struct ptflow *f, uint64_t bits, unsigned int count)
{
	const struct codeblock *blocks = f->code->blocks;
	uint64_t insns = f->stats.insns;
	uint32_t cur = f->block;
	int32_t credit = f->credit;

	while (count > 0 && credit > CREDIT_CALL) {
		const struct codeblock *b = &blocks[cur];
		uint32_t next;
		struct ptflow_event *e;

		switch (b->kind) {
		case INSN_COND: {
			const bool taken = bits >> (count - 1) & 1;

			next = taken ? b->taken : b->fall;
			if (next == CODEBLOCK_NONE || (taken && b->tag))
				goto out;
			count--;
			insns += b->insns;
			break;
		}
		case INSN_RET:
			if (!(bits >> (count - 1) & 1) || f->depth == 0)
				goto out;
			next = blocks[f->returns[(f->top - 1) % RETURNS].call].fall;
			if (next == CODEBLOCK_NONE)
				goto out;
			count--;
			insns += b->insns;
			f->stats.insns = insns;
			f->depth--;
			f->top--;
			e = emit(f, PTFLOW_RET, b->start + b->to_last, blocks[next].start);
			e->start = b->start;
			e->length = b->last_bytes;
			break;
		case INSN_CALL:
			next = b->taken;
			if (next == CODEBLOCK_NONE || b->fall == CODEBLOCK_NONE)
				goto out;
			credit -= CREDIT_CALL;
			insns += b->insns;
			f->stats.insns = insns;
			f->block = cur;
			push_return(f, behind(b));
			e = emit(f, PTFLOW_CALL, b->start + b->to_last, blocks[next].start);
			e->start = b->start;
			e->length = b->last_bytes;
			break;
		case INSN_JUMP:
			next = b->taken;
			if (next == CODEBLOCK_NONE || b->tag)
				goto out;
			credit--;
			insns += b->insns;
			break;
		case INSN_OTHER:
			next = b->fall;
			if (next == CODEBLOCK_NONE)
				goto out;
			credit--;
			insns += b->insns;
			break;
		default:
			goto out;
		}
		cur = next;
	}
out:
	f->credit = credit;
	f->stats.insns = insns;
	f->block = cur;
	f->ip = blocks[cur].start;
	return count;
}

static void on_tnt(struct ptflow *f, uint64_t bits, unsigned int count)
{
	const uint8_t *end = look_end(f, f->pos);

	while (count > 0) {
		const struct codeblock *b;
		bool taken;
		uint64_t to;

		if (!f->o.all && f->block != CODEBLOCK_NONE && f->epoch == f->code->epoch) {
			count = walk_links(f, bits, count);
			if (count == 0)
				return;
		}
		b = to_decision(f);
		if (!b)
			return;
		if (b->kind == INSN_COND) {
			taken = bits >> --count & 1;
			cond(f, b, taken);
		} else if (b->kind == INSN_RET) {
			taken = bits >> --count & 1;
			if (!taken || f->depth == 0) {
				lose_at(f, b, PTFLOW_E_RETURN);
				return;
			}
			executed(f, b);
			f->depth--;
			to = f->returns[--f->top % RETURNS].ip;
			follow(f, b, PTFLOW_RET, to);
			go(f, to);
		} else if (deferred_tip(f, end, &to)) {
			branch_to(f, b, to);
			mode(f);
		} else {
			lose_at(f, b, PTFLOW_E_MISMATCH);
			return;
		}
	}
}

static void on_tip(struct ptflow *f, const struct ptpacket *pk)
{
	const struct codeblock *b;
	bool has_ip = ptpacket_apply_ip(pk, &f->last_ip);

	if (f->lost || !f->enabled) {
		f->has_fup = false;
		/* behind an overflow: some processors send a TIP where a FUP belongs (erratum SKD010) */
		if (has_ip && (f->lost || f->after_ovf)) {
			f->after_ovf = false;
			mode(f);
			find(f, f->last_ip);
		} else if (!f->lost) {
			f->stats.errors[PTFLOW_E_PACKET]++;
		}
		return;
	}
	if (f->has_fup) {
		const uint64_t from = f->fup_ip;

		f->has_fup = false;
		/*
		 * What a transaction did before it was aborted never happened; some processors leave decisions of
		 * it in the trace (erratum BDM64), so it need not lead to where it was aborted.
		 */
		if (!walk_to(f, from) && !f->aborted)
			lose_on_the_way(f);
		f->aborted = false;
		if (!has_ip) {
			if (!f->lost)
				lose(f, PTFLOW_E_PACKET);
			return;
		}
		mode(f);
		if (f->lost) {
			find(f, f->last_ip);
			return;
		}
		emit(f, PTFLOW_ASYNC, from, f->last_ip);
		go(f, f->last_ip);
		return;
	}
	b = to_decision(f);
	if (b && (b->kind == INSN_COND || !has_ip)) {
		lose_at(f, b, has_ip ? PTFLOW_E_MISMATCH : PTFLOW_E_PACKET);
		b = NULL;
	}
	if (b)
		branch_to(f, b, f->last_ip);
	mode(f);
	if (!b && has_ip)
		find(f, f->last_ip);
}

static void on_pge(struct ptflow *f, const struct ptpacket *pk)
{
	f->has_fup = f->after_ovf = false;
	if (!ptpacket_apply_ip(pk, &f->last_ip)) {
		f->stats.errors[PTFLOW_E_PACKET]++;
		return;
	}
	mode(f);
	enter(f, f->last_ip);
	emit(f, PTFLOW_ENABLE, 0, f->ip);
}

/* Whether a direct branch to there ends tracing, as far as it is known what is traced (erratum SKL014). */
static bool is_filtered(const struct ptflow *f, uint64_t ip)
{
	if (!f->o.errata.skl014 || f->o.n_filter == 0)
		return false;
	for (size_t i = 0; i < f->o.n_filter; i++)
		if (ip >= f->o.filter[i].first && ip <= f->o.filter[i].last)
			return false;
	return true;
}

/* Tracing ended behind a branch: the next one that can leave, by what the packet says of where to. */
static void disable_at_branch(struct ptflow *f, bool has_ip, uint64_t ip)
{
	while (!f->lost) {
		const struct codeblock *b = here(f);
		bool leaves;
		uint64_t taken;

		if (!b)
			return;
		leaves = needs_decision(b);
		if (b->kind == INSN_JUMP || b->kind == INSN_CALL) {
			taken = behind(b) + (uint64_t)(int64_t)b->offset;
			leaves = has_ip ? taken == ip : is_filtered(f, taken);
		}
		if (leaves) {
			executed(f, b);
			follow(f, b, PTFLOW_DISABLE, has_ip ? ip : 0);
			f->batch[f->n_batch - 1].is_syscall = b->kind == INSN_FAR_CALL;
			return;
		}
		pass(f, b);
	}
}

/* Erratum SKD022: tracing ended with the entry into a virtual machine at `ip`, not in front of it. */
static bool is_vmentry(struct ptflow *f, uint64_t ip)
{
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;

	return f->o.errata.skd022 && f->code->read(f->code->arg, ip, &code, buffer, INSN_MAX) >= 3 && code[0] == 0x0f &&
	       code[1] == 0x01 && (code[2] == 0xc2 || code[2] == 0xc3);
}

static void on_pgd(struct ptflow *f, const struct ptpacket *pk)
{
	const bool has_ip = ptpacket_apply_ip(pk, &f->last_ip), after_ovf = f->after_ovf;

	f->after_ovf = f->aborted = false;
	if (f->enabled && !f->lost) {
		if (f->has_fup) {
			if (!walk_to(f, f->fup_ip))
				lose_on_the_way(f);
			else if (is_vmentry(f, f->fup_ip))
				disable_at_branch(f, false, 0);
			else
				emit(f, PTFLOW_DISABLE_ASYNC, f->fup_ip, 0);
		} else {
			disable_at_branch(f, has_ip, f->last_ip);
		}
	} else if (!f->enabled && !f->lost && !f->has_fup && !after_ovf) {
		f->stats.errors[PTFLOW_E_PACKET]++;
	}
	mode(f);
	f->has_fup = false;
	f->lost = false;
	f->enabled = false;
}

static void on_fup(struct ptflow *f, const struct ptpacket *pk)
{
	const bool has_ip = ptpacket_apply_ip(pk, &f->last_ip);
	const enum fup_for who = f->fup_for;

	f->fup_for = FUP_ASYNC;
	if (f->in_psb) {
		f->psb_has_ip = has_ip;
		f->psb_ip = f->last_ip;
		return;
	}
	if (!has_ip) {
		f->stats.errors[PTFLOW_E_PACKET]++;
		return;
	}
	if (f->after_ovf) {
		f->after_ovf = false;
		mode(f);
		find(f, f->last_ip);
		return;
	}
	if (who == FUP_TSX) {
		if (f->enabled && !f->lost && !walk_to(f, f->last_ip))
			lose_on_the_way(f);
		f->speculative = f->tsx == 1;
		f->tsx = -1;
		if (f->lost)
			find(f, f->last_ip);
		return;
	}
	if (who == FUP_OTHER) { /* it says where something was that is nothing to the way */
		if (f->enabled && !f->lost)
			(void)walk_to(f, f->last_ip);
		if (f->lost)
			find(f, f->last_ip);
		return;
	}
	if (f->lost) /* where it is is known; where it goes says the packet behind */
		find(f, f->last_ip);
	f->has_fup = true;
	f->fup_ip = f->last_ip;
}

static void begin_psb(struct ptflow *f)
{
	f->credit = CREDIT_PSB;
	f->in_psb = true;
	f->psb_has_ip = false;
	f->last_ip = 0;
	f->has_fup = false;
	f->fup_for = FUP_ASYNC;
}

/* The header's end: the walk goes to where the processor says that it was. */
static void end_psb(struct ptflow *f)
{
	f->in_psb = f->after_ovf = false;
	mode(f);
	if (f->tsx >= 0) {
		f->speculative = f->tsx == 1;
		f->tsx = -1;
	}
	/* A FUP although tracing is off: PGE says so (erratum BDM70). */
	if (!f->enabled && f->psb_has_ip && peek(f) == PT_PGE)
		f->psb_has_ip = false;
	if (!f->psb_has_ip) {
		f->depth = 0;
		return;
	}
	if (f->enabled && !f->lost) {
		/* Behind the last decision there may be more: up to here it was executed. */
		if (!walk_to(f, f->psb_ip))
			lose_on_the_way(f);
	}
	f->depth = 0;
	if (f->lost) {
		find(f, f->psb_ip);
	} else if (!f->enabled) {
		enter(f, f->psb_ip);
		emit(f, PTFLOW_ENABLE, 0, f->ip)->at_psb = true;
	}
}

static void on_ovf(struct ptflow *f)
{
	f->stats.overflows++;
	f->in_psb = false;
	f->has_fup = false;
	f->fup_for = FUP_ASYNC;
	f->tsx = -1;
	f->aborted = false;
	if (f->o.time)
		pttime_lost(f->o.time);
	emit(f, PTFLOW_OVERFLOW, f->enabled && !f->lost ? f->ip : 0, 0);
	f->enabled = false;
	f->lost = false;
	f->after_ovf = true;
	f->depth = 0;
}

static void on_tsx(struct ptflow *f, bool in, bool aborted)
{
	f->tsx = in;
	f->aborted = false;
	if (f->in_psb)
		return;
	if (!f->enabled || aborted) {
		/* an abort is an asynchronous branch: FUP and TIP follow */
		f->aborted = aborted;
		f->speculative = in;
		f->tsx = -1;
		return;
	}
	f->fup_for = FUP_TSX;
}

/* A new address space: at a far branch, whose TIP comes next, or at a write to CR3, which nothing else tells of. */
static void on_pip(struct ptflow *f)
{
	const enum ptpacket_type next = peek(f);

	if (next == PT_TIP || next == PT_PGD || next == PT_MODE_EXEC || next == PT_VMCS)
		return;
	while (!f->lost) {
		const struct codeblock *b = here(f);
		const bool there = b && b->kind == INSN_MOV_CR3;

		if (!b)
			return;
		if (needs_decision(b)) {
			lose(f, PTFLOW_E_MISMATCH);
			return;
		}
		pass(f, b);
		if (there)
			return;
	}
}

static void on_packet(struct ptflow *f, const struct ptpacket *pk)
{
	switch (pk->type) {
	case PT_TNT:
		if (f->in_psb || !f->enabled)
			f->stats.errors[PTFLOW_E_PACKET] += !f->lost;
		else if (!f->lost)
			on_tnt(f, pk->value, pk->count);
		break;
	case PT_TIP:
		on_tip(f, pk);
		break;
	case PT_PGE:
		on_pge(f, pk);
		break;
	case PT_PGD:
		on_pgd(f, pk);
		break;
	case PT_FUP:
		on_fup(f, pk);
		break;
	case PT_PSB:
		begin_psb(f);
		break;
	case PT_PSBEND:
		if (f->in_psb)
			end_psb(f);
		break;
	case PT_OVF:
		on_ovf(f);
		break;
	case PT_MODE_EXEC:
		f->mode64 = pk->value & 1;
		/* with event trace it may tell of the interrupt flag alone: its FUP is no event */
		if (f->enabled && !f->in_psb && !f->after_ovf && peek(f) == PT_FUP)
			f->fup_for = FUP_OTHER;
		break;
	case PT_MODE_TSX:
		on_tsx(f, pk->value & 1, pk->value & 2);
		break;
	case PT_PIP:
		if (f->enabled && !f->lost && !f->in_psb && !f->has_fup)
			on_pip(f);
		break;
	case PT_PTW:
	case PT_EXSTOP:
	case PT_BEP:
	case PT_CFE:
	case PT_TRIG:
		if (pk->ip_follows)
			f->fup_for = FUP_OTHER;
		break;
	default:
		timing(f, pk);
		break;
	}
}

enum ptflow_state ptflow_where(const struct ptflow *f, uint64_t *ret_ip, uint32_t *ret_owner)
{
	if (f->lost || f->after_ovf || !f->synced)
		return PTFLOW_UNKNOWN;
	if (!f->enabled)
		return PTFLOW_OFF;
	*ret_ip = f->ip;
	*ret_owner = f->owner;
	return PTFLOW_ON;
}

void ptflow_reset(struct ptflow *f)
{
	f->base = 0;
	f->synced = f->stopping = false;
	f->code = f->o.code;
	f->epoch = f->code->epoch - 1;
	f->owner = 0;
	f->is64 = true;
	f->credit = CREDIT_PSB;
	f->last_ip = 0;
	f->fup_for = FUP_ASYNC;
	f->enabled = f->lost = f->has_fup = f->in_psb = f->after_ovf = f->aborted = f->speculative = false;
	f->mode64 = f->tsx = -1;
	f->top = f->depth = 0;
	f->block = CODEBLOCK_NONE;
	f->n_batch = 0;
	f->error = 0;
}

void ptflow_rebind(struct ptflow *f, struct codeblocks *code, void *arg, struct ptflow_event *batch)
{
	f->o.arg = arg;
	f->batch = batch;
	f->code = code;
	f->epoch = code->epoch - 1;
	codeblocks_set_mode(code, f->is64);
}

/* Bytes that are no packet: perhaps the one before was cut short, and took the begin of a PSB for its own. */
static void lose_packets(struct ptflow *f)
{
	const size_t back = (size_t)(f->pos - f->begin) < PTPACKET_PSB_BYTES - 1 ? (size_t)(f->pos - f->begin) :
										   PTPACKET_PSB_BYTES - 1;

	lose(f, PTFLOW_E_PACKET);
	f->in_psb = f->synced = false;
	f->pos -= back;
}

/* To the next PSB, or as far as it is certain that there is none. */
static void to_psb(struct ptflow *f, bool more)
{
	const uint8_t *psb = ptpacket_find_psb(f->pos, f->end);

	if (!psb)
		psb = more ? f->end - (PTPACKET_PSB_BYTES - 1) : f->end;
	else
		f->synced = true;
	f->stats.skipped_bytes += (uint64_t)(psb - f->pos);
	f->pos = psb;
}

static void earn(struct ptflow *f, unsigned int bytes)
{
	f->credit += (int32_t)bytes * CREDIT_BYTE;
	if (f->credit > CREDIT_MAX)
		f->credit = CREDIT_MAX;
}

/* One packet. False: the part of the trace that ends at `stop` is done. */
static bool step(struct ptflow *f, const uint8_t *stop)
{
	const uint8_t byte = *f->pos;
	struct ptpacket pk;
	int r;

	/* most packets of all: up to six decisions */
	if (!(byte & 1) && byte > 2 && f->enabled && !f->lost && !f->in_psb) {
		const unsigned int count = 30u - (unsigned int)__builtin_clz(byte);

		f->stats.packets++;
		f->pos++;
		earn(f, 1);
		on_tnt(f, (uint64_t)(byte >> 1) & ((1u << count) - 1), count);
		return true;
	}
	r = ptpacket_read(f->pos, f->end, &pk);
	if (r == PTPACKET_E_CUT) {
		f->pos = f->end;
		return false;
	}
	if (r != 0) {
		lose_packets(f);
		return true;
	}
	if (stop && f->pos >= stop) {
		/* what follows is the next part's, but for where it begins */
		if (pk.type == PT_OVF || (!f->stopping && f->pos != stop))
			return false;
		f->stopping = true;
	} else {
		f->stats.packets++;
	}
	if (f->o.errata.skd007 && ptpacket_is_skd007(&pk, f->pos, f->end)) {
		f->pos += PTPACKET_SKD007_BYTES;
		on_ovf(f);
		return true;
	}
	f->pos += pk.length;
	earn(f, pk.length);
	on_packet(f, &pk);
	return true;
}

static int feed(struct ptflow *f, const uint8_t *stop, bool more)
{
	const uint8_t *limit = more ? f->end - PTFLOW_LOOKAHEAD : f->end;

	while (f->pos < limit) {
		if (f->error)
			return f->error;
		if (f->pause && !f->stopping)
			return PTFLOW_MORE;
		if (!f->synced) {
			to_psb(f, more);
			if (stop && f->pos >= stop)
				return 0;
			continue;
		}
		if (!step(f, stop) || (f->stopping && !f->in_psb))
			return 0;
	}
	return more ? PTFLOW_MORE : 0;
}

int ptflow_feed(struct ptflow *f, const uint8_t *begin, const uint8_t *end, const uint8_t *stop, bool more,
		size_t *ret_used)
{
	const uint8_t *counted;
	int r;

	f->begin = f->pos = begin;
	f->end = end;
	f->pause = false;
	r = feed(f, stop, more);
	flush(f);
	*ret_used = (size_t)(f->pos - begin);
	f->base += *ret_used;
	counted = stop && f->pos > stop ? stop : f->pos;
	f->stats.bytes += counted > begin ? (uint64_t)(counted - begin) : 0;
	return f->error ? f->error : r;
}

int ptflow_run(struct ptflow *f, const uint8_t *begin, const uint8_t *end, const uint8_t *stop)
{
	size_t used;
	int r;

	ptflow_reset(f);
	do {
		r = ptflow_feed(f, begin, end, stop, false, &used);
		begin += used;
	} while (r == PTFLOW_MORE);
	return r;
}
