/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openat2(2), which glibc does not wrap: opens a path of which others choose parts, and says where
 * its links may lead. A path that leads elsewhere is -EXDEV, a link that is not allowed -ELOOP.
 */
#pragma once

#include <linux/openat2.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

#define OPENAT2_TRIES 16 /* while renames race with ".." in the path; then it is -EAGAIN */

/* `resolve`: RESOLVE_*. The descriptor, close-on-exec, or -errno. May block as file systems do. */
int openat2_fd(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve) _must_check_;
