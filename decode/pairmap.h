/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash from (group, id) to a number. Ids may be chosen by somebody who wants collisions: the hash
 * is seeded per process. What it takes is charged to a budget.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "decode/budget.h"

struct pairmap {
	struct pairmap_slot {
		uint64_t id;
		uint32_t group;
		uint32_t value; /* + 1; 0: free */
	} * slots;
	size_t n, size;
	uint64_t seed;
	struct budget *budget; /* borrowed */
};

void pairmap_init(struct pairmap *m, struct budget *budget);
void pairmap_fini(struct pairmap *m);

/* The value of (group, id), or `fallback`, which is below UINT32_MAX as all values are. */
uint32_t pairmap_get(const struct pairmap *m, uint32_t group, uint64_t id, uint32_t fallback);

/* Puts or replaces. -ENOMEM: no memory, or none in the budget. */
int pairmap_put(struct pairmap *m, uint32_t group, uint64_t id, uint32_t value) _must_check_;
