// SPDX-License-Identifier: GPL-2.0
/*
 * The AUX area of the event that runs. What a processor does with its table of physical addresses
 * (ToPA) and an interrupt at the end of a region, this does at the edge of an instruction: there the
 * output is closed, so that the reader hears of it, and opened again.
 */
#include <linux/slab.h>

#include "aux_ring.h"

/* What may be written between two looks at the limit: PSB+ and the packets of one instruction. */
#define SLACK 1024

void *aux_pages_new(struct perf_event *event, void **pages, int n, bool overwrite)
{
	struct aux_pages *p;

	if (!n)
		return NULL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return NULL;
	p->pages = pages;
	p->size = (size_t)n << PAGE_SHIFT;
	p->overwrite = overwrite;
	return p;
}

void aux_pages_free(void *pages)
{
	kfree(pages);
}

static size_t limit_of(const struct perf_output_handle *handle)
{
	size_t limit = handle->size - SLACK;

	/* perf does not move its mark while nobody reads: one that has passed is no limit */
	if (handle->wakeup > handle->head && handle->wakeup - handle->head < limit)
		limit = handle->wakeup - handle->head;
	return limit;
}

enum aux_opened aux_ring_open(struct aux_ring *ring, struct perf_event *event)
{
	struct aux_pages *pages = perf_aux_output_begin(&ring->handle, event);

	if (!pages)
		return AUX_NONE;
	if (!pages->overwrite && ring->handle.size < 2 * SLACK) {
		perf_aux_output_flag(&ring->handle, PERF_AUX_FLAG_TRUNCATED);
		perf_aux_output_end(&ring->handle, 0);
		return AUX_FULL;
	}
	ring->pages = pages;
	ring->at = ring->handle.head & (pages->size - 1);
	ring->written = 0;
	ring->limit = pages->overwrite ? SIZE_MAX : limit_of(&ring->handle);
	return AUX_OPENED;
}

void aux_ring_close(struct aux_ring *ring)
{
	struct aux_pages *pages = ring->pages;

	if (!pages)
		return;
	ring->pages = NULL;
	if (pages->overwrite) {
		/* as the driver of the hardware does: the head is a place in the area, and all of it is new */
		ring->handle.head = ring->at;
		perf_aux_output_end(&ring->handle, pages->size);
		return;
	}
	perf_aux_output_end(&ring->handle, ring->written);
}

void aux_ring_write(struct aux_ring *ring, const void *data, size_t n)
{
	struct aux_pages *pages = ring->pages;
	const u8 *byte = data;
	size_t i;

	for (i = 0; i < n; i++) {
		u8 *page = pages->pages[ring->at >> PAGE_SHIFT];

		page[ring->at & ~PAGE_MASK] = byte[i];
		if (++ring->at == pages->size)
			ring->at = 0;
	}
	ring->written += n;
}
