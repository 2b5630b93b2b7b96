/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexes by numbers that are small and dense as a rule, and anything if somebody means harm. A
 * thin layer over common/base/hashmap.h that asks the budget first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hashmap.h"
#include "decode/base/budget.h"

#define IDMAP_DENSE 65536u /* below that an id is an index */

struct idmap {
	struct budget *budget;
	uint32_t *dense;
	uint32_t n_dense;
	uint64_t upto; /* all from 1 to this are there */
	struct hashmap sparse;
	uint64_t taken;
};

static inline void idmap_init(struct idmap *m, struct budget *budget)
{
	*m = (struct idmap){.budget = budget};
}

void idmap_fini(struct idmap *m);
/* Forgets all, and keeps the memory for small ids. */
void idmap_clear(struct idmap *m);

/* 0: it is not there. */
static inline uint32_t idmap_get(const struct idmap *m, uint64_t id)
{
	if (id < m->n_dense)
		return m->dense[id];
	return id < IDMAP_DENSE ? 0 : (uint32_t)hashmap_get(&m->sparse, 0, id);
}

/* Most ids need no look at the table. */
static inline bool idmap_has(const struct idmap *m, uint64_t id)
{
	return (id > 0 && id <= m->upto) || idmap_get(m, id);
}

/* `value` is not 0. 0 or -ENOMEM. */
int idmap_put(struct idmap *m, uint64_t id, uint32_t value) _must_check_;
