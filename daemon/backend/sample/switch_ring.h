/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one ring of struct filter_ring: a group's switches and wake-ups on one CPU that
 * have no stack. A program overwrites it while it is copied: it says how many records it has
 * written, and the count before and after a copy tells which may be torn (the method of
 * daemon/perf/ring.h). Does not know what the records mean.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/filter.h"

struct switch_records {
	struct filter_record *v; /* owned; the oldest first */
	size_t n;
	bool wrapped;	      /* older ones were overwritten */
	uint64_t overwritten; /* during the copy */
};
void switch_records_fini(struct switch_records *records);

struct switch_ring {
	const struct filter_ring *ring; /* borrowed, mapped; NULL: there is none */
	const struct filter_record *records;
	bool is_image;
	struct switch_records image; /* owned: instead of being mapped it is what a ring had once */
};

/* Makes a ring of records, which it takes over. */
void switch_ring_image(struct switch_records *records, struct switch_ring *ret);
/* Of `n` rings. NULL is none. */
void switch_rings_free(struct switch_ring *rings, size_t n);

/* Copies what it holds. Any thread. 0 or -ENOMEM. */
int switch_ring_copy(const struct switch_ring *ring, struct switch_records *ret) _must_check_;
