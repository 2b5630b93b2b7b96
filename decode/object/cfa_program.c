// SPDX-License-Identifier: Apache-2.0
#include "decode/object/cfa_program.h"

#include <dwarf.h>
#include <errno.h>

#include "decode/base/bytes.h"

#define REMEMBERED_MAX 16
#define REG_BP 6
#define REG_SP 7

struct reader {
	const uint8_t *p, *end;
	bool bad;
};

static uint64_t read_fixed(struct reader *r, size_t n)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->p) < n) {
		r->bad = true;
		r->p = r->end;
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)r->p[i] << (8 * i);
	r->p += n;
	return v;
}

static uint64_t read_leb(struct reader *r, bool is_signed)
{
	uint64_t v = 0;
	unsigned int shift = 0;

	while (r->p < r->end) {
		uint8_t b = *r->p++;

		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
		if (b & 0x80)
			continue;
		if (is_signed && shift < 64 && (b & 0x40))
			v |= UINT64_MAX << shift;
		return v;
	}
	r->bad = true;
	return 0;
}

static uint64_t read_u(struct reader *r)
{
	return read_leb(r, false);
}

static int64_t read_s(struct reader *r)
{
	return (int64_t)read_leb(r, true);
}

static const uint8_t *read_block(struct reader *r, size_t *ret_len)
{
	const uint64_t len = read_u(r);
	const uint8_t *p = r->p;

	if (r->bad || len > (uint64_t)(r->end - r->p)) {
		r->bad = true;
		*ret_len = 0;
		return p;
	}
	*ret_len = (size_t)len;
	r->p += len;
	return p;
}

/* Wraps as the processor's arithmetic does. */
static int64_t factored(uint64_t v, int64_t factor)
{
	return (int64_t)(v * (uint64_t)factor);
}

/* ---- rules */

/* One register plus an offset at the begin of an expression; the rest of it is left in *r. */
static bool expr_begins(struct reader *r, uint64_t *ret_reg, int64_t *ret_off)
{
	uint64_t op = read_fixed(r, 1);

	if (r->bad || op < DW_OP_breg0 || op > DW_OP_breg15)
		return false;
	*ret_reg = op - DW_OP_breg0;
	*ret_off = read_s(r);
	return !r->bad;
}

/*
 * The expressions of CFAs that compilers and linkers write: of realigned frames, and that of the
 * whole PLT.
 */
static unsigned int cfa_by_expr(const struct cfa_state *s, uint64_t *ret_reg, int64_t *ret_off,
				uint8_t *ret_extra)
{
	struct reader r = {.p = s->expr, .end = s->expr + s->expr_len};
	size_t n;

	if (!expr_begins(&r, ret_reg, ret_off))
		return UNWIND_UNKNOWN;
	n = (size_t)(r.end - r.p);
	if (n == 1 && r.p[0] == DW_OP_deref)
		return UNWIND_CFA_DEREF;
	if (n == 3 && r.p[0] == DW_OP_deref && r.p[1] == DW_OP_plus_uconst && r.p[2] % 8 == 0 &&
	    r.p[2] < 128) {
		*ret_extra = r.p[2] / 8;
		return UNWIND_CFA_DEREF;
	}
	if (n == 9 && *ret_reg == REG_SP && *ret_off == 8 && r.p[0] == DW_OP_breg16 &&
	    r.p[1] == 0 && r.p[2] == DW_OP_lit15 && r.p[3] == DW_OP_and && r.p[4] >= DW_OP_lit0 &&
	    r.p[4] <= DW_OP_lit15 && r.p[5] == DW_OP_ge && r.p[6] == DW_OP_lit3 &&
	    r.p[7] == DW_OP_shl && r.p[8] == DW_OP_plus) {
		*ret_off = r.p[4] - DW_OP_lit0;
		return UNWIND_PLT;
	}
	return UNWIND_UNKNOWN;
}

/* Where the caller's rbp is. What cannot be told is unknown, never "the same". */
static int16_t bp_rule(const struct cfa_register *bp, uint8_t *extra)
{
	struct reader r = {.p = bp->expr, .end = bp->expr + bp->expr_len};
	int64_t off = UNWIND_BP_UNKNOWN;
	uint64_t reg;

	switch (bp->how) {
	case CFA_SAME:
		return UNWIND_BP_SAME;
	case CFA_SAVED:
		off = bp->off ? bp->off : UNWIND_BP_UNKNOWN;
		break;
	case CFA_EXPR: /* a realigned frame's: saved where rbp points now */
		if (!expr_begins(&r, &reg, &off) || reg != REG_BP || r.p != r.end)
			return UNWIND_BP_UNKNOWN;
		if (off > -32768 && off < UNWIND_BP_UNKNOWN)
			*extra |= UNWIND_BP_FROM_BP;
		break;
	default:
		return UNWIND_BP_UNKNOWN;
	}
	return off > -32768 && off < UNWIND_BP_UNKNOWN ? (int16_t)off : UNWIND_BP_UNKNOWN;
}

static struct unwind_rule rule_of(const struct cfa_program *p, const struct cfa_state *s)
{
	struct unwind_rule rule = {.kind_reg = UNWIND_UNKNOWN};
	unsigned int kind = UNWIND_CFA;
	uint64_t reg = s->reg;
	int64_t off = s->off;

	if (p->is_signal)
		return (struct unwind_rule){.kind_reg = UNWIND_SIGNAL};
	if (s->ra.how == CFA_UNDEFINED)
		return (struct unwind_rule){.kind_reg = UNWIND_END};
	if (s->has_expr)
		kind = cfa_by_expr(s, &reg, &off, &rule.extra);
	if (kind == UNWIND_UNKNOWN || reg > 15 || off < INT32_MIN || off > INT32_MAX)
		return (struct unwind_rule){.kind_reg = UNWIND_UNKNOWN};
	if (s->ra.how == CFA_IN_REGISTER && kind == UNWIND_CFA && s->ra.off >= 0 &&
	    s->ra.off < 16) {
		kind = UNWIND_RA_REGISTER;
		rule.extra = (uint8_t)s->ra.off;
	} else if (s->ra.how != CFA_SAVED || s->ra.off != -8) {
		return (struct unwind_rule){.kind_reg = UNWIND_UNKNOWN};
	}
	if (kind == UNWIND_PLT)
		reg = 0;
	rule.bp_off = bp_rule(&s->bp, &rule.extra);
	rule.cfa_off = (int32_t)off;
	rule.kind_reg = (uint8_t)(kind | (unsigned int)reg << 4);
	return rule;
}

/* ---- instructions */

struct run {
	const struct cfa_program *p;
	struct reader r;
	struct cfa_state s, remembered[REMEMBERED_MAX];
	unsigned int n_remembered;
	uint64_t advance; /* of the last instruction */
};

static void set(struct run *run, uint64_t reg, const struct cfa_register *how)
{
	if (reg == REG_BP)
		run->s.bp = *how;
	else if (reg == run->p->ra_register)
		run->s.ra = *how;
}

static void restore(struct run *run, uint64_t reg)
{
	set(run, reg, reg == REG_BP ? &run->p->initial.bp : &run->p->initial.ra);
}

static void set_saved(struct run *run, uint64_t reg, int64_t off)
{
	const struct cfa_register how = {.how = CFA_SAVED, .off = off};

	set(run, reg, &how);
}

/* Those that define the CFA. False: it is none of them. */
static bool step_cfa(struct run *run, uint8_t op)
{
	struct reader *r = &run->r;
	struct cfa_state *s = &run->s;

	switch (op) {
	case DW_CFA_def_cfa:
		s->reg = read_u(r);
		s->off = (int64_t)read_u(r);
		break;
	case DW_CFA_def_cfa_sf:
		s->reg = read_u(r);
		s->off = factored((uint64_t)read_s(r), run->p->data_factor);
		break;
	case DW_CFA_def_cfa_register:
		s->reg = read_u(r);
		break;
	case DW_CFA_def_cfa_offset:
		s->off = (int64_t)read_u(r);
		return true;
	case DW_CFA_def_cfa_offset_sf:
		s->off = factored((uint64_t)read_s(r), run->p->data_factor);
		return true;
	case DW_CFA_def_cfa_expression:
		s->expr = read_block(r, &s->expr_len);
		s->has_expr = true;
		return true;
	default:
		return false;
	}
	s->has_expr = false;
	return true;
}

/* Those that say where a register is. False: it is none of them. */
static bool step_register(struct run *run, uint8_t op)
{
	struct cfa_register how = {.how = CFA_UNDEFINED};
	struct reader *r = &run->r;
	uint64_t reg;

	switch (op) {
	case DW_CFA_offset_extended:
	case DW_CFA_offset_extended_sf:
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
		reg = read_u(r);
		how.how = op == DW_CFA_offset_extended || op == DW_CFA_offset_extended_sf
				  ? CFA_SAVED
				  : CFA_VALUE;
		how.off = factored(op == DW_CFA_offset_extended || op == DW_CFA_val_offset
					   ? read_u(r)
					   : (uint64_t)read_s(r),
				   run->p->data_factor);
		break;
	case DW_CFA_restore_extended:
		restore(run, read_u(r));
		return true;
	case DW_CFA_undefined:
		reg = read_u(r);
		break;
	case DW_CFA_same_value:
		reg = read_u(r);
		how.how = CFA_SAME;
		break;
	case DW_CFA_register:
		reg = read_u(r);
		how.how = CFA_IN_REGISTER;
		how.off = (int64_t)read_u(r);
		break;
	case DW_CFA_expression:
	case DW_CFA_val_expression:
		reg = read_u(r);
		how.how = op == DW_CFA_expression ? CFA_EXPR : CFA_VALUE_EXPR;
		how.expr = read_block(r, &how.expr_len);
		break;
	default:
		return false;
	}
	set(run, reg, &how);
	return true;
}

static bool step_other(struct run *run, uint8_t op)
{
	struct reader *r = &run->r;

	switch (op) {
	case DW_CFA_nop:
	case DW_CFA_GNU_window_save:
		return true;
	case DW_CFA_GNU_args_size:
		(void)read_u(r);
		return true;
	case DW_CFA_advance_loc1:
		run->advance = read_fixed(r, 1);
		return true;
	case DW_CFA_advance_loc2:
		run->advance = read_fixed(r, 2);
		return true;
	case DW_CFA_advance_loc4:
		run->advance = read_fixed(r, 4);
		return true;
	case DW_CFA_remember_state:
		if (run->n_remembered == REMEMBERED_MAX)
			return false;
		run->remembered[run->n_remembered++] = run->s;
		return true;
	case DW_CFA_restore_state:
		if (!run->n_remembered)
			return false;
		run->s = run->remembered[--run->n_remembered];
		return true;
	default: /* DW_CFA_set_loc among them, which nobody writes */
		return false;
	}
}

static int step(struct run *run)
{
	uint8_t op = (uint8_t)read_fixed(&run->r, 1), low = op & 0x3f;
	bool known = true;

	run->advance = 0;
	switch (op & 0xc0) {
	case DW_CFA_advance_loc:
		run->advance = low;
		break;
	case DW_CFA_offset:
		set_saved(run, low, factored(read_u(&run->r), run->p->data_factor));
		break;
	case DW_CFA_restore:
		restore(run, low);
		break;
	default:
		known = step_cfa(run, op) || step_register(run, op) || step_other(run, op);
	}
	return known && !run->r.bad ? 0 : -EBADMSG;
}

int cfa_program_begin(struct cfa_program *p, const uint8_t *insns, const uint8_t *end)
{
	struct run run = {.p = p, .r = {.p = insns, .end = end}};

	p->initial =
		(struct cfa_state){.bp.how = CFA_SAME, .ra.how = CFA_UNDEFINED, .reg = UINT64_MAX};
	run.s = p->initial;
	while (run.r.p < end)
		if (step(&run) < 0)
			return -EBADMSG;
	p->initial = run.s;
	return 0;
}

int cfa_program_run(const struct cfa_program *p, const uint8_t *insns, const uint8_t *end,
		    uint64_t pc, uint64_t pc_end, cfa_row_fn fn, void *arg)
{
	struct run run = {.p = p, .r = {.p = insns, .end = end}, .s = p->initial};
	struct unwind_rule rule;

	while (run.r.p < end) {
		const struct cfa_state before = run.s;

		if (step(&run) < 0)
			return -EBADMSG;
		if (!run.advance)
			continue;
		rule = rule_of(p, &before);
		if (!fn(arg, pc, &rule))
			return -ENOMEM;
		if (run.advance > (pc_end - pc) / (p->code_factor ? p->code_factor : 1))
			return 0;
		pc += run.advance * p->code_factor;
		if (pc >= pc_end)
			return 0;
	}
	rule = rule_of(p, &run.s);
	return fn(arg, pc, &rule) ? 0 : -ENOMEM;
}
