/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the call frame instructions of one function (DWARF 5, 6.4.2) from its first address to its
 * last, and tells the rule of each stretch. elfutils answers for one address at a time, from the
 * function's begin each time: too slow for all addresses.
 *
 * Every byte is hostile: it reads nothing outside of the instructions, and each instruction takes
 * one step.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/unwind_table.h"

enum cfa_how {
	CFA_UNDEFINED,
	CFA_SAME,
	CFA_SAVED,
	CFA_VALUE,
	CFA_IN_REGISTER,
	CFA_EXPR,
	CFA_VALUE_EXPR
};

struct cfa_register {
	enum cfa_how how;
	int64_t off;	     /* CFA_SAVED: from the CFA; CFA_IN_REGISTER: which */
	const uint8_t *expr; /* borrowed */
	size_t expr_len;
};

struct cfa_state {
	struct cfa_register bp, ra;
	bool has_expr;
	uint64_t reg;
	int64_t off;
	const uint8_t *expr;
	size_t expr_len;
};

struct cfa_program {
	uint64_t code_factor;
	int64_t data_factor;
	uint64_t ra_register;
	bool is_signal;
	struct cfa_state initial; /* what its common part leaves */
};

/* Called with ascending addresses, the last word on each; false stops with -ENOMEM. */
typedef bool (*cfa_row_fn)(void *arg, uint64_t pc, const struct unwind_rule *rule);

/* The common part: fills p->initial. 0, -EBADMSG. */
int cfa_program_begin(struct cfa_program *p, const uint8_t *insns, const uint8_t *end) _must_check_;
/* A function from `pc` to `pc_end`. 0, -EBADMSG, -ENOMEM. */
int cfa_program_run(const struct cfa_program *p, const uint8_t *insns, const uint8_t *end,
		    uint64_t pc, uint64_t pc_end, cfa_row_fn fn, void *arg) _must_check_;
