// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/decode/pt/pt-program.h"

#include <stdlib.h>
#include <string.h>

#include "decode/pt/flow.h"

#define MAX_FUNCTIONS 24u
#define MAX_DEPTH 200u
#define TIDY_DEPTH 120u /* from there on only direct calls, which are of earlier functions */
#define RETURNS 64u

uint64_t ptprogram_random(uint64_t *state, uint64_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 2685821657736338717u >> 11) % below;
}

/* What a place of the code is; the model runs these, not the bytes. */
enum op { NONE, NOP, JCC, JMP, JMP_INDIRECT, CALL, CALL_INDIRECT, RET, SYSCALL, THROW };

struct model_insn {
	uint8_t op, length;
	int32_t target; /* offset in the code, -1: any function */
};

struct model {
	struct ptprogram *p;
	struct ptprogram_options o;
	struct model_insn insns[PTPROGRAM_CODE];
	int32_t functions[MAX_FUNCTIONS];
	unsigned int n_functions;
	int32_t handler;
	int32_t main, leaf; /* tidy */
	int32_t pads[PTPROGRAM_CODE]; /* of the function that begins there; 0: none */
	/* running */
	int32_t at;
	struct {
		int32_t back;
		bool signal; /* what it interrupted goes on at `back` */
		int32_t function; /* tidy: that runs there */
	} stack[MAX_DEPTH];
	unsigned int depth;
	int32_t returns[RETURNS]; /* the processor's, of calls since the last PSB */
	unsigned int n_returns;
	unsigned int last_psb;
};

static uint64_t dice(struct model *m, uint64_t below)
{
	return ptprogram_random(&m->p->random, below);
}

/* ---- code */

static int32_t put(struct model *m, enum op op, const void *bytes, size_t n, int32_t target)
{
	struct ptprogram *p = m->p;
	const int32_t at = (int32_t)p->n_code;

	memcpy(p->code + at, bytes, n);
	m->insns[at] =
		(struct model_insn){.op = (uint8_t)op, .length = (uint8_t)n, .target = target};
	p->n_code += n;
	return at;
}

static void end_function(struct model *m, int32_t start)
{
	struct ptprogram *p = m->p;

	if (p->n_functions == PTPROGRAM_FUNCTIONS)
		abort();
	p->functions[p->n_functions++] = (struct ptprogram_function){
		.start = PTPROGRAM_BASE + (uint64_t)start,
		.end = PTPROGRAM_BASE + p->n_code,
		.pad = m->pads[start] ? PTPROGRAM_BASE + (uint64_t)m->pads[start] : 0};
}

static void put_nops(struct model *m)
{
	static const uint8_t nops[][7] = {{0x90},
					  {0x66, 0x90},
					  {0x48, 0x89, 0xc3},
					  {0x0f, 0x1f, 0x40, 0x00},
					  {0xb8, 1, 2, 3, 4},
					  {0x48, 0x8b, 0x05, 0x10, 0, 0, 0}};
	static const size_t lengths[] = {1, 2, 3, 4, 5, 7};

	for (uint64_t n = dice(m, 4); n > 0; n--) {
		const size_t i = (size_t)dice(m, 6);

		(void)put(m, NOP, nops[i], lengths[i], 0);
	}
}

static void put_rel(struct model *m, enum op op, int32_t target)
{
	uint8_t b[6] = {0x0f, 0x84};
	const size_t n = op == JCC ? 6 : 5;
	const uint32_t rel = (uint32_t)(target - (int32_t)(m->p->n_code + n));

	if (op != JCC)
		b[0] = op == CALL ? 0xe8 : 0xe9;
	for (size_t i = 0; i < 4; i++)
		b[n - 4 + i] = (uint8_t)(rel >> 8 * i);
	(void)put(m, op, b, n, target);
}

/*
 * Forward branches are patched when their target is known: the next one's begin is where a block
 * begins.
 */
static void put_function(struct model *m)
{
	struct ptprogram *p = m->p;
	const int32_t start = (int32_t)p->n_code;
	int32_t blocks[8];
	const unsigned int n = 2 + (unsigned int)dice(m, 6);

	m->functions[m->n_functions++] = start;
	for (unsigned int i = 0; i < n; i++) {
		blocks[i] = (int32_t)p->n_code;
		put_nops(m);
		if (m->o.throws && dice(m, 40) == 0)
			(void)put(m, THROW, "\xff\xe0", 2, 0);
		switch (dice(m, 6)) {
		case 0:
			put_rel(m, JCC, blocks[dice(m, i + 1)]); /* a loop, now and then left */
			break;
		case 1: { /* over some instructions */
			uint8_t b[2] = {0x75, 0};
			int32_t at = put(m, JCC, b, 2, 0);

			put_nops(m);
			(void)put(m, NOP, "\x90", 1, 0);
			p->code[at + 1] = (uint8_t)(p->n_code - (size_t)at - 2);
			m->insns[at].target = (int32_t)p->n_code;
			break;
		}
		case 2: /* an earlier one: without a decision between, calls end somewhere */
			if (m->n_functions > 1)
				put_rel(m, CALL, m->functions[dice(m, m->n_functions - 1)]);
			break;
		case 3:
			(void)put(m, CALL_INDIRECT, "\xff\xd0", 2, -1);
			break;
		case 4: {
			uint8_t b[2] = {0xeb, 3};
			int32_t at = put(m, JMP, b, 2, 0);

			(void)put(m, NOP, "\x0f\x1f\x00", 3, 0);
			m->insns[at].target = (int32_t)p->n_code;
			break;
		}
		default:
			if (dice(m, 4) == 0)
				(void)put(m, SYSCALL, "\x0f\x05", 2, 0);
			break;
		}
	}
	if (dice(m, 8) == 0)
		(void)put(m, JMP_INDIRECT, "\xff\xe0", 2, -1); /* a tail call */
	else
		(void)put(m, RET, "\xc3", 1, 0);
	if (m->o.throws && dice(m, 2)) {
		m->pads[start] = (int32_t)p->n_code;
		(void)put(m, NOP, "\x90", 1, 0);
		(void)put(m, RET, "\xc3", 1, 0);
	}
	end_function(m, start);
}

/*
 * What nobody calls: it calls the others for ever. And one that calls none, for those who are too
 * deep to call others.
 */
static void put_tidy(struct model *m)
{
	m->leaf = (int32_t)m->p->n_code;
	put_nops(m);
	(void)put(m, RET, "\xc3", 1, 0);
	end_function(m, m->leaf);
	m->main = (int32_t)m->p->n_code;
	put_rel(m, CALL, m->functions[m->n_functions - 1]);
	(void)put(m, CALL_INDIRECT, "\xff\xd0", 2, -1);
	put_rel(m, JMP, m->main);
	end_function(m, m->main);
}

static void make_code(struct model *m)
{
	const unsigned int n = 4 + (unsigned int)dice(m, MAX_FUNCTIONS - 5);

	for (unsigned int i = 0; i < n; i++)
		put_function(m);
	m->handler = (int32_t)m->p->n_code;
	put_nops(m);
	put_rel(m, CALL, m->functions[0]);
	(void)put(m, SYSCALL, "\x0f\x05", 2, -2); /* returns from the signal */
	end_function(m, m->handler);
	if (m->o.tidy)
		put_tidy(m);
}

/* ---- running */

#define GROW(array, n, cap)                                                  \
	do {                                                                 \
		if ((n) == (cap)) {                                          \
			(cap) = (cap) ? (cap) * 2 : 1024;                    \
			(array) = reallocarray((array), (cap), sizeof(*(array))); \
			if (!(array))                                        \
				abort();                                     \
		}                                                            \
	} while (0)

static uint64_t address(int32_t at)
{
	return PTPROGRAM_BASE + (uint64_t)at;
}

static void branch(struct model *m, enum ptprogram_what what, int32_t from, int32_t to)
{
	struct ptprogram *p = m->p;

	GROW(p->branches, p->n_branches, p->cap_branches);
	p->branches[p->n_branches++] = (struct ptprogram_branch){what, from < 0 ? 0 : address(from),
								 to < 0 ? 0 : address(to)};
}

/* ---- the tree of calls */

static void begins(struct model *m, int32_t function)
{
	struct ptprogram *p = m->p;

	if (!m->o.tidy)
		return;
	GROW(p->calls, p->n_calls, p->cap_calls);
	p->calls[p->n_calls++] = (struct ptprogram_call){address(function), p->n_ips};
	p->deepest = m->depth > p->deepest ? m->depth : p->deepest;
}

static void ends(struct model *m, unsigned int n)
{
	struct ptprogram *p = m->p;

	while (m->o.tidy && n--) {
		GROW(p->calls, p->n_calls, p->cap_calls);
		p->calls[p->n_calls++] = (struct ptprogram_call){0, p->n_ips};
	}
}

static int32_t running(const struct model *m, unsigned int depth)
{
	return depth ? m->stack[depth - 1].function : m->main;
}

static int32_t any_function(struct model *m)
{
	return m->o.tidy && m->depth > TIDY_DEPTH ? m->leaf : m->functions[dice(m, m->n_functions)];
}

/*
 * To the landing pad of somebody outside, but not over a signal: the innermost of those that are
 * the same function. False: there is none.
 */
static bool throw_out(struct model *m, int32_t *ret_to)
{
	unsigned int found[MAX_DEPTH], n = 0;

	for (unsigned int d = m->depth; d > 0 && !m->stack[d - 1].signal; d--) {
		const int32_t f = running(m, d - 1);
		bool again = !m->pads[f] || f == running(m, m->depth);

		for (unsigned int i = 0; i < n && !again; i++)
			again = running(m, found[i]) == f;
		if (!again)
			found[n++] = d - 1;
	}
	if (n == 0)
		return false;
	n = found[dice(m, n)];
	*ret_to = m->pads[running(m, n)];
	ends(m, m->depth - n);
	m->depth = n;
	return true;
}

static void psb(struct model *m)
{
	struct ptprogram *p = m->p;

	ptmake_flush(&p->trace);
	GROW(p->psbs, p->n_psbs, p->cap_psbs);
	p->psbs[p->n_psbs++] = p->trace.n;
	ptmake_psb(&p->trace, address(m->at), 1000 + p->n_ips);
	m->n_returns = 0;
}

static void enter(struct model *m, int32_t to)
{
	ptmake_address(&m->p->trace, PTMAKE_PGE, address(to));
	branch(m, PTPROGRAM_GO, -1, to);
	m->at = to;
}

static void tip(struct model *m, int32_t to)
{
	if (m->o.defer && dice(m, 3))
		ptmake_defer(&m->p->trace, address(to));
	else
		ptmake_address(&m->p->trace, PTMAKE_TIP, address(to));
}

static void signal_here(struct model *m)
{
	if (m->depth == MAX_DEPTH || (m->o.tidy && (m->at == m->handler || m->depth > TIDY_DEPTH)))
		return;
	m->stack[m->depth].back = m->at;
	m->stack[m->depth].function = m->handler;
	m->stack[m->depth++].signal = true;
	ptmake_address(&m->p->trace, PTMAKE_FUP, address(m->at));
	ptmake_end(&m->p->trace);
	branch(m, PTPROGRAM_STOP, m->at, -1);
	enter(m, m->handler);
	begins(m, m->handler);
}

static void call(struct model *m, int32_t from, int32_t back, int32_t to)
{
	m->stack[m->depth].back = back;
	m->stack[m->depth].function = to;
	m->stack[m->depth++].signal = false;
	begins(m, to);
	/* the processor forgets the oldest */
	if (m->n_returns == RETURNS) {
		memmove(m->returns, m->returns + 1, (RETURNS - 1) * sizeof(m->returns[0]));
		m->n_returns--;
	}
	m->returns[m->n_returns++] = back;
	branch(m, PTPROGRAM_CALL, from, to);
	m->at = to;
}

static void ret(struct model *m, int32_t from)
{
	/* out of the outermost, or of a handler: to anywhere */
	int32_t to = m->functions[dice(m, m->n_functions)];
	int32_t told = m->n_returns ? m->returns[--m->n_returns] : -1;

	if (m->depth && !m->stack[m->depth - 1].signal) {
		to = m->stack[--m->depth].back;
		ends(m, 1);
	}
	if (told == to && !(m->o.plain_returns && dice(m, 2)))
		ptmake_bit(&m->p->trace, true);
	else /* never deferred: a bit in front of it would be taken for its own */
		ptmake_address(&m->p->trace, PTMAKE_TIP, address(to));
	branch(m, PTPROGRAM_RET, from, to);
	m->at = to;
}

static void step(struct model *m)
{
	struct ptprogram *p = m->p;
	const int32_t at = m->at;
	const struct model_insn *i = &m->insns[at];
	const int32_t next = at + i->length;
	int32_t target = i->target >= 0 ? i->target : any_function(m);
	bool taken;

	GROW(p->ips, p->n_ips, p->cap_ips);
	p->ips[p->n_ips++] = address(at);
	m->at = next;
	switch (i->op) {
	case JCC:
		taken = dice(m, 3) == 0;
		ptmake_bit(&p->trace, taken);
		if (taken) {
			branch(m, PTPROGRAM_COND, at, target);
			m->at = target;
		}
		break;
	case JMP:
		m->at = target;
		break;
	case THROW:
		if (throw_out(m, &target)) {
			tip(m, target);
			branch(m, PTPROGRAM_JUMP, at, target);
			m->at = target;
			break;
		}
		target = any_function(m);
		/* fallthrough */
	case JMP_INDIRECT:
		/* to a function's own begin, too: it is called again */
		if (m->o.tidy && m->depth) {
			ends(m, 1);
			begins(m, target);
			m->stack[m->depth - 1].function = target;
		}
		tip(m, target);
		branch(m, PTPROGRAM_JUMP, at, target);
		m->at = target;
		break;
	case CALL:
		/*
		 * A direct call cannot be left out: instead the deepest one goes back to the begin.
		 */
		if (m->depth == MAX_DEPTH)
			m->depth = 0;
		call(m, at, next, target);
		break;
	case CALL_INDIRECT:
		if (m->depth == MAX_DEPTH)
			m->depth = 0;
		tip(m, target);
		call(m, at, next, target);
		break;
	case RET:
		ret(m, at);
		break;
	case SYSCALL:
		ptmake_end(&p->trace);
		branch(m, PTPROGRAM_STOP, at, -1);
		if (i->target != -2) {
			enter(m, next);
			break;
		}
		while (m->depth && !m->stack[m->depth - 1].signal)
			m->depth--;
		ends(m, 1);
		enter(m, m->depth ? m->stack[--m->depth].back : m->functions[0]);
		break;
	default:
		break;
	}
}

void ptprogram_run(struct ptprogram *p, uint64_t seed, const struct ptprogram_options *o)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	*p = (struct ptprogram){.random = seed * 0x9e3779b97f4a7c15ull | 1};
	ptmake_init(&p->trace);
	p->trace.max_bits = o->tnt47 ? 47 : 6;
	m->p = p;
	m->o = *o;
	make_code(m);
	m->at = o->tidy ? m->main : m->functions[0];
	psb(m);
	while (p->n_ips < o->insns) {
		if (o->psb_each && dice(m, o->psb_each) == 0)
			psb(m);
		if (o->signal_each && dice(m, o->signal_each) == 0)
			signal_here(m);
		step(m);
	}
	ptmake_address(&p->trace, PTMAKE_FUP, address(m->at));
	ptmake_end(&p->trace);
	branch(m, PTPROGRAM_STOP, m->at, -1);
	free(m);
}

void ptprogram_fini(struct ptprogram *p)
{
	ptmake_fini(&p->trace);
	free(p->ips);
	free(p->branches);
	free(p->psbs);
	free(p->calls);
}

size_t ptprogram_read(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct ptprogram *p = arg;

	(void)buffer;
	(void)n;
	if (ip < PTPROGRAM_BASE || ip - PTPROGRAM_BASE >= p->n_code)
		return 0;
	*ret = p->code + (ip - PTPROGRAM_BASE);
	return p->n_code - (size_t)(ip - PTPROGRAM_BASE);
}

int ptprogram_what(unsigned int kind)
{
	static const int8_t whats[] = {
		[PTFLOW_RUN] = -1,
		[PTFLOW_COND] = -1,
		[PTFLOW_JUMP] = -1,
		[PTFLOW_JUMP_INDIRECT] = PTPROGRAM_JUMP,
		[PTFLOW_CALL] = PTPROGRAM_CALL,
		[PTFLOW_CALL_INDIRECT] = PTPROGRAM_CALL,
		[PTFLOW_RET] = PTPROGRAM_RET,
		[PTFLOW_FAR] = -1,
		[PTFLOW_ASYNC] = -1,
		[PTFLOW_ENABLE] = PTPROGRAM_GO,
		[PTFLOW_DISABLE] = PTPROGRAM_STOP,
		[PTFLOW_DISABLE_ASYNC] = PTPROGRAM_STOP,
		[PTFLOW_OVERFLOW] = -1,
		[PTFLOW_DESYNC] = -1,
		[PTFLOW_RESYNC] = -1,
		[PTFLOW_NOTE] = -1,
	};

	return whats[kind];
}
