/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address space at one moment of the recording: which image lies where. Records are applied in
 * the order of time, so "now" is all that is kept; a fork shares the table until one side changes
 * it (copy on write), which also makes a space a cheap snapshot of its moment.
 *
 * A new mapping takes the place of what it overlaps, as in the kernel. Mappings that are not
 * executable only punch holes: code is what is looked up here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct image;

/* The kernel's own default limit (vm.max_map_count) plus one. */
#define SPACE_MAX_MAPS 65531u

struct space_map {
	uint64_t start, end; /* end is exclusive */
	uint64_t pgoff;
	struct image *image; /* borrowed; NULL in the argument of space_set(): a hole */
};

struct space;

int space_new(struct budget *budget, struct space **ret) _must_check_;
struct space *space_ref(struct space *s);
struct space *space_unref(struct space *s);
DEFINE_CLEANUP(struct space *, space_unref)

enum { SPACE_E_FULL = 1 };

/*
 * Puts a mapping in (image set) or takes the range out (image NULL). *s is replaced by a copy of
 * its own if it is shared. 0, SPACE_E_FULL, or -ENOMEM; the space is unchanged then.
 */
int space_set(struct space **s, const struct space_map *map) _must_check_;

/* The mapping that holds `addr`, or NULL. Valid until the space changes. */
const struct space_map *space_find(const struct space *s, uint64_t addr);

/* The index of the first mapping that ends behind `addr`; space_count(): none does. */
uint32_t space_from(const struct space *s, uint64_t addr);

uint32_t space_count(const struct space *s);
const struct space_map *space_at(const struct space *s, uint32_t i);
