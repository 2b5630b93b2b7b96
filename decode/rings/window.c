// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/window.h"

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void ringwindow_init(struct ringwindow *w, const struct ringfile *f, uint32_t ring)
{
	const struct ringfile_ring *r = ringfile_ring(f, ring);
	const uint32_t slots = ringfile_header(f)->slots;
	const uint64_t kept = slots - RING_SPAN_MAX;
	uint64_t oldest = minus(r->head_before, slots);

	/* While this was copied the writer may have been in the slots that come next. */
	if (minus(r->head_after, kept) > oldest)
		oldest = minus(r->head_after, kept);
	if (oldest > r->head_before)
		oldest = r->head_before;
	*w = (struct ringwindow){.f = f,
		.ring = ring,
		.slots = slots,
		.next = oldest,
		.end = r->head_before,
		.broken = oldest > 0,
		.overwritten = oldest};
}

static bool slot_finished(const struct ringwindow *w, uint64_t index, struct ring_slot *ret)
{
	ringfile_slot(w->f, w->ring, index, ret);
	return ret->sequence == ring_sequence(index, w->slots);
}

/* How many of the slots from `index` on continue a record, `span` at most. */
static uint32_t count_continuation(const struct ringwindow *w, uint64_t index, uint32_t span)
{
	struct ring_slot s;
	uint32_t n = 0;

	while (n < span && index + n < w->end && slot_finished(w, index + n, &s) &&
		(s.kind & RING_KIND_MASK) == RING_CONT)
		n++;
	return n;
}

bool ringwindow_next(struct ringwindow *w, struct ringwindow_record *ret)
{
	while (w->next < w->end) {
		const uint64_t index = w->next++;
		struct ring_slot s;
		uint32_t kind, span, there;

		if (!slot_finished(w, index, &s)) {
			w->torn++;
			w->broken = true;
			continue;
		}
		kind = s.kind & RING_KIND_MASK;
		span = s.kind >> RING_SPAN_SHIFT;
		if (kind == RING_CONT) {
			/* the rest of a record whose beginning is not here */
			if (!w->broken)
				w->malformed++;
			else if (w->overwritten && w->torn + w->malformed == 0)
				w->overwritten++;
			continue;
		}
		w->broken = true;
		if (kind == 0 || kind >= _RING_KIND_MAX || span > RING_SPAN_MAX) {
			w->malformed++;
			continue;
		}
		there = count_continuation(w, index + 1, span);
		if (there < span) {
			/* What is there of it is passed over with it. */
			w->torn++;
			w->next += there;
			continue;
		}
		w->broken = false;
		w->next += span;
		*ret = (struct ringwindow_record){.slot = s,
						  .index = index,
						  .span = span,
						  .kind = (uint8_t)kind};
		return true;
	}
	return false;
}
