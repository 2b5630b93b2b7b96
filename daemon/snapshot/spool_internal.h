/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the spool share: the list (spool.c), removal (removal.c), room for more
 * (room.c) and the rule of retention (retention.c). Nobody else includes this.
 */
#pragma once

#include "daemon/snapshot/spool.h"

#define SPOOL_REMOVED_PREFIX ".removed-"
#define SPOOL_STATE(x) (1U << (x)) /* of sets of states */

struct spool {
	int lock_fd; /* one daemon a spool */
	int dir_fd;
	struct spool_limits limits;
	struct quota *quota; /* not owned */
	struct spool_item **items; /* oldest first, removed ones that are still on the disk too */
	size_t n_items, size_items;
	size_t n_reserved; /* places in `items` that are promised */
	spool_removed_fn removed;
	void *removed_arg;
};

/* spool.c */
struct spool_item *spool_find_item(const struct spool *s, const char *id); /* a kept one */
uint64_t spool_sum_bytes(const struct spool *s, unsigned states);
void spool_item_set_bytes(struct spool_item *item, uint64_t bytes);
/* Its tree is gone: frees the item. */
void spool_drop(struct spool *s, struct spool_item *item);

/* retention.c */
/* Root and the daemon's own user have only the limits of the whole. */
bool spool_is_exempt(const struct spool_limits *limits, uid_t uid);
/* With `incoming` more bytes the file system would have less free than it shall keep. */
bool spool_short_of_disk(const struct spool_limits *limits, const struct spool_usage *usage,
			 uint64_t incoming);
