/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cursors, that of the earliest event first: a heap. Where times are the same it has the order that
 * the heap of Go's reader has, so each step here is a step there.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/go/cursor.h"

struct gofrontier {
	struct budget *budget;
	/* `time` is that of the cursor's event, so that the heap need not look at cursors */
	struct goplace {
		int64_t time;
		struct gocursor *cursor;
	} *heap, *sorted;
	uint32_t n, max;
};

void gofrontier_fini(struct gofrontier *f);
/* Empty, with room for `n` cursors. 0 or -ENOMEM. */
int gofrontier_reset(struct gofrontier *f, uint32_t n) _must_check_;

/* Of as many as it was reset for. */
void gofrontier_add(struct gofrontier *f, struct gocursor *c);
/* The cursor at heap[i] has no more events. */
void gofrontier_remove(struct gofrontier *f, uint32_t i);
/* All by their times, so that it is a heap still; stable. */
void gofrontier_sort(struct gofrontier *f);

/* Towards the first, or away from it, as far as its time says; up: where it is then. */
uint32_t goplace_up(struct goplace *h, uint32_t i);

static inline void goplace_down(struct goplace *h, size_t n, size_t i)
{
	const struct goplace p = h[i];
	size_t least;

	for (; (least = 2 * i + 1) < n; i = least) {
		if (least + 1 < n)
			least += h[least].time > h[least + 1].time;
		if (h[least].time >= p.time)
			break;
		h[i] = h[least];
	}
	h[i] = p;
}

/* The cursor at heap[i] has its next event. */
static inline void gofrontier_moved(struct gofrontier *f, uint32_t i)
{
	f->heap[i].time = (int64_t)f->heap[i].cursor->ev.time;
	if (i == 0 || goplace_up(f->heap, i) == i)
		goplace_down(f->heap, f->n, i);
}
