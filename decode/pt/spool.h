/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what several streams have said until the end, when each is read as a whole: in one file, in
 * blocks that are linked, and with a bounded memory. A record is at a place that does not change,
 * and may be overwritten or read at any time. It must not know what is in records. Nobody else
 * reads the file, so the layout is that of this machine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define SPOOL_RECORD_MAX (16u << 10)
#define SPOOL_BLOCK_BYTES (64u << 10)

struct spool;

/* `fd`: read and written by place, from 0 on; borrowed. */
int spool_new(int fd, struct spool **ret) _must_check_;
struct spool *spool_free(struct spool *s);
DEFINE_CLEANUP(struct spool *, spool_free)

/* The bytes of all streams. */
uint64_t spool_bytes(const struct spool *s);

/* One stream. All zero is an empty one; the spool frees what it has. */
struct spool_stream {
	uint64_t first, block; /* places of blocks; 0: there is none */
	uint8_t *bytes; /* of the last block, from `held` on */
	uint32_t used, held; /* bytes of the block that are used, and that are in the file */
	uint32_t room;
	struct spool_stream *next;
	bool known; /* to the spool */
};

/* Appends a record of at most SPOOL_RECORD_MAX bytes. *ret: its place, never 0. 0 or -errno. */
int spool_append(struct spool *s, struct spool_stream *st, const void *record, uint32_t n,
		 uint64_t *ret) _must_check_;
/* Overwrites the begin of a record. 0 or -errno. */
int spool_patch(struct spool *s, struct spool_stream *st, uint64_t at, const void *bytes,
		uint32_t n) _must_check_;

/* Reads a stream from its begin, when nothing is appended to it any more. */
struct spool_reader {
	uint8_t *block;
	uint32_t used, at;
};

int spool_reader_init(struct spool *s, struct spool_stream *st,
		      struct spool_reader *ret) _must_check_;
void spool_reader_fini(struct spool_reader *r);
/*
 * The next record, the reader's until the next call. 1, 0 at the end, or -errno; -EIO: the file has
 * changed.
 */
int spool_next(struct spool *s, struct spool_reader *r, const uint8_t **ret,
	       uint32_t *ret_n) _must_check_;
/*
 * The record at a place, of a stream that a reader was made for. 0 or -errno; -EIO: there is none,
 * or it is longer than `room`.
 */
int spool_read(struct spool *s, uint64_t at, void *ret, size_t room, uint32_t *ret_n) _must_check_;
