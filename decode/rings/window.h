/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the records of one copied ring, oldest first: takes the slots that nobody can have written
 * while they were copied, those whose sequence says that they were finished, and of those the
 * ones that make whole records. Whatever the bytes are, each slot is looked at twice at most.
 *
 * It refuses to know what a record means.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/rings/file.h"

struct ringwindow {
	const struct ringfile *f; /* borrowed */
	uint32_t ring;		  /* of the file */
	uint32_t slots;
	uint64_t next, end; /* counted since the ring was made */
	bool broken;	    /* what came just before was no whole record */
	/* slots: that are not in the window; unfinished; that make no sense */
	uint64_t overwritten, torn, malformed;
};

struct ringwindow_record {
	/* of a kind below _RING_KIND_MAX, not RING_CONT; the rest any numbers */
	struct ring_slot slot;
	uint64_t index;	       /* of the slot, since the ring was made */
	uint32_t span;	       /* continuation slots that follow, at most RING_SPAN_MAX */
	uint8_t kind;	       /* enum ring_kind */
};

void ringwindow_init(struct ringwindow *w, const struct ringfile *f, uint32_t ring);
bool ringwindow_next(struct ringwindow *w, struct ringwindow_record *ret);
