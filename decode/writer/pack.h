/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deflates pieces of output (zlib format) on the workers and hands them back in the order of
 * submission. Owns the pieces and the compressors; what runs on a worker does nothing but compress
 * memory (no files, no allocation).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct pack;
struct workers;

#define PACK_PIECE_BYTES (256u * 1024u) /* what a piece should hold */
#define PACK_PIECE_ROOM (384u * 1024u)	/* what it can hold */

/*
 * `workers`, borrowed: NULL, or one that has no threads: pieces are compressed by the caller in
 * pack_submit(). `level` is libdeflate's, 1 to 12; 0 = the default here.
 */
#define PACK_DEFAULT_LEVEL 1 /* twice as fast as 3 and 4 % bigger (bench-writer) */
int pack_new(struct workers *workers, int level, struct pack **ret) _must_check_;
struct pack *pack_free(struct pack *p);
DEFINE_CLEANUP(struct pack *, pack_free)

/*
 * Gets a finished piece, in order; runs in the thread that calls pack_submit/pack_flush. The
 * PACK_HEADROOM bytes before `data` are the sink's to write a header into.
 */
#define PACK_HEADROOM 32u
typedef int (*pack_sink_fn)(void *arg, uint8_t *data, size_t len, size_t raw_len);
void pack_set_sink(struct pack *p, pack_sink_fn sink, void *arg);

/* A buffer of PACK_PIECE_ROOM bytes to fill, the caller's until pack_submit(). */
uint8_t *pack_buffer(struct pack *p);

/* Hands the filled buffer over; may wait for a worker. 0, or the sink's error. */
int pack_submit(struct pack *p, size_t len) _must_check_;

/* Waits until everything went to the sink. */
int pack_flush(struct pack *p) _must_check_;
