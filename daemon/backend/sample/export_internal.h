/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the export share: what is frozen of a target's rings, and the file that records
 * go to.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hashmap.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/exported_functions.h"
#include "daemon/backend/sample/kept.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"

struct blocked;
struct clocks;
struct perfdata_writer;
struct record_view;

/* No id of the kernel's, and none of the side-band log's. */
#define EVENT_ID(source, event) \
	(0x4000000000000010ULL + (uint64_t)(source) * 16 + (uint64_t)(event))

/* frozen->recording, or frozen->beside. */
struct export {
	struct source sources[SOURCES_MAX]; /* the groups are borrowed of `aside` */
	size_t n_sources;
	struct aside *aside; /* until resume */
	struct ring_state { /* written by the copy, read after it */
		int cpu;
		uint64_t oldest_ns; /* of what was in it; 0: nothing */
		bool wrapped;       /* there had been more */
		/* since then it has all of the target's; 0: it has lost nothing */
		uint64_t complete_ns;
	} *rings;
	size_t n_rings;
	struct outage {
		int cpu;
		uint64_t from_ns, to_ns;
	} outages[SAMPLER_OUTAGES_MAX]; /* when what ran on a CPU was not recorded */
	size_t n_outages;
	uint64_t complete_ns; /* since then nothing of the target is missing */
	struct blocked *blocked; /* at the freeze; NULL: there are none */
	bool blocked_asked;	 /* there might be */
	bool blocked_came;	 /* in time */
	struct blocked *since;	 /* when it was armed; NULL: there are none */
	struct hashmap seen;	 /* the newest record of each thread */
	uint64_t n_blocked;	 /* written, of both */
	struct kept kept;	 /* stacks of waits that go on */
	bool kept_taken;
	uint64_t n_kept;	 /* written */
	struct unwind_doubts doubts;
	uint64_t n_doubted; /* stacks that are not believed */
	struct exported_functions functions;
	struct clocks *clocks; /* owned: as of the freeze */
	size_t clocks_segment;
};

static inline struct export *export_of(const struct frozen *frozen)
{
	return frozen->backend == &backend_sample ? frozen->recording : frozen->beside;
}

/* Records on their way to the file. */
struct export_out {
	struct perfdata_writer *writer;
	uint8_t *buf; /* owned */
	size_t used;
	/*
	 * the record of a goroutine that was the last one of the ring; held_size 0: there is none
	 */
	_Alignas(8) uint8_t held[256];
	size_t held_size;
	uint32_t held_tid;
};

int export_record(struct export_out *out, const void *record, size_t size) _must_check_;
int export_flush(struct export_out *out) _must_check_;

/* ---- export_goroutines.c: what goroutine a record is of */

/* The record tells of a goroutine: it is kept until the next one. False: it is something else. */
bool export_hold_goroutine(struct export_out *out, const struct record_view *view,
			   enum group_event event);
/*
 * Writes what is kept if the record that is to be written next is what it tells of; `layout` is
 * that of GROUP_PLAIN. 0 or -errno.
 */
int export_goroutine(struct export_out *out, const struct record_layout *layout,
		     const struct record_view *shows, enum group_event event) _must_check_;

/* ---- export_waits.c: who waits at the freeze */

/* Notes the addresses of the kernel in a record of a wait, for their names. 0 or -ENOMEM. */
int export_see_kernel(struct frozen *frozen, const struct record_view *view) _must_check_;
/*
 * Turns the record of a wait that ends behind the freeze, and has its stack, into one that the
 * thread is still in it.
 */
void export_still_waits(const struct frozen *frozen, struct record_view *view);
/* Writes the stacks of waits that go on, when the rings have been copied. 0 or -errno. */
int export_waits(struct frozen *frozen, struct export_out *out) _must_check_;
