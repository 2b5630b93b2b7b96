/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the thresholds: the last contents of the daemon's control page, and how long regions of each name may take.
 * Must not know what happens when one takes longer (cause.c).
 *
 * The table is written by one thread and read by any, between two readings of its sequence. A name
 * is bound when it is made, and again by thresholds_bind(); whoever binds looks afterwards whether the table has
 * changed, so that what remains is never older than the table.
 */
#pragma once

#include <stdint.h>

#include "client/lib/eventlib.h"

#pragma GCC visibility push(hidden)

/* By number of name - 1: the complement of the ticks, so that zeroed memory is "none". */
extern uint64_t thresholds_not[RING_MAX_NAMES];

/* How long a region of that name may take: longer or just as long is a cause. `name` is in range. */
static inline uint64_t threshold_ticks(tracerd_name name)
{
	return ~__atomic_load_n(&thresholds_not[name - 1], __ATOMIC_RELAXED);
}

/* Binds a name unless that was done. */
void threshold_bind_new(tracerd_name name);

/* In a forked child: no threshold is the child's. The names are bound again by thresholds_bind(). */
void thresholds_forget(void);

/* A region's end found that it took too long: calls cause.c, if that is still so. */
void threshold_crossed(tracerd_name name, uint64_t begin, uint64_t end);

#pragma GCC visibility pop
