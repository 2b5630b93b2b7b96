/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The landing pads of one image: where an exception that comes out of a call goes on, by the tables
 * that compilers write for the unwinder (.gcc_except_table). It says which of several calls of one
 * function caught it. Built once, then read by any thread. The section is hostile: every number is
 * checked, what is broken is left out. Addresses are the ELF's own.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/object/extents.h"

struct lsda;

/* The ELF and the extents stay the caller's; *ret is NULL where there is none. 0 or -ENOMEM. */
int lsda_new(Elf *elf, const struct extents *extents, struct budget *budget,
	     struct lsda **ret) _must_check_;
struct lsda *lsda_free(struct lsda *l);
DEFINE_CLEANUP(struct lsda *, lsda_free)

/* Whether what is thrown out of the call instruction around `call` lands on `pad`. */
bool lsda_has(const struct lsda *l, uint64_t call, uint64_t pad);
