/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code does to the top of the stack: whether a return takes what a call has put there, or what
 * the code in front of it has. Looks at straight code only, so it knows little and is right in
 * that. It must not know what that means for a stack.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/calls/callstack.h"

struct address_space;
struct ptcode;

/* Code further than this from the begin of its function is not looked at. */
#define SLOT_MAX_BYTES (64u << 10)
/* Of a function of two parts, so much of each. */
#define SLOT_MAX_PART (4u << 10)

/* By the code in front of the return or jump at `ip`, since the last branch, of 64-bit code. */
enum callstack_slot slot_before(struct ptcode *c, const struct address_space *s, uint64_t ip);

/*
 * Whether the code at `ip` writes over its own return address, or drops it, and returns; or calls
 * such code at once.
 */
bool slot_is_half(struct ptcode *c, const struct address_space *s, uint64_t ip);

/*
 * Whether a direct jump from the one address to the other stays in one function, of which a part
 * lies elsewhere, where nothing says so: one of the two jumps into the middle of the other, as no
 * function does to another one; and only the first part is aligned as functions are.
 */
bool slot_in_parts(struct ptcode *c, const struct address_space *s, uint64_t from, uint64_t to);
