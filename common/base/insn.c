// SPDX-License-Identifier: Apache-2.0
/*
 * The opcode maps as two tables of what follows an opcode (Intel SDM volume 2, appendix A). What a
 * table cannot say, because it depends on the prefixes or on ModRM, is in code.
 */
#include "common/base/insn.h"

#include <string.h>

/* What follows an opcode. */
enum {
	NO = 0,		/* nothing */
	M = 1 << 0,	/* ModRM */
	B = 1 << 1,	/* 1 byte */
	W = 1 << 2,	/* 2 bytes */
	Z = 1 << 3,	/* 4 bytes, 2 with an operand size prefix */
	V = 1 << 4,	/* as Z, 8 with REX.W */
	A = 1 << 5,	/* an address */
	X = 1 << 6,	/* not in 64-bit mode */
	P = 1 << 7,	/* see the code */
};

/* clang-format off */
static const uint8_t one_byte[256] = {
	/* 00 */ M, M, M, M, B, Z, X, X, M, M, M, M, B, Z, X, P,
	/* 10 */ M, M, M, M, B, Z, X, X, M, M, M, M, B, Z, X, X,
	/* 20 */ M, M, M, M, B, Z, P, X, M, M, M, M, B, Z, P, X,
	/* 30 */ M, M, M, M, B, Z, P, X, M, M, M, M, B, Z, P, X,
	/* 40 */ NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
	/* 50 */ NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
	/* 60 */ X, X, M | X, M, P, P, P, P, Z, M | Z, B, M | B, NO, NO, NO, NO,
	/* 70 */ B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B,
	/* 80 */ M | B, M | Z, M | B | X, M | B, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 90 */ NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, Z | W | X, NO, NO, NO, NO, NO,
	/* a0 */ A, A, A, A, NO, NO, NO, NO, B, Z, NO, NO, NO, NO, NO, NO,
	/* b0 */ B, B, B, B, B, B, B, B, V, V, V, V, V, V, V, V,
	/* c0 */ M | B, M | B, W, NO, M | X, M | X, M | B, M | Z, W | B, NO, W, NO, NO, B, X, NO,
	/* d0 */ M, M, M, M, B | X, B | X, X, NO, M, M, M, M, M, M, M, M,
	/* e0 */ B, B, B, B, B, B, B, B, Z, Z, Z | W | X, B, NO, NO, NO, NO,
	/* f0 */ P, NO, P, P, NO, NO, M, M, NO, NO, NO, NO, NO, NO, M, M,
};

static const uint8_t two_byte[256] = {
	/* 00 */ M, M, M, M, NO, NO, NO, NO, NO, NO, NO, NO, NO, M, NO, M | B,
	/* 10 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 20 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 30 */ NO, NO, NO, NO, NO, NO, NO, NO, P, NO, P, NO, NO, NO, NO, NO,
	/* 40 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 50 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 60 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* 70 */ M | B, M | B, M | B, M | B, M, M, M, NO, M, M, M, M, M, M, M, M,
	/* 80 */ Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z,
	/* 90 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* a0 */ NO, NO, NO, M, M | B, M, M, M, NO, NO, NO, M, M | B, M, M, M,
	/* b0 */ M, M, M, M, M, M, M, M, M, M, M | B, M, M, M, M, M,
	/* c0 */ M, M, M | B, M, M | B, M | B, M | B, M, NO, NO, NO, NO, NO, NO, NO, NO,
	/* d0 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* e0 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
	/* f0 */ M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
};
/* clang-format on */

struct reader {
	const uint8_t *code;
	size_t n, at;
	bool is64, operand16, address_short, rex_w, f2, f3;
};

static bool read_byte(struct reader *r, uint8_t *ret)
{
	if (r->at >= r->n || r->at >= INSN_MAX)
		return false;
	*ret = r->code[r->at++];
	return true;
}

static bool skip(struct reader *r, size_t n)
{
	r->at += n;
	return r->at <= r->n && r->at <= INSN_MAX;
}

/* ModRM with its SIB and displacement. */
static bool skip_modrm(struct reader *r, uint8_t *ret)
{
	uint8_t modrm, sib, mod, rm;

	if (!read_byte(r, &modrm))
		return false;
	*ret = modrm;
	mod = modrm >> 6;
	rm = modrm & 7;
	if (mod == 3)
		return true;
	if (r->address_short && !r->is64) /* 16-bit addressing */
		return skip(r, mod == 1 ? 1 : mod == 2 || rm == 6 ? 2 : 0);
	if (rm == 4) {
		if (!read_byte(r, &sib))
			return false;
		if (mod == 0 && (sib & 7) == 5)
			return skip(r, 4);
	} else if (mod == 0 && rm == 5) {
		return skip(r, 4);
	}
	return skip(r, mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static size_t operand_size(const struct reader *r)
{
	return r->operand16 && !r->rex_w ? 2 : 4;
}

static bool skip_immediate(struct reader *r, uint8_t what)
{
	size_t n = 0;

	if (what & B)
		n += 1;
	if (what & W)
		n += 2;
	if (what & Z)
		n += operand_size(r);
	if (what & V)
		n += r->rex_w ? 8 : operand_size(r);
	if (what & A)
		n += r->is64 ? (r->address_short ? 4 : 8) : (r->address_short ? 2 : 4);
	return skip(r, n);
}

static bool skip_prefixes(struct reader *r, uint8_t *ret_opcode)
{
	uint8_t b;

	for (;;) {
		if (!read_byte(r, &b))
			return false;
		switch (b) {
		case 0x66:
			r->operand16 = true;
			continue;
		case 0x67:
			r->address_short = true;
			continue;
		case 0xf2:
			r->f2 = true;
			r->f3 = false;
			continue;
		case 0xf3:
			r->f3 = true;
			r->f2 = false;
			continue;
		case 0xf0:
		case 0x2e:
		case 0x36:
		case 0x3e:
		case 0x26:
		case 0x64:
		case 0x65:
			continue;
		default:
			break;
		}
		if (r->is64 && (b & 0xf0) == 0x40) {
			const size_t before = r->at;

			/* REX counts only right before the opcode. */
			if (!read_byte(r, ret_opcode))
				return false;
			if (*ret_opcode == 0x66 || *ret_opcode == 0x67 ||
			    (*ret_opcode & 0xfe) == 0xf2 || *ret_opcode == 0xf0 ||
			    *ret_opcode == 0x64 || *ret_opcode == 0x65 ||
			    (*ret_opcode & 0xe7) == 0x26 || (*ret_opcode & 0xf0) == 0x40) {
				r->at = before;
				continue;
			}
			r->rex_w = b & 8;
			return true;
		}
		*ret_opcode = b;
		return true;
	}
}

static bool done(const struct reader *r, enum insn_kind kind, int64_t offset, struct insn *ret)
{
	*ret = (struct insn){.length = (uint8_t)r->at,
			     .kind = (uint8_t)kind,
			     .offset = (int32_t)offset};
	return true;
}

static bool direct(struct reader *r, enum insn_kind kind, size_t bytes, struct insn *ret)
{
	const uint8_t *at = r->code + r->at;
	int32_t offset;

	if (!skip(r, bytes))
		return false;
	if (bytes == 1) {
		offset = (int8_t)at[0];
	} else if (bytes == 2) {
		offset = (int16_t)(at[0] | at[1] << 8);
	} else {
		uint32_t u;

		memcpy(&u, at, sizeof(u));
		offset = (int32_t)u;
	}
	if (kind == INSN_CALL && offset == 0)
		kind = INSN_CALL_NEXT;
	return done(r, kind, offset, ret);
}

/* The operand size prefix has no effect on near branches in 64-bit mode. */
static size_t branch_size(const struct reader *r)
{
	return !r->is64 && r->operand16 ? 2 : 4;
}

/* Opcodes after VEX and EVEX: the maps are those of 0F, 0F 38, 0F 3A; none of them is a branch. */
static bool vector(struct reader *r, unsigned int map, struct insn *ret)
{
	uint8_t opcode, modrm;
	bool immediate;

	if (!read_byte(r, &opcode))
		return false;
	if (map == 1 && opcode == 0x77)
		return done(r, INSN_OTHER, 0, ret);
	immediate = map == 3 || (map == 1 && (two_byte[opcode] & B) && opcode != 0x0f);
	if (!skip_modrm(r, &modrm) || (immediate && !skip(r, 1)))
		return false;
	return done(r, INSN_OTHER, 0, ret);
}

/*
 * A VEX, EVEX or XOP prefix whose first byte has been read; false in *ret_is if it is something
 * else.
 */
static bool vector_prefix(struct reader *r, uint8_t first, struct insn *ret, bool *ret_is)
{
	uint8_t b;

	*ret_is = false;
	if (first != 0xc4 && first != 0xc5 && first != 0x62 && first != 0x8f)
		return true;
	if (r->at >= r->n)
		return false;
	b = r->code[r->at];
	/* In 32-bit mode a memory operand makes it LDS, LES or BOUND; POP has a map below 8. */
	if (first == 0x8f ? (b & 0x1f) < 8 : (!r->is64 && (b >> 6) != 3))
		return true;
	*ret_is = true;
	switch (first) {
	case 0xc5:
		return skip(r, 1) && vector(r, 1, ret);
	case 0xc4:
		return skip(r, 2) && vector(r, b & 0x1f, ret);
	case 0x62:
		return skip(r, 3) && vector(r, b & 7, ret);
	default: { /* XOP: map 8 has one immediate byte, map 9 none, map 10 four */
		uint8_t modrm;

		if (!skip(r, 3) || !skip_modrm(r, &modrm))
			return false;
		if (!skip(r, (b & 0x1f) == 8 ? 1 : (b & 0x1f) == 10 ? 4 : 0))
			return false;
		return done(r, INSN_OTHER, 0, ret);
	}
	}
}

static bool far_call(const struct reader *r, bool is_syscall, struct insn *ret)
{
	(void)done(r, INSN_FAR_CALL, 0, ret);
	ret->is_syscall = is_syscall;
	return true;
}

static bool escape_0f01(struct reader *r, struct insn *ret)
{
	uint8_t modrm;

	if (!skip_modrm(r, &modrm))
		return false;
	switch (modrm) {
	case 0xc1: /* vmcall */
		return far_call(r, false, ret);
	case 0xc2: /* vmlaunch */
	case 0xc3: /* vmresume */
		return done(r, INSN_FAR_RET, 0, ret);
	case 0xec: /* uiret, with F3 */
		return done(r, r->f3 ? INSN_FAR_RET : INSN_OTHER, 0, ret);
	case 0xca: /* erets and eretu; clac without a prefix */
		return done(r, r->f2 || r->f3 ? INSN_FAR_RET : INSN_OTHER, 0, ret);
	default:
		return done(r, INSN_OTHER, 0, ret);
	}
}

static bool escape_0f(struct reader *r, struct insn *ret)
{
	uint8_t opcode, modrm = 0, third;
	uint8_t what;

	if (!read_byte(r, &opcode))
		return false;
	what = two_byte[opcode];
	switch (opcode) {
	case 0x01:
		return escape_0f01(r, ret);
	case 0x05:
	case 0x34:
		return far_call(r, true, ret);
	case 0x07:
	case 0x35:
		return done(r, INSN_FAR_RET, 0, ret);
	case 0x22: /* to a control register: always between registers */
		if (!read_byte(r, &modrm))
			return false;
		return done(r, (modrm >> 3 & 7) == 3 ? INSN_MOV_CR3 : INSN_OTHER, 0, ret);
	case 0x20:
	case 0x21:
	case 0x23:
		return skip(r, 1) && done(r, INSN_OTHER, 0, ret);
	case 0x38:
	case 0x3a:
		if (!read_byte(r, &third) || !skip_modrm(r, &modrm) ||
		    !skip(r, opcode == 0x3a ? 1 : 0))
			return false;
		return done(r, INSN_OTHER, 0, ret);
	case 0x78: /* SSE4a's extrq and insertq have two bytes more */
		if (!skip_modrm(r, &modrm) || !skip(r, r->operand16 || r->f2 ? 2 : 0))
			return false;
		return done(r, INSN_OTHER, 0, ret);
	default:
		break;
	}
	if ((opcode & 0xf0) == 0x80)
		return direct(r, INSN_COND, branch_size(r), ret);
	if (what & M && !skip_modrm(r, &modrm))
		return false;
	if (!skip_immediate(r, (uint8_t)(what & ~M)))
		return false;
	if (opcode == 0xae && r->f3 && (modrm >> 3 & 7) == 4)
		return done(r, INSN_PTWRITE, 0, ret);
	return done(r, INSN_OTHER, 0, ret);
}

/* Group 5: FF. */
static bool group5(struct reader *r, struct insn *ret)
{
	uint8_t modrm;

	if (!skip_modrm(r, &modrm))
		return false;
	switch (modrm >> 3 & 7) {
	case 2:
		return done(r, INSN_CALL_INDIRECT, 0, ret);
	case 3:
		return done(r, INSN_FAR_CALL, 0, ret);
	case 4:
		return done(r, INSN_JUMP_INDIRECT, 0, ret);
	case 5:
		return done(r, INSN_FAR_JUMP, 0, ret);
	default:
		return done(r, INSN_OTHER, 0, ret);
	}
}

bool insn_decode(const uint8_t *code, size_t n, bool is64, struct insn *ret)
{
	struct reader r = {.code = code, .n = n, .is64 = is64};
	uint8_t opcode, modrm = 0, what;
	bool is_vector;

	if (!skip_prefixes(&r, &opcode))
		return false;
	if (!vector_prefix(&r, opcode, ret, &is_vector))
		return false;
	if (is_vector)
		return true;
	if (is64 && opcode == 0xd5) { /* REX2: its highest bit chooses the opcodes of 0F */
		if (!read_byte(&r, &modrm))
			return false;
		r.rex_w = modrm & 8;
		if (modrm & 0x80)
			return escape_0f(&r, ret);
		if (!read_byte(&r, &opcode))
			return false;
		/* jmpabs: direct, but traced as if it were not */
		if (opcode == 0xa1)
			return skip(&r, 8) && done(&r, INSN_JUMP_INDIRECT, 0, ret);
	}
	what = one_byte[opcode];
	if (is64 && (what & X))
		return false;
	switch (opcode) {
	case 0x0f:
		return escape_0f(&r, ret);
	case 0xe8:
		return direct(&r, INSN_CALL, branch_size(&r), ret);
	case 0xe9:
		return direct(&r, INSN_JUMP, branch_size(&r), ret);
	case 0xeb:
		return direct(&r, INSN_JUMP, 1, ret);
	case 0xe0:
	case 0xe1:
	case 0xe2:
	case 0xe3:
		return direct(&r, INSN_COND, 1, ret);
	case 0xff:
		return group5(&r, ret);
	default:
		break;
	}
	if ((opcode & 0xf0) == 0x70)
		return direct(&r, INSN_COND, 1, ret);
	if ((what & M) && !skip_modrm(&r, &modrm))
		return false;
	/* Group 3: TEST has an immediate, its neighbours have none. */
	if (opcode == 0xf6 && (modrm >> 3 & 7) < 2)
		what |= B;
	if (opcode == 0xf7 && (modrm >> 3 & 7) < 2)
		what |= Z;
	if (!skip_immediate(&r, (uint8_t)(what & (B | W | Z | V | A))))
		return false;
	switch (opcode) {
	case 0xc2:
	case 0xc3:
		return done(&r, INSN_RET, 0, ret);
	case 0xca:
	case 0xcb:
	case 0xcf:
		return done(&r, INSN_FAR_RET, 0, ret);
	case 0x9a:
	case 0xcc:
	case 0xcd:
	case 0xce:
	case 0xf1:
		return done(&r, INSN_FAR_CALL, 0, ret);
	case 0xea:
		return done(&r, INSN_FAR_JUMP, 0, ret);
	default:
		return done(&r, INSN_OTHER, 0, ret);
	}
}
