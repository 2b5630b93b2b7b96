/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes sets of perf events, and files of targets, on a thread of its own: the kernel takes some microseconds for each
 * event, milliseconds for a large ring, and seconds for a large file that nobody has any more. The thread never opens anything and waits for nobody, so that others may use it for
 * what only needs time.
 */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

#define CLOSER_SETS 3

struct closer;
struct copier;
struct event_base;
struct eventset;

int closer_new(struct event_base *base, struct closer **ret) _must_check_;
/* Ends the thread: its other jobs are dropped, see daemon/base/copier.h. From then on all is closed at once. */
void closer_stop(struct closer *closer);
struct closer *closer_free(struct closer *closer);
/* Takes over at most CLOSER_SETS sets, which are closed in this order; small ones at once. */
void closer_close(struct closer *closer, struct eventset *sets, size_t n);
/*
 * The same for a file of a target or its root directory: the last descriptor of a file that was removed, or of a mount that
 * is gone, frees all of it.
 */
void closer_close_fd(struct closer *closer, int fd);
/* The descriptors that are not closed yet. */
size_t closer_waiting(const struct closer *closer);
struct copier *closer_thread(const struct closer *closer);
