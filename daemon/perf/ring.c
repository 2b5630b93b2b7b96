// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/perf/record.h"

int ring_map(int fd, size_t bytes, bool overwrite, struct ring *ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *base;

	base = mmap(NULL, page + bytes, overwrite ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*ret = (struct ring){.base = base,
			     .map_bytes = page + bytes,
			     .size = bytes,
			     .data = (const uint8_t *)base + page};
	return 0;
}

int ring_image(struct ring_copy *copy, struct ring *ret)
{
	struct ring_copy *image = malloc(sizeof(*image));

	if (!image)
		return -ENOMEM;
	*image = *copy;
	*copy = (struct ring_copy)RING_COPY_INIT;
	*ret = (struct ring){.size = image->len, .data = image->data, .image = image};
	return 0;
}

static int image_copy(const struct ring_copy *image, struct ring_copy *ret)
{
	uint8_t *data = malloc(image->len ? image->len : 1);

	if (!data)
		return -ENOMEM;
	memcpy(data, image->data, image->len);
	*ret = *image;
	ret->data = data;
	return 0;
}

void ring_unmap(struct ring *ring)
{
	if (ring->image) {
		ring_copy_fini(ring->image);
		free(ring->image);
	}
	if (ring->base)
		(void)munmap(ring->base, ring->map_bytes);
	*ring = (struct ring){.base = NULL};
}

static uint64_t ring_head(void *arg)
{
	const struct ring *ring = arg;
	const struct perf_event_mmap_page *page = ring->base;

	return __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
}

uint64_t ring_written(const struct ring *ring)
{
	return 0 - ring_head((void *)(uintptr_t)ring);
}

int ring_copy_from(const uint8_t *data, size_t size, uint64_t (*head)(void *arg), void *arg,
		   struct ring_copy *ret)
{
	uint64_t before, after, written, moved, safe;
	size_t len, at, first;
	uint8_t *copy;

	/* Heads run down from 0: what was written ends at 0, the newest record is at the head. */
	before = head(arg);
	written = 0 - before;
	len = written < size ? (size_t)written : size;
	copy = malloc(len ? len : 1);
	if (!copy)
		return -ENOMEM;
	at = (size_t)(before & (size - 1));
	first = len < size - at ? len : size - at;
	memcpy(copy, data + at, first);
	memcpy(copy + first, data, len - first);
	/* The copy must be done before the second look. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	after = head(arg);

	moved = before - after;
	safe = moved + RING_IN_FLIGHT < size ? size - RING_IN_FLIGHT - moved : 0;
	*ret = (struct ring_copy){.data = copy, .len = len, .wrapped = written > size};
	if (safe < len) {
		ret->len = (size_t)safe;
		ret->wrapped = true;
		ret->overwritten = moved < len ? moved : len;
	}
	return 0;
}

int ring_copy(const struct ring *ring, struct ring_copy *ret)
{
	if (ring->image)
		return image_copy(ring->image, ret);
	return ring_copy_from(ring->data, ring->size, ring_head, (void *)(uintptr_t)ring, ret);
}

void ring_copy_fini(struct ring_copy *copy)
{
	free(copy->data);
	*copy = (struct ring_copy)RING_COPY_INIT;
}

int ring_walk(const struct ring_copy *copy, struct ring_records *ret)
{
	struct ring_records out = {0};
	size_t room = 0, at = 0;

	while (at < copy->len) {
		struct perf_event_header h;

		if (copy->len - at < sizeof(h)) {
			out.torn = true;
			break;
		}
		memcpy(&h, copy->data + at, sizeof(h));
		if (h.size < sizeof(h) || h.size % 8 != 0) {
			/*
			 * Bytes that were never a record, or of which the front was written over.
			 */
			out.malformed = true;
			break;
		}
		if (h.size > copy->len - at) {
			out.torn = true;
			break;
		}
		if (out.n == room) {
			uint32_t *bigger;

			room = room ? room * 2 : 1024;
			bigger = reallocarray(out.offsets, room, sizeof(*bigger));
			if (!bigger) {
				free(out.offsets);
				return -ENOMEM;
			}
			out.offsets = bigger;
		}
		out.offsets[out.n++] = (uint32_t)at;
		at += h.size;
	}
	*ret = out;
	return 0;
}

void ring_records_fini(struct ring_records *records)
{
	free(records->offsets);
	*records = (struct ring_records){0};
}

int ring_read(const struct ring *ring, struct ring_copy *copy, struct ring_records *records)
{
	const int r = ring_copy(ring, copy);

	return r < 0 ? r : ring_walk(copy, records);
}

static void copy_out(const struct ring *ring, uint64_t from, uint8_t *to, size_t len)
{
	size_t at = (size_t)(from & (ring->size - 1));
	size_t first = len < ring->size - at ? len : ring->size - at;

	memcpy(to, ring->data + at, first);
	memcpy(to + first, ring->data, len - first);
}

size_t ring_drain(struct ring *ring, uint8_t *buf, size_t room)
{
	struct perf_event_mmap_page *page = ring->base;
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = page->data_tail;
	size_t used = 0;

	while (tail < head) {
		struct perf_event_header h;

		copy_out(ring, tail, (uint8_t *)&h, sizeof(h));
		if (h.size < sizeof(h) || h.size % 8 != 0 || h.size > head - tail) {
			tail = head; /* cannot be: give the ring back rather than stand still */
			break;
		}
		if (h.size > room - used)
			break;
		copy_out(ring, tail, buf + used, h.size);
		used += h.size;
		tail += h.size;
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
	return used;
}
