// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/slot.h"

#include "common/base/insn.h"
#include "decode/pt/code.h"

#define WORD 8
#define FUNCTION_ALIGNMENT 16u

enum effect {
	EFFECT_NONE,
	EFFECT_MOVES, /* the stack pointer: by `bytes`, pushes are negative */
	EFFECT_STORES, /* a register, to where the stack pointer points */
	EFFECT_LOADS, /* the stack pointer, with something else */
	EFFECT_LEAVES, /* its frame */
};

struct line {
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	size_t n;
	struct insn insn;
};

static bool read_insn(struct ptcode *c, const struct address_space *s, uint64_t ip, struct line *l)
{
	l->n = ptcode_read(c, s, ip, &l->code, l->buffer, sizeof(l->buffer));
	return l->n > 0 && insn_decode(l->code, l->n, true, &l->insn);
}

/* The operands that are a stack pointer in ModRM: as a register, and as memory without an index. */
static bool is_rm_sp(uint8_t modrm, bool rex_b)
{
	return modrm >> 6 == 3 && (modrm & 7) == 4 && !rex_b;
}

static bool is_reg_sp(uint8_t modrm, bool rex_r)
{
	return (modrm >> 3 & 7) == 4 && !rex_r;
}

static enum effect effect_of(const uint8_t *p, size_t n, int64_t *ret_bytes)
{
	const uint8_t rex = n > 1 && (p[0] & 0xf0) == 0x40 ? p[0] : 0;
	const bool rex_w = rex & 8, rex_r = rex & 4, rex_b = rex & 1;
	uint8_t op, modrm;

	if (rex) {
		p++;
		n--;
	}
	op = p[0];
	*ret_bytes = 0;
	if ((op >= 0x50 && op <= 0x57) || op == 0x68 || op == 0x6a || op == 0x9c) {
		*ret_bytes = -WORD;
		return EFFECT_MOVES;
	}
	if (op == 0x5c && !rex_b)
		return EFFECT_LOADS;
	if ((op >= 0x58 && op <= 0x5f) || op == 0x9d) {
		*ret_bytes = WORD;
		return EFFECT_MOVES;
	}
	if (op == 0xc9)
		return EFFECT_LEAVES;
	if (op == 0xc8)
		return EFFECT_LOADS;
	if (n < 2)
		return EFFECT_NONE;
	modrm = p[1];
	if (op == 0xff && (modrm >> 3 & 7) == 6) {
		*ret_bytes = -WORD;
		return EFFECT_MOVES;
	}
	if (op == 0x8f) {
		*ret_bytes = WORD;
		return EFFECT_MOVES;
	}
	if (!rex_w)
		return EFFECT_NONE;
	if (op == 0x83 && n >= 3 && is_rm_sp(modrm, rex_b) &&
	    ((modrm >> 3 & 7) == 0 || (modrm >> 3 & 7) == 5)) {
		*ret_bytes = (modrm >> 3 & 7) == 0 ? (int8_t)p[2] : -(int8_t)p[2];
		return EFFECT_MOVES;
	}
	if (op == 0x8d && n >= 4 && modrm == 0x64 && p[2] == 0x24 && !rex_r && !(rex & 3)) {
		*ret_bytes = (int8_t)p[3];
		return EFFECT_MOVES;
	}
	if (op == 0x89 && n >= 3 && (modrm & 0xc7) == 0x04 && p[2] == 0x24 && !(rex & 3))
		return EFFECT_STORES;
	if (((op == 0x89 || op == 0x87 || op == 0x81 || op == 0x83) && is_rm_sp(modrm, rex_b)) ||
		((op == 0x8b || op == 0x8d || op == 0x87) && is_reg_sp(modrm, rex_r)))
		return EFFECT_LOADS;
	return EFFECT_NONE;
}

enum callstack_slot slot_before(struct ptcode *c, const struct address_space *s, uint64_t ip)
{
	bool stored = false, elsewhere = false, left = false;
	int64_t own = 0, bytes; /* that were pushed since the last branch, and not popped */
	uint64_t at;
	struct line l;

	if (!ptcode_begin(c, s, ip, &at) || ip - at > SLOT_MAX_BYTES)
		return CALLSTACK_SLOT_PLAIN;
	for (; at < ip; at += l.insn.length) {
		if (!read_insn(c, s, at, &l))
			return CALLSTACK_SLOT_PLAIN;
		if (insn_is_branch(&l.insn)) {
			stored = elsewhere = left = false;
			own = 0;
			continue;
		}
		switch (effect_of(l.code, l.insn.length, &bytes)) {
		case EFFECT_MOVES:
			own = own > bytes ? own - bytes : 0;
			stored = false;
			break;
		case EFFECT_STORES:
			stored = true;
			break;
		case EFFECT_LOADS:
			elsewhere = true;
			break;
		case EFFECT_LEAVES:
			left = true;
			break;
		case EFFECT_NONE:
			break;
		}
	}
	if (at != ip)
		return CALLSTACK_SLOT_PLAIN;
	if (elsewhere)
		return CALLSTACK_SLOT_LOADED;
	if (left)
		return CALLSTACK_SLOT_FRAME;
	if (own > 0)
		return CALLSTACK_SLOT_PUSHED;
	return stored ? CALLSTACK_SLOT_STORED : CALLSTACK_SLOT_PLAIN;
}

/* One instruction that changes what the next one, a return, takes. */
static bool is_last_half(struct ptcode *c, const struct address_space *s, uint64_t ip)
{
	enum effect effect;
	struct line l;
	int64_t bytes;

	if (!read_insn(c, s, ip, &l))
		return false;
	effect = effect_of(l.code, l.insn.length, &bytes);
	if (effect != EFFECT_STORES && (effect != EFFECT_MOVES || bytes != WORD))
		return false;
	return read_insn(c, s, ip + l.insn.length, &l) && l.insn.kind == INSN_RET;
}

bool slot_is_half(struct ptcode *c, const struct address_space *s, uint64_t ip)
{
	struct line l;

	if (is_last_half(c, s, ip))
		return true;
	return read_insn(c, s, ip, &l) && l.insn.kind == INSN_CALL &&
	       is_last_half(c, s, ip + l.insn.length + (uint64_t)(int64_t)l.insn.offset);
}

static bool is_within(struct ptcode *c, const struct address_space *s, uint64_t ip, uint64_t begin)
{
	uint64_t at;

	return ptcode_begin(c, s, ip, &at) && at == begin;
}

/* Whether the code of the one jumps into the middle of the other. */
static bool goes_into(struct ptcode *c, const struct address_space *s, uint64_t begin,
		      uint64_t other)
{
	uint64_t to;
	struct line l;

	for (uint64_t at = begin;
	     at - begin < SLOT_MAX_PART && is_within(c, s, at, begin) && read_insn(c, s, at, &l);
	     at += l.insn.length) {
		to = at + l.insn.length + (uint64_t)(int64_t)l.insn.offset;
		if ((l.insn.kind == INSN_COND || l.insn.kind == INSN_JUMP) && to != other &&
		    is_within(c, s, to, other))
			return true;
	}
	return false;
}

bool slot_in_parts(struct ptcode *c, const struct address_space *s, uint64_t from, uint64_t to)
{
	uint64_t first, part;

	if (!ptcode_begin(c, s, from, &first) || !ptcode_begin(c, s, to, &part))
		return false;
	if (first == part)
		return true;
	if (first % FUNCTION_ALIGNMENT != 0 || part % FUNCTION_ALIGNMENT == 0)
		return false;
	return to != part || goes_into(c, s, part, first) || goes_into(c, s, first, part);
}
