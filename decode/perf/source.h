/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random access to the bytes of a recording by pread: a small set-associative cache of blocks of
 * the file, and an arena for records that came compressed. Files are read, never mapped: a file
 * that shrinks while we read it is a short read and not a SIGBUS.
 *
 * Knows nothing of records. Offsets with PERFSOURCE_ARENA set lie in the arena.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

#define PERFSOURCE_ARENA (UINT64_C(1) << 63)
/* No record is longer (its size field has 16 bits). */
#define PERFSOURCE_MAX_GET 65536u

struct perfsource;

/* The descriptor stays the caller's and must outlive the source; it must be a regular file. */
int perfsource_new(int fd, struct budget *budget, struct perfsource **ret) _must_check_;
struct perfsource *perfsource_free(struct perfsource *src);
DEFINE_CLEANUP(struct perfsource *, perfsource_free)

uint64_t perfsource_size(const struct perfsource *src);
uint64_t perfsource_arena_size(const struct perfsource *src);

/*
 * `len` bytes at `off`, valid until the next call; NULL when they are not there (or cannot be
 * read, or len is over PERFSOURCE_MAX_GET).
 */
const void *perfsource_get(struct perfsource *src, uint64_t off, size_t len);

/*
 * Room for `len` more bytes at the end of the arena; commit says how many were used.
 * -ENOMEM when the budget refuses.
 */
int perfsource_reserve(struct perfsource *src, size_t len, void **ret) _must_check_;
void perfsource_commit(struct perfsource *src, size_t len);
