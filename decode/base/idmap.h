/* SPDX-License-Identifier: Apache-2.0 */
/* A hash from pids or tids to pointers that belong to somebody else. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct idmap {
	struct idmap_slot {
		uint32_t id;
		void *value; /* NULL: empty */
	} * slots;
	uint32_t n, size;
};

void idmap_fini(struct idmap *m);
void *idmap_get(const struct idmap *m, uint32_t id);
/* Puts or replaces; `value` is not NULL. -ENOMEM. */
int idmap_put(struct idmap *m, uint32_t id, void *value) _must_check_;
/* Walks all: starts at *pos = 0, NULL at the end. */
void *idmap_next(const struct idmap *m, uint32_t *pos);
