/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of code by the file that they are of: one that was found in the address space of one
 * process is not looked for again in those of others, wherever the file is mapped there. Owns
 * copies of blocks without their links; must not know where bytes come from.
 *
 * A block is what it is by its file and by how much of that is mapped: the place says both.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/block.h"

struct address_space;
struct block_cache;

struct block_place {
	uint32_t image; /* its id */
	bool is64;
	uint64_t offset;		/* in the file */
	uint64_t map_offset, map_bytes; /* what of the file is mapped around it */
};

/* `max_bytes`: of memory; when they are used up all blocks are forgotten. 0 or -ENOMEM. */
int block_cache_new(size_t max_bytes, struct block_cache **ret) _must_check_;
struct block_cache *block_cache_free(struct block_cache *c);
DEFINE_CLEANUP(struct block_cache *, block_cache_free)

/* Where `ip` is in a file; false: in none. */
bool block_place_at(const struct address_space *s, uint64_t ip, bool is64, struct block_place *ret);

/* The block at the place, as it is at `ip`; false: not known. */
bool block_cache_find(const struct block_cache *c, const struct block_place *p, uint64_t ip,
		      struct codeblock *ret);

/*
 * Keeps one that was found there, if nothing of it is elsewhere, nor where it jumps to. Without
 * memory it does not.
 */
void block_cache_add(struct block_cache *c, const struct block_place *p, const struct codeblock *b);
