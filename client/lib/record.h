/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how a record gets into a ring: the reservation, the slots, their sequence
 * (common/bundle/ringabi.h, "A ring"). Must not know which ring and what for.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "client/lib/stamp.h"
#include "client/lib/threadring.h"

#pragma GCC visibility push(hidden)

typedef uint64_t __attribute__((may_alias)) ring_word;

/*
 * Takes `n` slots. No signal handler of this thread can interrupt it halfway, and no other thread
 * writes to this ring. Every reader sees later stores after it: x86 keeps that order, elsewhere the
 * fence does.
 */
static inline uint64_t record_reserve(struct ring_entry *entry, uint64_t n)
{
#if defined(__x86_64__)
	__asm__ volatile("xaddq %0, %1" : "+r"(n), "+m"(entry->head) : : "memory", "cc");
	return n;
#else
	n = __atomic_fetch_add(&entry->head, n, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return n;
#endif
}

/* Fills slot `index`. `word` has name and kind; this adds the sequence. */
static inline void record_fill(const struct ring *ring, uint64_t index, uint64_t stamp,
			       uint64_t word, uint64_t a, uint64_t b)
{
	struct ring_slot *slot = &ring->slots[index & ring->mask];

	slot->stamp = stamp;
	slot->a = a;
	slot->b = b;
	__atomic_store_n((ring_word *)(void *)&slot->name,
			 word | ((index >> ring->shift) + 1) << 48, __ATOMIC_RELEASE);
}

static inline uint64_t record_word(tracerd_name name, uint32_t kind)
{
	return name | (uint64_t)kind << 32;
}

/* A record of one slot. */
static inline void record_one(const struct ring *ring, uint32_t kind, uint64_t stamp,
			      tracerd_name name, uint64_t a, uint64_t b)
{
	record_fill(ring, record_reserve(ring->entry, 1), stamp, record_word(name, kind), a, b);
}

/* An id made from a record's place: unique for as long as it is in the ring. */
static inline uint64_t record_id(const struct ring *ring, uint64_t index)
{
	return ring->ids | (index & ((1ULL << RINGMEM_ID_SLOT_BITS) - 1));
}

/* Fills the continuation slots after slot `index`: whole RING_CONT_BYTES. */
static inline void record_continue(const struct ring *ring, uint64_t index, const uint8_t *payload,
				   uint32_t span)
{
	for (uint32_t i = 1; i <= span; i++, payload += RING_CONT_BYTES) {
		uint64_t stamp, a, b;
		uint32_t name;

		memcpy(&stamp, payload, sizeof(stamp));
		memcpy(&name, payload + 8, sizeof(name));
		memcpy(&a, payload + 12, sizeof(a));
		memcpy(&b, payload + 20, sizeof(b));
		record_fill(ring, index + i, stamp, record_word(name, RING_CONT), a, b);
	}
}

#pragma GCC visibility pop
