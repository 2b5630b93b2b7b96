/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One x86 instruction as a trace decoder needs it: how long it is and where it may go. Bytes in, a
 * few numbers out; knows no memory, no trace and no operand but the target of a direct branch.
 *
 * The length is right for every instruction that compilers and assemblers emit (64-bit and 32-bit
 * mode; legacy, REX, VEX, EVEX and XOP encodings), which a test compares with a disassembler over
 * whole libraries.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSN_MAX 15u

enum insn_kind {
	INSN_OTHER,	    /* the next instruction follows */
	INSN_COND,	    /* conditional, direct: a TNT bit says whether it jumps */
	INSN_JUMP,	    /* direct */
	INSN_CALL,	    /* direct; not to the next instruction: that is INSN_CALL_NEXT */
	/* "call 0": how position-dependent code finds itself; nobody returns from it */
	INSN_CALL_NEXT,
	INSN_JUMP_INDIRECT,
	INSN_CALL_INDIRECT,
	INSN_RET,	    /* near */
	INSN_FAR_CALL,	    /* syscall, sysenter, int, far call, vmcall's kin */
	INSN_FAR_RET,	    /* sysret, sysexit, iret, far ret, uiret */
	INSN_FAR_JUMP,
	INSN_PTWRITE,
	INSN_MOV_CR3,	    /* may be followed by a PIP */
};

struct insn {
	uint8_t length; /* 1..INSN_MAX */
	uint8_t kind;	/* enum insn_kind */
	bool is_syscall; /* of INSN_FAR_CALL: syscall or sysenter */
	int32_t offset;	/* of a direct branch, from the end of the instruction */
};

/*
 * Decodes the instruction at `code`, of which `n` bytes can be read. `is64`: 64-bit mode, else
 * 32-bit. False if it is no instruction, or does not end within the n bytes.
 */
bool insn_decode(const uint8_t *code, size_t n, bool is64, struct insn *ret);

static inline bool insn_is_branch(const struct insn *i)
{
	return i->kind >= INSN_COND && i->kind <= INSN_FAR_JUMP;
}
