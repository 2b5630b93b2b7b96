/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causes: records by which the program asks the daemon for a snapshot, because a region was too slow or
 * because tracerd_snapshot() was called (common/bundle/ringabi.h). Owns the eventfd and decides which request comes too soon.
 * cause_region() is declared in eventlib.h, tracerd_snapshot() in the public header; both may run in a
 * signal handler on any thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

#pragma GCC visibility push(hidden)

/*
 * The eventfd to register, made when there is none; it stays open for the life of the process, because other
 * threads may be about to write to it. -errno.
 */
int cause_wake_fd(void) _must_check_;

/* What the daemon's page says; NULL: there is no daemon. */
void cause_connect(const struct ring_control *page);

/* In a forked child. */
void cause_forked(void);

#pragma GCC visibility pop
