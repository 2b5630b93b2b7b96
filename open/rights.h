/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rights of tracerd-open. The front keeps what it needs to give workers the rights of others. A
 * worker has those of one user for everything that touches a file (file system uid and gid, groups,
 * no capabilities) and keeps the daemon's uid for everything else, so that the user can neither
 * signal nor trace it.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

/* The front: no capabilities but these three, none to be gained; no new privileges. */
int rights_front(void) _must_check_;

/*
 * A worker, for good: -EPERM where the rights could not be taken on in full, so that nothing is
 * opened with others. uid 0 keeps CAP_DAC_READ_SEARCH where the front has it.
 */
int rights_become(uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups) _must_check_;

/* System calls: those that opening, looking and copying need. */
int rights_filter(void) _must_check_;
