/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks one sample's user stack from its registers and stack bytes by the images' unwind tables,
 * innermost frame first. Where a table is missing (a JIT, a missing image) one step by the frame
 * pointer is tried, and taken only if what it finds is a return address.
 *
 * The stack is the target's and may say anything: the walk ends after a fixed number of frames,
 * and when the stack pointer does not rise.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/stackplace.h"
#include "decode/perf/event.h"
#include "decode/stack/resolve.h"

#define UNWIND_MAX_FRAMES 1024u

enum unwind_end {
	UNWIND_DONE,      /* the outermost frame: the table says so */
	UNWIND_NO_REGS,   /* the sample has no usable registers */
	UNWIND_NO_TABLE,  /* no unwind table for the address, and no frame pointer either */
	UNWIND_NO_STACK,  /* the stack goes on after the bytes that were copied */
	UNWIND_WRONG,     /* what should be a return address follows no call */
	UNWIND_BAD_TABLE, /* the table cannot be followed */
	UNWIND_DEPTH,     /* too many frames */
	UNWIND_N_ENDS,
};

const char *unwind_end_to_string(enum unwind_end e);

/*
 * Fills `frames` (room for UNWIND_MAX_FRAMES), `inlined` alike with what resolver_inlined() says of
 * each, and `places` unless it is NULL; returns how many in *ret_n.
 */
enum unwind_end unwind_sample(struct resolver *r, struct code *code,
			      const struct perfevent_sample *s, struct budget *budget,
			      uint32_t *frames, uint32_t *inlined, struct stack_place *places,
			      uint32_t *ret_n);

struct cfi_row;

/* The unwind row of an address of the process, or NULL: no image, no table, no memory. */
const struct cfi_row *unwind_row(
	struct resolver *r, struct code *code, struct budget *budget, uint64_t pc);
