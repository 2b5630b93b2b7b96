/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that loads the stack pointer with what it did not have in the same call: how one stack is
 * left for another. It knows instructions by their encodings (Intel SDM volume 2), and nothing of
 * stacks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct address_space;
struct ptcode;

/* Code further than this from the begin of its function is not looked at. */
#define STACK_POINTER_MAX_BYTES (64u << 10)

/* Whether an instruction may load the stack pointer with anything: by its bytes alone. */
bool stack_pointer_may_load(const uint8_t *code, size_t n, bool is64);
/*
 * Whether the code from `begin` to `end` does, and no earlier code of its function has kept the
 * stack pointer there (as it does around arrays of variable size, and in its frame pointer). Any
 * thread.
 */
bool stack_pointer_loads(struct ptcode *c, const struct address_space *s, uint64_t begin,
			 uint64_t end, bool is64);
