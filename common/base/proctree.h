/* SPDX-License-Identifier: Apache-2.0 */
/* Who started whom: the processes below one, from /proc. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

#define PROCTREE_MAX (1u << 20) /* processes of the machine that are looked at */

/*
 * The living processes that `roots` have started, and what they have started, without the roots: a
 * new, sorted array. One whose parent has ended is none of them any more. Reads all of /proc: some
 * microseconds a process. 0, -E2BIG, -ENOMEM, -errno.
 */
int proctree_below(const pid_t *roots, size_t n_roots, pid_t **ret, size_t *ret_n) _must_check_;
