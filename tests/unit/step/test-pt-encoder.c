// SPDX-License-Identifier: Apache-2.0
/*
 * The packets of a stepped thread: which ones, by libipt's packet decoder, and what its instruction
 * decoder makes of long random walks through random code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <intel-pt.h>

#include "common/base/cleanup.h"
#include "step/pt_encoder.h"

#define BASE UINT64_C(0x555555554000)
#define CODE_SIZE 4096u
#define WALK 60000u

struct bytes {
	uint8_t *p;
	size_t n;
};

static int collect(void *arg, const void *p, size_t n)
{
	struct bytes *b = arg;

	b->p = realloc(b->p, b->n + n);
	assert_non_null(b->p);
	memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

static struct bytes read_all(struct pt_encoder_stream *pt)
{
	struct bytes b = {0};

	assert_int_equal(pt_encoder_flush(pt), 0);
	assert_int_equal(pt_encoder_read(pt, collect, &b), 0);
	assert_int_equal(b.n, pt_encoder_bytes(pt));
	return b;
}

static struct pt_encoder_store *new_store(const struct pt_encoder_config *config)
{
	struct pt_encoder_store *s;

	assert_int_equal(pt_encoder_store_new(config, &s), 0);
	return s;
}

static struct pt_encoder_stream *new_stream(struct pt_encoder_store *s)
{
	struct pt_encoder_stream *pt;

	assert_int_equal(pt_encoder_stream_new(s, &pt), 0);
	return pt;
}

/* ---- packets as text */

static void packet_text(const struct pt_packet *p, char *out, size_t size)
{
	static const char *const names[] = {
		[ppt_psb] = "psb",   [ppt_psbend] = "psbend", [ppt_fup] = "fup",
		[ppt_tip] = "tip",   [ppt_tip_pge] = "pge",   [ppt_tip_pgd] = "pgd",
		[ppt_tnt_8] = "tnt", [ppt_tnt_64] = "tnt",    [ppt_mode] = "mode",
		[ppt_tsc] = "tsc",
	};
	size_t n;

	assert_true((size_t)p->type < ARRAY_SIZE(names) && names[p->type]);
	n = (size_t)snprintf(out, size, "%s", names[p->type]);
	switch (p->type) {
	case ppt_fup:
	case ppt_tip:
	case ppt_tip_pge:
	case ppt_tip_pgd:
		if (p->payload.ip.ipc != pt_ipc_suppressed)
			(void)snprintf(out + n, size - n, ".%llx/%d",
				       (unsigned long long)p->payload.ip.ip, p->payload.ip.ipc);
		break;
	case ppt_tnt_8:
	case ppt_tnt_64:
		out[n++] = '.';
		for (unsigned int i = p->payload.tnt.bit_size; i-- > 0;)
			out[n++] = p->payload.tnt.payload >> i & 1 ? 't' : 'n';
		out[n] = '\0';
		break;
	case ppt_mode:
		(void)snprintf(out + n, size - n, ".%d",
			pt_get_exec_mode(&p->payload.mode.bits.exec) == ptem_64bit ? 64 : 32);
		break;
	case ppt_tsc:
		(void)snprintf(out + n, size - n, ".%llu", (unsigned long long)p->payload.tsc.tsc);
		break;
	default:
		break;
	}
}

static void check_packets(struct pt_encoder_stream *pt, const char *want)
{
	struct bytes b = read_all(pt);
	struct pt_packet_decoder *decoder;
	struct pt_config config;
	struct pt_packet packet;
	char text[4096] = "";

	pt_config_init(&config);
	config.begin = b.p;
	config.end = b.p + b.n;
	decoder = pt_pkt_alloc_decoder(&config);
	assert_non_null(decoder);
	assert_true(pt_pkt_sync_forward(decoder) >= 0);
	while (pt_pkt_next(decoder, &packet, sizeof(packet)) > 0) {
		char one[128];

		packet_text(&packet, one, sizeof(one));
		assert_true(strlen(text) + strlen(one) + 2 < sizeof(text));
		if (text[0])
			strcat(text, " ");
		strcat(text, one);
	}
	pt_pkt_free_decoder(decoder);
	free(b.p);
	assert_string_equal(text, want);
}

static const struct pt_encoder_config roomy = {.psb_bytes = 4096, .max_bytes = 1 << 20};
#define TAKES(call) assert_int_equal(call, 0)

static struct insn insn_of(enum insn_kind kind, uint8_t length, int32_t offset)
{
	return (struct insn){.length = length, .kind = (uint8_t)kind, .offset = offset};
}

static void test_branches(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn nop = insn_of(INSN_OTHER, 1, 0), jcc = insn_of(INSN_COND, 2, 0x10),
			  jmp = insn_of(INSN_JUMP, 2, 0x20),
			  indirect = insn_of(INSN_JUMP_INDIRECT, 2, 0),
			  same = insn_of(INSN_COND, 2, 0);

	(void)state;
	TAKES(pt_encoder_begin(pt, 100, 0x1000, true));
	TAKES(pt_encoder_retire(pt, &nop, 0x1000, 0x1001, false, true));
	/* taken: by where it went */
	TAKES(pt_encoder_retire(pt, &jcc, 0x1001, 0x1013, false, true));
	TAKES(pt_encoder_retire(pt, &jcc, 0x1013, 0x1015, true, true));
	TAKES(pt_encoder_retire(pt, &same, 0x1015, 0x1017, true, true));
	TAKES(pt_encoder_retire(pt, &jmp, 0x1017, 0x1039, false, true));
	TAKES(pt_encoder_retire(pt, &indirect, 0x1039, 0x2000, false, true));
	TAKES(pt_encoder_retire(pt, &indirect, 0x2000, 0x12345678, false, true));
	TAKES(pt_encoder_retire(pt, &indirect, 0x12345678, 0x7f0012345678, false, true));
	TAKES(pt_encoder_retire(pt, &indirect, 0x7f0012345678, UINT64_C(0xffffffffff600000), false,
				true));
	TAKES(pt_encoder_interrupt(pt, UINT64_C(0xffffffffff600000)));
	check_packets(
		pt,
		"psb tsc.100 mode.64 psbend pge.1000/3 tnt.tnt tip.2000/1 tip.12345678/2 tip.7f0012345678/4 "
		"tip.ffffffffff600000/6 fup.0/1 pgd");
}

/* Where an instruction cannot go nothing may be written: the caller has to say something else. */
static void test_odd(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn nop = insn_of(INSN_OTHER, 1, 0), jcc = insn_of(INSN_COND, 2, 0x10),
			  jmp = insn_of(INSN_JUMP, 2, 0x20), call = insn_of(INSN_CALL, 5, 0x20);

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, 0x1000, true));
	assert_int_equal(pt_encoder_retire(pt, &nop, 0x1000, 0x1002, false, true),
			 PT_ENCODER_E_UNEXPECTED);
	assert_int_equal(pt_encoder_retire(pt, &jcc, 0x1000, 0x1001, false, true),
			 PT_ENCODER_E_UNEXPECTED);
	assert_int_equal(pt_encoder_retire(pt, &jmp, 0x1000, 0x1002, false, true),
			 PT_ENCODER_E_UNEXPECTED);
	assert_int_equal(pt_encoder_retire(pt, &call, 0x1000, 0x1005, false, true),
			 PT_ENCODER_E_UNEXPECTED);
	check_packets(pt, "psb tsc.1 mode.64 psbend pge.1000/3");
}

static void test_returns(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn call = insn_of(INSN_CALL, 5, 0x100), next = insn_of(INSN_CALL_NEXT, 5, 0),
			  ret = insn_of(INSN_RET, 1, 0),
			  indirect = insn_of(INSN_CALL_INDIRECT, 3, 0);

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, 0x1000, true));
	/* compressed: it comes back to where it was called; also of an indirect call */
	TAKES(pt_encoder_retire(pt, &call, 0x1000, 0x1105, false, true));
	TAKES(pt_encoder_retire(pt, &indirect, 0x1105, 0x2000, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x2000, 0x1108, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x1108, 0x1005, false, true));
	/* to somewhere else, and without a call */
	TAKES(pt_encoder_retire(pt, &call, 0x1005, 0x110a, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x110a, 0x1300, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x1300, 0x1400, false, true));
	/* a call to the next instruction is no call */
	TAKES(pt_encoder_retire(pt, &next, 0x1400, 0x1405, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x1405, 0x1405, false, true));
	/* forgotten at a PSB and when tracing begins again */
	TAKES(pt_encoder_retire(pt, &call, 0x1405, 0x150a, false, true));
	TAKES(pt_encoder_sync(pt, 2, 0x150a));
	TAKES(pt_encoder_retire(pt, &ret, 0x150a, 0x140a, false, true));
	TAKES(pt_encoder_retire(pt, &call, 0x140a, 0x150f, false, true));
	TAKES(pt_encoder_interrupt(pt, 0x150f));
	TAKES(pt_encoder_begin(pt, 3, 0x150f, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x150f, 0x140f, false, true));
	check_packets(
		pt,
		"psb tsc.1 mode.64 psbend pge.1000/3 tip.2000/1 tnt.tt tip.1300/1 tip.1400/1 tip.1405/1 "
		"psb tsc.2 mode.64 fup.150a/3 psbend tip.140a/1 fup.150f/1 pgd tsc.3 pge.150f/1 tip.140f/1");
}

/* More calls than are remembered: the newest 64 count. */
static void test_deep_returns(void **state)
{
	static const unsigned int depth = 70;
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn call = insn_of(INSN_CALL, 5, 0x100), ret = insn_of(INSN_RET, 1, 0);
	char want[1024] = "psb tsc.1 mode.64 psbend pge.1000/3 tnt.";
	uint64_t ip = 0x1000;

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, ip, true));
	for (unsigned int i = 0; i < depth; i++, ip += 0x105)
		TAKES(pt_encoder_retire(pt, &call, ip, ip + 0x105, false, true));
	for (unsigned int i = 0; i < depth; i++) {
		const uint64_t back = 0x1000 + (depth - 1 - i) * 0x105ULL + 5;

		TAKES(pt_encoder_retire(pt, &ret, ip, back, false, true));
		ip = back;
		if (i < 64)
			strcat(want, i == 47 ? " tnt.t" : "t");
		else
			(void)snprintf(want + strlen(want), sizeof(want) - strlen(want),
				       " tip.%llx/1", (unsigned long long)back);
	}
	check_packets(pt, want);
}

static void test_plain_returns(void **state)
{
	const struct pt_encoder_config config = {.psb_bytes = 4096,
						 .max_bytes = 1 << 20,
						 .plain_returns = true};
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&config);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn call = insn_of(INSN_CALL, 5, 0x100), ret = insn_of(INSN_RET, 1, 0);

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, 0x1000, true));
	TAKES(pt_encoder_retire(pt, &call, 0x1000, 0x1105, false, true));
	TAKES(pt_encoder_retire(pt, &ret, 0x1105, 0x1005, false, true));
	check_packets(pt, "psb tsc.1 mode.64 psbend pge.1000/3 tip.1005/1");
}

static void test_bits_are_flushed_in_order(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn jcc = insn_of(INSN_COND, 2, 0x10);
	uint64_t ip = 0x1000;

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, ip, true));
	for (unsigned int i = 0; i < 50; i++, ip += 2)
		TAKES(pt_encoder_retire(pt, &jcc, ip, ip + 2, false, true));
	TAKES(pt_encoder_time(pt, 2));
	for (unsigned int i = 0; i < 7; i++, ip += 0x12)
		TAKES(pt_encoder_retire(pt, &jcc, ip, ip + 0x12, false, true));
	TAKES(pt_encoder_end(pt));
	TAKES(pt_encoder_begin(pt, 3, 0x1000, true));
	check_packets(
		pt,
		"psb tsc.1 mode.64 psbend pge.1000/3 tnt.nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn "
		"tnt.nnn tsc.2 "
		"tnt.ttttttt pgd tsc.3 pge.1000/1");
}

static void test_mode(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn far_ret = insn_of(INSN_FAR_RET, 1, 0),
			  jmp = insn_of(INSN_JUMP, 5, -0x2000),
			  jump_indirect = insn_of(INSN_JUMP_INDIRECT, 2, 0);

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, 0x1000, true));
	TAKES(pt_encoder_retire(pt, &far_ret, 0x1000, 0x1100, false, false));
	/* addresses of 32 bits wrap */
	TAKES(pt_encoder_retire(pt, &jmp, 0x1100, 0xfffff105, false, false));
	TAKES(pt_encoder_retire(pt, &jump_indirect, 0xfffff105, 0x1000, false, false));
	TAKES(pt_encoder_retire(pt, &far_ret, 0x1000, 0x1100, false, true));
	TAKES(pt_encoder_end(pt));
	TAKES(pt_encoder_begin(pt, 2, 0x1000, true));
	TAKES(pt_encoder_end(pt));
	TAKES(pt_encoder_begin(pt, 3, 0x1000, false));
	check_packets(
		pt,
		"psb tsc.1 mode.64 psbend pge.1000/3 mode.32 tip.1100/1 tip.1000/1 mode.64 tip.1100/1 pgd "
		"tsc.2 pge.1000/1 pgd tsc.3 mode.32 pge.1000/1");
}

static void test_tsc_has_56_bits(void **state)
{
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&roomy);
	struct pt_encoder_stream *pt = new_stream(s);

	(void)state;
	TAKES(pt_encoder_begin(pt, UINT64_C(0x1200000000000005), 0x1000, true));
	assert_true(pt_encoder_first_tsc(pt) == UINT64_C(0x1200000000000005));
	check_packets(pt, "psb tsc.5 mode.64 psbend pge.1000/3");
}

/* ---- random walks */

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 20) % n;
}

struct walk {
	uint8_t code[CODE_SIZE + INSN_MAX];
	uint32_t starts[CODE_SIZE]; /* offsets of instructions */
	uint32_t n_starts;
	uint64_t ips[WALK];
	uint32_t n_ips;
};

/* The start of one of the next `n` instructions; where there are none, of the last. */
static int32_t later_target(const struct walk *w, uint32_t i, uint32_t n, uint32_t after)
{
	uint32_t to = i + 1 + rnd(n);

	return (int32_t)w->starts[to < w->n_starts ? to : w->n_starts - 1] - (int32_t)after;
}

/*
 * Instructions of all kinds, one after the other. Direct jumps and calls go forward only: of a loop
 * without any packet no decoder could know how often it ran.
 */
static void make_code(struct walk *w)
{
	static const uint8_t lengths[] = {1, 4, 2, 6, 2, 5, 5, 5, 2, 2, 1, 2, 2};
	static const uint8_t codes[][2] = {{0x90},       {0x0f, 0x1f}, {0x74}, {0x0f, 0x85},
					   {0xeb},       {0xe9},       {0xe8}, {0xe8},
					   {0xff, 0xe0}, {0xff, 0xd0}, {0xc3}, {0x0f, 0x05},
					   {0xcd, 0x80}};
	uint32_t at = 0, kinds[CODE_SIZE];

	w->n_starts = 0;
	while (at + INSN_MAX < CODE_SIZE) {
		/* The last ones are system calls and interrupts: seldom. */
		const uint32_t k = rnd(40) ? rnd(11) : 11 + rnd(2);

		kinds[w->n_starts] = k;
		w->starts[w->n_starts++] = at;
		at += lengths[k];
	}
	/* Whoever runs off the end begins somewhere else. */
	kinds[w->n_starts] = 8;
	w->starts[w->n_starts++] = at;
	for (uint32_t i = 0; i < w->n_starts; i++) {
		uint8_t *p = w->code + w->starts[i];
		const uint32_t k = kinds[i], after = w->starts[i] + lengths[k];
		int32_t offset;

		memcpy(p, codes[k], 2);
		switch (k) {
		case 1: /* nopl 0x7f(%rax) */
			p[2] = 0x40;
			p[3] = 0x7f;
			break;
		case 2:
		case 4: /* near ones; to where an instruction begins */
			offset = later_target(w, i, 8, after);
			p[1] = (uint8_t)offset;
			break;
		case 3:
			offset = (int32_t)w->starts[rnd(w->n_starts)] - (int32_t)after;
			memcpy(p + 2, &offset, 4);
			break;
		case 5:
		case 6:
		case 7:
			offset = k == 7 && rnd(8) == 0 ? 0 : later_target(w, i, CODE_SIZE, after);
			memcpy(p + 1, &offset, 4);
			break;
		default:
			break;
		}
	}
}

static uint64_t some_ip(const struct walk *w)
{
	return BASE + w->starts[rnd(w->n_starts)];
}

/*
 * Goes through the code as a thread would, with signals, returns that are not to the caller, and
 * time passing.
 */
static void go(struct walk *w, struct pt_encoder_stream *pt)
{
	uint64_t stack[100], ip = BASE, tsc = 1000;
	uint32_t depth = 0;

	w->n_ips = 0;
	TAKES(pt_encoder_begin(pt, tsc, ip, true));
	while (w->n_ips < WALK) {
		struct insn insn;
		uint64_t next;
		int64_t after;

		assert_true(insn_decode(w->code + (ip - BASE), INSN_MAX, true, &insn));
		if (rnd(300) == 0) {
			TAKES(pt_encoder_interrupt(pt, ip));
			ip = some_ip(w);
			tsc += rnd(1000);
			TAKES(pt_encoder_begin(pt, tsc, ip, true));
			continue;
		}
		if (rnd(50) == 0)
			TAKES(pt_encoder_time(pt, tsc += rnd(1000)));
		if (pt_encoder_sync_due(pt))
			TAKES(pt_encoder_sync(pt, tsc += rnd(1000), ip));
		after = (int64_t)ip + insn.length;
		next = (uint64_t)after;
		switch ((enum insn_kind)insn.kind) {
		case INSN_COND:
			next += rnd(2) ? (uint64_t)(int64_t)insn.offset : 0;
			break;
		case INSN_JUMP:
		case INSN_CALL:
		case INSN_CALL_NEXT:
			next += (uint64_t)(int64_t)insn.offset;
			break;
		case INSN_JUMP_INDIRECT:
		case INSN_CALL_INDIRECT:
			next = some_ip(w);
			break;
		case INSN_RET:
			next = depth && rnd(20) ? stack[--depth] : some_ip(w);
			break;
		case INSN_FAR_CALL:
			if (insn.is_syscall) {
				w->ips[w->n_ips++] = ip;
				TAKES(pt_encoder_end(pt));
			} else {
				TAKES(pt_encoder_interrupt(pt, ip));
			}
			ip = next;
			TAKES(pt_encoder_begin(pt, tsc += rnd(1000), ip, true));
			continue;
		default:
			break;
		}
		if ((insn.kind == INSN_CALL || insn.kind == INSN_CALL_INDIRECT) &&
		    depth < ARRAY_SIZE(stack))
			stack[depth++] = (uint64_t)after;
		w->ips[w->n_ips++] = ip;
		TAKES(pt_encoder_retire(pt, &insn, ip, next, rnd(2), true));
		ip = next;
	}
	TAKES(pt_encoder_interrupt(pt, ip));
}

static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip,
		     void *context)
{
	const struct walk *w = context;

	(void)asid;
	if (ip < BASE || ip - BASE >= sizeof(w->code))
		return -pte_nomap;
	if (size > sizeof(w->code) - (ip - BASE))
		size = sizeof(w->code) - (ip - BASE);
	memcpy(buffer, w->code + (ip - BASE), size);
	return (int)size;
}

/* Decodes, and compares with the last of the walk's instructions; returns how many there are. */
static uint32_t decode(const struct walk *w, const struct bytes *b, bool all)
{
	uint64_t *got = calloc(WALK, sizeof(*got)), last = 0;
	struct pt_insn_decoder *decoder;
	struct pt_config config;
	struct pt_image *image;
	uint32_t n = 0;
	int status;

	assert_non_null(got);
	pt_config_init(&config);
	config.begin = b->p;
	config.end = b->p + b->n;
	decoder = pt_insn_alloc_decoder(&config);
	image = pt_image_alloc(NULL);
	assert_non_null(decoder);
	assert_non_null(image);
	assert_int_equal(pt_image_set_callback(image, read_code, (void *)(uintptr_t)w), 0);
	assert_int_equal(pt_insn_set_image(decoder, image), 0);
	status = pt_insn_sync_forward(decoder);
	while (status >= 0 && !(status & pts_eos)) {
		struct pt_insn insn;
		uint64_t tsc;

		while (status >= 0 && status & pts_event_pending) {
			struct pt_event event;

			status = pt_insn_event(decoder, &event, sizeof(event));
		}
		if (status < 0 || status & pts_eos)
			break;
		status = pt_insn_next(decoder, &insn, sizeof(insn));
		if (status < 0)
			break;
		assert_true(n < WALK);
		got[n++] = insn.ip;
		assert_int_equal(pt_insn_time(decoder, &tsc, NULL, NULL), 0);
		assert_true(tsc >= last);
		last = tsc;
	}
	assert_true(status >= 0 || status == -pte_eos);
	assert_true(all ? n == w->n_ips : n > 0 && n < w->n_ips);
	assert_memory_equal(got, w->ips + (w->n_ips - n), n * sizeof(*got));
	pt_insn_free_decoder(decoder);
	pt_image_free(image);
	free(got);
	return n;
}

static void test_random_walks(void **state)
{
	struct walk *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	for (unsigned int i = 0; i < 12; i++) {
		const struct pt_encoder_config config = {.psb_bytes = 256U << (i % 4),
							 .max_bytes = UINT64_MAX,
							 .plain_returns = i % 3 == 2};
		struct pt_encoder_store *s = new_store(&config);
		struct pt_encoder_stream *pt = new_stream(s);
		struct bytes b;

		rng = 0x9e3779b97f4a7c15ULL * (i + 1);
		make_code(w);
		go(w, pt);
		b = read_all(pt);
		(void)decode(w, &b, true);
		free(b.p);
		pt_encoder_store_free(s);
	}
	free(w);
}

/* What is overwritten is the beginning, and the rest decodes on its own. */
static void test_overwriting(void **state)
{
	const struct pt_encoder_config config = {.psb_bytes = 512,
						 .max_bytes = 6000,
						 .overwrite = true};
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&config);
	struct pt_encoder_stream *idle = new_stream(s), *pt = new_stream(s);
	struct walk *w = calloc(1, sizeof(*w));
	struct bytes b;

	(void)state;
	assert_non_null(w);
	rng = 4711;
	make_code(w);
	TAKES(pt_encoder_begin(idle, 1, BASE, true));
	go(w, pt);
	assert_true(pt_encoder_store_bytes(s) <= config.max_bytes + config.psb_bytes + 64);
	assert_true(pt_encoder_overwritten(pt) > 0);
	assert_true(pt_encoder_first_tsc(pt) > 1000);
	assert_false(pt_encoder_store_full(s));
	b = read_all(pt);
	(void)decode(w, &b, false);
	free(b.p);
	/* the other thread did nothing meanwhile: the little that it has is kept */
	assert_int_equal(pt_encoder_overwritten(idle), 0);
	check_packets(idle, "psb tsc.1 mode.64 psbend pge.555555554000/3");
	free(w);
}

static void test_full(void **state)
{
	const struct pt_encoder_config config = {.psb_bytes = 512, .max_bytes = 100};
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&config);
	struct pt_encoder_stream *pt = new_stream(s);
	const struct insn indirect = insn_of(INSN_JUMP_INDIRECT, 2, 0);

	(void)state;
	TAKES(pt_encoder_begin(pt, 1, 0x1000, true));
	assert_false(pt_encoder_store_full(s));
	for (unsigned int i = 0; i < 40; i++)
		TAKES(pt_encoder_retire(pt, &indirect, 0x1000, 0x1000, false, true));
	assert_true(pt_encoder_store_full(s));
	TAKES(pt_encoder_interrupt(pt, 0x1000));
	assert_int_equal(pt_encoder_overwritten(pt), 0);
}

/*
 * A stream that is renewed goes on with a PSB; one that is closed loses its last block, too, when
 * there is no room.
 */
static void test_renewed_and_closed(void **state)
{
	const struct pt_encoder_config config = {.psb_bytes = 256,
						 .max_bytes = 1024,
						 .overwrite = true};
	_cleanup_(pt_encoder_store_freep) struct pt_encoder_store *s = new_store(&config);
	struct pt_encoder_stream *pt = new_stream(s), *idle = new_stream(s), *ended = new_stream(s);
	uint64_t tsc = 100, kept;

	(void)state;
	TAKES(pt_encoder_begin(ended, 1, 0x1000, true));
	TAKES(pt_encoder_interrupt(ended, 0x1000));
	pt_encoder_close(ended);
	TAKES(pt_encoder_begin(idle, 2, 0x1000, true));
	TAKES(pt_encoder_interrupt(idle, 0x1000));
	TAKES(pt_encoder_begin(pt, 3, 0x1000, true));
	TAKES(pt_encoder_interrupt(pt, 0x1001));
	pt_encoder_renew(pt);
	assert_true(pt_encoder_sync_due(pt));
	TAKES(pt_encoder_begin(pt, 4, 0x1001, true));
	assert_false(pt_encoder_sync_due(pt));
	check_packets(
		pt,
		"psb tsc.3 mode.64 psbend pge.1000/3 fup.1001/1 pgd psb tsc.4 mode.64 psbend pge.1001/3");
	assert_true(pt_encoder_store_first_tsc(s) == 1 && pt_encoder_store_since(s) == 1);
	assert_true(pt_encoder_store_overwritten(s) == 0);
	while (pt_encoder_overwritten(pt) == 0)
		TAKES(pt_encoder_sync(pt, tsc++, 0x1001));
	assert_int_equal(pt_encoder_bytes(ended), 0);
	assert_true(pt_encoder_bytes(idle) > 0 && pt_encoder_store_first_tsc(s) == 2);
	assert_true(pt_encoder_store_since(s) >= 3 && pt_encoder_store_since(s) < tsc - 1);
	kept = pt_encoder_store_bytes(s);
	assert_true(pt_encoder_store_overwritten(s) ==
		    pt_encoder_overwritten(ended) + pt_encoder_overwritten(pt));
	/* what is younger stays, and what is being written */
	pt_encoder_store_drop_before(s, UINT64_MAX);
	assert_true(pt_encoder_bytes(idle) == 0 && pt_encoder_bytes(pt) > 0);
	assert_true(pt_encoder_store_bytes(s) == pt_encoder_bytes(pt));
	assert_true(pt_encoder_store_first_tsc(s) == tsc - 1);
	(void)pt_encoder_stream_free(ended);
	(void)pt_encoder_stream_free(idle);
	TAKES(pt_encoder_interrupt(pt, 0x1001));
	pt_encoder_store_drop_before(s, tsc - 1);
	assert_true(pt_encoder_bytes(pt) > 0);
	pt_encoder_store_drop_before(s, tsc);
	assert_true(pt_encoder_store_bytes(s) == 0 && pt_encoder_store_first_tsc(s) == 0);
	assert_true(pt_encoder_store_overwritten(s) > kept);
	TAKES(pt_encoder_begin(pt, tsc, 0x1001, true));
	(void)pt_encoder_stream_free(pt);
	assert_true(pt_encoder_store_bytes(s) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branches),
		cmocka_unit_test(test_odd),
		cmocka_unit_test(test_returns),
		cmocka_unit_test(test_deep_returns),
		cmocka_unit_test(test_plain_returns),
		cmocka_unit_test(test_bits_are_flushed_in_order),
		cmocka_unit_test(test_mode),
		cmocka_unit_test(test_tsc_has_56_bits),
		cmocka_unit_test(test_random_walks),
		cmocka_unit_test(test_overwriting),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_renewed_and_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
