/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address space at one moment of the recording: which image lies where. A fork shares the table
 * until one side changes it (copy on write), which also makes a space a cheap snapshot of its
 * moment. Which process has which space when is process_maps.h's.
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
#define ADDRESS_SPACE_MAX_MAPS 65531u

struct mapping {
	uint64_t start, end; /* end is exclusive */
	uint64_t pgoff;
	struct image *image; /* borrowed; NULL in the argument of address_space_set(): a hole */
};

struct address_space;

int address_space_new(struct budget *budget, struct address_space **ret) _must_check_;
struct address_space *address_space_ref(struct address_space *s);
struct address_space *address_space_unref(struct address_space *s);
DEFINE_CLEANUP(struct address_space *, address_space_unref)

enum { ADDRESS_SPACE_E_FULL = 1 };

/*
 * Puts a mapping in (image set) or takes the range out (image NULL). *s is replaced by a copy of
 * its own if it is shared. 0, ADDRESS_SPACE_E_FULL, or -ENOMEM; the space is unchanged then.
 */
int address_space_set(struct address_space **s, const struct mapping *map) _must_check_;

/*
 * What lies in the upper half of all addresses, in all spaces that are made of this one, too: the
 * kernel's, which is kept by whoever has made it. Only of a space that nothing was put into.
 */
void address_space_set_kernel(struct address_space *s, const struct address_space *kernel);

/*
 * The mapping that holds `addr`, or NULL. Valid until the space changes. `s` NULL: nothing is
 * known, and nothing found.
 */
const struct mapping *address_space_find(const struct address_space *s, uint64_t addr);

/* The index of the first mapping that ends after `addr`; address_space_count(): none does. */
uint32_t address_space_from(const struct address_space *s, uint64_t addr);

uint32_t address_space_count(const struct address_space *s);
const struct mapping *address_space_at(const struct address_space *s, uint32_t i);
