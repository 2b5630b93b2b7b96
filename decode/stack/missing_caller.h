/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of frame pointers misses the caller of a function that has set up no frame of its own: a
 * leaf, a system call's wrapper, a prologue. The unwind table says whether that is so where the
 * thread runs; and the call before the first return address often says whom it called, which
 * is the one that is missing.
 *
 * It names a function only if that one can have called on; else the gap is shown as a gap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/stack/resolve.h"

struct missing_caller_stats {
	uint64_t found, gaps;
};

/*
 * The frame that is missing between the innermost one (at `ip`, with the frame `leaf`) and the one
 * that `ra` returns to; 0: none is.
 */
uint32_t missing_caller_frame(struct resolver *r, struct code *code, struct budget *budget, uint64_t ip,
	uint32_t leaf, uint64_t ra, struct missing_caller_stats *stats);

/*
 * Whether somebody is missing between a caller (`ip`, an address in it) and the next one that the chain has, which `ra` returns
 * to: the call before `ra` says that it is of another function, and that one does not jump to where `ip` is.
 */
bool missing_caller_between(struct resolver *r, struct code *code, uint64_t ip, uint64_t ra);
