/* SPDX-License-Identifier: Apache-2.0 */
/* Event rings as a program makes them, for the daemon's tests: honest unless told otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/bundle/ringabi.h"

struct ring_memory {
	int fd, wake_fd;
	struct ring_geometry geometry;
	uint8_t *map; /* read-write; NULL if it was to be sealed against writing */
	struct ring_header *header;
};


/*
 * Memory with a header and no seals. `bytes` 0: as many as the geometry needs; `flags` go to
 * memfd_create(). False: errno.
 */
bool ring_make_raw(struct ring_memory *m, uint32_t rings, uint32_t slots, uint64_t bytes,
		   unsigned int flags);
void ring_seal(struct ring_memory *m, unsigned int seals);
/* Sealed as it must be. */
void ring_make(struct ring_memory *m, uint32_t rings, uint32_t slots);
void ring_close(struct ring_memory *m);

struct ring_entry *ring_entry_of(struct ring_memory *m, uint32_t ring);
struct ring_slot *ring_slots_of(struct ring_memory *m, uint32_t ring);
/* Writes one record of one slot. */
void ring_write(struct ring_memory *m, uint32_t ring, uint32_t kind, uint64_t a);
/* Writes a cause and wakes. */
uint64_t ring_cause_write(struct ring_memory *m, const struct ring_cause *cause, const char *text);
void ring_wake(struct ring_memory *m);
