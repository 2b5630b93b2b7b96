/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file was at one moment, to find later whether it was written to since. The time of its
 * last modification does not say that alone: its owner can set it back. The time of its last change
 * (ctime), which nobody can set back, also moves with its name, its links and its mode. So there is
 * a digest of its first bytes too, where linkers put the build id. Nothing in them is looked at.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/base/sha256.h"

#define FILENOTE_HEAD 4096 /* has the program headers, and the build id where linkers put it */

struct filenote {
	int64_t mtime_ns;
	uint64_t size;
	bool has_head;
	uint8_t head[SHA256_BYTES];
};

/* A file's time as a number; one too far away is the last or the first there is. */
int64_t filenote_ns(const struct timespec *t);
/*
 * The digest of its first bytes. False: there are none that can be read. May block as file systems
 * do.
 */
bool filenote_head(int fd, uint8_t ret[SHA256_BYTES]);
