/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the callers of Go's functions are found, as rules of common/bundle/unwind_table.h: by what
 * the table of functions says of the stack at each instruction, and by the few instructions of a
 * function that save the frame pointer or go to another stack. The compiler writes no other unwind
 * information than DWARF's, which a stripped program has not, and which knows neither.
 *
 * Who goes to the thread's stack to call there (systemstack, asmcgocall, the vDSO's callers) keeps
 * the frame pointer of the goroutine's since Go 1.21, and so is the way back. Where it does not,
 * and for those who leave the goroutine's stack for good, the caller is elsewhere.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "decode/base/budget.h"
#include "decode/object/cfa_program.h"
#include "decode/object/gopclntab.h"

struct go_frames {
	struct gopclntab table;
	const uint8_t *code; /* in which its functions are; NULL: it is not there */
	uint64_t code_at, code_size;
	uint64_t charged;
};

/*
 * The ELF stays the caller's and must outlive it. 0; -ENODATA: there are no functions of Go's;
 * -ENOMEM.
 */
int go_frames_open(Elf *elf, struct budget *budget, struct go_frames *ret) _must_check_;
void go_frames_close(struct go_frames *g, struct budget *budget);
/*
 * Rows of a function; the first may be for the byte before it, see the way back from a signal's
 * handler. 0; -ENOMEM: `fn` wants no more.
 */
int go_frames_run(const struct go_frames *g, const struct gopclntab_function *f, cfa_row_fn fn,
		  void *arg) _must_check_;
/* The rule of an address; false: it is in no function of Go's. */
bool go_frames_rule(const struct go_frames *g, uint64_t vaddr, struct unwind_rule *ret);
