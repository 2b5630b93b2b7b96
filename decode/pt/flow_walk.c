// SPDX-License-Identifier: Apache-2.0
/* The walk through the code: blocks, the links between them, calls and where they return. */
#include "decode/pt/flow_internal.h"

#include "common/base/address.h"

void ptflow_flush(struct ptflow *f)
{
	if (f->n_batch && !f->error) {
		int r = f->o.sink(f->o.arg, f->batch, f->n_batch);

		if (r < 0)
			f->error = r;
		f->pause |= r > 0;
	}
	f->n_batch = 0;
}

struct ptflow_event *ptflow_emit(struct ptflow *f, enum ptflow_kind kind, uint64_t from,
				 uint64_t to)
{
	struct ptflow_event *e;

	if (f->n_batch == PTFLOW_BATCH)
		ptflow_flush(f);
	e = &f->batch[f->n_batch++];
	*e = (struct ptflow_event){.from = from,
		.to = to,
		.time = f->o.time ? pttime_now(f->o.time) : 0,
		.insns = f->stats.insns,
		.offset = f->base + (uint64_t)(f->pos - f->begin),
		.kind = (uint8_t)kind,
		.thread = f->thread,
		.speculative = f->speculative,
		.loads_sp = f->tags & CODEBLOCK_LOADS_SP,
		.is32 = !f->is64};
	f->tags = 0;
	return e;
}

void ptflow_lose(struct ptflow *f, enum ptflow_error error)
{
	/* The packets are right: some were not seen to belong to it. */
	if (f->in_doubt && error == PTFLOW_E_MISMATCH)
		error = PTFLOW_E_NONE;
	if (!f->code->foreign && error != PTFLOW_E_NONE)
		f->stats.errors[error]++;
	ptflow_emit(f, PTFLOW_DESYNC, f->ip, 0)->error = (uint8_t)error;
	f->lost = true;
	f->in_doubt = false;
	f->has_fup = false;
	f->depth = 0;
}

/* At a decision that the packets do not make: up to here it was executed. */
void ptflow_lose_at(struct ptflow *f, const struct codeblock *b, enum ptflow_error error)
{
	f->stats.insns += b->insns;
	if (f->o.all)
		ptflow_emit(f, PTFLOW_RUN, 0, b->start + b->to_last + b->last_bytes)->start =
			b->start;
	ptflow_lose(f, error);
}

void ptflow_go(struct ptflow *f, uint64_t ip)
{
	f->ip = ip;
	f->block = f->from = CODEBLOCK_NONE;
}

/* By an indirect branch, which goes where it went last more often than not. */
static void go_again(struct ptflow *f, uint32_t from, uint64_t ip)
{
	const struct codeblock *blocks = f->code->blocks;
	const uint32_t last = blocks[from].taken;

	ptflow_go(f, ip);
	if (last != CODEBLOCK_NONE && blocks[last].start == ip)
		f->block = last;
	else
		f->from = from;
}

/* Who runs there; `ip` 0: that is not known. */
void ptflow_enter_at(struct ptflow *f, uint64_t ip)
{
	if (!f->o.enter)
		return;
	f->code = f->o.enter(f->o.arg, f->o.time ? pttime_now(f->o.time) : 0, ip, &f->thread);
	f->epoch = f->code->epoch - 1; /* numbers of blocks are of another table, perhaps */
}

/* Tracing begins or goes on here: perhaps somebody else runs now. */
void ptflow_begin_at(struct ptflow *f, uint64_t ip)
{
	f->lost = f->since_ovf = f->in_doubt = false;
	f->enabled = true;
	ptflow_enter_at(f, ip);
	codeblocks_set_mode(f->code, f->is64);
	ptflow_go(f, ip);
}

/* A packet has an address while the way is lost: from here on it is known again. */
void ptflow_find(struct ptflow *f, uint64_t ip)
{
	ptflow_begin_at(f, ip);
	ptflow_emit(f, PTFLOW_RESYNC, 0, ip);
}

/* All blocks were forgotten: their numbers mean nothing any more. */
static void forget_blocks(struct ptflow *f)
{
	f->epoch = f->code->epoch;
	f->block = f->from = CODEBLOCK_NONE;
	for (size_t i = 0; i < PTFLOW_RETURNS; i++)
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
			ptflow_lose(f, PTFLOW_E_NO_CODE);
			return NULL;
		}
		if (f->from != CODEBLOCK_NONE)
			f->code->blocks[f->from].taken = f->block;
		f->from = CODEBLOCK_NONE;
	}
	return &f->code->blocks[f->block];
}

static uint64_t end_of_block(const struct codeblock *b)
{
	return b->start + b->to_last + b->last_bytes;
}

/* The block's instructions were executed, its last included. */
static void executed(struct ptflow *f, const struct codeblock *b)
{
	f->stats.insns += b->insns;
	f->stats.blocks++;
	f->tags |= b->tags;
}

static void follow(struct ptflow *f, const struct codeblock *b, enum ptflow_kind kind, uint64_t to)
{
	struct ptflow_event *e = ptflow_emit(f, kind, b->start + b->to_last, to);

	e->start = b->start;
	e->length = b->last_bytes;
}

/* Of interest only where everything is. */
static void follow_minor(struct ptflow *f, const struct codeblock *b, enum ptflow_kind kind,
			 uint64_t to)
{
	follow(f, b, kind, to);
	f->batch[f->n_batch - 1].minor = true;
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
	f->returns[f->top % PTFLOW_RETURNS].ip = ip;
	f->returns[f->top++ % PTFLOW_RETURNS].call = f->block;
	if (f->depth < PTFLOW_RETURNS)
		f->depth++;
}

/* Finds the block after the call that ends this one: a return goes there by its number. */
static const struct codeblock *link_back(struct ptflow *f, const struct codeblock *b)
{
	uint32_t next;

	if (b->fall != CODEBLOCK_NONE)
		return b;
	next = codeblocks_get(f->code, end_of_block(b));
	if (f->epoch != f->code->epoch)
		forget_blocks(f);
	else
		f->code->blocks[f->block].fall = next;
	return here(f);
}

void ptflow_cond(struct ptflow *f, const struct codeblock *b, bool taken)
{
	const uint64_t to = end_of_block(b) + (taken ? (uint64_t)(int64_t)b->offset : 0);

	executed(f, b);
	if (taken && (b->tags & CODEBLOCK_LEAVES))
		follow(f, b, PTFLOW_COND, to);
	else if (f->o.all)
		follow_minor(f, b, PTFLOW_COND, to);
	go_along(f, taken, to);
}

/* Over a block that needs no decision; the way is lost if too many came without one. */
static void pass(struct ptflow *f, const struct codeblock *b)
{
	uint64_t next, to;

	f->credit -= b->kind == INSN_CALL ? PTFLOW_CREDIT_CALL : 1;
	if (f->credit <= 0) {
		ptflow_lose(f, PTFLOW_E_RUNAWAY);
		return;
	}

	if (b->kind == INSN_CALL && !(b = link_back(f, b)))
		return;
	next = end_of_block(b);
	to = next + (uint64_t)(int64_t)b->offset;
	executed(f, b);
	switch (b->kind) {
	case INSN_JUMP:
		if (b->tags & CODEBLOCK_LEAVES)
			follow(f, b, PTFLOW_JUMP, to);
		else if (f->o.all)
			follow_minor(f, b, PTFLOW_JUMP, to);
		go_along(f, true, to);
		return;
	case INSN_CALL:
		push_return(f, next);
		follow(f, b, PTFLOW_CALL, to);
		go_along(f, true, to);
		return;
	case INSN_CALL_NEXT:
		if (f->o.all)
			follow_minor(f, b, PTFLOW_JUMP, to);
		go_along(f, true, to);
		return;
	default:
		if (f->o.all)
			follow_minor(f, b, PTFLOW_RUN, next);
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
const struct codeblock *ptflow_to_decision(struct ptflow *f)
{
	while (!f->lost) {
		const struct codeblock *b = here(f);

		if (!b || needs_decision(b))
			return b;
		pass(f, b);
	}
	return NULL;
}

/* How many instructions of the block lie before `ip`; -1: it is not at the begin of one. */
static int insns_before(const struct codeblock *b, struct codeblocks *code, uint64_t ip)
{
	return codeblocks_count(code, b, ip);
}

/* All decisions before it were written in front of it. */
static bool at_event(struct ptflow *f)
{
	f->in_doubt = false;
	return true;
}

/*
 * To `ip`, without a decision: an event happens there. True if it was reached. Otherwise the walk
 * stands at the decision (or the missing code) that was in the way.
 */
bool ptflow_walk_to(struct ptflow *f, uint64_t ip)
{
	while (!f->lost) {
		const struct codeblock *b;
		int insns;

		if (f->ip == ip)
			return at_event(f);
		b = here(f);
		if (!b)
			return false;
		if (ip > b->start && ip - b->start <= b->to_last) {
			insns = insns_before(b, f->code, ip);
			if (insns >= 0) {
				f->tags |= b->tags;
				f->stats.insns += (uint64_t)insns;
				if (f->o.all)
					ptflow_emit(f, PTFLOW_RUN, 0, ip)->start = b->start;
				ptflow_go(f, ip);
				return at_event(f);
			}
		}
		if (needs_decision(b))
			return false;
		pass(f, b);
	}
	return false;
}

/* An event did not lie on the way. */
void ptflow_lose_on_the_way(struct ptflow *f)
{
	const struct codeblock *b = f->lost ? NULL : here(f);

	if (b)
		ptflow_lose_at(f, b, PTFLOW_E_MISMATCH);
}

/* Out of the kernel: there the process may have executed another program. */
static void come_back(struct ptflow *f, uint64_t to)
{
	ptflow_enter_at(f, to);
	codeblocks_set_mode(f->code, f->is64);
	ptflow_go(f, to);
}

/* The branch at the end of `b` goes to `to`, as an address packet says. */
void ptflow_branch_to(struct ptflow *f, const struct codeblock *b, uint64_t to)
{
	bool back = false;

	if (b->kind == INSN_CALL_INDIRECT && !(b = link_back(f, b)))
		return;
	executed(f, b);
	switch (b->kind) {
	case INSN_CALL_INDIRECT:
		push_return(f, end_of_block(b));
		follow(f, b, PTFLOW_CALL_INDIRECT, to);
		break;
	case INSN_JUMP_INDIRECT:
		follow(f, b, PTFLOW_JUMP_INDIRECT, to);
		break;
	case INSN_RET:
		/*
		 * Compressed or not, it takes what the last call had put there: else the next one
		 * would go astray.
		 */
		if (f->depth) {
			f->depth--;
			f->top--;
		}
		follow(f, b, PTFLOW_RET, to);
		break;
	default:
		back = b->start >= KERNEL_HALF && to < KERNEL_HALF;
		follow(f, b, PTFLOW_FAR, to);
		break;
	}
	if (back)
		come_back(f, to);
	else
		go_again(f, f->block, to);
}

/* A compressed return: to the return address of the call on top. */
void ptflow_return(struct ptflow *f, const struct codeblock *b)
{
	uint64_t to;

	executed(f, b);
	f->depth--;
	to = f->returns[--f->top % PTFLOW_RETURNS].ip;
	follow(f, b, PTFLOW_RET, to);
	go_again(f, f->block, to);
}

/* Over the write to CR3 that is next. */
void ptflow_walk_over_cr3(struct ptflow *f)
{
	while (!f->lost) {
		const struct codeblock *b = here(f);
		const bool there = b && b->kind == INSN_MOV_CR3;

		if (!b)
			return;
		if (needs_decision(b)) {
			ptflow_lose(f, PTFLOW_E_MISMATCH);
			return;
		}
		pass(f, b);
		if (there)
			return;
	}
}

/*
 * Whether a direct branch to there ends tracing, as far as it is known what is traced (erratum
 * SKL014).
 */
static bool is_filtered(const struct ptflow *f, uint64_t ip)
{
	if (!f->o.errata.skl014 || f->o.n_filter == 0)
		return false;
	for (size_t i = 0; i < f->o.n_filter; i++)
		if (ip >= f->o.filter[i].first && ip <= f->o.filter[i].last)
			return false;
	return true;
}

/*
 * Tracing ended after a branch: the next one that can leave, by what the packet says of where to.
 */
void ptflow_disable_at_branch(struct ptflow *f, bool has_ip, uint64_t ip)
{
	while (!f->lost) {
		const struct codeblock *b = here(f);
		bool leaves;
		uint64_t taken;

		if (!b)
			return;
		leaves = needs_decision(b);
		if (b->kind == INSN_JUMP || b->kind == INSN_CALL) {
			taken = end_of_block(b) + (uint64_t)(int64_t)b->offset;
			leaves = has_ip ? taken == ip : is_filtered(f, taken);
		} else if (b->kind == INSN_MOV_CR3) { /* to an address space that is not traced */
			leaves = !has_ip || end_of_block(b) == ip;
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

/*
 * The same as the general walk below, for as long as it goes along links that are known: most of a
 * trace. Returns how many bits are left; the walk stands where the general one goes on.
 */
unsigned int ptflow_walk_links(struct ptflow *f, uint64_t bits, unsigned int count)
{
	const struct codeblock *blocks = f->code->blocks;
	uint64_t insns = f->stats.insns;
	uint32_t cur = f->block;
	int32_t credit = f->credit;
	uint32_t tags = f->tags;

	while (count > 0 && credit > PTFLOW_CREDIT_CALL) {
		const struct codeblock *b = &blocks[cur];
		uint32_t next;
		struct ptflow_event *e;

		switch (b->kind) {
		case INSN_COND: {
			const bool taken = bits >> (count - 1) & 1;

			next = taken ? b->taken : b->fall;
			if (next == CODEBLOCK_NONE || (taken && (b->tags & CODEBLOCK_LEAVES)))
				goto out;
			count--;
			insns += b->insns;
			tags |= b->tags;
			break;
		}
		case INSN_RET:
			if (!(bits >> (count - 1) & 1) || f->depth == 0)
				goto out;
			next = blocks[f->returns[(f->top - 1) % PTFLOW_RETURNS].call].fall;
			if (next == CODEBLOCK_NONE)
				goto out;
			count--;
			insns += b->insns;
			f->stats.insns = insns;
			f->tags = tags | b->tags;
			tags = 0;
			f->depth--;
			f->top--;
			e = ptflow_emit(f, PTFLOW_RET, b->start + b->to_last, blocks[next].start);
			e->start = b->start;
			e->length = b->last_bytes;
			break;
		case INSN_CALL:
			next = b->taken;
			if (next == CODEBLOCK_NONE || b->fall == CODEBLOCK_NONE)
				goto out;
			credit -= PTFLOW_CREDIT_CALL;
			insns += b->insns;
			f->stats.insns = insns;
			f->tags = tags | b->tags;
			tags = 0;
			f->block = cur;
			push_return(f, end_of_block(b));
			e = ptflow_emit(f, PTFLOW_CALL, b->start + b->to_last, blocks[next].start);
			e->start = b->start;
			e->length = b->last_bytes;
			break;
		case INSN_JUMP:
			next = b->taken;
			if (next == CODEBLOCK_NONE || (b->tags & CODEBLOCK_LEAVES))
				goto out;
			credit--;
			insns += b->insns;
			tags |= b->tags;
			break;
		case INSN_OTHER:
			next = b->fall;
			if (next == CODEBLOCK_NONE)
				goto out;
			credit--;
			insns += b->insns;
			tags |= b->tags;
			break;
		default:
			goto out;
		}
		cur = next;
	}
out:
	f->credit = credit;
	f->tags = tags;
	f->stats.insns = insns;
	f->block = cur;
	f->ip = blocks[cur].start;
	return count;
}
