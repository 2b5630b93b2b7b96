/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals as a file descriptor, for commands that have something to undo before they end.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"

/*
 * Blocks SIGINT, SIGTERM and SIGHUP and returns a descriptor that becomes readable when one came,
 * or a negative errno. For the whole rest of the program; call it once.
 */
int interrupt_open(void) _must_check_;

/* True once a signal came; `fd` may be negative. */
bool interrupt_pending(int fd);

/*
 * Waits until `fd` is readable, the interrupt came or `timeout_ms` passed. Returns 1 if `fd` is
 * readable, 0 if not, or a negative errno.
 */
int interrupt_wait(int fd, int interrupt_fd, int timeout_ms) _must_check_;
