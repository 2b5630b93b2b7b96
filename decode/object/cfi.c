// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/cfi.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "decode/object/go_frames.h"

#define STACK_DEPTH 32u

struct cfi {
	Dwarf_CFI *table; /* NULL: there is none */
	struct go_frames go; /* of a Go program; go.table.data is NULL in others */
	struct budget *budget; /* borrowed */
	struct hashmap rows; /* struct cfi_row by address */
};

int cfi_new(Elf *elf, struct budget *budget, struct cfi **ret)
{
	_cleanup_(cfi_freep) struct cfi *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->budget = budget;
	c->table = dwarf_getcfi_elf(elf);
	r = go_frames_open(elf, budget, &c->go);
	if (r < 0 && !c->table)
		return r;
	*ret = take_ptr(c);
	return 0;
}

static void row_free(struct cfi_row *row)
{
	if (!row)
		return;
	free((void *)(uintptr_t)row->cfa.expr);
	for (unsigned i = 0; i < CFI_N_REGS; i++)
		free((void *)(uintptr_t)row->regs[i].expr);
	free(row);
}
DEFINE_CLEANUP(struct cfi_row *, row_free)

struct cfi *cfi_free(struct cfi *c)
{
	struct cfi_row *row;
	uint32_t pos = 0;

	if (!c)
		return NULL;
	while ((row = (struct cfi_row *)(uintptr_t)hashmap_next(&c->rows, &pos)))
		row_free(row);
	budget_give(c->budget, c->rows.n * sizeof(struct cfi_row));
	hashmap_fini(&c->rows);
	go_frames_close(&c->go, c->budget);
	if (c->table)
		(void)dwarf_cfi_end(c->table);
	free(c);
	return NULL;
}

static const struct cfi_expr *expr_copy(const Dwarf_Op *ops, size_t n)
{
	struct cfi_expr *e;

	if (n == 0 || n > CFI_MAX_OPS)
		return NULL;
	e = malloc(sizeof(*e) + n * sizeof(e->ops[0]));
	if (!e)
		return NULL;
	e->n = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		e->ops[i].atom = ops[i].atom;
		e->ops[i].a = ops[i].number;
		e->ops[i].b = ops[i].number2;
	}
	return e;
}

/* Register plus offset, where the operation is just that. */
static bool op_is_breg(const Dwarf_Op *op, uint8_t *ret_reg, int64_t *ret_off)
{
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
		*ret_reg = (uint8_t)(op->atom - DW_OP_breg0);
		*ret_off = (int64_t)op->number;
	} else if (op->atom == DW_OP_bregx) {
		if (op->number >= CFI_N_REGS)
			return false;
		*ret_reg = (uint8_t)op->number;
		*ret_off = (int64_t)op->number2;
	} else {
		return false;
	}
	return *ret_reg < CFI_N_REGS;
}

/* elfutils describes each rule as a location expression: the common ones are recognised here. */
static struct cfi_rule rule_of(const Dwarf_Op *ops, size_t n)
{
	struct cfi_rule r = {.kind = CFI_UNDEFINED};
	bool value = false;

	if (n && ops[n - 1].atom == DW_OP_stack_value) {
		value = true;
		n--;
	}
	if (n == 0)
		return r;
	if (ops[0].atom == DW_OP_call_frame_cfa &&
		(n == 1 || (n == 2 && ops[1].atom == DW_OP_plus_uconst))) {
		r.kind = value ? CFI_CFA_PLUS : CFI_AT_CFA;
		r.off = n == 2 ? (int64_t)ops[1].number : 0;
		return r;
	}
	if (n == 1 && ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg0 + CFI_N_REGS - 1) {
		r.kind = CFI_REGISTER;
		r.reg = (uint8_t)(ops[0].atom - DW_OP_reg0);
		return r;
	}
	if (n == 1 && ops[0].atom == DW_OP_regx && ops[0].number < CFI_N_REGS) {
		r.kind = CFI_REGISTER;
		r.reg = (uint8_t)ops[0].number;
		return r;
	}
	r.expr = expr_copy(ops, n);
	if (r.expr)
		r.kind = value ? CFI_EXPR : CFI_AT_EXPR;
	return r;
}

/* A signal's frame is where the kernel has put it: all registers are behind the stack pointer. */
static void row_of_signal(struct cfi_row *row)
{
	/*
	 * r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip behind the frame's head, by DWARF's numbers
	 */
	static const uint8_t place[CFI_N_REGS] = {13, 12, 14, 11, 9, 8, 10, 15, 0,
						  1,  2,  3,  4,  5, 6, 7,  16};

	row->known = row->signal = true;
	row->cfa = (struct cfi_rule){.kind = CFI_REGISTER, .reg = CFI_REG_SP};
	for (unsigned i = 0; i < CFI_N_REGS; i++)
		row->regs[i] =
			(struct cfi_rule){.kind = CFI_AT_CFA, .off = 40 + 8 * (int64_t)place[i]};
}

static void row_of_go(const struct unwind_rule *rule, struct cfi_row *row)
{
	row->go = true;
	switch (UNWIND_KIND(rule)) {
	case UNWIND_CFA:
		row->known = true;
		row->injected = rule->extra & UNWIND_WAS_INTERRUPTED;
		row->cfa = (struct cfi_rule){.kind = CFI_REGISTER,
					     .reg = UNWIND_REG(rule),
					     .off = rule->cfa_off};
		row->regs[CFI_REG_RA] = (struct cfi_rule){.kind = CFI_AT_CFA, .off = -8};
		if (rule->bp_off == UNWIND_BP_SAME)
			row->regs[CFI_REG_BP].kind = CFI_SAME;
		else if (rule->bp_off != UNWIND_BP_UNKNOWN)
			row->regs[CFI_REG_BP] =
				(struct cfi_rule){.kind = CFI_AT_CFA, .off = rule->bp_off};
		break;
	case UNWIND_RA_REGISTER:
		row->known = true;
		row->cfa = (struct cfi_rule){.kind = CFI_REGISTER,
					     .reg = UNWIND_REG(rule),
					     .off = rule->cfa_off};
		row->regs[CFI_REG_RA] = (struct cfi_rule){.kind = CFI_REGISTER, .reg = rule->extra};
		row->regs[CFI_REG_BP].kind = CFI_SAME;
		break;
	case UNWIND_END: /* where the return address is, is not known */
		row->known = true;
		row->cfa = (struct cfi_rule){.kind = CFI_REGISTER, .reg = CFI_REG_SP};
		break;
	case UNWIND_SIGNAL:
		row_of_signal(row);
		break;
	default: /* the frame pointer leads astray, too */
		row->known = row->elsewhere = true;
		row->cfa = (struct cfi_rule){.kind = CFI_REGISTER, .reg = CFI_REG_SP};
		break;
	}
}

static void row_fill(struct cfi *c, uint64_t addr, struct cfi_row *row)
{
	Dwarf_Frame *frame = NULL;
	struct unwind_rule rule;
	Dwarf_Op *ops, mem[3];
	size_t n;

	if (c->go.table.data && go_frames_rule(&c->go, addr, &rule)) {
		row_of_go(&rule, row);
		return;
	}
	if (!c->table || dwarf_cfi_addrframe(c->table, addr, &frame) != 0)
		return;
	if (dwarf_frame_info(frame, NULL, NULL, &row->signal) != CFI_REG_RA ||
		dwarf_frame_cfa(frame, &ops, &n) != 0 || n == 0)
		goto out;
	if (n == 1 && op_is_breg(&ops[0], &row->cfa.reg, &row->cfa.off)) {
		row->cfa.kind = CFI_REGISTER;
	} else {
		row->cfa.expr = expr_copy(ops, n);
		if (!row->cfa.expr)
			goto out;
		row->cfa.kind = CFI_EXPR;
	}
	for (int i = 0; i < CFI_N_REGS; i++) {
		if (dwarf_frame_register(frame, i, mem, &ops, &n) != 0)
			continue;
		if (n == 0 && !ops)
			row->regs[i].kind = CFI_SAME;
		else
			row->regs[i] = rule_of(ops, n);
	}
	row->known = true;
out:
	free(frame);
}

const struct cfi_row *cfi_row(struct cfi *c, uint64_t addr)
{
	_cleanup_(row_freep) struct cfi_row *row = NULL;
	const struct cfi_row *known = hashmap_pointer(&c->rows, addr);

	if (known)
		return known;
	if (!budget_take(c->budget, sizeof(*row)))
		return NULL;
	row = calloc(1, sizeof(*row));
	if (!row || hashmap_put_pointer(&c->rows, addr, row) < 0) {
		budget_give(c->budget, sizeof(*row));
		return NULL;
	}
	row_fill(c, addr, row);
	return take_ptr(row);
}

static bool eval_binary(uint8_t atom, uint64_t a, uint64_t b, uint64_t *ret)
{
	switch (atom) {
	case DW_OP_plus:
		*ret = a + b;
		return true;
	case DW_OP_minus:
		*ret = a - b;
		return true;
	case DW_OP_mul:
		*ret = a * b;
		return true;
	case DW_OP_and:
		*ret = a & b;
		return true;
	case DW_OP_or:
		*ret = a | b;
		return true;
	case DW_OP_xor:
		*ret = a ^ b;
		return true;
	case DW_OP_shl:
		*ret = b < 64 ? a << b : 0;
		return true;
	case DW_OP_shr:
		*ret = b < 64 ? a >> b : 0;
		return true;
	case DW_OP_shra:
		*ret = (uint64_t)((int64_t)a >> (b < 64 ? b : 63));
		return true;
	case DW_OP_ge:
		*ret = (int64_t)a >= (int64_t)b;
		return true;
	case DW_OP_gt:
		*ret = (int64_t)a > (int64_t)b;
		return true;
	case DW_OP_le:
		*ret = (int64_t)a <= (int64_t)b;
		return true;
	case DW_OP_lt:
		*ret = (int64_t)a < (int64_t)b;
		return true;
	case DW_OP_eq:
		*ret = a == b;
		return true;
	case DW_OP_ne:
		*ret = a != b;
		return true;
	default:
		return false;
	}
}

/* Values that an operation brings by itself. */
static bool eval_push(const struct cfi_op *op, const struct cfi_machine *m, uint64_t *ret)
{
	uint64_t reg;

	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31) {
		*ret = op->atom - DW_OP_lit0;
		return true;
	}
	switch (op->atom) {
	case DW_OP_const1u:
	case DW_OP_const1s:
	case DW_OP_const2u:
	case DW_OP_const2s:
	case DW_OP_const4u:
	case DW_OP_const4s:
	case DW_OP_const8u:
	case DW_OP_const8s:
	case DW_OP_constu:
	case DW_OP_consts:
		*ret = op->a;
		return true;
	case DW_OP_call_frame_cfa:
		*ret = m->cfa;
		return true;
	default:
		break;
	}
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
		reg = op->atom - DW_OP_breg0;
		*ret = op->a;
	} else if (op->atom == DW_OP_bregx) {
		reg = op->a;
		*ret = op->b;
	} else {
		return false;
	}
	if (reg >= CFI_N_REGS || !(m->valid & (1u << reg)))
		return false;
	*ret += m->regs[reg];
	return true;
}

bool cfi_eval(const struct cfi_expr *e, const struct cfi_machine *m, bool push_cfa, uint64_t *ret)
{
	uint64_t stack[STACK_DEPTH], v;
	uint32_t n = 0;

	if (push_cfa)
		stack[n++] = m->cfa;
	for (uint32_t i = 0; i < e->n; i++) {
		const struct cfi_op *op = &e->ops[i];

		if (eval_push(op, m, &v)) {
			if (n == STACK_DEPTH)
				return false;
			stack[n++] = v;
			continue;
		}
		if (n >= 2 && eval_binary(op->atom, stack[n - 2], stack[n - 1], &v)) {
			stack[--n - 1] = v;
			continue;
		}
		switch (op->atom) {
		case DW_OP_nop:
			break;
		case DW_OP_plus_uconst:
			if (n < 1)
				return false;
			stack[n - 1] += op->a;
			break;
		case DW_OP_deref:
			if (n < 1 || !m->read(m->arg, stack[n - 1], &stack[n - 1]))
				return false;
			break;
		case DW_OP_neg:
			if (n < 1)
				return false;
			stack[n - 1] = 0 - stack[n - 1];
			break;
		case DW_OP_not:
			if (n < 1)
				return false;
			stack[n - 1] = ~stack[n - 1];
			break;
		case DW_OP_dup:
			if (n < 1 || n == STACK_DEPTH)
				return false;
			stack[n] = stack[n - 1];
			n++;
			break;
		case DW_OP_drop:
			if (n < 1)
				return false;
			n--;
			break;
		case DW_OP_over:
			if (n < 2 || n == STACK_DEPTH)
				return false;
			stack[n] = stack[n - 2];
			n++;
			break;
		case DW_OP_swap:
			if (n < 2)
				return false;
			v = stack[n - 1];
			stack[n - 1] = stack[n - 2];
			stack[n - 2] = v;
			break;
		default: /* jumps among them: an expression always ends */
			return false;
		}
	}
	if (n == 0)
		return false;
	*ret = stack[n - 1];
	return true;
}
