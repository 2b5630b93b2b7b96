/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causes: records by which the program asks the daemon for a snapshot, because a region was too
 * slow or because tracerd_snapshot() was called (common/bundle/ringabi.h). Owns the eventfd and
 * drops requests that come too soon. eventlib.h declares cause_region(), the public header
 * tracerd_snapshot(); both may run in a signal handler on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

#pragma GCC visibility push(hidden)

/*
 * Returns the eventfd to register, and creates it at the first call. It stays open as long as the
 * process, because other threads may be about to write to it. -errno.
 */
int cause_wake_fd(void) _must_check_;

/* Takes the contents of the daemon's page; NULL: there is no daemon. */
void cause_connect(const struct ring_control *page);

/*
 * Whether a daemon would hear of a cause: false also if the program has closed the descriptors.
 * Preserves errno.
 */
bool cause_is_heard(void);

/* In a forked child. */
void cause_forked(void);

#pragma GCC visibility pop
