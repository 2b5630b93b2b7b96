/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which open files the daemon may hold. A call on a file can hang for as long as whoever serves its
 * file system likes, close() too: FUSE sends a FLUSH and waits. So of a file system that an
 * ordinary user may serve the daemon gets a copy in memory, which the worker makes within its
 * deadline, and never the file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/*
 * Whether only the kernel and the machine's administrator vouch for the file: file systems that
 * users cannot serve; and overlays (of containers) that are mounted in the first process's mount
 * namespace too, which no user reaches. What is not known is not trusted. `pid` is a process that
 * sees the file's mount, 0 if none is known.
 */
bool filesystem_is_trusted(int fd, pid_t pid);

/*
 * A sealed memfd with the bytes of the file, which has `size` of them. 0, -EFBIG (more than `max`),
 * -ESTALE (it became shorter meanwhile), -errno.
 */
int filesystem_copy(int fd, uint64_t size, uint64_t max, int *ret_fd) _must_check_;
