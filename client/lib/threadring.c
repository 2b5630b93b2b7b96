// SPDX-License-Identifier: Apache-2.0
#include "client/lib/threadring.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/lib/name.h"
#include "client/lib/record.h"
#include "client/lib/ringmem.h"

#define PROBES 32u	/* threads that one search checks, with one system call each */
#define RETRY_EVERY 1024u /* events, once the pauses have grown */

__thread struct threadring threadring_here
	__attribute__((tls_model("initial-exec"))) = {.epoch = THREADRING_NONE};

/* A ring's owner in one word: the thread id, and in the upper half the number of claims. */
static ring_word *owner_word(struct ring_entry *entry)
{
	return (ring_word *)(void *)&entry->tid;
}

/* The number of claims makes each owner unique, even if a thread id is reused. */
static bool owner_change(struct ring_entry *entry, uint64_t *old, uint32_t tid)
{
	uint64_t new = ((*old >> 32) + 1) << 32 | tid;

	if (!__atomic_compare_exchange_n(owner_word(entry), old, new, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return false;
	*old = new;
	return true;
}

static tracerd_name kernel_name(void)
{
	char comm[17] = {0};

	return prctl(PR_GET_NAME, comm) == 0 ? tracerd_intern(comm) : 0;
}

/*
 * Takes a ring for this thread. RING_THREAD is written first, before anything that a signal handler
 * can write.
 */
static void ring_begin(const struct ringmem *mem, const struct ring *ring, uint32_t tid,
		       uint32_t previous)
{
	tracerd_name name = kernel_name();
	uint64_t now = stamp_now();

	ring->entry->name = name;
	ring->entry->fiber = 0;
	ring->entry->claimed = now;
	record_one(ring, RING_THREAD, now, name, tid, previous);
	threadring_here.missed = 0;
	threadring_here.ring = ring;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	threadring_here.epoch = mem->epoch;
}

/*
 * Claims the ring if its owner still is `old`. A signal handler may have made a claim in the
 * meantime: then that claim counts, and this ring is given back.
 */
static bool ring_take(struct ringmem *mem, const struct ring *ring, uint64_t old, uint32_t tid)
{
	uint32_t previous = (uint32_t)old;

	if (!owner_change(ring->entry, &old, tid))
		return false;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (threadring_here.epoch == mem->epoch) {
		if (threadring_here.ring != ring)
			(void)owner_change(ring->entry, &old, previous);
		return true;
	}
	if (previous == 0)
		(void)__atomic_fetch_add(&mem->used, 1, __ATOMIC_RELAXED);
	ring_begin(mem, ring, tid, previous);
	return true;
}

/* The thread's own ring, or the first that no thread has had. */
static bool claim_fresh(struct ringmem *mem, uint32_t tid)
{
	for (uint32_t i = 0; i < mem->geometry.rings; i++) {
		const struct ring *ring = &mem->rings[i];
		uint64_t owner = __atomic_load_n(owner_word(ring->entry), __ATOMIC_ACQUIRE);

		if (((uint32_t)owner == tid || (uint32_t)owner == 0) &&
		    ring_take(mem, ring, owner, tid))
			return true;
	}
	return false;
}

/*
 * A ring whose thread has ended. The search begins where the last one stopped, so that the oldest
 * come first.
 */
static bool claim_ended(struct ringmem *mem, uint32_t tid)
{
	uint32_t probes = mem->geometry.rings < PROBES ? mem->geometry.rings : PROBES;

	while (probes--) {
		uint32_t i =
			__atomic_fetch_add(&mem->cursor, 1, __ATOMIC_RELAXED) % mem->geometry.rings;
		const struct ring *ring = &mem->rings[i];
		uint64_t owner = __atomic_load_n(owner_word(ring->entry), __ATOMIC_ACQUIRE);

		if (syscall(SYS_tgkill, mem->pid, (pid_t)(uint32_t)owner, 0) < 0 &&
		    errno == ESRCH && ring_take(mem, ring, owner, tid))
			return true;
	}
	return false;
}

const struct ring *threadring_slow(void)
{
	struct threadring *here = &threadring_here;
	struct ringmem *mem = state_mem();
	int saved = errno;
	uint32_t tid;

	if (!state_on() || !mem)
		return NULL;
	/* The switch does not have the epoch of the newest memory yet. */
	if (here->epoch == mem->epoch)
		return here->ring;
	/*
	 * Searches at the 1st, 2nd, 4th, 8th, ... event, and later at a fixed interval of events.
	 */
	if ((here->missed & (here->missed - 1)) == 0 || here->missed % RETRY_EVERY == 0) {
		tid = (uint32_t)syscall(SYS_gettid);
		if (claim_fresh(mem, tid) || claim_ended(mem, tid)) {
			errno = saved;
			return here->ring;
		}
		errno = saved;
	}
	here->missed++;
	mem_count(&mem_header(mem)->lost_events);
	return NULL;
}
