/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between the two halves of the event library: the half that writes events (state.c,
 * ringmem.c, name.c, threshold.c, threadring.c, record.c, ...) and the half that talks to the
 * daemon (start.c, registration.c, cause.c, ...). Nothing in here is visible to programs.
 *
 * ---- Fork
 *
 * What must not be used in a forked child hangs on one page that the kernel empties there (MADV_WIPEONFORK), also
 * after _Fork() and a bare clone(): the switch, the memory's address. So events are off in the child at once. The rest of
 * the library's state is reset by process_enter(): from the pthread_atfork() handler where there is one, else
 * by the first call of start.c in the child. It calls start_forked() for the half that talks.
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
 * First in every function that starts, stops or dispatches, before any lock of its own: in a child whose parent
 * used the library, forgets what was the parent's, once. Cheap otherwise.
 */
void process_enter(void);

/* By start.c: one thread is left, and locks may be held by threads that are not there. Must not allocate or free. */
void start_forked(void);

/* The switch. Does nothing while there is no memory. */
void events_enable(bool on);
bool events_enabled(void);

/* Which clock stamps are read from; the same for the life of the process. Set by ringmem_create(). */
enum ring_clock events_clock(void);
uint64_t events_now(void);

/* ---- ringmem.c: the memory. One thread at a time creates */

/*
 * Makes the memory for that many rings, slots (of each) and names, or keeps what there is if it is the same size.
 * Otherwise the old one stays mapped: threads may be in it. 0, -EINVAL, -ENOMEM, -errno.
 */
int ringmem_create(uint32_t rings, uint32_t slots, uint32_t names, enum ring_clock clock) _must_check_;

/* The memfd, which stays ringmem's; -ENOENT: none was made, -EBADF: the program has closed it or put another in its place. */
int ringmem_fd(void);

/* NULL before ringmem_create(), and in a forked child. Never unmapped. The causes begin at RING_CAUSES_OFFSET. */
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

/* Takes over what the daemon's page says (a private copy of it); NULL: nothing is watched. */
void thresholds_bind(const struct ring_control *page);

/* That entry as it is now; false if it is free or is being changed. */
bool threshold_get(uint32_t slot, struct threshold *ret);

/*
 * By cause.c: a region was over the threshold of that entry; its end was recorded. Called on the thread that
 * ended it, perhaps in a signal handler: no lock, no memory, errno is kept by the caller.
 */
void cause_region(tracerd_name name, uint32_t slot, uint64_t begin, uint64_t end);

/* ---- for causes and counters */

/* The mark of a cause in the calling thread's ring: RING_TRIGGER. name and begin are 0 for a request. */
void record_trigger(tracerd_name name, uint64_t begin, uint64_t cause);

struct event_counts {
	uint32_t rings_used;
	uint32_t names;
	uint64_t events_lost, names_lost, texts_cut;
};
void events_count(struct event_counts *ret);

#pragma GCC visibility pop
