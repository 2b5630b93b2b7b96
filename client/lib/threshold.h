/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the thresholds: the last contents of the daemon's control page, and how long regions of each
 * name may take. Must not know what happens when one takes longer (cause.c).
 *
 * One thread writes the table. Any thread reads it, between two reads of its sequence. A name is
 * bound when it is made, and again by thresholds_bind(). Whoever binds a name checks afterwards
 * whether the table has changed, so the last binding is never older than the table.
 */
#pragma once

#include <stdint.h>

#include "client/lib/eventlib.h"

#pragma GCC visibility push(hidden)

/* Indexed by name - 1. The complement of the ticks, so that zeroed memory means no threshold. */
extern uint64_t thresholds_not[RING_MAX_NAMES];

/* A region of that name that takes so many ticks or more is a cause. `name` must be in range. */
static inline uint64_t threshold_ticks(tracerd_name name)
{
	return ~__atomic_load_n(&thresholds_not[name - 1], __ATOMIC_RELAXED);
}

/* Binds a name that is not bound yet. */
void threshold_bind_new(tracerd_name name);

/* In a forked child: the child has no thresholds. thresholds_bind() binds the names again. */
void thresholds_forget(void);

/*
 * Called when a region took too long: checks that the threshold still is the same, and calls
 * cause.c.
 */
void threshold_crossed(tracerd_name name, uint64_t begin, uint64_t end);

#pragma GCC visibility pop
