/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_AUX_RING_H
#define SOFTPT_AUX_RING_H

#include <linux/perf_event.h>

/* The pages of one event's AUX area, as perf hands them over. */
struct aux_pages {
	void **pages;
	size_t size;
	bool overwrite;
};

struct aux_ring {
	struct perf_output_handle handle;
	struct aux_pages *pages;	/* NULL: no output is open */
	size_t at;			/* the next byte's place */
	size_t written;			/* since the output was opened */
	size_t limit;			/* when WRITTEN reaches it, the reader wants to know */
};

void *aux_pages_new(struct perf_event *event, void **pages, int n, bool overwrite);
void aux_pages_free(void *pages);

enum aux_opened {
	AUX_OPENED,
	AUX_NONE,	/* there is no AUX area */
	AUX_FULL,	/* the reader is too slow: the record says that it was truncated */
};

enum aux_opened aux_ring_open(struct aux_ring *ring, struct perf_event *event);
void aux_ring_close(struct aux_ring *ring);
void aux_ring_write(struct aux_ring *ring, const void *data, size_t n);

static inline bool aux_ring_is_open(const struct aux_ring *ring)
{
	return ring->pages;
}

static inline bool aux_ring_due(const struct aux_ring *ring)
{
	return ring->written >= ring->limit;
}

#endif
