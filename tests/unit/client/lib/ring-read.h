/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads ring memory back as the ABI (common/bundle/ringabi.h) says, for the tests of those who
 * write it. It shares nothing with the library and the decoder but that header, and asserts where
 * they would count.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

struct ringread {
	struct ring_header header;
	struct ring_geometry geometry;
	uint8_t *bytes; /* all of it */
};

/* A copy by pread(); it fails the test if it is no ring memory. */
struct ringread *ringread_new(int fd);
struct ringread *ringread_free(struct ringread *r);
DEFINE_CLEANUP(struct ringread *, ringread_free)

const struct ring_entry *ringread_entry(const struct ringread *r, uint32_t ring);
const struct ring_slot *ringread_slot(const struct ringread *r, uint32_t ring, uint64_t index);

/* The ring whose present or last writer is that thread; it fails the test if there is none. */
uint32_t ringread_of_thread(const struct ringread *r, uint32_t tid);

struct ringread_record {
	uint32_t kind, flags, span, name;
	uint64_t stamp, a, b;
	uint8_t payload[RING_PAYLOAD_MAX];
	size_t n; /* bytes of payload: all of its slots */
	size_t at; /* for ringread_field() */
};

/*
 * The record that begins at that slot; false if its slots are not all whole. *ret_next: where the
 * next begins.
 */
bool ringread_record(const struct ringread *r, uint32_t ring, uint64_t index,
		     struct ringread_record *ret, uint64_t *ret_next);

/* The next field of the payload and where its value is; false at the end. */
bool ringread_field(struct ringread_record *record, struct ring_field *ret,
		    const uint8_t **ret_value);

/* A name as text (up to 1024 bytes), valid until the next call; NULL: it cannot be read. */
const char *ringread_name(const struct ringread *r, uint32_t name);
