// SPDX-License-Identifier: Apache-2.0
/*
 * A trace and code from a stranger: followed as a whole and in pieces, which must be the same, and
 * what comes of it through the rules of the stack, whose frames must end as often as they begin.
 * Events, packets and instructions are bounded by the bytes.
 *
 * The input: two bytes, how long the code is; the code; the trace.
 */
#include <stdlib.h>
#include <string.h>

#include "decode/calls/callstack.h"
#include "decode/pt/flow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE 0x401000ull
#define MAX_FUNCTIONS 256u

struct run {
	const uint8_t *code;
	size_t n_code;
	struct callfunc functions[MAX_FUNCTIONS];
	struct callfunc unknown;
	struct callstack *calls;
	uint64_t events, depth, hash, pause;
};

static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct run *r = arg;

	(void)buffer;
	(void)n;
	if (ip < BASE || ip - BASE >= r->n_code)
		return 0;
	*ret = r->code + (ip - BASE);
	return r->n_code - (size_t)(ip - BASE);
}

/* A function each 32 bytes, some of them of the kinds that have rules of their own. */
static const struct callfunc *function(void *arg, uint64_t ip, bool *ret_first)
{
	struct run *r = arg;
	const uint64_t i = (ip - BASE) / 32;

	*ret_first = ip % 32 == 0;
	return ip >= BASE && i < MAX_FUNCTIONS ? &r->functions[i] : &r->unknown;
}

static bool lands(void *arg, uint64_t call, uint64_t pad)
{
	(void)arg;
	return (call ^ pad) % 5 == 0;
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	struct run *r = arg;

	(void)time;
	(void)fr;
	(void)why;
	if (++r->depth > CALLSTACK_MAX_DEPTH)
		abort();
	call->insns = r->depth;
}

static void on_end(void *arg, uint64_t time, struct call *call)
{
	struct run *r = arg;

	(void)time;
	if (r->depth == 0 || call->insns != r->depth)
		abort();
	r->depth--;
}

static void on_event(struct run *r, const struct ptflow_event *e)
{
	switch (e->kind) {
	case PTFLOW_CALL:
	case PTFLOW_CALL_INDIRECT:
		callstack_call(r->calls, e->time, e->from, e->from + e->length, e->to);
		break;
	case PTFLOW_RET:
		callstack_return(r->calls, e->time, e->from, e->to);
		break;
	case PTFLOW_COND:
	case PTFLOW_JUMP:
	case PTFLOW_JUMP_INDIRECT:
	case PTFLOW_FAR:
	case PTFLOW_ASYNC:
		callstack_jump(r->calls, e->time, e->from, e->to, e->kind != PTFLOW_COND);
		break;
	case PTFLOW_ENABLE:
		callstack_resume(r->calls, e->time, e->to);
		break;
	case PTFLOW_DISABLE:
	case PTFLOW_DISABLE_ASYNC:
		callstack_stop(r->calls, e->time, e->from,
			       e->kind == PTFLOW_DISABLE ? e->from + e->length : 0);
		break;
	case PTFLOW_RESYNC:
		callstack_resync(r->calls, e->time, e->to);
		break;
	case PTFLOW_DESYNC:
	case PTFLOW_OVERFLOW:
		callstack_gap(r->calls, e->time);
		break;
	default:
		break;
	}
}

static int sink(void *arg, const struct ptflow_event *events, size_t n)
{
	struct run *r = arg;

	for (size_t i = 0; i < n; i++) {
		const struct ptflow_event *e = &events[i];

		r->hash = (r->hash ^ e->from ^ e->to * 3 ^ e->kind ^ e->insns << 7 ^ e->time << 20 ^
			   e->offset << 40) *
			  0x9e3779b97f4a7c15ull;
		on_event(r, e);
	}
	r->events += n;
	return r->pause && r->events % r->pause < n;
}

static void begin(struct run *r, const uint8_t *code, size_t n_code)
{
	static const struct callstack_ops ops = {.function = function,
						 .lands = lands,
						 .begin = on_begin,
						 .end = on_end};

	*r = (struct run){.code = code, .n_code = n_code};
	for (uint32_t i = 0; i < MAX_FUNCTIONS; i++)
		r->functions[i] = (struct callfunc){.start = BASE + i * 32,
			.id = i + 1,
			.is_plt = i % 8 == 3,
			.is_setjmp = i % 8 == 5,
			.is_switch = i % 16 == 7,
			.known = i % 8 != 6};
	if (callstack_new(&ops, r, NULL, &r->calls) < 0)
		abort();
}

static void end(struct run *r, size_t bytes)
{
	callstack_finish(r->calls, UINT64_MAX);
	if (r->depth || r->events > bytes * 300 + 10000)
		abort();
	r->calls = callstack_free(r->calls);
}

/*
 * What it came to; 0 if there was something that is no packet, at which pieces may differ by some
 * bytes.
 */
static uint64_t follow(const uint8_t *code, size_t n_code, const uint8_t *trace, size_t n, bool all,
		       bool pieces)
{
	static struct run r;
	const struct pttime_config tc = {.tsc_ctc_n = 100,
					 .tsc_ctc_d = 2,
					 .mtc_shift = 3,
					 .nominal_ratio = 20};
	_cleanup_(codeblocks_freep) struct codeblocks *blocks = NULL;
	_cleanup_(ptflow_freep) struct ptflow *f = NULL;
	struct pttime time;
	struct ptflow_options o = {.sink = sink, .arg = &r, .time = &time, .all = all};
	size_t at = 0, used;
	int answer;

	begin(&r, code, n_code);
	pttime_init(&time, &tc);
	/* in pieces with so little memory that blocks are forgotten */
	if (codeblocks_new(read_code, NULL, &r, pieces ? 0 : 1u << 20, &blocks) < 0)
		abort();
	o.code = blocks;
	o.errata = (struct pterrata){.skd007 = n_code & 1, .skd022 = n_code & 2};
	if (ptflow_new(&o, &f) < 0)
		abort();
	if (pieces)
		r.pause = 700;
	ptflow_reset(f);
	do {
		const size_t left = n - at, piece = pieces && left > PTFLOW_LOOKAHEAD + 333
							    ? PTFLOW_LOOKAHEAD + 333
							    : left;

		answer = ptflow_feed(f, trace + at, trace + at + piece, NULL, piece < left, &used);
		if (answer < 0 || used > piece || (answer == PTFLOW_MORE && used == 0))
			abort();
		at += used;
	} while (answer == PTFLOW_MORE);
	if (at > n)
		abort();
	end(&r, n);
	if (ptflow_stats(f)->packets > n ||
	    ptflow_stats(f)->insns > (n * (256 + 256 + 8) + 4096) * CODEBLOCK_MAX_INSNS)
		abort();
	return ptflow_stats(f)->errors[PTFLOW_E_PACKET] ? 0 : r.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n_code;

	if (size < 2)
		return 0;
	n_code = data[0] | (size_t)data[1] << 8;
	data += 2;
	size -= 2;
	if (n_code > size)
		n_code = size;
	for (int all = 0; all < 2; all++) {
		const uint64_t whole =
			follow(data, n_code, data + n_code, size - n_code, all, false);
		const uint64_t pieces =
			follow(data, n_code, data + n_code, size - n_code, all, true);

		if (whole != pieces)
			abort();
	}
	return 0;
}
