/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the names of the process: the numbers that stand for strings, in memory of its own that a forked
 * child inherits, and their copies in the ring memory. Must not know what a name is for.
 *
 * Lock-free and safe in signal handlers. Numbers and bytes are taken from the front; what makes a
 * name one is its number in the index of hashes, put there by one compare-and-swap: of several who
 * bring the same name at once one wins, and the numbers of the others stay unused.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/lib/eventlib.h"

#pragma GCC visibility push(hidden)

struct ringmem;

struct name {
	uint64_t hash;
	uint32_t offset, length; /* of its bytes; the same offset in the ring memory */
};

extern struct name name_store[RING_MAX_NAMES];
extern uint8_t name_store_text[RING_MAX_TEXT];

/* Whether a number may be looked up at all. */
static inline bool name_in_range(tracerd_name name)
{
	return name - 1 < RING_MAX_NAMES;
}

static inline const struct name *name_get(tracerd_name name)
{
	return &name_store[name - 1];
}

static inline const uint8_t *name_bytes(const struct name *name)
{
	return name_store_text + name->offset;
}

/* Calls back for each name that there is. */
void names_each(void (*fn)(tracerd_name name, void *arg), void *arg);

/* Copies all names into the memory. */
void names_copy(struct ringmem *mem);

/* Once in a process that starts. */
void names_prepare(void);

uint32_t names_count(void);
uint64_t names_lost(void);

#pragma GCC visibility pop
