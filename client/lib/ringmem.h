/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the process's ring memory (common/bundle/ringabi.h): the memfd, its one mapping, the seals,
 * the header. Must not know what is written there.
 *
 * It is never unmapped, because threads may be in the middle of an event when it falls out of use.
 * A forked child does not have it (MADV_DONTFORK). The shared memory is not trusted: only the
 * private copy of the geometry says where a ring is.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/eventlib.h"
#include "common/base/fileid.h"

#pragma GCC visibility push(hidden)

/*
 * A ring as its writer needs it: one pointer to what never changes, so that a signal handler cannot
 * see half of a change.
 */
struct ring {
	struct ring_entry *entry;
	struct ring_slot *slots;
	uint32_t mask;	 /* slots - 1 */
	uint16_t shift; /* log2(slots) */
	uint64_t ids;	/* the upper bits of the ids that are made here: record_id() */
};

/*
 * An id has the number of the memory, since a task may end in another one than it began in; that of
 * the ring, which is never 0; and that of the slot. Each may go round: a ring holds far less than
 * 2^40 slots.
 */
#define RINGMEM_ID_SLOT_BITS 40
#define RINGMEM_ID_RING_BITS 11 /* of 1 to RING_MAX_RINGS */

/* Once other threads can see it, only `used` and `cursor` change. */
struct ringmem {
	struct ringmem *next; /* the list of all that were made */
	uint8_t *base;
	struct ring *rings; /* [geometry.rings] */
	struct ring_geometry geometry;
	uint32_t epoch; /* 1, 2, ...: unique, also in forked children */
	pid_t pid;
	int fd; /* -1 in a forked child */
	struct fileid id;
	uint32_t used;	 /* rings that were ever claimed */
	uint32_t cursor; /* where the next search for a ring of an ended thread begins */
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

/* In a forked child: forgets the memory, which the child does not have. */
void ringmem_forget(void);

#pragma GCC visibility pop
