/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of several processes, from /proc. Any thread: looking may wait for a process. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* A new array; processes that have ended are left out. 0, -ESRCH (all have), -E2BIG, -ENOMEM. */
int threads_of(const pid_t *pids, size_t n_pids, pid_t **ret, size_t *ret_n) _must_check_;
