/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of all images as the rules of the stack need them: begin and end, entries of the
 * PLT, which part belongs to which whole (foo.cold to foo). Made of symbols where there are some,
 * of the unwind table where there are none. Built image by image on one thread; then read by any.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/calls/callstack.h"
#include "decode/object/image.h"

struct callfuncs;

int callfuncs_new(struct budget *budget, struct callfuncs **ret) _must_check_;
struct callfuncs *callfuncs_free(struct callfuncs *cf);
DEFINE_CLEANUP(struct callfuncs *, callfuncs_free)

/* Adds an image, whose symbols have been loaded if it has any. 0 or -ENOMEM. */
int callfuncs_add(struct callfuncs *cf, struct image *image) _must_check_;

/* The function at an ELF address; one that is not known if there is none. Never NULL. */
const struct callfunc *callfuncs_find(const struct callfuncs *cf, const struct image *image,
				      uint64_t vaddr);

/* Where the part of a function begins that an ELF address is in; false: it is in none. */
bool callfuncs_begin(const struct callfuncs *cf, const struct image *image, uint64_t vaddr,
		     uint64_t *ret);

/* Whether an exception out of the call around `call` lands on `pad`: both ELF addresses. */
bool callfuncs_lands(const struct callfuncs *cf, const struct image *image, uint64_t call,
		     uint64_t pad);

/* For code that is in no image at all. */
const struct callfunc *callfuncs_unknown(const struct callfuncs *cf);
