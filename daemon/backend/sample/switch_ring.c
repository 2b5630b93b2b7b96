// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/switch_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void switch_records_fini(struct switch_records *records)
{
	free(records->v);
	*records = (struct switch_records){.n = 0};
}

void switch_ring_image(struct switch_records *records, struct switch_ring *ret)
{
	*ret = (struct switch_ring){.is_image = true, .image = *records};
	*records = (struct switch_records){.n = 0};
}

void switch_rings_free(struct switch_ring *rings, size_t n)
{
	for (size_t i = 0; rings && i < n; i++)
		switch_records_fini(&rings[i].image);
	free(rings);
}

static int image_copy(const struct switch_records *image, struct switch_records *ret)
{
	struct filter_record *v = calloc(image->n ? image->n : 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	memcpy(v, image->v, image->n * sizeof(*v));
	*ret = *image;
	ret->v = v;
	return 0;
}

int switch_ring_copy(const struct switch_ring *ring, struct switch_records *ret)
{
	uint64_t before, after, first, lost;
	struct filter_record *v;
	size_t size, n, at, end;

	if (ring->is_image)
		return image_copy(&ring->image, ret);
	size = ring->ring->size;
	before = __atomic_load_n(&ring->ring->written, __ATOMIC_ACQUIRE);
	n = before < size ? (size_t)before : size;
	v = calloc(n ? n : 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	first = before - n;
	at = size ? (size_t)(first % size) : 0;
	end = n < size - at ? n : size - at;
	memcpy(v, ring->records + at, end * sizeof(*v));
	memcpy(v + end, ring->records, (n - end) * sizeof(*v));
	/* The copy must be done before the second look. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	after = __atomic_load_n(&ring->ring->written, __ATOMIC_ACQUIRE);

	/* One more may be under way. */
	lost = after + 1 > first + size ? after + 1 - first - size : 0;
	if (lost > n)
		lost = n;
	memmove(v, v + lost, (n - lost) * sizeof(*v));
	*ret = (struct switch_records){.v = v,
				       .n = n - (size_t)lost,
				       .wrapped = first + lost > 0,
				       .overwritten = after > before ? lost : 0};
	return 0;
}
