// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/unwind.h"

#include <linux/perf_event.h>
#include <string.h>

#include "decode/object/cfi.h"

struct walk {
	struct resolver *r;
	struct code *code;
	struct budget *budget;
	const uint8_t *stack;
	uint64_t stack_base, stack_size;
	uint64_t regs[CFI_N_REGS];
	uint32_t valid;
	bool exact;   /* the program counter is no return address */
	bool outside; /* a read went past the stack's copied bytes */
};

/* The kernel's register numbers (asm/perf_regs.h of x86) for DWARF's 0..16. */
static const uint8_t perf_reg[CFI_N_REGS] = {
	0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8};

const char *unwind_end_to_string(enum unwind_end e)
{
	static const char *const names[UNWIND_N_ENDS] = {
		[UNWIND_DONE] = "done",
		[UNWIND_NO_REGS] = "no_registers",
		[UNWIND_NO_TABLE] = "no_table",
		[UNWIND_NO_STACK] = "stack_cut",
		[UNWIND_WRONG] = "wrong_return",
		[UNWIND_BAD_TABLE] = "bad_table",
		[UNWIND_DEPTH] = "too_deep",
	};

	return (unsigned)e < UNWIND_N_ENDS ? names[e] : "?";
}

static bool read_stack(void *arg, uint64_t addr, uint64_t *ret)
{
	struct walk *w = arg;

	if (addr < w->stack_base || addr - w->stack_base > w->stack_size ||
		w->stack_size - (addr - w->stack_base) < 8) {
		w->outside = true;
		return false;
	}
	*ret = load_u64(w->stack + (addr - w->stack_base));
	return true;
}

static bool load_regs(struct walk *w, const struct perfevent_sample *s)
{
	for (unsigned i = 0; i < CFI_N_REGS; i++) {
		uint64_t bit = UINT64_C(1) << perf_reg[i];
		unsigned index;

		if (!(s->regs_mask & bit))
			continue;
		index = (unsigned)__builtin_popcountll(s->regs_mask & (bit - 1));
		w->regs[i] = load_u64(s->regs + (size_t)index * 8);
		w->valid |= 1u << i;
	}
	return (w->valid & (1u << CFI_REG_SP)) && (w->valid & (1u << CFI_REG_RA));
}

const struct cfi_row *unwind_row(
	struct resolver *r, struct code *code, struct budget *budget, uint64_t pc)
{
	uint64_t vaddr;
	struct image *img = resolver_image(r, code, pc, &vaddr);

	if (!img || !img->x86_64)
		return NULL;
	if (!img->cfi_tried) {
		img->cfi_tried = true;
		if (cfi_new(img->elf, budget, &img->cfi) < 0)
			img->cfi = NULL;
	}
	return img->cfi ? cfi_row(img->cfi, vaddr) : NULL;
}

static bool rule_apply(
	struct walk *w, const struct cfi_rule *rule, unsigned reg, uint64_t cfa, uint64_t *ret)
{
	const struct cfi_machine m = {
		.regs = w->regs, .valid = w->valid, .cfa = cfa, .read = read_stack, .arg = w};
	uint64_t addr;

	switch ((enum cfi_kind)rule->kind) {
	case CFI_UNDEFINED:
		return false;
	case CFI_SAME:
		*ret = w->regs[reg];
		return w->valid & (1u << reg);
	case CFI_AT_CFA:
		addr = cfa + (uint64_t)rule->off;
		/*
		 * Below the stack pointer: an epilogue has popped it already, but compilers do not
		 * say so in the table. The register has it back.
		 */
		if (w->exact && addr < w->regs[CFI_REG_SP] && reg != CFI_REG_RA) {
			*ret = w->regs[reg];
			return w->valid & (1u << reg);
		}
		return read_stack(w, addr, ret);
	case CFI_CFA_PLUS:
		*ret = cfa + (uint64_t)rule->off;
		return true;
	case CFI_REGISTER:
		*ret = w->regs[rule->reg] + (uint64_t)rule->off;
		return w->valid & (1u << rule->reg);
	case CFI_AT_EXPR:
		return cfi_eval(rule->expr, &m, true, &addr) && read_stack(w, addr, ret);
	case CFI_EXPR:
		return cfi_eval(rule->expr, &m, true, ret);
	}
	return false;
}

enum step { STEP_ON, STEP_DONE, STEP_NO_TABLE, STEP_NO_STACK, STEP_BAD };

static enum step step_by_table(struct walk *w, const struct cfi_row *row)
{
	const struct cfi_machine m = {
		.regs = w->regs, .valid = w->valid, .read = read_stack, .arg = w};
	uint64_t regs[CFI_N_REGS], cfa;
	uint32_t valid = 0;

	w->outside = false;
	if (row->elsewhere)
		return STEP_NO_STACK;
	if (row->cfa.kind == CFI_REGISTER) {
		if (!(w->valid & (1u << row->cfa.reg)))
			return STEP_BAD;
		cfa = w->regs[row->cfa.reg] + (uint64_t)row->cfa.off;
	} else if (!cfi_eval(row->cfa.expr, &m, false, &cfa)) {
		return w->outside ? STEP_NO_STACK : STEP_BAD;
	}
	if (row->regs[CFI_REG_RA].kind == CFI_UNDEFINED)
		return STEP_DONE;
	for (unsigned i = 0; i < CFI_N_REGS; i++) {
		if (i == CFI_REG_SP && row->regs[i].kind <= CFI_SAME) {
			regs[i] = cfa;
			valid |= 1u << i;
		} else if (rule_apply(w, &row->regs[i], i, cfa, &regs[i])) {
			valid |= 1u << i;
		}
	}
	if (!(valid & (1u << CFI_REG_RA)))
		return w->outside ? STEP_NO_STACK : STEP_BAD;
	/*
	 * Only a signal's frame may lead to another stack, or to a lower address; and only where it
	 * runs has a function no stack at all (vfork keeps its return address in a register).
	 */
	if (!row->signal && regs[CFI_REG_SP] < w->regs[CFI_REG_SP] + (w->exact ? 0 : 1))
		return STEP_BAD;
	for (unsigned i = 0; i < CFI_N_REGS; i++)
		if (valid & (1u << i))
			w->regs[i] = regs[i];
	w->valid = valid;
	w->exact = row->signal || row->injected;
	return STEP_ON;
}

/*
 * Whether the frame pointer is another frame's: a function that keeps none, but saved it, has its
 * return address between; one that has no frame yet, or no more, has it on top of the stack.
 * HotSpot's interpreter aligns the stack and pushes it again if what it calls is compiled: that is
 * no other one.
 */
static bool is_frame_of_another(struct walk *w, uint64_t bp)
{
	const uint64_t sp = w->regs[CFI_REG_SP];
	uint64_t below = 0, word;

	for (uint64_t at = sp; at < bp; at += 8) {
		if (!read_stack(w, at, &word))
			return false;
		if (((at == sp && w->exact) ||
		     (at > sp && below == bp && (at != sp + 8 || word != w->regs[CFI_REG_RA]))) &&
			address_space_find(w->code->space, word))
			return true;
		below = word;
	}
	return false;
}

/* Code without a table: the caller by the frame pointer, as most JITs keep it. */
static enum step step_by_frame_pointer(struct walk *w)
{
	uint64_t bp = w->regs[CFI_REG_BP], ra, caller_bp;

	w->outside = false;
	if (!(w->valid & (1u << CFI_REG_BP)) || bp < w->regs[CFI_REG_SP] || bp % 8 ||
	    is_frame_of_another(w, bp))
		return STEP_NO_TABLE;
	if (!read_stack(w, bp, &caller_bp) || !read_stack(w, bp + 8, &ra))
		return STEP_NO_TABLE;
	w->regs[CFI_REG_RA] = ra;
	w->regs[CFI_REG_SP] = bp + 16;
	w->regs[CFI_REG_BP] = caller_bp;
	w->valid = 1u << CFI_REG_RA | 1u << CFI_REG_SP | 1u << CFI_REG_BP;
	w->exact = false;
	return STEP_ON;
}

/*
 * CPython's trampolines (-X perf), one of a Python function each: those of 3.12 reserve 8 bytes and
 * keep no frame pointer, later ones push it, so that where they have called the return address is
 * at the same place.
 */
static bool is_trampoline(const struct walk *w, uint32_t frame)
{
	struct frame_info info;

	stacktab_info(resolver_stacktab(w->r), frame, &info);
	return !w->exact && info.kind == FRAME_KIND_JIT && strncmp(info.name, "py::", 4) == 0;
}

static enum step step_by_trampoline(struct walk *w)
{
	const uint64_t sp = w->regs[CFI_REG_SP];
	uint64_t ra;

	if ((w->valid & (1u << CFI_REG_BP)) && w->regs[CFI_REG_BP] == sp)
		return step_by_frame_pointer(w);
	w->outside = false;
	if (!read_stack(w, sp + 8, &ra))
		return w->outside ? STEP_NO_STACK : STEP_NO_TABLE;
	w->regs[CFI_REG_RA] = ra;
	w->regs[CFI_REG_SP] = sp + 16;
	return STEP_ON;
}

/* A call through a bad pointer: the program counter is nowhere, the caller's is on top of the
 * stack. */
static bool step_from_nowhere(struct walk *w)
{
	uint64_t ra;

	if (address_space_find(w->code->space, w->regs[CFI_REG_RA]) ||
		!read_stack(w, w->regs[CFI_REG_SP], &ra))
		return false;
	w->regs[CFI_REG_RA] = ra;
	w->regs[CFI_REG_SP] += 8;
	w->exact = false;
	return true;
}

enum unwind_end unwind_sample(struct resolver *r, struct code *code,
			      const struct perfevent_sample *s, struct budget *budget,
			      uint32_t *frames, uint32_t *inlined, struct stack_place *places,
			      uint32_t *ret_n)
{
	struct walk w = {.r = r,
		.code = code,
		.budget = budget,
		.stack = s->stack,
		.stack_size = s->stack_size,
		.exact = true};
	uint32_t n = 0;

	*ret_n = 0;
	if (s->regs_abi != PERF_SAMPLE_REGS_ABI_64 || !s->regs || !load_regs(&w, s))
		return UNWIND_NO_REGS;
	w.stack_base = w.regs[CFI_REG_SP];
	for (;;) {
		const struct cfi_row *row;
		enum step step;
		uint32_t frame;

		if (n && w.regs[CFI_REG_RA] == 0) /* how hand-made stacks end */
			return UNWIND_DONE;
		frame = resolver_frame(
			r, code, w.regs[CFI_REG_RA], w.exact ? RESOLVE_EXACT : RESOLVE_RETURN);
		if (!frame)
			return UNWIND_WRONG;
		if (places)
			places[n] =
				(struct stack_place){.ip = w.regs[CFI_REG_RA], .exact = w.exact};
		inlined[n] = resolver_inlined(r);
		frames[n++] = frame;
		*ret_n = n;
		if (resolver_begins_stack(r, frame))
			return UNWIND_DONE;
		if (n == UNWIND_MAX_FRAMES)
			return UNWIND_DEPTH;
		if (n == 1 && step_from_nowhere(&w))
			continue;
		row = unwind_row(r, code, budget, w.regs[CFI_REG_RA] - (w.exact ? 0 : 1));
		/* the way back from a handler, which nobody calls: it begins there */
		if (places && row && row->known && row->signal)
			places[n - 1].exact = true;
		if (row && row->known)
			step = step_by_table(&w, row);
		else
			step = is_trampoline(&w, frame) ? step_by_trampoline(&w)
							: step_by_frame_pointer(&w);
		switch (step) {
		case STEP_ON:
			break;
		case STEP_DONE:
			return UNWIND_DONE;
		case STEP_NO_TABLE:
			return resolver_is_entry(r, frame) ? UNWIND_DONE : UNWIND_NO_TABLE;
		case STEP_NO_STACK:
			return UNWIND_NO_STACK;
		case STEP_BAD:
			return UNWIND_BAD_TABLE;
		}
	}
}
