/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between the two halves of the event library: the half that writes events (state.c,
 * ringmem.c, name.c, threshold.c, threadring.c, record.c, ...) and the half that talks to the
 * daemon (start.c, registration.c, cause.c, ...). Programs see none of it.
 *
 * ---- Fork
 *
 * The switch and the memory's address are on one page, which the kernel empties in a forked child
 * (MADV_WIPEONFORK), also after _Fork() and a bare clone(). So events are off in the child at once.
 * process_enter() resets the rest of the library's state. The pthread_atfork() handler calls it,
 * and where there is none, the first call of start.c in the child does. It calls start_forked() for
 * the half that talks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"
#include "tracerd.h"

#pragma GCC visibility push(hidden)

/* ---- state.c: the switch and the process */

/*
 * Every function that starts, stops or dispatches calls this first, before it takes a lock. In a
 * child whose parent used the library it forgets the parent's state, once. Otherwise it is cheap.
 */
void process_enter(void);

/*
 * In start.c. Only one thread is left, and threads that do not exist any more may hold locks. Must
 * not allocate or free.
 */
void start_forked(void);

/* The switch. Does nothing while there is no memory. */
void events_enable(bool on);
bool events_enabled(void);

/* The clock of all stamps; it never changes in a process. ringmem_create() sets it. */
enum ring_clock events_clock(void);
uint64_t events_now(void);

/* ---- ringmem.c: the memory. One thread at a time creates */

/*
 * Makes the memory for that many rings, slots of each ring, and names. Keeps the memory that there
 * is if its size is the same; otherwise the old memory stays mapped, since threads may be writing
 * to it. 0, -EINVAL, -ENOMEM, -errno.
 */
int ringmem_create(uint32_t rings, uint32_t slots, uint32_t names,
		   enum ring_clock clock) _must_check_;

/*
 * The memfd; it belongs to ringmem. -ENOENT: there is none; -EBADF: the program has closed it, or
 * opened another file under its number.
 */
int ringmem_fd(void);

/*
 * NULL before ringmem_create(), and in a forked child. Never unmapped. The causes begin at
 * RING_CAUSES_OFFSET.
 */
struct ring_header *ringmem_header(void);

/* ---- threshold.c: which regions are watched. Only the thread that talks to the daemon binds */

/* One entry of the control page with its times in ticks of the clock. */
struct threshold {
	uint32_t id; /* ring_threshold.id */
	uint32_t length;
	uint64_t hash;
	uint64_t over;	   /* ticks; UINT64_MAX: none */
	uint64_t cooldown; /* ticks */
	uint8_t name[RING_CONTROL_NAME];
};

/* Takes the thresholds from a private copy of the daemon's page; NULL: nothing is watched. */
void thresholds_bind(const struct ring_control *page);

/* Copies an entry; false if it is free or is being changed. */
bool threshold_get(uint32_t slot, struct threshold *ret);

/*
 * In cause.c. A region took longer than the threshold of that entry; its end has been recorded.
 * Runs on the thread that ended the region, perhaps in a signal handler: it takes no lock and no
 * memory. The caller preserves errno.
 */
void cause_region(tracerd_name name, uint32_t slot, uint64_t begin, uint64_t end);

/* ---- for causes and counters */

/*
 * Writes the mark of a cause, RING_TRIGGER, to the calling thread's ring. For a request name and
 * begin are 0.
 */
void record_trigger(tracerd_name name, uint64_t begin, uint64_t cause);

struct event_counts {
	uint32_t rings_used;
	uint32_t names;
	uint64_t events_lost, names_lost, texts_cut;
};
void events_count(struct event_counts *ret);

#pragma GCC visibility pop
