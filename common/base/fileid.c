// SPDX-License-Identifier: Apache-2.0
#include "common/base/fileid.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"

#define MAPS_MAX (8u << 20)

static bool line_is(const char *line, const void *address, uint32_t maj, uint32_t min, uint64_t ino)
{
	unsigned long long start, file;
	unsigned int a, b;

	return sscanf(line, "%llx-%*x %*s %*x %x:%x %llu", &start, &a, &b, &file) == 4 &&
	       start == (unsigned long long)(uintptr_t)address && a == maj && b == min &&
	       file == ino;
}

static bool mapping_is(const void *address, uint32_t maj, uint32_t min, uint64_t ino)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (io_read_file_at(AT_FDCWD, "/proc/self/maps", MAPS_MAX, &text, &len) < 0)
		return false;
	for (const char *line = text; *line;) {
		const char *end = strchr(line, '\n');

		if (line_is(line, address, maj, min, ino))
			return true;
		if (!end)
			break;
		line = end + 1;
	}
	return false;
}

bool fileid_is_mapped(int fd, const struct stat *st, uint32_t maj, uint32_t min, uint64_t ino)
{
	bool same;
	void *p;

	if (st->st_ino == ino && major(st->st_dev) == maj && minor(st->st_dev) == min)
		return true;
	p = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return false;
	same = mapping_is(p, maj, min, ino);
	(void)munmap(p, 1);
	return same;
}
