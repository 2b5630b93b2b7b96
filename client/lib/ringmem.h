/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the process's ring memory (common/bundle/ringabi.h): the memfd, its one mapping, the seals, the header. Refuses to
 * know what is written there.
 *
 * Once made it is mapped for good: threads may be in the middle of an event whenever it falls out of use. In a
 * forked child it is not mapped at all (MADV_DONTFORK). Nothing in the shared memory is trusted: where a ring
 * is follows from the private copy of the geometry only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/eventlib.h"
#include "common/base/fileid.h"

#pragma GCC visibility push(hidden)

/* A ring as who writes to it needs it: one pointer to what never changes, however a signal handler comes in between. */
struct ring {
	struct ring_entry *entry;
	struct ring_slot *slots;
	uint32_t mask;	 /* slots - 1 */
	uint16_t shift;	 /* log2(slots) */
	uint16_t number; /* in the memory */
};

/* Does not change once it can be seen, but for `used` and `cursor`. */
struct ringmem {
	struct ringmem *next; /* all that were ever made */
	uint8_t *base;
	struct ring *rings; /* [geometry.rings] */
	struct ring_geometry geometry;
	uint32_t epoch; /* 1, 2, ...: never two alike, not in a forked child either */
	pid_t pid;
	int fd; /* -1 in a forked child */
	struct fileid id;
	uint32_t used;	 /* rings that were ever claimed */
	uint32_t cursor; /* where the search for a ring of an ended thread goes on */
};

static inline struct ring_header *mem_header(const struct ringmem *mem)
{
	return (struct ring_header *)mem->base;
}

static inline struct ring_name *mem_name(const struct ringmem *mem, uint32_t name)
{
	return (struct ring_name *)(mem->base + RING_NAMES_OFFSET) + (name - 1);
}

/* Counters of the header that several threads add to. */
static inline void mem_count(uint64_t *counter)
{
	(void)__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* In a forked child: none of it is there. */
void ringmem_forget(void);

#pragma GCC visibility pop
