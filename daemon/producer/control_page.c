// SPDX-License-Identifier: Apache-2.0
#include "daemon/producer/control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

struct controlpage {
	struct ring_control *map;
};

/* What is in the page is data: where the kernel can promise it, no program can ever run it. */
static int memory_new(void)
{
	int fd = memfd_create("tracerd-control", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("tracerd-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

int controlpage_new(uint64_t ticks_per_second, uint64_t request_interval_ns,
		    struct controlpage **ret, int *ret_fd)
{
	_cleanup_(controlpage_freep) struct controlpage *page = calloc(1, sizeof(*page));
	_cleanup_close_ int fd = -1, out = -1;
	char path[32];
	void *map;

	if (!page)
		return -ENOMEM;
	fd = memory_new();
	if (fd < 0)
		return fd;
	if (ftruncate(fd, RING_CONTROL_BYTES) < 0)
		return -errno;
	map = mmap(NULL, RING_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	page->map = map;
	page->map->version = RING_VERSION;
	page->map->ticks_per_second = ticks_per_second;
	page->map->request_interval_ns = request_interval_ns;
	memcpy(page->map->magic, RING_CONTROL_MAGIC, sizeof(page->map->magic));
	/*
	 * Our mapping is older than the seals: from here on it is the only one that can be written
	 * through.
	 */
	if (fcntl(fd, F_ADD_SEALS, RING_SEALS) < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	out = open(path, O_RDONLY | O_CLOEXEC);
	if (out < 0)
		return -errno;
	*ret_fd = take_fd(&out);
	*ret = take_ptr(page);
	return 0;
}

struct controlpage *controlpage_free(struct controlpage *page)
{
	if (!page)
		return NULL;
	if (page->map)
		(void)munmap(page->map, RING_CONTROL_BYTES);
	free(page);
	return NULL;
}

/* Odd while something is written. Who reads an entry sees the number before and after it. */
static void write_begin(struct controlpage *page)
{
	__atomic_store_n(&page->map->generation, page->map->generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void write_end(struct controlpage *page)
{
	__atomic_store_n(&page->map->generation, page->map->generation + 1, __ATOMIC_RELEASE);
}

int controlpage_find(const struct controlpage *page, uint32_t id)
{
	for (size_t i = 0; i < RING_THRESHOLDS; i++)
		if (page->map->thresholds[i].id == id)
			return (int)i;
	return -1;
}

int controlpage_set(struct controlpage *page, const struct ring_threshold *threshold,
		    size_t *ret_index)
{
	struct ring_threshold *entry;
	int i = controlpage_find(page, threshold->id);

	if (i < 0)
		i = controlpage_find(page, 0);
	if (i < 0)
		return -ENOSPC;
	entry = &page->map->thresholds[i];
	write_begin(page);
	*entry = *threshold;
	entry->hash = ring_hash(threshold->name, threshold->length);
	write_end(page);
	*ret_index = (size_t)i;
	return 0;
}

void controlpage_clear(struct controlpage *page, uint32_t id)
{
	int i = controlpage_find(page, id);

	if (i < 0 || id == 0)
		return;
	write_begin(page);
	memset(&page->map->thresholds[i], 0, sizeof(page->map->thresholds[i]));
	write_end(page);
}
