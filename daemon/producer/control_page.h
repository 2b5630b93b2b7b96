/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control page of one producer (struct ring_control of common/bundle/ringabi.h): memory that
 * only the daemon can write, whoever has its descriptor. Owns the mapping, the order of the stores
 * and which entries are in use; knows neither producers nor triggers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

struct controlpage;

/* *ret_fd: read-only, for the producer; the page itself keeps no descriptor. 0, -errno. */
int controlpage_new(uint64_t ticks_per_second, uint64_t request_interval_ns,
		    struct controlpage **ret, int *ret_fd) _must_check_;
struct controlpage *controlpage_free(struct controlpage *page);
DEFINE_CLEANUP(struct controlpage *, controlpage_free)

/*
 * Sets the entry with this id, or a free one. `threshold` has all but the hash. *ret_index: of the
 * entry. -ENOSPC: all are in use.
 */
int controlpage_set(struct controlpage *page, const struct ring_threshold *threshold,
		    size_t *ret_index) _must_check_;
/* The entry with this id is free again; none is no error. */
void controlpage_clear(struct controlpage *page, uint32_t id);
/* The index of the entry with this id, or -1. */
int controlpage_find(const struct controlpage *page, uint32_t id);
