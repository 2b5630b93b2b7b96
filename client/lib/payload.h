/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a payload while it is put together, on the stack: fields one after the other, texts cut so that
 * all fields fit. Must not know whether they are arguments or a log's values.
 *
 * Where texts do not fit, the short ones stay whole and the long ones are cut to one length (payload_level()).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/threadring.h"

#pragma GCC visibility push(hidden)

struct payload {
	uint32_t used; /* at most RING_PAYLOAD_MAX */
	bool cut;      /* a text was, or a field found no room */
	uint8_t bytes[RING_PAYLOAD_MAX] __attribute__((aligned(8)));
};

/* What a text of so many bytes takes after its head. */
static inline size_t payload_padded(size_t bytes)
{
	return (bytes + 3) & ~(size_t)3;
}

/* A field of 8 bytes; false, and `cut`, if there is no room. */
bool payload_number(struct payload *p, tracerd_name name, enum ring_field_type type, uint64_t bits);

/* A field with a text, or as much of it as fits in `room` bytes (and in the payload). */
bool payload_text(struct payload *p, tracerd_name name, const void *bytes, size_t length, size_t room);

/* How many bytes each of some texts wants. More than these find no room, whatever they are. */
#define PAYLOAD_TEXTS_MAX (RING_PAYLOAD_MAX / sizeof(struct ring_field))
struct payload_texts {
	size_t n;
	uint16_t wants[PAYLOAD_TEXTS_MAX];
};
void payload_texts_add(struct payload_texts *t, size_t length);

/* How long a text may be, so that all of them together take at most `left` bytes. */
size_t payload_level(const struct payload_texts *t, size_t left);

/* Zeroes what is left of the last continuation slot; returns how many slots there are. */
uint32_t payload_finish(struct payload *p);

/* The arguments of an event, as many as fit. */
void payload_args(struct payload *p, const tracerd_arg *args, size_t n_args);

/* The first slot of a record. */
struct record {
	uint32_t kind;
	tracerd_name name;
	uint64_t stamp, a, b;
	bool own_id; /* `a` is to be the id made from the record's place, and is set to it */
};

/* Writes the record with its payload, and counts it if something was cut. */
void payload_record(const struct ring *ring, struct payload *p, struct record *record);

#pragma GCC visibility pop
