/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the functions of one image begin and end, by its unwind table (.eh_frame): compilers
 * describe every function there, and strip leaves it. Two functions without names
 * are distinguished by it. Read whole at first use, then sorted for bsearch.
 *
 * The section is hostile: every number is checked, and what is broken is left out. Addresses are
 * the ELF's own; processes, names and how to unwind are not known here.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct extent {
	uint64_t start, end;
	uint64_t lsda; /* where the table of its exception handlers lies; 0: it has none */
	/*
	 * there is a frame already at its first instruction: that of the function that jumps there,
	 * of which it is a part
	 */
	bool framed;
};

struct extents;

int extents_new(struct budget *budget, struct extents **ret) _must_check_;
struct extents *extents_free(struct extents *x);
DEFINE_CLEANUP(struct extents *, extents_free)

/* Adds the functions of an image (64-bit ones only). The ELF stays the caller's. */
void extents_add_elf(struct extents *x, Elf *elf);

/* The same with the section's own bytes, which lie at `vaddr`. */
void extents_add(struct extents *x, const void *data, size_t size, uint64_t vaddr);

/* The function that the address lies in, or NULL. */
const struct extent *extents_find(const struct extents *x, uint64_t addr);

/* All of them, in order of their addresses. */
size_t extents_count(const struct extents *x);
const struct extent *extents_at(const struct extents *x, size_t i);
