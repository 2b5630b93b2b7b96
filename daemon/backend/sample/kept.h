/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of waits that had not ended at a freeze. The programs keep them until it is known how
 * long the wait is (daemon/backend/sample/bpf/kept.bpf.h), so the rings do not have them yet. Knows
 * the map, no rings.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/filter.h"

struct filter;
struct frozen;

struct kept {
	int fd;		      /* of the map; -1: there is none */
	uint64_t frozen_mono; /* the freeze, on the map's clock */
	struct filter_kept *v; /* owned */
	size_t n;
};

#define KEPT_INIT                                                                                  \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/* At the freeze, on the loop. */
void kept_freeze(const struct filter *filter, const struct frozen *frozen, struct kept *ret);
/* Frees it, and it is empty again. */
void kept_fini(struct kept *kept);

/*
 * On the copier thread, before the rings are copied, so that a wait which ends meanwhile is here or
 * there: what the map has of the target's threads that had been waiting since before the freeze. 0
 * or -errno.
 */
int kept_take(struct kept *kept, const struct frozen *frozen) _must_check_;
/* When its wait began, on the rings' clock. */
uint64_t kept_since(const struct kept *kept, const struct frozen *frozen,
		    const struct filter_kept *k);
