/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of unwind rules as tracerd-decode has written it (common/bundle/unwind_table.h), checked.
 * The decoder may have been taken over by what it read: every number is. A table that passes can
 * still be wrong, and then leads unwinding to wrong words of the thread's own stack, and to nothing
 * else.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/unwind_table.h"

/* Points into the bytes that were checked. */
struct unwind_checked {
	struct unwind_file head;
	const struct unwind_load *loads;
	const uint32_t *pages, *rows;
	const struct unwind_rule *rules;
};

/* `data` is aligned to 8, and private. 0, or -EBADMSG. */
int unwind_check(const void *data, size_t size, struct unwind_checked *ret) _must_check_;
