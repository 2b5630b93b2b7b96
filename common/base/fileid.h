/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an open file is the one that a mapping's record names. The kernel names mapped files by device and inode in
 * /proc/PID/maps and in perf's MMAP2 records; stat() shows another device on btrfs and overlayfs. So where stat() differs
 * the file is mapped here, and what /proc/self/maps calls it then is compared.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* `st` is of `fd`, which is open for reading. May block as file systems do. */
bool fileid_is(int fd, const struct stat *st, uint32_t maj, uint32_t min, uint64_t ino);
