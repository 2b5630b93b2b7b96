/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of one thread in a generation, as the thread has written them; the next of them is
 * read ahead. It does not know what an event means.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/go/generation.h"
#include "decode/go/order.h"

struct gocursor {
	const uint8_t *p, *end; /* of the chunk */
	uint32_t next;		/* chunk, index + 1; 0: there is no more */
	/* times: of the chunk, and of the event before; 0: that of the chunk */
	uint64_t base, last;
	struct goraw_event ev;
};

enum gocursor_answer {
	GOCURSOR_END,
	GOCURSOR_EVENT,	 /* in `ev` */
	GOCURSOR_BROKEN, /* the reason is in `why` */
};

static inline void gocursor_init(struct gocursor *c, const struct gothread *t)
{
	*c = (struct gocursor){.next = t->first, .ev.m = t->m};
}

/* The next event; enum gocursor_answer. */
int gocursor_next(struct gocursor *c, const struct gogeneration *g, char *why,
		  size_t size) _must_check_;
