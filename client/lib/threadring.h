/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns which ring a thread writes to: the thread claims one at its first event, by one
 * compare-and-swap in the directory. Must not know what is written, except the record RING_THREAD,
 * which is a thread's first.
 *
 * A thread takes the ring that it has claimed before, if there is one: a signal handler may
 * interrupt a claim, make one itself, and even leave by longjmp(). Else it takes a ring that no
 * thread has had, else one whose thread has ended. Nothing happens when a thread ends: its last
 * events stay readable until another thread needs the ring. A thread that finds no ring loses its
 * events, which are counted, and tries again at growing intervals.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/lib/ringmem.h"
#include "client/lib/state.h"

#pragma GCC visibility push(hidden)

/* It must be small: libraries that are loaded late share a small reserve of thread-local memory. */
struct threadring {
	const struct ring *ring; /* before epoch */
	uint32_t epoch;	 /* ringmem.epoch of its memory; THREADRING_NONE */
	uint32_t missed; /* events since the first search for a ring that failed */
};
#define THREADRING_NONE UINT32_MAX

extern __thread struct threadring threadring_here __attribute__((tls_model("initial-exec")));

/*
 * Called if the thread has no ring, or the memory has changed. NULL: events are off, or there is no
 * ring, which is counted.
 */
const struct ring *threadring_slow(void);

/* The calling thread's ring if it has one and events are on, else NULL. */
static inline const struct ring *threadring_have(void)
{
	/*
	 * While off, the switch is 0, and no epoch is 0: this holds in a child that inherited the
	 * ring, too.
	 */
	if (__builtin_expect(__atomic_load_n(&threadring_here.epoch, __ATOMIC_RELAXED) !=
				     state_on(),
			     0))
		return NULL;
	/* A signal handler may have claimed it just now. */
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	return threadring_here.ring;
}

/* The same, but claims a ring if the thread has none. NULL: do not write the event. */
static inline const struct ring *threadring_get(void)
{
	const struct ring *ring = threadring_have();

	return __builtin_expect(ring != NULL, 1) ? ring : threadring_slow();
}

/*
 * For the end of what began while events were on. It may come after tracerd_stop(), and without it
 * the region or the task would look open for ever, with all later ones inside. The memory is gone
 * in a forked child, and another one after tracerd_start() with other options: then NULL.
 */
static inline const struct ring *threadring_to_end(void)
{
	const struct ring *ring = threadring_get();
	const struct ringmem *mem;

	if (ring || state_on())
		return ring;
	mem = state_mem();
	if (!mem || threadring_here.epoch != mem->epoch)
		return NULL;
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	return threadring_here.ring;
}

#pragma GCC visibility pop
