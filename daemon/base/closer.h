/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that closes descriptors: the kernel takes some microseconds for a perf event,
 * milliseconds for a large ring, and seconds for the last descriptor of a large file that has no
 * name any more. The thread opens nothing and waits for nobody, so others may use it for work that
 * only takes time. It does not know what it closes.
 */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

struct closer;
struct copier;
struct event_base;

int closer_new(struct event_base *base, struct closer **ret) _must_check_;
/* Ends the thread and drops its other jobs, see daemon/base/copier.h. Later calls close at once. */
void closer_stop(struct closer *closer);
struct closer *closer_free(struct closer *closer);
/*
 * Calls `fn` once with a copy of the `size` bytes at `data`, to close `n_fds` descriptors. On the
 * thread, or at once where there is no thread or no memory.
 */
void closer_call(struct closer *closer, void (*fn)(void *data), void *data, size_t size,
		 size_t n_fds);
/* Closes a file or a root directory of a target. */
void closer_close_fd(struct closer *closer, int fd);
/* The number of descriptors that are not closed yet. */
size_t closer_waiting(const struct closer *closer);
struct copier *closer_thread(const struct closer *closer);
