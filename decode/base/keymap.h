/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash from (owner, id) to a number that is not 0: what a program's own ids stand for, by process. The
 * hash is seeded, for the ids may be chosen by somebody who wants collisions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct keymap {
	struct keymap_slot {
		uint64_t id;
		uint32_t owner;
		uint32_t value; /* 0: empty */
	} * slots;
	uint32_t n, size; /* size: a power of two */
	uint64_t seed;
};

/* All zero is an empty map. */
void keymap_fini(struct keymap *m);

/* 0 if it is not there. */
uint32_t keymap_get(const struct keymap *m, uint32_t owner, uint64_t id);
/* Puts or replaces. -ENOMEM or 0. */
int keymap_put(struct keymap *m, uint32_t owner, uint64_t id, uint32_t value) _must_check_;
void keymap_drop(struct keymap *m, uint32_t owner, uint64_t id);
