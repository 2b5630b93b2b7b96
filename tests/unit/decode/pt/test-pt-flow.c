// SPDX-License-Identifier: Apache-2.0
/*
 * The walk through the code: packets written by hand, then random programs that a model ran. A
 * trace is followed as a whole, in parts that end at a PSB, and in pieces, with much memory for
 * blocks of code and with little: all give what the model executed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "decode/pt/flow.h"
#include "decode/pt/packet.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/decode/pt/pt-make.h"
#include "tests/unit/decode/pt/pt-program.h"

#define BASE 0x1000ull

/* ---- what comes out */

struct seen {
	struct ptflow_event *v;
	size_t n, cap;
	uint64_t pause; /* a number of events; 0: never */
};

static int collect(void *arg, const struct ptflow_event *events, size_t n)
{
	struct seen *s = arg;

	while (s->cap - s->n < n) {
		s->cap = s->cap ? s->cap * 2 : 1024;
		s->v = reallocarray(s->v, s->cap, sizeof(*s->v));
		assert_non_null(s->v);
	}
	if (n)
		memcpy(s->v + s->n, events, n * sizeof(*events));
	s->n += n;
	return s->pause && s->n % s->pause < n;
}

struct code {
	const uint8_t *bytes;
	size_t n;
};

static size_t read_flat(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct code *c = arg;

	(void)buffer;
	(void)n;
	if (ip < BASE || ip - BASE >= c->n)
		return 0;
	*ret = c->bytes + (ip - BASE);
	return c->n - (size_t)(ip - BASE);
}

static struct ptflow_stats follow(struct seen *seen, const struct code *c, const struct ptmake *m,
				  bool all)
{
	_cleanup_(codeblocks_freep) struct codeblocks *blocks = NULL;
	_cleanup_(ptflow_freep) struct ptflow *f = NULL;
	struct ptflow_options o = {.sink = collect, .arg = seen, .all = all};

	assert_int_equal(codeblocks_new(read_flat, NULL, (void *)(uintptr_t)c, 1u << 20, &blocks),
			 0);
	o.code = blocks;
	assert_int_equal(ptflow_new(&o, &f), 0);
	assert_int_equal(ptflow_run(f, m->bytes, m->bytes + m->n, NULL), 0);
	return *ptflow_stats(f);
}

static void is_event(const struct seen *s, size_t i, enum ptflow_kind kind, uint64_t from,
		     uint64_t to)
{
	assert_true(i < s->n);
	if (s->v[i].kind != kind || s->v[i].from != from || s->v[i].to != to)
		fail_msg("event %zu is %u %lx => %lx, not %u %lx => %lx", i, s->v[i].kind,
			 s->v[i].from, s->v[i].to, kind, from, to);
}

/* ---- by hand */

/*
 * 1000 call 100b; 1005 jne 1008; 1007 nop; 1008 jmp *rax; 100a nop; 100b ret; 100c nop; 100d
 * syscall; 100f jmp 100f
 */
static const uint8_t bytes[] = {0xe8, 0x06, 0,    0,    0,    0x75, 0x01, 0x90, 0xff,
				0xe0, 0x90, 0xc3, 0x90, 0x0f, 0x05, 0xeb, 0xfe};
static const struct code code = {bytes, sizeof(bytes)};

static void test_compressed_return(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_TIP, 0x100c);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	assert_int_equal(s.n, 5);
	is_event(&s, 0, PTFLOW_ENABLE, 0, 0x1000);
	assert_true(s.v[0].at_psb);
	is_event(&s, 1, PTFLOW_CALL, 0x1000, 0x100b);
	is_event(&s, 2, PTFLOW_RET, 0x100b, 0x1005);
	is_event(&s, 3, PTFLOW_JUMP_INDIRECT, 0x1008, 0x100c);
	is_event(&s, 4, PTFLOW_DISABLE, 0x100d, 0);
	assert_true(s.v[4].is_syscall);
	assert_int_equal(st.insns, 7);
	assert_int_equal(s.v[4].length, 2);
	free(s.v);
}

/*
 * A return that is not compressed takes the address of its call with it: the next one finds that of
 * the call before.
 */
static void test_uncompressed_return(void **state)
{
	/* 1000 call 1006; 1005 nop; 1006 call 100c; 100b ret; 100c ret */
	static const uint8_t nested[] = {0xe8, 1, 0, 0, 0, 0x90, 0xe8, 1, 0, 0, 0, 0xc3, 0xc3};
	const struct code c = {nested, sizeof(nested)};
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_address(&m, PTMAKE_TIP, 0x100b);
	ptmake_bit(&m, true);
	ptmake_address(&m, PTMAKE_FUP, 0x1005);
	ptmake_end(&m);
	(void)follow(&s, &c, &m, false);
	assert_int_equal(s.n, 6);
	is_event(&s, 3, PTFLOW_RET, 0x100c, 0x100b);
	is_event(&s, 4, PTFLOW_RET, 0x100b, 0x1005);
	is_event(&s, 5, PTFLOW_DISABLE_ASYNC, 0x1005, 0);
	free(s.v);
}

/* The processor may write the bits of later decisions in front of an address. */
static void test_deferred_address(void **state)
{
	/* 1000 jmp *rax; 1002 jne 1000; 1004 ret */
	static const uint8_t loop[] = {0xff, 0xe0, 0x75, 0xfc, 0xc3};
	const struct code c = {loop, sizeof(loop)};
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_defer(&m, 0x1002);
	ptmake_bit(&m, true);
	ptmake_defer(&m, 0x1002);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_TIP, 0x1004);
	ptmake_address(&m, PTMAKE_FUP, 0x1004);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &c, &m, true);

	is_event(&s, 1, PTFLOW_JUMP_INDIRECT, 0x1000, 0x1002);
	is_event(&s, 2, PTFLOW_COND, 0x1002, 0x1000);
	is_event(&s, 3, PTFLOW_JUMP_INDIRECT, 0x1000, 0x1002);
	is_event(&s, 4, PTFLOW_COND, 0x1002, 0x1004);
	is_event(&s, 5, PTFLOW_RET, 0x1004, 0x1004);
	for (size_t i = 0; i < _PTFLOW_E_MAX; i++)
		assert_int_equal(st.errors[i], 0);
	free(s.v);
}

static void test_interrupt(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_bit(&m, false);
	/* in front of 1008, to 100c */
	ptmake_address(&m, PTMAKE_FUP, 0x1008);
	ptmake_address(&m, PTMAKE_TIP, 0x100c);
	ptmake_end(&m);
	(void)follow(&s, &code, &m, false);
	is_event(&s, 3, PTFLOW_ASYNC, 0x1008, 0x100c);
	is_event(&s, 4, PTFLOW_DISABLE, 0x100d, 0);
	assert_int_equal(s.v[3].insns, 4);
	free(s.v);
}

static void is_note(const struct seen *s, size_t i, enum ptpacket_type note, uint64_t from,
		    uint64_t to, unsigned detail)
{
	is_event(s, i, PTFLOW_NOTE, from, to);
	assert_int_equal(s->v[i].note, note);
	assert_int_equal(s->v[i].detail, detail);
}

/*
 * What is told beside the way comes where it happened; a transaction with where it began and ended.
 */
static void test_notes(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_cbr(&m, 20);
	ptmake_hex(&m, "02 b2 34 12 00 00 00 00 00 00"); /* PTWRITE, its address follows */
	ptmake_address(&m, PTMAKE_FUP, 0x100b);
	ptmake_hex(&m, "02 12 78 56 00 00"); /* and one without */
	ptmake_hex(&m, "99 21"); /* a transaction begins */
	ptmake_address(&m, PTMAKE_FUP, 0x100b);
	ptmake_bit(&m, true);
	ptmake_flush(&m);
	ptmake_hex(&m, "99 22"); /* is aborted in front of 1005, to 100c */
	ptmake_address(&m, PTMAKE_FUP, 0x1005);
	ptmake_address(&m, PTMAKE_TIP, 0x100c);
	ptmake_hex(&m, "02 c2 20 00 00 00 01 00 00 00"); /* MWAIT */
	ptmake_hex(&m, "02 22 00 30");			 /* PWRE */
	ptmake_hex(&m, "02 a2 11 00 00 00 00");		 /* PWRX */
	ptmake_hex(&m, "02 13 81 0e");			 /* CFE: page fault */
	ptmake_address(&m, PTMAKE_FUP, 0x100d);
	ptmake_address(&m, PTMAKE_FUP, 0x100d);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	is_note(&s, 1, PT_CBR, 0, 20, 0);
	is_event(&s, 2, PTFLOW_CALL, 0x1000, 0x100b);
	is_note(&s, 3, PT_PTW, 0x100b, 0x1234, 0);
	is_note(&s, 4, PT_PTW, 0, 0x5678, 0);
	is_note(&s, 5, PT_MODE_TSX, 0x100b, 0, PTFLOW_TX_BEGUN);
	is_event(&s, 6, PTFLOW_RET, 0x100b, 0x1005);
	assert_true(s.v[6].speculative);
	is_note(&s, 7, PT_MODE_TSX, 0x1005, 0, PTFLOW_TX_ABORTED);
	is_event(&s, 8, PTFLOW_ASYNC, 0x1005, 0x100c);
	assert_false(s.v[8].speculative);
	is_note(&s, 9, PT_MWAIT, 0, 0x100000020, 0);
	is_note(&s, 10, PT_PWRE, 0, 0x3000, 0);
	is_note(&s, 11, PT_PWRX, 0, 0x11, 0);
	is_note(&s, 12, PT_CFE, 0x100d, 14, 1);
	is_event(&s, 13, PTFLOW_DISABLE_ASYNC, 0x100d, 0);
	assert_int_equal(s.n, 14);
	for (size_t i = 0; i < _PTFLOW_E_MAX; i++)
		assert_int_equal(st.errors[i], 0);
	free(s.v);
}

/*
 * What a PSB's header notes comes behind it, once: it is the next part's where a part ends there.
 */
static void test_notes_of_a_header(void **state)
{
	_cleanup_(codeblocks_freep) struct codeblocks *blocks = NULL;
	_cleanup_(ptflow_freep) struct ptflow *f = NULL;
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};
	struct ptflow_options o = {.sink = collect, .arg = &s};
	size_t second;

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_flush(&m);
	second = m.n;
	ptmake_psb(&m, 0x1005, 0);
	m.n -= 2; /* the header goes on */
	ptmake_cbr(&m, 20);
	ptmake_hex(&m, "02 23");
	ptmake_address(&m, PTMAKE_FUP, 0x1005);
	ptmake_end(&m);
	assert_int_equal(codeblocks_new(read_flat, NULL, (void *)(uintptr_t)&code, 1u << 20,
					&blocks),
			 0);
	o.code = blocks;
	assert_int_equal(ptflow_new(&o, &f), 0);
	assert_int_equal(ptflow_run(f, m.bytes, m.bytes + m.n, m.bytes + second), 0);
	assert_int_equal(s.n, 3); /* the begin, a call, a return */
	assert_int_equal(ptflow_run(f, m.bytes + second, m.bytes + m.n, NULL), 0);
	is_event(&s, 3, PTFLOW_ENABLE, 0, 0x1005);
	is_note(&s, 4, PT_CBR, 0, 20, 0);
	s.n = 0;
	assert_int_equal(ptflow_run(f, m.bytes, m.bytes + m.n, NULL), 0);
	is_note(&s, 3, PT_CBR, 0, 20, 0);
	assert_int_equal(s.n, 5);
	free(s.v);
}

static void test_overflow(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_ovf(&m);
	ptmake_address(&m, PTMAKE_FUP, 0x1005);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_TIP, 0x100c);
	ptmake_end(&m);
	/* and one while tracing is off, which ends where it begins again */
	ptmake_ovf(&m);
	ptmake_address(&m, PTMAKE_PGE, 0x100c);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	is_event(&s, 3, PTFLOW_OVERFLOW, 0x1005, 0);
	is_event(&s, 4, PTFLOW_RESYNC, 0, 0x1005);
	is_event(&s, 5, PTFLOW_JUMP_INDIRECT, 0x1008, 0x100c);
	is_event(&s, 6, PTFLOW_DISABLE, 0x100d, 0);
	is_event(&s, 7, PTFLOW_OVERFLOW, 0, 0);
	is_event(&s, 8, PTFLOW_ENABLE, 0, 0x100c);
	assert_false(s.v[8].at_psb);
	is_event(&s, 9, PTFLOW_DISABLE, 0x100d, 0);
	assert_int_equal(st.overflows, 2);
	free(s.v);
}

/* An overflow instead of the header where a part ends: the next part's. */
static void test_part_ends_at_overflow(void **state)
{
	_cleanup_(codeblocks_freep) struct codeblocks *blocks = NULL;
	_cleanup_(ptflow_freep) struct ptflow *f = NULL;
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};
	struct ptflow_options o = {.sink = collect, .arg = &s};
	uint32_t thread;
	uint64_t ip;
	size_t stop;

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_flush(&m);
	stop = m.n;
	ptmake_hex(&m, "02 82 02 82 02 82 02 82 02 82 02 82 02 82 02 82");
	ptmake_ovf(&m);
	assert_int_equal(codeblocks_new(read_flat, NULL, (void *)(uintptr_t)&code, 1u << 20,
					&blocks),
			 0);
	o.code = blocks;
	assert_int_equal(ptflow_new(&o, &f), 0);
	assert_int_equal(ptflow_run(f, m.bytes, m.bytes + m.n, m.bytes + stop), 0);
	assert_int_equal(s.n, 3);
	assert_int_equal(ptflow_stats(f)->overflows, 0);
	assert_int_equal(ptflow_where(f, &ip, &thread), PTFLOW_ON);
	assert_int_equal(ip, 0x1005);
	free(s.v);
}

/* Where code is missing the way is lost, decisions are left out, and the next address ends that. */
static void test_missing_code(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1005, 0);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_TIP, 0x7000);
	for (int i = 0; i < 100; i++)
		ptmake_bit(&m, i % 3);
	ptmake_address(&m, PTMAKE_TIP, 0x1005);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_TIP, 0x100c);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	is_event(&s, 1, PTFLOW_JUMP_INDIRECT, 0x1008, 0x7000);
	is_event(&s, 2, PTFLOW_DESYNC, 0x7000, 0);
	assert_int_equal(s.v[2].error, PTFLOW_E_NO_CODE);
	is_event(&s, 3, PTFLOW_RESYNC, 0, 0x1005);
	is_event(&s, 4, PTFLOW_JUMP_INDIRECT, 0x1008, 0x100c);
	is_event(&s, 5, PTFLOW_DISABLE, 0x100d, 0);
	assert_int_equal(s.n, 6);
	assert_int_equal(st.errors[PTFLOW_E_NO_CODE], 1);
	free(s.v);
}

/*
 * Code that is missing has made some of the decisions in front of an address that was deferred;
 * others were made where it leads. With those behind it alone the way from there would be another
 * one.
 */
static void test_missing_code_and_deferred_address(void **state)
{
	/*
	 * 1000 jmp *rax; 1002 jne 1006; 1004 jmp *rax; 1006 jne 100a; 1008 jmp *rax; 100a syscall
	 */
	static const uint8_t twice[] = {0xff, 0xe0, 0x75, 0x02, 0xff, 0xe0,
					0x75, 0x02, 0xff, 0xe0, 0x0f, 0x05};
	const struct code c = {twice, sizeof(twice)};

	(void)state;
	/*
	 * forced by an interrupt, which says where it goes on; full; and not deferred, with bits of
	 * the missing code alone
	 */
	for (int how = 0; how < 3; how++) {
		_cleanup_(ptmake_fini) struct ptmake m;
		struct seen s = {0};

		ptmake_init(&m);
		ptmake_psb(&m, 0x1000, 0);
		ptmake_address(&m, PTMAKE_TIP, 0x7000);
		ptmake_bit(&m, true);
		ptmake_bit(&m, false);
		if (how == 2) {
			ptmake_address(&m, PTMAKE_TIP, 0x1002);
		} else {
			ptmake_defer(&m, 0x1002);
			ptmake_bit(&m, true);
		}
		for (int i = 0; how == 1 && m.n_bits; i++)
			ptmake_bit(&m, true);
		if (how == 0) {
			ptmake_address(&m, PTMAKE_FUP, 0x1006);
			ptmake_address(&m, PTMAKE_TIP, 0x1002);
		}
		ptmake_bit(&m, true);
		ptmake_bit(&m, true);
		ptmake_end(&m);
		const struct ptflow_stats st = follow(&s, &c, &m, false);

		is_event(&s, 1, PTFLOW_JUMP_INDIRECT, 0x1000, 0x7000);
		is_event(&s, 2, PTFLOW_DESYNC, 0x7000, 0);
		is_event(&s, 3, PTFLOW_RESYNC, 0, 0x1002);
		if (how == 0) {
			is_event(&s, 4, PTFLOW_DESYNC, 0x1002, 0);
			is_event(&s, 5, PTFLOW_RESYNC, 0, 0x1002);
		} else if (how == 1) {
			is_event(&s, 4, PTFLOW_DESYNC, 0x1002, 0);
			assert_int_equal(s.n, 5);
		}
		/* over both conditional jumps */
		if (how != 1)
			is_event(&s, s.n - 1, PTFLOW_DISABLE, 0x100a, 0);
		assert_int_equal(st.errors[PTFLOW_E_NO_CODE], 1);
		assert_int_equal(st.errors[PTFLOW_E_MISMATCH], 0);
		free(s.v);
	}
}

/* A compressed return without its call; a decision where there is none to make. */
static void test_contradictions(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x100b, 0);
	ptmake_bit(&m, true);
	ptmake_psb(&m, 0x1008, 0);
	ptmake_bit(&m, true);
	ptmake_psb(&m, 0x1005, 0);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	assert_int_equal(st.errors[PTFLOW_E_RETURN], 1);
	assert_int_equal(st.errors[PTFLOW_E_MISMATCH], 1);
	assert_int_equal(s.v[s.n - 1].kind, PTFLOW_DISABLE);
	free(s.v);
}

/* "jmp ." under a decision that never comes. */
static void test_runaway(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	for (int i = 0; i < 3; i++) {
		ptmake_psb(&m, 0x100f, 0);
		ptmake_bit(&m, true);
	}
	ptmake_psb(&m, 0x1000, 0);
	ptmake_bit(&m, true);
	ptmake_flush(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, true);

	assert_true(st.errors[PTFLOW_E_RUNAWAY] >= 3);
	assert_true(s.n < 100000);
	is_event(&s, s.n - 1, PTFLOW_RET, 0x100b, 0x1005);
	free(s.v);
}

/* Calls are events: a recursion without a decision makes few of them. */
static void test_endless_calls(void **state)
{
	static const uint8_t again[] = {0xe8, 0xfb, 0xff, 0xff, 0xff}; /* call itself */
	const struct code c = {again, sizeof(again)};
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_psb(&m, 0x1000, 0);
	for (int i = 0; i < 1000; i++)
		ptmake_address(&m, PTMAKE_TIP, 0x1000);
	const struct ptflow_stats st = follow(&s, &c, &m, false);

	assert_true(st.errors[PTFLOW_E_RUNAWAY] > 100);
	assert_true(s.n < m.n * 32);
	free(s.v);
}

static void test_bad_packet(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	struct seen s = {0};

	(void)state;
	ptmake_init(&m);
	ptmake_hex(&m, "77 77 77");
	ptmake_psb(&m, 0x1000, 0);
	ptmake_hex(&m, "05 05 05");
	ptmake_psb(&m, 0x1005, 0);
	ptmake_bit(&m, false);
	ptmake_address(&m, PTMAKE_FUP, 0x1008);
	ptmake_end(&m);
	const struct ptflow_stats st = follow(&s, &code, &m, false);

	assert_int_equal(st.errors[PTFLOW_E_PACKET], 1);
	/* the three in front, and the three behind the header, of which none is looked at twice */
	assert_int_equal(st.skipped_bytes - 3, 3 + 15);
	is_event(&s, s.n - 1, PTFLOW_DISABLE_ASYNC, 0x1008, 0);
	free(s.v);
}

/* ---- random programs */

struct run {
	struct ptprogram p;
	struct codeblocks *blocks;
	struct ptflow *f;
	struct seen seen;
	struct pttime time;
};

static void run_init(struct run *r, uint64_t seed, const struct ptprogram_options *o, size_t memory,
		     bool all)
{
	static const struct pttime_config none;
	struct ptflow_options fo = {.sink = collect, .all = all};

	*r = (struct run){0};
	ptprogram_run(&r->p, seed, o);
	assert_int_equal(codeblocks_new(ptprogram_read, NULL, &r->p, memory, &r->blocks), 0);
	pttime_init(&r->time, &none);
	fo.code = r->blocks;
	fo.arg = &r->seen;
	fo.time = &r->time;
	assert_int_equal(ptflow_new(&fo, &r->f), 0);
}

static void run_fini(struct run *r)
{
	ptflow_free(r->f);
	codeblocks_free(r->blocks);
	ptprogram_fini(&r->p);
	free(r->seen.v);
}

static void no_errors(const struct run *r, uint64_t seed)
{
	const struct ptflow_stats *s = ptflow_stats(r->f);

	for (size_t i = 0; i < _PTFLOW_E_MAX; i++)
		if (s->errors[i])
			fail_msg("seed %lu: %lu errors of kind %zu", seed, s->errors[i], i);
}

/* The instructions of the lines are those that were executed. */
static void same_instructions(const struct run *r, uint64_t seed)
{
	size_t n = 0;

	for (size_t i = 0; i < r->seen.n; i++) {
		const struct ptflow_event *e = &r->seen.v[i];
		const uint64_t end = e->kind == PTFLOW_RUN ? e->to : e->from + 1;
		const uint8_t *bytes_at;
		struct insn insn;

		if (!e->start)
			continue;
		for (uint64_t ip = e->start; ip < end; ip += insn.length, n++) {
			const size_t left =
				ptprogram_read((void *)(uintptr_t)&r->p, ip, &bytes_at, NULL, 0);

			assert_true(insn_decode(bytes_at, left, true, &insn));
			if (n >= r->p.n_ips || r->p.ips[n] != ip)
				fail_msg("seed %lu: instruction %zu is %lx", seed, n, ip);
		}
		assert_int_equal(e->insns, n);
	}
	if (n != r->p.n_ips)
		fail_msg("seed %lu: %zu instructions, %zu were executed", seed, n, r->p.n_ips);
}

/* The branches that may leave a function, in their order. */
static void same_branches(const struct run *r, uint64_t seed)
{
	size_t n = 0;

	for (size_t i = 0; i < r->seen.n; i++) {
		const struct ptflow_event *e = &r->seen.v[i];
		const struct ptprogram_branch *b;

		if (ptprogram_what(e->kind) < 0 || e->at_psb)
			continue;
		while (n < r->p.n_branches && r->p.branches[n].what == PTPROGRAM_COND)
			n++;
		if (n >= r->p.n_branches)
			fail_msg("seed %lu: a branch too many, at %lx", seed, e->from);
		b = &r->p.branches[n++];
		if ((int)b->what != ptprogram_what(e->kind) || b->from != e->from || b->to != e->to)
			fail_msg("seed %lu: %u %lx => %lx, executed was %u %lx => %lx", seed,
				 e->kind, e->from, e->to, b->what, b->from, b->to);
	}
	while (n < r->p.n_branches && r->p.branches[n].what == PTPROGRAM_COND)
		n++;
	if (n != r->p.n_branches)
		fail_msg("seed %lu: %zu branches, %zu were executed", seed, n, r->p.n_branches);
}

static struct ptprogram_options options_of(uint64_t seed)
{
	uint64_t random = seed * 77 + 1;

	return (struct ptprogram_options){.insns = 200 + ptprogram_random(&random, 8000),
		.psb_each = (unsigned int)ptprogram_random(&random, 3) * 150,
		.signal_each = (unsigned int)ptprogram_random(&random, 3) * 200,
		.tnt47 = ptprogram_random(&random, 2),
		.defer = ptprogram_random(&random, 2),
		.plain_returns = ptprogram_random(&random, 2)};
}

#define SEEDS 300u

static void test_random_programs(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct ptprogram_options o = options_of(seed);
		struct run r;

		for (int all = 0; all < 2; all++) {
			run_init(&r, seed, &o, 1u << 20, all);
			assert_int_equal(ptflow_run(r.f, r.p.trace.bytes,
						    r.p.trace.bytes + r.p.trace.n, NULL),
					 0);
			no_errors(&r, seed);
			assert_int_equal(ptflow_stats(r.f)->insns, r.p.n_ips);
			if (all)
				same_instructions(&r, seed);
			same_branches(&r, seed);
			run_fini(&r);
		}
	}
}

/* Blocks of code are forgotten all the time: nothing changes. */
static void test_little_memory(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS / 3; seed++) {
		const struct ptprogram_options o = options_of(seed);
		struct run r;

		run_init(&r, seed, &o, 0, seed % 2);
		r.blocks->room = 2 + (uint32_t)(seed % 9);
		assert_int_equal(ptflow_run(r.f, r.p.trace.bytes, r.p.trace.bytes + r.p.trace.n,
					    NULL),
				 0);
		assert_true(r.blocks->epoch > 1);
		no_errors(&r, seed);
		assert_int_equal(ptflow_stats(r.f)->insns, r.p.n_ips);
		if (seed % 2)
			same_instructions(&r, seed);
		same_branches(&r, seed);
		run_fini(&r);
	}
}

/* Pieces of any length, and pauses: the same. */
static void test_pieces(void **state)
{
	size_t pauses = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS / 3; seed++) {
		struct ptprogram_options o = options_of(seed);
		uint64_t random = seed;
		size_t at = 0, used;
		struct run r;
		int answer;

		o.insns += 40000;
		run_init(&r, seed, &o, 1u << 20, seed % 2);
		r.seen.pause = 1 + seed % 5000;
		ptflow_reset(r.f);
		do {
			const size_t left = r.p.trace.n - at,
				     most = PTFLOW_LOOKAHEAD + 1 + ptprogram_random(&random, 3000);
			const size_t n = left < most ? left : most;
			/* of a size of its own: a read past its end is seen */
			_cleanup_free_ uint8_t *piece = malloc(n ? n : 1);

			assert_non_null(piece);
			if (n)
				memcpy(piece, r.p.trace.bytes + at, n);
			answer = ptflow_feed(r.f, piece, piece + n, NULL, n < left, &used);
			assert_uint_in_range(answer, 0, PTFLOW_MORE);
			assert_true(used <= n && (answer == 0 || used > 0));
			at += used;
			pauses += answer == PTFLOW_MORE &&
				  (n == left || used < n - PTFLOW_LOOKAHEAD);
		} while (answer == PTFLOW_MORE);
		assert_int_equal(at, r.p.trace.n);
		no_errors(&r, seed);
		if (seed % 2)
			same_instructions(&r, seed);
		same_branches(&r, seed);
		for (size_t i = 1; i < r.seen.n; i++)
			assert_true(r.seen.v[i].offset >= r.seen.v[i - 1].offset);
		run_fini(&r);
	}
	assert_true(pauses > 0);
}

/* Each part on its own, from a PSB to the next: together they are the whole. */
static void test_parts(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct ptprogram_options o = options_of(seed);
		uint64_t random = seed, last = 0;
		struct run r;

		o.psb_each = 20 + (unsigned int)ptprogram_random(&random, 300);
		run_init(&r, seed, &o, 1u << 20, true);
		for (size_t k = 0; k < r.p.n_psbs;) {
			size_t next = k + 1 + ptprogram_random(&random, 3);
			const uint8_t *begin = r.p.trace.bytes + r.p.psbs[k],
				      *end = r.p.trace.bytes + r.p.trace.n;
			const size_t first = r.seen.n;
			uint64_t ip;
			uint32_t thread;

			next = next < r.p.n_psbs ? next : r.p.n_psbs;
			assert_int_equal(ptflow_run(r.f, begin, end,
						    next < r.p.n_psbs
							    ? r.p.trace.bytes + r.p.psbs[next]
							    : NULL),
					 0);
			assert_int_equal(r.seen.v[first].kind, PTFLOW_ENABLE);
			assert_true(r.seen.v[first].at_psb);
			if (last)
				assert_int_equal(r.seen.v[first].to, last);
			if (next < r.p.n_psbs) {
				assert_int_equal(ptflow_where(r.f, &last, &thread), PTFLOW_ON);
			} else {
				assert_int_equal(ptflow_where(r.f, &ip, &thread), PTFLOW_OFF);
			}
			k = next;
		}
		no_errors(&r, seed);
		same_instructions(&r, seed);
		same_branches(&r, seed);
		run_fini(&r);
	}
}

/*
 * What a trace can make it do: so many blocks are paid for by each byte, and a PSB is 16 of them; a
 * block ends somewhere.
 */
static void bounded_work(const struct run *r)
{
	const uint64_t n = r->p.trace.n, blocks = n * (256 + 256 + 8) + 4096;

	assert_true(r->seen.n < n * 300 + 10000);
	assert_true(ptflow_stats(r->f)->insns <= blocks * CODEBLOCK_MAX_INSNS);
	assert_true(ptflow_stats(r->f)->packets <= n);
}

/* Damage between two PSBs: nothing runs away, and what is outside of them is right. */
static void test_damage(void **state)
{
	size_t damaged = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS * 2; seed++) {
		struct ptprogram_options o = options_of(seed);
		uint64_t random = seed;
		struct run good, bad;
		size_t k, at, from, to, tail = 0;

		o.psb_each = 100;
		run_init(&good, seed, &o, 1u << 20, true);
		run_init(&bad, seed, &o, 1u << 20, true);
		if (good.p.n_psbs < 4) {
			run_fini(&good);
			run_fini(&bad);
			continue;
		}
		k = 1 + ptprogram_random(&random, good.p.n_psbs - 2);
		from = good.p.psbs[k];
		to = good.p.psbs[k + 1];
		at = from + ptprogram_random(&random, to - from);
		for (size_t n = 1 + ptprogram_random(&random, 16); at < to && n; at++, n--)
			bad.p.trace.bytes[at] = (uint8_t)ptprogram_random(&random, 256);
		assert_int_equal(ptflow_run(good.f, good.p.trace.bytes,
					    good.p.trace.bytes + good.p.trace.n, NULL),
				 0);
		assert_int_equal(ptflow_run(bad.f, bad.p.trace.bytes,
					    bad.p.trace.bytes + bad.p.trace.n, NULL),
				 0);
		bounded_work(&bad);
		/* in front of the damage all is the same */
		for (size_t i = 0; i < good.seen.n && good.seen.v[i].offset < from; i++)
			assert_true(good.seen.v[i].from == bad.seen.v[i].from &&
				    good.seen.v[i].to == bad.seen.v[i].to);
		/* and behind the next PSB, whose end lies behind its header */
		while (tail < good.seen.n && tail < bad.seen.n) {
			const struct ptflow_event *a = &good.seen.v[good.seen.n - 1 - tail],
						  *b = &bad.seen.v[bad.seen.n - 1 - tail];

			if (a->offset < to + 64)
				break;
			if (a->kind != b->kind || a->from != b->from || a->to != b->to ||
			    a->offset != b->offset)
				fail_msg(
					"seed %lu: behind the damage at %zx..%zx, at %lx: %u %lx => %lx, not %u %lx => %lx",
					seed, from, to, a->offset, b->kind, b->from, b->to, a->kind,
					a->from, a->to);
			tail++;
		}
		for (size_t i = 1; i < _PTFLOW_E_MAX; i++)
			damaged += ptflow_stats(bad.f)->errors[i] > 0;
		run_fini(&good);
		run_fini(&bad);
	}
	/* it did find something */
	assert_true(damaged > SEEDS / 2);
}

/* Bytes that are mostly packets, behind a PSB. */
static void test_garbage(void **state)
{
	static const uint8_t firsts[] = {0x02, 0x0d, 0x2d, 0x4d, 0x6d, 0x11, 0x31, 0x01, 0x21,
					 0x1d, 0x3d, 0x99, 0x19, 0x59, 0x03, 0x06, 0xfe, 0xd9};

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct ptprogram_options o = {.insns = 10};
		uint64_t random = seed;
		struct run r;

		run_init(&r, seed, &o, 1u << 16, seed % 2);
		for (int i = 0; i < 4000; i++) {
			uint8_t b[3] = {(uint8_t)ptprogram_random(&random, 256),
					(uint8_t)ptprogram_random(&random, 256),
					(uint8_t)(ptprogram_random(&random, 64))};

			if (ptprogram_random(&random, 2))
				b[0] = firsts[ptprogram_random(&random, sizeof(firsts))];
			ptmake_raw(&r.p.trace, b, 1 + ptprogram_random(&random, 3));
			if (ptprogram_random(&random, 50) == 0)
				ptmake_psb(&r.p.trace,
					   PTPROGRAM_BASE + ptprogram_random(&random, r.p.n_code),
					   i + 1u);
		}
		assert_int_equal(ptflow_run(r.f, r.p.trace.bytes, r.p.trace.bytes + r.p.trace.n,
					    NULL),
				 0);
		bounded_work(&r);
		/*
		 * an estimate that a stamp has contradicted is all that goes back, and is counted
		 */
		for (size_t i = 1; i < r.seen.n; i++)
			assert_true(r.seen.v[i].time >= r.seen.v[i - 1].time || r.time.ahead > 0);
		run_fini(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compressed_return),
		cmocka_unit_test(test_uncompressed_return),
		cmocka_unit_test(test_deferred_address),
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_notes_of_a_header),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_part_ends_at_overflow),
		cmocka_unit_test(test_missing_code),
		cmocka_unit_test(test_missing_code_and_deferred_address),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_runaway),
		cmocka_unit_test(test_endless_calls),
		cmocka_unit_test(test_bad_packet),
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_little_memory),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
