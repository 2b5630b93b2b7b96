/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one perf event's ring. Overwrite rings are mapped read-only and written backwards,
 * newest record first; they are copied while the kernel goes on writing. Forward rings are drained.
 *
 * The two-head method: read the head, copy, read the head again. What the kernel wrote in between
 * ran over the oldest bytes, and a record in flight over at most 64 KiB more; everything younger is
 * whole. So nothing is paused. A pause would not help, because it does not wait for a writer on
 * another CPU.
 *
 * Threat: only the kernel writes here, but a copy may be torn, so each record is checked.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct ring_copy;

/* The largest record that can be in flight while its bytes are overwritten. */
#define RING_IN_FLIGHT 65536u

struct ring {
	void *base; /* NULL: not mapped */
	size_t map_bytes;
	size_t size; /* of the data, a power of two */
	const uint8_t *data;
	/* owned: instead of being mapped it is what an overwrite ring had once */
	struct ring_copy *image;
};

static inline bool ring_is_there(const struct ring *ring)
{
	return ring->base || ring->image;
}

/* Maps `bytes` (a power of two of pages) of data; `overwrite`: read-only. 0 or -errno. */
int ring_map(int fd, size_t bytes, bool overwrite, struct ring *ret) _must_check_;
/* Makes a ring of what a copy has, which it takes over. 0, -ENOMEM. */
int ring_image(struct ring_copy *copy, struct ring *ret) _must_check_;
void ring_unmap(struct ring *ring);

/* The bytes ever written to an overwrite ring. */
uint64_t ring_written(const struct ring *ring);

struct ring_copy {
	uint8_t *data; /* owned; newest record first */
	size_t len;    /* that is valid */
	bool wrapped;  /* older records were overwritten: the last one in `data` may be cut */
	uint64_t overwritten; /* bytes that were lost because they were passed during the copy */
};
#define RING_COPY_INIT                                                                             \
	{                                                                                          \
		.data = NULL                                                                       \
	}

/* Copies what an overwrite ring holds. 0 or -ENOMEM. */
int ring_copy(const struct ring *ring, struct ring_copy *ret) _must_check_;
void ring_copy_fini(struct ring_copy *copy);

/* For tests: the same on given memory and heads. */
int ring_copy_from(const uint8_t *data, size_t size, uint64_t (*head)(void *arg), void *arg,
		   struct ring_copy *ret) _must_check_;

struct ring_records {
	uint32_t *offsets; /* owned; into the copy, newest first */
	size_t n;
	bool torn;      /* the oldest record was cut off by the writer */
	bool malformed; /* the walk ended at something that is no record */
};

/* Finds the records of a copy. 0 or -ENOMEM. */
int ring_walk(const struct ring_copy *copy, struct ring_records *ret) _must_check_;
void ring_records_fini(struct ring_records *records);
/* ring_copy() and ring_walk(). On an error, too, both are the caller's to end. */
int ring_read(const struct ring *ring, struct ring_copy *copy,
	      struct ring_records *records) _must_check_;

/*
 * Drains a forward ring: copies at most `room` bytes of whole records to `buf` and gives the
 * space back to the kernel. Returns the count of bytes.
 */
size_t ring_drain(struct ring *ring, uint8_t *buf, size_t room);
