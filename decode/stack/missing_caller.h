/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of frame pointers misses the caller of a function that has set up no frame of its own: a
 * leaf, a system call's wrapper, a prologue, any function of a library that was built without. The
 * unwind table says whether that is so where it is; and the call before the next return address
 * often says whom it called, which is the one that is missing. Of generated code there is no table:
 * only that call says whether somebody is missing.
 *
 * Where that one cannot have called the other, somebody is missing between the two as well, and the
 * gap is shown as a gap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/stack/resolve.h"

struct missing_caller_stats {
	uint64_t found, gaps;
};

/*
 * What is missing between one (an address in it, `ip`, and its frame, `leaf`) and the next of the
 * chain, which `ra` returns to, the innermost first: how many frames, a gap among them where not
 * all are known. `innermost`: it runs at `ip`; else it has called there.
 */
uint32_t missing_caller_frames(struct resolver *r, struct code *code, struct budget *budget,
			       uint64_t ip, bool innermost, uint32_t leaf, uint64_t ra,
			       struct missing_caller_stats *stats, uint32_t ret[static 2]);

/*
 * Whether somebody is missing between a caller (`ip`, an address in it) and the next one that the
 * chain has, which `ra` returns to: the call before `ra` says that it is of another function, and
 * that one does not jump to where `ip` is.
 */
bool missing_caller_between(struct resolver *r, struct code *code, uint64_t ip, uint64_t ra);
