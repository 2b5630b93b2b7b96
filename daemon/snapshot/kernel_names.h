/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of /proc/kallsyms that some addresses need: all of it is megabytes, in each bundle. On
 * the copier thread.
 */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

struct hashmap;

/*
 * Writes to `out` the lines of `in` (/proc/kallsyms, from its begin, wherever it stands) that say
 * what function each of the addresses is in, the keys of `addrs`, and where that ends. Also for
 * addresses that are returned to, and so may be just behind their function. 0, -EFBIG if there is
 * more than `max`, -errno.
 */
int kernel_names_copy(int in, int out, const struct hashmap *addrs, size_t max) _must_check_;
