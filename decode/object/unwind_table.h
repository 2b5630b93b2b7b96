/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind information of one ELF file (.eh_frame, .debug_frame, and what Go's own table of
 * functions says of their stack) as the table of common/bundle/unwind_table.h. The file is hostile:
 * each length is checked, what cannot be told in a rule is "unknown", and memory is asked of the
 * budget. Knows no processes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/unwind_table.h"
#include "decode/base/budget.h"

struct unwind_table {
	struct unwind_load loads[UNWIND_LOADS_MAX];
	uint32_t n_loads, lo_page;
	uint32_t *pages; /* how many rows each has; owned, as the next two */
	uint32_t *rows;
	struct unwind_rule *rules;
	uint32_t n_pages, n_rows, n_rules;
	uint64_t functions;
	uint64_t refused; /* of those, that have more than can be told, or contradict themselves */
};

/*
 * The descriptor stays the caller's. 0; -EBADMSG: no such file; -ENODATA: nothing in it tells;
 * -E2BIG: more than a table may have; -ENOMEM.
 */
int unwind_table_build(int fd, struct budget *budget, struct unwind_table *ret) _must_check_;
void unwind_table_fini(struct unwind_table *t);

/* How many bytes it has in a file. */
uint64_t unwind_table_bytes(const struct unwind_table *t);
/* Appends it to a file. 0, -errno. */
int unwind_table_write(const struct unwind_table *t, int fd) _must_check_;
