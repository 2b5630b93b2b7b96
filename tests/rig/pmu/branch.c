// SPDX-License-Identifier: GPL-2.0
/*
 * What kind of branch an instruction of 64-bit code is. Only what Intel PT tells apart, and the
 * length only of direct branches: an indirect call leaves its return address on the stack.
 */
#include <linux/ptrace.h>
#include <asm/processor-flags.h>

#include "branch.h"

static unsigned int skip_prefixes(const u8 *code, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		switch (code[i]) {
		case 0x26: case 0x2e: case 0x36: case 0x3e:	/* segments, hints */
		case 0x64: case 0x65: case 0x66: case 0x67:
		case 0xf0: case 0xf2: case 0xf3:
		case 0x40 ... 0x4f:				/* REX */
			continue;
		}
		break;
	}
	return i;
}

static struct branch classify_0f(u8 op, unsigned int end)
{
	switch (op) {
	case 0x80 ... 0x8f:
		return (struct branch){ BRANCH_CONDITIONAL, end + 4, op & 15 };
	case 0x05:	/* SYSCALL */
	case 0x34:	/* SYSENTER */
		return (struct branch){ BRANCH_SYSCALL, end };
	}
	return (struct branch){ BRANCH_NONE };
}

static struct branch classify_ff(u8 modrm)
{
	switch ((modrm >> 3) & 7) {
	case 2:
		return (struct branch){ BRANCH_INDIRECT_CALL };
	case 4:
		return (struct branch){ BRANCH_INDIRECT_JUMP };
	case 3:
	case 5:
		return (struct branch){ BRANCH_FAR };
	}
	return (struct branch){ BRANCH_NONE };
}

/* CODE has the instruction's bytes, or as many of them as could be read. */
struct branch branch_classify(const u8 *code, unsigned int n)
{
	unsigned int i = skip_prefixes(code, n);

	if (i >= n)
		return (struct branch){ BRANCH_NONE };
	switch (code[i]) {
	case 0x0f:
		return i + 1 < n ? classify_0f(code[i + 1], i + 2) : (struct branch){ BRANCH_NONE };
	case 0x70 ... 0x7f:
		return (struct branch){ BRANCH_CONDITIONAL, i + 2, code[i] & 15 };
	case 0xe0 ... 0xe3:
		return (struct branch){ BRANCH_LOOP, i + 2, code[i] & 3 };
	case 0xe8:
		return (struct branch){ BRANCH_CALL, i + 5 };
	case 0xe9:
		return (struct branch){ BRANCH_JUMP, i + 5 };
	case 0xeb:
		return (struct branch){ BRANCH_JUMP, i + 2 };
	case 0xc2:
	case 0xc3:
		return (struct branch){ BRANCH_RETURN };
	case 0xca:
	case 0xcb:
	case 0xcf:
		return (struct branch){ BRANCH_FAR };
	case 0xcc:
	case 0xcd:
	case 0xf1:
		return (struct branch){ BRANCH_INTERRUPT };
	case 0xff:
		return i + 1 < n ? classify_ff(code[i + 1]) : (struct branch){ BRANCH_NONE };
	}
	return (struct branch){ BRANCH_NONE };
}

static bool condition_holds(unsigned long flags, u8 condition)
{
	bool sign_differs = !!(flags & X86_EFLAGS_SF) != !!(flags & X86_EFLAGS_OF);
	bool holds = false;

	switch (condition >> 1) {
	case 0:
		holds = flags & X86_EFLAGS_OF;
		break;
	case 1:
		holds = flags & X86_EFLAGS_CF;
		break;
	case 2:
		holds = flags & X86_EFLAGS_ZF;
		break;
	case 3:
		holds = flags & (X86_EFLAGS_CF | X86_EFLAGS_ZF);
		break;
	case 4:
		holds = flags & X86_EFLAGS_SF;
		break;
	case 5:
		holds = flags & X86_EFLAGS_PF;
		break;
	case 6:
		holds = sign_differs;
		break;
	case 7:
		holds = (flags & X86_EFLAGS_ZF) || sign_differs;
		break;
	}
	return holds ^ (condition & 1);
}

/* Whether a BRANCH_CONDITIONAL or BRANCH_LOOP was taken. It changes no flags, so those after it decide. */
bool branch_taken(const struct branch *branch, const struct pt_regs *after)
{
	if (branch->kind == BRANCH_CONDITIONAL)
		return condition_holds(after->flags, branch->condition);
	switch (branch->condition) {
	case 0:	/* LOOPNE */
		return after->cx && !(after->flags & X86_EFLAGS_ZF);
	case 1:	/* LOOPE */
		return after->cx && (after->flags & X86_EFLAGS_ZF);
	case 2:	/* LOOP */
		return after->cx;
	}
	return !after->cx;	/* JRCXZ */
}

/* A trap after one round of a string instruction leaves it at its own address. */
bool insn_repeats(const u8 *code, unsigned int n)
{
	return n && (code[0] == 0xf3 || code[0] == 0xf2);
}

bool insn_pushes_flags(const u8 *code, unsigned int n)
{
	unsigned int i = skip_prefixes(code, n);

	return i < n && code[i] == 0x9c;
}
