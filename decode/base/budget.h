/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One number for all memory that grows with the input: index, decompressed records, maps,
 * symbols, perf maps. Whoever grows asks first; a refusal is a normal outcome ("cut") that the
 * asker counts. Fixed-size memory is not charged.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t max;
	uint64_t used;
};

static inline bool budget_take(struct budget *b, uint64_t n)
{
	if (n > b->max || b->used > b->max - n)
		return false;
	b->used += n;
	return true;
}

static inline void budget_give(struct budget *b, uint64_t n)
{
	b->used = n > b->used ? 0 : b->used - n;
}
