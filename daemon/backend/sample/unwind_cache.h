/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of unwind rules on disk, in "unwind" of the daemon's state directory: what tracerd-decode
 * has made of a file is not made again after a restart.
 *
 * Threat: a table that is given out for a file that it was not made of makes pictures lie, also
 * those of root, and for as long as it is kept. A build id is what a file says of itself: anybody
 * can make a file with libc's build id and other code. So is a digest that the decoder tells, once
 * it has begun to read a file of somebody's who can take it over; and one that is taken before it
 * begins is of what its owner has replaced when it does. So a table is kept only of a file that
 * nobody but root can have made and can change (unwind_key_of()): it is root's, nobody else may
 * write it, and set-user-ID programs on its mount gain rights, which means that who can put files
 * of root there is root. FUSE, a user's image of a disk and a user's mounts have none of these.
 * Files of other owners are not read by the same decoder (daemon/backend/sample/unwind.c), so it is
 * not taken over by them.
 *
 * Not even such a file can stand for another one, for instance that of a container's root for the
 * host's: the key is the inode, with its size and times, not a name that two can have. Images that
 * are read only may have the same inode with the same times for another file after an upgrade. So
 * the key has the digest of the first page, too; there are the program headers and, as linkers put
 * it, the build id. It has the identity of tracerd-decode, since a newer one may make better
 * tables.
 *
 * What is read is not trusted more than what a decoder has just written: it is checked whole, by
 * the same function. A file that is not what it should be is removed and counted, and its table is
 * made again. Nothing is synced to the disk: what a power cut leaves is found damaged.
 *
 * unwind_cache_get() and unwind_cache_put() are a thread's that may wait for the disk; one call at
 * a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/sha256.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwind_check.h"

struct json_object;
struct stat;
struct unwind_cache;

#define UNWIND_CACHE_MAGIC 0x43545755u /* "UWTC" */
#define UNWIND_CACHE_VERSION 1
#define UNWIND_CACHE_PYTHON_MAX 8192
/* A file whose inode was changed a moment ago may be changed again without another time. */
#define UNWIND_CACHE_REST_S 3

struct unwind_inode {
	uint64_t dev, ino, size, mtime_s, mtime_ns, ctime_s, ctime_ns;
};

/* Of which file; without padding. */
struct unwind_key {
	struct unwind_inode file, maker; /* the decoder is the cache's to fill in */
	uint8_t head[SHA256_BYTES];
};

/*
 * A file of the cache: this, the table (common/bundle/unwind_table.h), and what the decoder says of
 * an interpreter, as JSON.
 */
struct unwind_cache_head {
	uint32_t magic, version;
	uint32_t rules; /* UNWIND_FILE_MAGIC */
	uint32_t python_bytes;
	uint64_t table_bytes;
	struct unwind_key key;
	uint8_t checksum[SHA256_BYTES]; /* of all of the file, this being 0 */
};

/* False: its table is not to be kept. `head`: see image_head(); `now_s` is of CLOCK_REALTIME. */
bool unwind_key_of(const struct stat *st, const uint8_t head[SHA256_BYTES], int64_t now_s,
		   struct unwind_key *ret);
/* Of what the daemon has from the kernel, by all of its bytes. */
void unwind_key_of_bytes(const void *data, size_t len, struct unwind_key *ret);

/* `maker`: the path of the decoder. Nothing is touched until the first get. */
int unwind_cache_new(const char *state_dir, uint64_t max_bytes, const char *maker,
		     struct unwind_cache **ret) _must_check_;
struct unwind_cache *unwind_cache_free(struct unwind_cache *c);

struct unwind_cached {
	uint8_t *data; /* owned; `table` points into it */
	bool none; /* the file tells nothing: there is no table */
	struct unwind_checked table;
	struct python_object python;
};
/* 0; -ENOENT: there is none, or one that was damaged and is gone; -ENOMEM, -errno. */
int unwind_cache_get(struct unwind_cache *c, const struct unwind_key *key,
		     struct unwind_cached *ret) _must_check_;
void unwind_cached_fini(struct unwind_cached *cached);
/*
 * The least recently used make room. `table` has passed unwind_check(); of no bytes: the file tells
 * nothing, which is kept, too. `python` may be NULL: there is none. What cannot be kept is counted.
 */
void unwind_cache_put(struct unwind_cache *c, const struct unwind_key *key, const void *table,
		      size_t bytes, const char *python);

/* Any thread. */
void unwind_cache_status(const struct unwind_cache *c, struct json_object *status);
