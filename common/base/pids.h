/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of processes and threads. Owns their order; refuses to know whose they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

void pids_sort(pid_t *pids, size_t n);
/* Of sorted ones. */
bool pids_have(const pid_t *pids, size_t n, pid_t pid);

struct pid_set { /* {0}: empty */
	pid_t *v; /* owned, sorted */
	size_t n;
};

/* Those of `pids` that are not in the set, in place; how many. */
size_t pid_set_keep_new(const struct pid_set *set, pid_t *pids, size_t n);
/* They must not be in it. 0, -ENOMEM. */
int pid_set_add(struct pid_set *set, const pid_t *pids, size_t n) _must_check_;
/*
 * Whether one of the set is not among `now`, which is sorted here, and lives all the same: it
 * ended, and its number was given to somebody else.
 */
bool pid_set_is_reused(const struct pid_set *set, pid_t *now, size_t n_now);
void pid_set_fini(struct pid_set *set);
