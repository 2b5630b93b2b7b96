// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/aux.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/perf/ring.h"

#define HUGE_PAGE (2u << 20)

int aux_map(const struct ring *ring, int fd, size_t bytes, struct aux *ret)
{
	struct perf_event_mmap_page *page = ring->base;
	void *base;

	page->aux_offset = ring->map_bytes;
	page->aux_size = bytes;
	/* Read only: that is what makes the tracer overwrite. */
	base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)page->aux_offset);
	if (base == MAP_FAILED)
		return -errno;
	*ret = (struct aux){.base = base, .size = bytes};
	return 0;
}

void aux_unmap(struct aux *aux)
{
	if (aux->base)
		(void)munmap(aux->base, aux->size);
	*aux = (struct aux){0};
}

uint64_t aux_head(const struct aux *aux, const struct ring *ring)
{
	const struct perf_event_mmap_page *page = ring->base;

	return __atomic_load_n(&page->aux_head, __ATOMIC_ACQUIRE) & (aux->size - 1);
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/*
 * New memory that is written once: with small pages each of them would be a fault, and together
 * they would take longer than the copy.
 */
static uint8_t *allocate(size_t n)
{
	void *p;

	if (n < HUGE_PAGE)
		return malloc(n ? n : 1);
	if (posix_memalign(&p, HUGE_PAGE, n) != 0)
		return NULL;
	(void)madvise(p, n, MADV_HUGEPAGE);
	return p;
}

int aux_copy(struct aux *aux, uint64_t head, struct aux_copy *ret)
{
	const uint8_t *base = aux->base;
	size_t newer = (size_t)head, older = 0;
	uint8_t *data;

	if (!aux->wrapped && !is_zero(base + newer, aux->size - newer))
		aux->wrapped = true;
	if (aux->wrapped)
		older = aux->size - newer;
	data = allocate(older + newer);
	if (!data)
		return -ENOMEM;
	memcpy(data, base + newer, older);
	memcpy(data + older, base, newer);
	*ret = (struct aux_copy){.data = data, .len = older + newer, .wrapped = aux->wrapped};
	return 0;
}

void aux_copy_fini(struct aux_copy *copy)
{
	free(copy->data);
	*copy = (struct aux_copy){.data = NULL};
}
