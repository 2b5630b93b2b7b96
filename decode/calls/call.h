/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that is open, and what must be known of it when it ends. It lies on the one stack of its
 * thread (decode/calls/callstack.h); who draws calls gets it at the begin and at the end, and keeps
 * none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct call {
	uint32_t frame; /* of the stack table */
	uint32_t stack; /* of the stack table, with this frame; 0: nobody has asked for it */
	uint64_t begin; /* ns of the recording's clock */
	bool interpolated; /* begin lies between two times that the trace has */
	uint64_t insns;	       /* that its thread had executed when it began */
	uint64_t callee_insns; /* of the calls in it that are over */
	/* For calls that were inlined in it (decode/replay/pt_inline.c): */
	uint64_t serial; /* no other call has it; 0: not given */
	uint64_t branches; /* that it has made */
};

/* The instructions that it executed itself, of `insns` in all. */
static inline uint64_t call_own_insns(const struct call *c, uint64_t insns)
{
	return insns > c->callee_insns ? insns - c->callee_insns : 0;
}
