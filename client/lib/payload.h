/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a payload while it is put together on the stack: one field after the other. Must not know
 * whether they are arguments or a log's values.
 *
 * If not all texts fit, the short ones stay whole and the long ones are cut to one length
 * (payload_level()).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/threadring.h"

#pragma GCC visibility push(hidden)

struct payload {
	uint32_t used; /* at most RING_PAYLOAD_MAX */
	bool cut;      /* a text was cut, or a field found no room */
	uint8_t bytes[RING_PAYLOAD_MAX] __attribute__((aligned(8)));
};

/* The bytes that a text of this length takes after its head. */
static inline size_t payload_padded(size_t bytes)
{
	return (bytes + 3) & ~(size_t)3;
}

/* A field of 8 bytes; false, and `cut`, if there is no room. */
bool payload_number(struct payload *p, tracerd_name name, enum ring_field_type type, uint64_t bits);

/* A field with a text, or as much of it as fits in `room` bytes (and in the payload). */
bool payload_text(struct payload *p, tracerd_name name, const void *bytes, size_t length,
		  size_t room);

/* The length of each text. More texts than this never fit. */
#define PAYLOAD_TEXTS_MAX (RING_PAYLOAD_MAX / sizeof(struct ring_field))
struct payload_texts {
	size_t n;
	uint16_t wants[PAYLOAD_TEXTS_MAX];
};
void payload_texts_add(struct payload_texts *t, size_t length);

/*
 * The greatest length to which all texts must be cut so that they take at most `left` bytes
 * together.
 */
size_t payload_level(const struct payload_texts *t, size_t left);

/* Zeroes the rest of the last continuation slot; returns the number of slots. */
uint32_t payload_finish(struct payload *p);

/* The arguments of an event, as many as fit. */
void payload_args(struct payload *p, const tracerd_arg *args, size_t n_args);

/* The first slot of a record. */
struct record {
	uint32_t kind;
	tracerd_name name;
	uint64_t stamp, a, b;
	bool own_id; /* sets `a` to the id that is made from the record's place */
};

/* Writes the record with its payload, and counts it if something of it was cut. */
void payload_record(const struct ring *ring, struct payload *p, struct record *record);

#pragma GCC visibility pop
