/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One perf record in private memory: where its fields are, by the attribute of its event, and how
 * to mask what a reader may not see. Checks each length against the record's own size before it
 * follows it; reads nothing past the record.
 *
 * Does not know rings or targets.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/schedev.h"

#define RECORD_MAX_BYTES 65536u

/* How the samples of one event are laid out. */
struct record_layout {
	uint64_t sample_type; /* holds PERFABI_SAMPLE_ID_TYPE */
	uint64_t regs_user;   /* mask */
};

/* Pointers into the record; NULL where it has no such field. */
struct record_view {
	struct perf_event_header *header;
	uint64_t id, time;
	uint32_t *pid, *tid; /* of the sample; of records that are no samples: in the trailer */
	uint32_t cpu;
	uint64_t *ip;
	uint64_t *chain; /* n_chain entries */
	uint64_t n_chain;
	void *raw;
	uint32_t raw_size;
	uint64_t *regs_abi; /* followed by the registers unless it is 0 */
	uint64_t *stack_size; /* followed by the bytes, then by the size that counts */
};

/* Whether `size` bytes at `p` begin with a plausible header of a whole record. */
bool record_header_ok(const void *p, size_t size);

/*
 * The id of the event that wrote the record: all our events have PERF_SAMPLE_IDENTIFIER and
 * sample_id_all, so it is at a fixed place. The header must have been checked. 0 or -EBADMSG.
 */
int record_id(const void *record, uint64_t *ret) _must_check_;

/* 0, or -EBADMSG for a record that contradicts its layout. */
int record_parse(void *record, const struct record_layout *layout,
		 struct record_view *ret) _must_check_;

/*
 * The payload of a "sched" sample: false if it is none. By copy, since it is aligned to 4 only;
 * record_sched_put() writes a changed one back, and clears what the kernel left unwritten behind
 * it, unless it has Python's part of the stack there.
 */
bool record_sched(const struct record_view *view, struct tracerd_sched_event *ret);
void record_sched_put(struct record_view *view, const struct tracerd_sched_event *ev);

void record_set_time(struct record_view *view, uint64_t time_ns);

/*
 * Clears what the kernel reserved for the copy of the stack and did not fill. A ring is shared by
 * the targets of all users: these bytes are what an older record had there, and may be of somebody
 * else's stack.
 */
void record_clear_unwritten(struct record_view *view);

/*
 * Masking, in place. record_mask_kernel() takes the kernel's part out of the call chain and makes
 * the record as much shorter, so that not even the depth is told; other pointers into the record
 * are stale afterwards, those in `view` are not. record_drop_stack() empties the call chain to
 * `n_chain` context markers, forgets the registers, the stack bytes and what is Python's.
 */
void record_mask_kernel(struct record_view *view);
void record_drop_stack(struct record_view *view);
