/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from (owner, id) to a number that is not 0: an index, or a pointer to what somebody else
 * owns.
 *
 * Keys may be chosen by a stranger who wants collisions, so the hash is seeded per process. A map
 * that is walked and whose order shows in the output has `ordered` set before the first put: then
 * its order follows from the keys and from the order of the puts alone, and so does what a
 * stranger's keys cost.
 *
 * Bound: HASHMAP_MAX slots of 24 bytes, of which at most half are used. hashmap_put() that finds no
 * memory, or would pass the bound, answers -ENOMEM and leaves the map as it was.
 * hashmap_more_bytes() lets a user charge a budget first. Get, drop and next need no memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define HASHMAP_MAX (1u << 28)

struct hashmap {
	struct hashmap_slot {
		uint64_t owner, id;
		uint64_t value; /* 0: empty */
	} *slots;
	uint32_t n, size; /* size: a power of two, or 0 */
	bool ordered;
	uint64_t seed;
};

/* All zero is an empty map. */
void hashmap_fini(struct hashmap *m);

/* 0 if it is not there. */
uint64_t hashmap_get(const struct hashmap *m, uint64_t owner, uint64_t id);
/* Puts or replaces. 0 or -ENOMEM. */
int hashmap_put(struct hashmap *m, uint64_t owner, uint64_t id, uint64_t value) _must_check_;
void hashmap_drop(struct hashmap *m, uint64_t owner, uint64_t id);

/* What the next put of a new key allocates beyond what there is. */
size_t hashmap_more_bytes(const struct hashmap *m);

/* Walks all: starts at *pos = 0, 0 at the end. The map must not change meanwhile. */
uint64_t hashmap_next(const struct hashmap *m, uint32_t *pos);

/* For maps of indexes below 2^32. */
static inline uint32_t hashmap_index(const struct hashmap *m, uint64_t owner, uint64_t id)
{
	return (uint32_t)hashmap_get(m, owner, id);
}

/* For maps of pointers by one id. */
static inline void *hashmap_pointer(const struct hashmap *m, uint64_t id)
{
	return (void *)(uintptr_t)hashmap_get(m, 0, id);
}

static inline int _must_check_ hashmap_put_pointer(struct hashmap *m, uint64_t id, void *value)
{
	return hashmap_put(m, 0, id, (uintptr_t)value);
}

/* The seed of this process's hashes, and a mixing step. */
uint64_t hash_seed(void);

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
	__uint128_t m = (__uint128_t)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xe7037ed1a0b428dbull);

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}
