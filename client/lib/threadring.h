/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns which ring a thread writes to: claims one at the thread's first event, by one compare-and-swap in the
 * directory. Refuses to know what is written, but for the record RING_THREAD that begins a thread's stay.
 *
 * The thread's own ring of before comes first (a signal handler may interrupt a claim, make one itself, and even
 * leave by longjmp()), then a ring that nobody had, then one whose thread has ended. Nothing is done when a thread ends:
 * its last events stay readable until somebody needs the ring. A thread that finds none loses its events, which is
 * counted, and tries again ever more rarely.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/lib/eventlib.h"
#include "client/lib/state.h"

#pragma GCC visibility push(hidden)

/* All that writing an event takes, private to the thread: no word in the shared memory leads anywhere. */
struct threadring {
	struct ring_entry *entry;
	struct ring_slot *slots;
	uint32_t epoch; /* ringmem.epoch of their memory; THREADRING_NONE */
	uint32_t mask;	/* slots - 1 */
	uint16_t shift; /* log2(slots) */
	uint16_t number; /* of the ring in the memory */
	uint32_t missed; /* events since the search for a ring failed first */
};
#define THREADRING_NONE UINT32_MAX

/* Few bytes: libraries that are loaded late share a small reserve of such memory. */
extern __thread struct threadring threadring_here __attribute__((tls_model("initial-exec")));

/* When there is no ring, or another memory now. NULL: off, or no ring; the latter is counted. */
struct threadring *threadring_slow(void);

/* The calling thread's ring; NULL: the event is not to be written. */
static inline struct threadring *threadring_get(void)
{
	struct threadring *t = &threadring_here;

	/* While off, the switch is 0, which no epoch is: also in a child that inherited the ring. */
	if (__builtin_expect(t->epoch == state_on(), 1))
		return t;
	return threadring_slow();
}

#pragma GCC visibility pop
