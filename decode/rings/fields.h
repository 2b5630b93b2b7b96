/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the payload of a record: a list of typed fields, of which the program wrote every byte.
 * A field that does not hold together ends the list.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bundle/ringabi.h"

struct ringfield {
	uint32_t name;
	enum ring_field_type type; /* not RING_FIELD_END */
	uint64_t value;		   /* of a number: its bits */
	double f64;		   /* of RING_FIELD_F64 */
	const char *text;	   /* bytes, in the payload */
	size_t length;
};

/* Fields that a payload can have: each takes 8 bytes or more. */
#define RINGFIELD_MAX (RING_PAYLOAD_MAX / sizeof(struct ring_field))

static inline bool ringfield_is_integer(const struct ringfield *f)
{
	return f->type == RING_FIELD_U64 || f->type == RING_FIELD_I64 ||
	       f->type == RING_FIELD_POINTER;
}

/* Takes the field at *pos; false at the end, or (and *ret_broken) if there is no whole one. */
bool ringfield_next(const uint8_t *payload, size_t len, size_t *pos, struct ringfield *ret,
		    bool *ret_broken);
