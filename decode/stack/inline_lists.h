/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that were inlined around addresses, as lists of frames that have numbers. */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/stacktab.h"
#include "decode/object/image.h"

#define INLINE_LISTS_MAX (1u << 26) /* numbers are below that */

struct source;

struct inline_lists {
	struct budget *budget; /* borrowed */
	uint32_t *v; /* owned: at each number the count and the frames, the outermost first */
	uint32_t n, room;
	uint64_t left_out; /* for which there was no memory */
};

/*
 * The list of an address of the image, as a number; 0: nothing is inlined there, or there is no
 * memory. Errors: source_error().
 */
uint32_t inline_lists_add(struct inline_lists *l, struct source *source, struct stacktab *st,
			  struct image *img, uint64_t vaddr);
/*
 * Its frames, the outermost first, and how many. Borrowed, until the next one is added. Of 0 there
 * are none.
 */
const uint32_t *inline_lists_get(const struct inline_lists *l, uint32_t number, uint32_t *ret_n);
void inline_lists_fini(struct inline_lists *l);
