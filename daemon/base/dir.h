/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of the daemon's own. */
#pragma once

#include <sys/types.h>

#include "common/base/cleanup.h"

/* Makes a directory with exactly this mode; one that exists stays as it is. 0, -errno. */
int dir_make(const char *path, mode_t mode) _must_check_;
