/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a program's event rings in a bundle, rings/PID-START.ring: what the daemon writes
 * (daemon/producer/ring_copy.c), and only the decoder interprets (decode/rings/file.c). Little
 * endian.
 *
 *	0               struct ringfile_header
 *	                struct ringfile_ring [n_rings]: the rings that were ever used
 *	shared_offset   the memfd's bytes [0, data_offset): header, causes, names, directory
 *	each .offset    that ring's slots, whole, as they lay in the memfd (position 0 first)
 *
 * The shared part is copied after the rings, so that a name that a slot uses is there.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bundle/ringabi.h"

#define RINGFILE_MAGIC "TRCDRCPY"
#define RINGFILE_VERSION 1u

enum ringfile_flags {
	RINGFILE_ENDED = 1 << 0, /* the program had ended, or replaced itself */
	RINGFILE_CUT = 1 << 1,	 /* rings are missing: the bundle's limit of bytes */
};

struct ringfile_header {
	char magic[8];
	uint32_t version;
	uint32_t flags; /* enum ringfile_flags */
	uint32_t pid;	/* of the producer, as the daemon sees it */
	uint32_t nspid; /* as it sees itself */
	uint64_t start_time; /* of the process: field 22 of /proc/PID/stat */
	/* geometry, checked when it registered: the shared part may say something else by now */
	uint32_t clock, rings, slots, names_max, text_bytes, n_rings;
	/* the copy's begin and end, on both clocks */
	uint64_t begin_tsc, begin_raw_ns, end_tsc, end_raw_ns;
	uint64_t shared_offset, shared_bytes;
	uint64_t reserved[4];
};
static_assert(sizeof(struct ringfile_header) == 136, "ringfile_header");

struct ringfile_ring {
	uint32_t ring; /* its number in the memfd */
	uint32_t host_tid; /* of the writer at the copy, as the daemon sees it; 0: not known */
	uint64_t head_before, head_after;
	uint64_t offset, bytes; /* in this file */
};
static_assert(sizeof(struct ringfile_ring) == 40, "ringfile_ring");
