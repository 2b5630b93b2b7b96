/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes copies of event rings (common/bundle/ringfile.h) for the tests of their reader: writes
 * records as a producer does, slot by slot, and can leave them half-written, overwritten or wrong.
 * It shares nothing with the library and the daemon but the headers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"
#include "common/bundle/ringfile.h"

/* Zero means the default, in brackets. */
struct ringmake_options {
	uint32_t pid, nspid;	       /* [1000, the same] */
	enum ring_clock clock;	       /* [RING_CLOCK_MONOTONIC_RAW] */
	uint32_t rings, slots;	       /* [2, 64] */
	uint32_t names_max, text_bytes; /* [256, a page] */
	uint64_t start_time;	       /* [0] */
	/* the copy on both clocks: [9 s to 10 s, stamps alike; with a TSC, 3 a ns] */
	uint64_t begin_tsc, begin_raw_ns, end_tsc, end_raw_ns;
};

struct ringmake;

struct ringmake *ringmake_new(const struct ringmake_options *options);
struct ringmake *ringmake_free(struct ringmake *m);
DEFINE_CLEANUP(struct ringmake *, ringmake_free)

/* A name's number, a new one where it is not known yet. */
uint32_t ringmake_name(struct ringmake *m, const char *text);
uint32_t ringmake_name_bytes(struct ringmake *m, const void *bytes, size_t len);

/* A payload: zero it, add fields. A field that finds no room is left out. */
struct ringmake_payload {
	uint8_t bytes[RING_PAYLOAD_MAX];
	size_t n;
};
void ringmake_field(struct ringmake_payload *p, uint32_t name, uint16_t type, const void *value,
		    size_t bytes);
void ringmake_u64(struct ringmake_payload *p, uint32_t name, uint64_t value);
void ringmake_i64(struct ringmake_payload *p, uint32_t name, int64_t value);
void ringmake_f64(struct ringmake_payload *p, uint32_t name, double value);
void ringmake_text(struct ringmake_payload *p, uint32_t name, const char *text);

/*
 * Writes any record; `kind` with its flags, `p` may be NULL. Returns the number of its first slot.
 */
uint64_t ringmake_record(struct ringmake *m, uint32_t ring, uint16_t kind, uint64_t stamp,
			 uint32_t name, uint64_t a, uint64_t b, const struct ringmake_payload *p);

/* The usual ones. A thread takes the ring over from the last one. */
uint64_t ringmake_thread(struct ringmake *m, uint32_t ring, uint64_t stamp, uint32_t tid,
			 const char *name);
uint64_t ringmake_fiber(struct ringmake *m, uint32_t ring, uint64_t stamp, uint64_t id,
			const char *name);
uint64_t ringmake_begin(struct ringmake *m, uint32_t ring, uint64_t stamp, const char *name);
uint64_t ringmake_end(struct ringmake *m, uint32_t ring, uint64_t stamp, const char *name,
		      uint64_t begun);

/* The slot with that number, as long as it is in the ring: to damage it. */
struct ring_slot *ringmake_slot(struct ringmake *m, uint32_t ring, uint64_t index);
/* As its writer leaves a slot that it reserved and did not finish. */
void ringmake_tear(struct ringmake *m, uint32_t ring, uint64_t index);

/* What the copy will say, to be changed at will. Rings without records are not in it. */
struct ringfile_header *ringmake_header(struct ringmake *m);
struct ringfile_ring *ringmake_ring(struct ringmake *m, uint32_t ring);
struct ring_header *ringmake_program(struct ringmake *m);
struct ring_entry *ringmake_entry(struct ringmake *m, uint32_t ring);

/* The copy: its bytes (to be freed), or as a new memfd; -1: no memory. */
uint8_t *ringmake_bytes(struct ringmake *m, size_t *ret_len);
int ringmake_file(struct ringmake *m);
