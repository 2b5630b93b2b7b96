/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table of one image (.eh_frame by way of elfutils, and of Go's functions their own
 * table) as rows: for one address, where the caller's registers are. Each address is asked of
 * elfutils once, then served from a hash:
 * samples hit the same places over and over.
 *
 * Knows neither processes nor stacks; addresses are the ELF's own. x86-64 only.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

/* DWARF numbers: rax rdx rcx rbx rsi rdi rbp rsp r8..r15 and the return address. */
enum { CFI_REG_BP = 6, CFI_REG_SP = 7, CFI_REG_RA = 16, CFI_N_REGS = 17 };

#define CFI_MAX_OPS 32u

struct cfi_op {
	uint8_t atom; /* DW_OP_* */
	uint64_t a, b;
};

struct cfi_expr {
	uint32_t n;
	struct cfi_op ops[];
};

enum cfi_kind {
	CFI_UNDEFINED, /* not known; for the return address: this is the outermost frame */
	CFI_SAME,
	CFI_AT_CFA,   /* in memory at CFA + off */
	CFI_CFA_PLUS, /* is CFA + off */
	CFI_REGISTER, /* is register `reg` + off */
	CFI_AT_EXPR,  /* in memory where the expression says */
	CFI_EXPR,     /* is what the expression says */
};

struct cfi_rule {
	uint8_t kind;
	uint8_t reg;
	int64_t off;
	const struct cfi_expr *expr;
};

struct cfi_row {
	bool known;  /* false: the table says nothing about this address */
	/*
	 * of Go's table: the frame pointer may be the function's own though the frame is reckoned
	 * from the stack pointer
	 */
	bool go;
	bool elsewhere; /* the caller is on another stack, of which nothing is told */
	bool injected; /* like a signal's, but it is in an ordinary frame itself */
	bool signal; /* a signal handler's frame: its caller was interrupted, it did not call */
	struct cfi_rule cfa;
	struct cfi_rule regs[CFI_N_REGS];
};

struct cfi;

/* -ENODATA if the image has no such table. The ELF stays the caller's and must outlive it. */
int cfi_new(Elf *elf, struct budget *budget, struct cfi **ret) _must_check_;
struct cfi *cfi_free(struct cfi *c);
DEFINE_CLEANUP(struct cfi *, cfi_free)

/* The row for an address; NULL when there is no memory. Valid until the next call. */
const struct cfi_row *cfi_row(struct cfi *c, uint64_t addr);

/* What an expression may look at. */
struct cfi_machine {
	const uint64_t *regs;
	uint32_t valid; /* bit n: regs[n] is known */
	uint64_t cfa;
	bool (*read)(void *arg, uint64_t addr, uint64_t *ret);
	void *arg;
};

/* Evaluates an expression; false where it needs what is not known, or is none. */
bool cfi_eval(const struct cfi_expr *e, const struct cfi_machine *m, bool push_cfa, uint64_t *ret);
