/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When calls that were inlined begin and end, by the addresses that are executed: what lies in the
 * code of such a call is in it. Owns that rule; refuses to know how addresses were found and how
 * calls are drawn.
 *
 * Compilers mix the instructions of an inlined call with those around it, and with those of the
 * next one. Within a straight line of code a call therefore goes on where the line comes back into
 * it, but not to its first instruction: that is another call. Otherwise it ends where its code is
 * left. Nor has a call begun where a line passes but a piece of it that is not its begin. So calls
 * of a loop that was unrolled into one straight line are one, for nothing distinguishes them from
 * one call in pieces.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/dwarf/scope.h"

#define INLINES_LOOK_AHEAD 32u /* changes of what is inlined, within a line */

struct inlines_ops {
	/* The innermost inlined call around an address (NULL: none), and how far that is true. */
	const struct dwarf_scope *(*at)(void *arg, uint64_t ip, uint64_t *ret_end);
	/* The first instruction of a call that `ip` lies in. */
	uint64_t (*entry)(void *arg, const struct dwarf_scope *s, uint64_t ip);
	/* Before the instruction at `ip` a call begins within the others; the innermost n end. */
	void (*begin)(void *arg, const struct dwarf_scope *s, uint64_t ip);
	void (*end)(void *arg, uint32_t n, uint64_t ip);
};

/*
 * From `now`, the innermost inlined call that is open (NULL: none), to what is at `ip`, where
 * control goes on. `last` ends the line that begins there. `straight`: it is the same line to the
 * compiler, after a call or a branch that was not taken. Answers what is open then.
 */
const struct dwarf_scope *inlines_go(const struct inlines_ops *ops, void *arg,
				     const struct dwarf_scope *now, uint64_t ip, uint64_t last,
				     bool straight);

/*
 * Over a straight line of code, from its first instruction to the one at `last`. Answers likewise.
 * `line` ends it to the compiler: later than `last` where the trace has but a part of it at once.
 */
const struct dwarf_scope *inlines_line(const struct inlines_ops *ops, void *arg,
				       const struct dwarf_scope *now, uint64_t first, uint64_t last,
				       uint64_t line);
