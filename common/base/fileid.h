/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether two things are one file: two descriptors, a descriptor and what it was before, a
 * descriptor and the record of a mapping.
 *
 * The kernel names mapped files by device and inode in /proc/PID/maps and in perf's MMAP2 records;
 * stat() shows another device on btrfs and overlayfs. So where stat() differs the file is mapped
 * here, and compared is what /proc/self/maps calls it then.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"

/*
 * A file as stat() numbers it; for as long as something holds it open, or its inode may be another
 * file's.
 */
struct fileid {
	dev_t dev;
	ino_t ino;
};

static inline int _must_check_ fileid_of(int fd, struct fileid *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct fileid){.dev = st.st_dev, .ino = st.st_ino};
	return 0;
}

static inline bool fileid_equal(const struct fileid *a, const struct fileid *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

/* Whether the descriptor is open (it may be -1) and of that file. */
static inline bool fileid_has(const struct fileid *id, int fd)
{
	struct fileid now = {0};

	return fd >= 0 && fileid_of(fd, &now) == 0 && fileid_equal(id, &now);
}

/*
 * Whether a record's device and inode are this file's. `st` is of `fd`, which is open for reading.
 * May block as file systems do.
 */
bool fileid_is_mapped(int fd, const struct stat *st, uint32_t maj, uint32_t min, uint64_t ino);
