/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF maps of unwind rules, which all targets share: rules, rows in slabs, pages. What is
 * loaded stays; when the maps are full no more is. Knows neither files nor processes.
 *
 * Loading waits for the kernel (a grace period for each slab), so it is a thread's; one call at a
 * time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/unwind.h"
#include "daemon/backend/sample/unwind_check.h"

struct filter;
struct unwind_tables;

/* Where the rows of an object are. */
struct unwind_place {
	struct unwind_load loads[UNWIND_LOADS_MAX];
	uint32_t n_loads, lo_page, n_pages, page0;
};

struct unwind_usage {
	uint64_t rows, pages, rules, slabs;
};

/* `filter` outlives it. */
int unwind_tables_new(const struct filter *filter, struct unwind_tables **ret) _must_check_;
struct unwind_tables *unwind_tables_free(struct unwind_tables *t);

/* 0; -ENOSPC: the budget is used up; -ENOMEM, -errno of the map. */
int unwind_tables_load(struct unwind_tables *t, const struct unwind_checked *table,
		       struct unwind_place *ret) _must_check_;
void unwind_tables_usage(const struct unwind_tables *t, struct unwind_usage *ret);
