// SPDX-License-Identifier: Apache-2.0
#include "decode/pt/stack_pointer.h"

#include "common/base/insn.h"
#include "decode/pt/code.h"

enum {
	CX = 1,
	BX = 3,
	SP = 4,
	BP = 5,
	DI = 7,
	R10 = 10,
	R12 = 12,
	R13 = 13,
	N_REGS = 16,
	N_SLOTS = 16
};

enum operation {
	OP_OTHER,
	OP_MOVE, /* `to` is `from` */
	OP_ADDRESS, /* `to` is what `from` is, and a constant */
	/*
	 * `to` is what `from` is, or is in memory, and something that is not in the code; or an
	 * address in the code
	 */
	OP_SUM,
	OP_LOAD, /* `to` is what is in memory */
	OP_STORE, /* `from`, to memory */
	OP_SWAP, /* two registers, or a register and memory */
	OP_SET, /* `to`, in some way */
};

struct move {
	enum operation op;
	int to, from; /* registers; -1: memory elsewhere than in the frame */
	int base;     /* of memory: a register; -1: none, or more than that */
	int32_t offset;
};

struct modrm {
	int mod, reg, rm;   /* registers with their REX bits */
	int base;
	int indexed; /* the base of what has an index; -1: it has no base, or no index */
	int32_t offset;
};

static int32_t little(const uint8_t *p, int n)
{
	uint32_t v = 0;

	for (int i = 0; i < n; i++)
		v |= (uint32_t)p[i] << (8 * i);
	return n == 1 ? (int8_t)v : (int32_t)v;
}

static bool read_modrm(const uint8_t *p, size_t n, uint8_t rex, struct modrm *ret)
{
	const int rm = n ? p[0] & 7 : 0;
	size_t at = 1;
	int bytes;

	if (n == 0)
		return false;
	*ret = (struct modrm){.mod = p[0] >> 6,
			      .reg = (p[0] >> 3 & 7) | (rex & 4) << 1,
			      .rm = rm | (rex & 1) << 3,
			      .base = -1,
			      .indexed = -1};
	if (ret->mod == 3)
		return true;
	ret->base = ret->rm;
	if (rm == SP) {
		if (n < 2)
			return false;
		/* with an index it is no slot of a frame */
		ret->base = (p[1] >> 3 & 7) == SP && !(rex & 2) ? (p[1] & 7) | (rex & 1) << 3 : -1;
		ret->indexed = ret->base < 0 ? (p[1] & 7) | (rex & 1) << 3 : -1;
		if (ret->mod == 0 && (p[1] & 7) == BP)
			ret->base = ret->indexed = -1;
		at++;
	} else if (rm == BP && ret->mod == 0) {
		ret->base = -1;
	}
	bytes = ret->mod == 1 ? 1 : ret->mod == 2 ? 4 : 0;
	if (at + (size_t)bytes > n)
		return false;
	ret->offset = bytes ? little(p + at, bytes) : 0;
	return true;
}

/* Not that of gs: by it the kernel takes its own stack where it is entered. */
static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x66:
	case 0x67:
	case 0xf0:
	case 0xf2:
	case 0xf3:
		return true;
	default:
		return false;
	}
}

/* Its opcode is behind so many bytes. */
static size_t opcode_at(const uint8_t *p, size_t n, bool is64)
{
	size_t at = 0;

	while (at + 1 < n && is_prefix(p[at]))
		at++;
	return at + (is64 && at + 1 < n && (p[at] & 0xf0) == 0x40);
}

/* Of a word as wide as the stack pointer; what is narrower is OP_SET. */
static struct move decode(const uint8_t *p, size_t n, bool is64)
{
	const struct move other = {.op = OP_OTHER, .to = -1, .from = -1, .base = -1};
	const size_t at = opcode_at(p, n, is64);
	struct move m = other;
	bool narrow = false, by_fs = false;
	struct modrm r;
	uint8_t rex = 0, op;

	for (size_t i = 0; i < at; i++) {
		if (is_prefix(p[i])) {
			narrow |= p[i] == 0x66;
			by_fs |= p[i] == 0x64;
		} else {
			rex = p[i];
		}
	}
	narrow = is64 ? !(rex & 8) : narrow;
	p += at;
	n -= at;
	if (n == 0)
		return other;
	op = p[0];
	if (op >= 0x58 && op <= 0x5f)
		return (struct move){.op = OP_LOAD,
				     .to = (op & 7) | (rex & 1) << 3,
				     .from = -1,
				     .base = -1};
	if (op >= 0x91 && op <= 0x97) { /* xchg with rax */
		m = (struct move){.op = OP_SWAP,
				  .to = (op & 7) | (rex & 1) << 3,
				  .from = 0,
				  .base = -1};
		return narrow ? (struct move){.op = OP_SET, .to = m.to, .from = -1, .base = -1} : m;
	}
	if (op >= 0xb8 && op <= 0xbf)
		return (struct move){.op = OP_SET,
				     .to = (op & 7) | (rex & 1) << 3,
				     .from = -1,
				     .base = -1};
	switch (op) {
	case 0xc8: /* enter */
		return (struct move){.op = OP_MOVE, .to = BP, .from = SP, .base = -1};
	case 0xc9: /* leave */
		return (struct move){.op = OP_MOVE, .to = SP, .from = BP, .base = -1};
	case 0xcf: /* iret: in 64 bits always with a stack pointer */
		return is64 ? (struct move){.op = OP_LOAD, .to = SP, .from = -1, .base = -1}
			    : other;
	case 0x0f:
		if (n < 2 || (p[1] & 0xf0) != 0x40)
			return other;
		p++; /* cmov */
		n--;
		break;
	default:
		break;
	}
	if (!read_modrm(p + 1, n - 1, rex, &r))
		return other;
	m.base = by_fs ? -1 : r.base;
	m.offset = r.offset;
	switch (op) {
	case 0x0f:
		m.op = r.reg != SP ? OP_SET : r.mod == 3 ? OP_MOVE : OP_LOAD;
		m.to = r.reg;
		m.from = r.mod == 3 ? r.rm : -1;
		break;
	case 0x89: /* mov r/m, r */
		m.op = r.mod == 3 ? OP_MOVE : OP_STORE;
		m.to = r.mod == 3 ? r.rm : -1;
		m.from = r.reg;
		break;
	case 0x8b: /* mov r, r/m */
		m.op = r.mod == 3 ? OP_MOVE : OP_LOAD;
		m.to = r.reg;
		m.from = r.mod == 3 ? r.rm : -1;
		break;
	case 0x8d: /* lea */
		m.op = r.base >= 0 ? OP_ADDRESS : OP_SUM;
		m.to = r.reg;
		m.from = r.base >= 0 ? r.base : r.indexed;
		break;
	case 0x87: /* xchg */
		m.op = OP_SWAP;
		m.to = r.mod == 3 ? r.rm : -1;
		m.from = r.reg;
		break;
	case 0x01: /* add r/m, r */
		m.op = r.mod == 3 ? OP_SUM : OP_OTHER;
		m.to = r.mod == 3 ? r.rm : -1;
		m.from = r.reg;
		break;
	case 0x03: /* add r, r/m */
		m.op = OP_SUM;
		m.to = r.reg;
		m.from = r.mod == 3 ? r.rm : r.base;
		break;
	case 0x09: case 0x11: case 0x19: case 0x21: case 0x29: case 0x31:
		m.op = r.mod == 3 ? OP_SET : OP_OTHER;
		m.to = r.mod == 3 ? r.rm : -1;
		break;
	case 0x0b:
	case 0x13:
	case 0x1b:
	case 0x23:
	case 0x2b:
	case 0x33:
	case 0x63:
	case 0x69:
	case 0x6b:
		m.op = OP_SET;
		m.to = r.reg;
		break;
	case 0x81: case 0x83: case 0xc1: case 0xc7: case 0xd1: case 0xd3: case 0xff:
		m.op = r.mod == 3 && !(op != 0xc7 && op != 0xff && r.reg % 8 == 7) &&
				       !(op == 0xff && r.reg % 8 > 1)
			       ? OP_SET
			       : OP_OTHER;
		m.to = r.mod == 3 ? r.rm : -1;
		break;
	default:
		return other;
	}
	/* half of a register is no stack pointer */
	if (narrow && m.op != OP_OTHER && m.op != OP_STORE)
		return (struct move){.op = OP_SET, .to = m.to, .from = -1, .base = -1};
	return m;
}

/*
 * The way back of a function that has aligned its stack: by the register that gcc takes for what
 * that was, "lea -8(%r10), %rsp".
 */
static bool is_realignment(const struct move *m)
{
	return (m->offset == -8 && (m->from == R10 || m->from == R13)) ||
	       (m->offset == -4 && (m->from == CX || m->from == DI));
}

/*
 * What the instruction puts into the stack pointer; false: nothing, or what is the frame's own
 * whatever is around it.
 */
static bool loads(const struct move *m)
{
	switch (m->op) {
	case OP_MOVE:
		return m->to == SP && m->from != SP;
	case OP_ADDRESS:
		return m->to == SP && m->from != SP && !is_realignment(m);
	case OP_SUM:
		return m->to == SP && m->from != SP && m->from != BP;
	case OP_LOAD:
		return m->to == SP;
	case OP_SWAP:
		return m->to == SP || m->from == SP;
	default:
		return false;
	}
}

bool stack_pointer_may_load(const uint8_t *code, size_t n, bool is64)
{
	const size_t at = opcode_at(code, n, is64);
	struct move m;

	switch (code[at]) {
	case 0x01:
	case 0x03:
	case 0x0f:
	case 0x5c:
	case 0x87:
	case 0x89:
	case 0x8b:
	case 0x8d:
	case 0x94:
	case 0xc9:
	case 0xcf:
		m = decode(code, n, is64);
		return loads(&m);
	default:
		return false;
	}
}

/* Where the code of one call has kept its stack pointer: registers, and slots of its frame. */
struct kept {
	bool regs[N_REGS];
	bool written[N_REGS]; /* by the function itself */
	bool whole; /* its code is known from its first instruction on */
	bool framed; /* it has a frame pointer */
	bool left; /* it has kept it elsewhere, too, for others to come back to */
	struct slot {
		int base;
		int32_t offset;
	} slots[N_SLOTS];
	uint32_t n;
};

static bool has_slot(const struct kept *k, const struct move *m)
{
	for (uint32_t i = 0; i < k->n && i < N_SLOTS; i++)
		if (k->slots[i].base == m->base && k->slots[i].offset == m->offset)
			return true;
	return false;
}

static void keep(struct kept *k, const struct move *m)
{
	const bool in_frame = m->base == SP || m->base == BP;

	/*
	 * its caller's frame pointer comes back in the middle of the code, too, in front of other
	 * returns
	 */
	if (m->to >= 0 && !(m->to == BP && m->op == OP_LOAD && (in_frame || m->base < 0)))
		k->written[m->to] = true;
	if (m->op == OP_SWAP)
		k->written[m->from] = true;
	switch (m->op) {
	case OP_MOVE:
	case OP_ADDRESS:
		k->regs[m->to] = m->from == SP || k->regs[m->from];
		k->framed |= m->to == BP && k->regs[BP];
		break;
	case OP_LOAD:
		k->regs[m->to] = in_frame && has_slot(k, m);
		break;
	case OP_STORE:
		if (in_frame && (m->from == SP || k->regs[m->from]) && !has_slot(k, m))
			k->slots[k->n++ % N_SLOTS] =
				(struct slot){.base = m->base, .offset = m->offset};
		k->left |= !in_frame && (m->from == SP || k->regs[m->from]);
		break;
	case OP_SET:
	case OP_SUM:
	case OP_SWAP:
		if (m->to >= 0)
			k->regs[m->to] = false;
		break;
	default:
		break;
	}
}

/*
 * A register that each function leaves as it was, and this one has not touched: who has set up the
 * stack has put it there (as makecontext() does). Unless it says where to come back to: then it
 * leaves the stack for the one that it was given.
 */
static bool is_given(const struct kept *k, int reg)
{
	return k->whole && !k->left && (reg == BX || reg >= R12) && !k->written[reg];
}

static bool is_kept(const struct kept *k, const struct move *m)
{
	/* a part of a function has no begin to say that it is one */
	if ((m->op == OP_MOVE || m->op == OP_ADDRESS) && m->from == BP)
		return k->framed || !k->written[BP];
	if (m->op == OP_MOVE || m->op == OP_ADDRESS)
		return k->regs[m->from] || is_given(k, m->from);
	return m->op == OP_LOAD && (m->base == SP || m->base == BP) && has_slot(k, m);
}

bool stack_pointer_loads(struct ptcode *c, const struct address_space *s, uint64_t begin,
			 uint64_t end, bool is64)
{
	struct kept k = {.n = 0};
	uint8_t buffer[INSN_MAX];
	const uint8_t *code;
	struct insn insn;
	struct move m;
	uint64_t at;
	size_t n;

	k.whole = ptcode_begin(c, s, begin, &at) && at <= begin &&
		  begin - at <= STACK_POINTER_MAX_BYTES;
	if (!k.whole)
		at = begin;
	for (; at < end; at += insn.length) {
		n = ptcode_read(c, s, at, &code, buffer, sizeof(buffer));
		if (n == 0 || !insn_decode(code, n, is64, &insn))
			return true;
		m = decode(code, insn.length, is64);
		if (at >= begin && loads(&m) && !is_kept(&k, &m))
			return true;
		if (m.to != SP)
			keep(&k, &m);
	}
	return false;
}
