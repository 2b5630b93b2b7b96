/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns which ring a thread writes to: claims one at the thread's first event, by one compare-and-swap in the
 * directory. Must not know what is written, but for the record RING_THREAD that begins a thread's stay.
 *
 * The thread's own ring of before comes first (a signal handler may interrupt a claim, make one itself, and even
 * leave by longjmp()), then a ring that nobody had, then one whose thread has ended. Nothing is done when a thread ends:
 * its last events stay readable until somebody needs the ring. A thread that finds none loses its events, which is
 * counted, and tries again ever more rarely.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/lib/ringmem.h"
#include "client/lib/state.h"

#pragma GCC visibility push(hidden)

/* Few bytes: libraries that are loaded late share a small reserve of such memory. */
struct threadring {
	const struct ring *ring; /* before epoch */
	uint32_t epoch;	 /* ringmem.epoch of its memory; THREADRING_NONE */
	uint32_t missed; /* events since the search for a ring failed first */
};
#define THREADRING_NONE UINT32_MAX

extern __thread struct threadring threadring_here __attribute__((tls_model("initial-exec")));

/* When there is no ring, or another memory now. NULL: off, or no ring; the latter is counted. */
const struct ring *threadring_slow(void);

/* The calling thread's ring if it has one and events are on, else NULL. */
static inline const struct ring *threadring_have(void)
{
	/* While off, the switch is 0, which no epoch is: also in a child that inherited the ring. */
	if (__builtin_expect(__atomic_load_n(&threadring_here.epoch, __ATOMIC_RELAXED) != state_on(), 0))
		return NULL;
	/* A signal handler may have claimed it just now. */
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	return threadring_here.ring;
}

/* The same, and claims one; NULL: the event is not to be written. */
static inline const struct ring *threadring_get(void)
{
	const struct ring *ring = threadring_have();

	return __builtin_expect(ring != NULL, 1) ? ring : threadring_slow();
}

#pragma GCC visibility pop
