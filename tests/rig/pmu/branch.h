/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_BRANCH_H
#define SOFTPT_BRANCH_H

#include <linux/types.h>

struct pt_regs;

enum branch_kind {
	BRANCH_NONE,
	BRANCH_CONDITIONAL,
	BRANCH_LOOP,		/* LOOP, LOOPE, LOOPNE, JRCXZ */
	BRANCH_JUMP,
	BRANCH_CALL,
	BRANCH_INDIRECT_JUMP,
	BRANCH_INDIRECT_CALL,
	BRANCH_RETURN,
	BRANCH_FAR,
	BRANCH_SYSCALL,
	BRANCH_INTERRUPT,
};

struct branch {
	enum branch_kind kind;
	u8 length;	/* of a direct branch; 0: not known */
	u8 condition;	/* the low bits of the opcode that say which */
};

struct branch branch_classify(const u8 *code, unsigned int n);
bool branch_taken(const struct branch *branch, const struct pt_regs *after);
bool insn_repeats(const u8 *code, unsigned int n);
bool insn_pushes_flags(const u8 *code, unsigned int n);

#endif
