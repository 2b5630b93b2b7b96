/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file that was mapped is another program by now though it is the same file: written over
 * in place, as cp(1) does. What ran of it is in no file then. Who renames a new file to its path
 * leaves the old one as it was.
 *
 * A file that only lost or got a name, a link or other rights since is the one that ran, and so is
 * one about which nothing can be known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/base/file_request.h"

/*
 * When it was first mapped, on the clock of file systems (CLOCK_REALTIME), and how much later it
 * may have been. ns 0: not known.
 */
struct mapped_at {
	uint64_t ns, doubt_ns;
};

bool file_is_overwritten(int fd, const struct file_answer *file, const struct mapped_at *mapped);
