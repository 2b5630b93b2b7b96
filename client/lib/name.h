/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the names of the process: the numbers that stand for strings, in memory of its own that a
 * forked child inherits, and their copies in the ring memory. Must not know what a name is for.
 *
 * Lock-free and safe in signal handlers. Numbers and bytes are handed out in order. A name exists
 * once its number is in the index of hashes, which takes one compare-and-swap. If several threads
 * make the same name at once, one of them wins; the numbers of the others stay unused.
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

/* Whether a number can be that of a name: name_get() takes no other. */
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

/* Calls `fn` for each name. */
void names_each(void (*fn)(tracerd_name name, void *arg), void *arg);

/* Copies all names into the memory. */
void names_copy(struct ringmem *mem);

/* Called once, when the process starts. */
void names_prepare(void);

uint32_t names_count(void);
uint64_t names_lost(void);

#pragma GCC visibility pop
