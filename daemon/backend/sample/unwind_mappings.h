/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF maps of processes and of their mappings. A new list is written whole to a place that is
 * free, then the process's entry points to it. Each has a generation that no other one has, so that
 * a program which still reads the place of an older one notices. Does not know what is mapped.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/unwind.h"

struct filter;
struct unwind_counts;
struct unwind_mappings;

int unwind_mappings_new(const struct filter *filter, struct unwind_mappings **ret) _must_check_;
struct unwind_mappings *unwind_mappings_free(struct unwind_mappings *m);

/*
 * The process's list from now on, in ascending order; fills in the generations. What was counted
 * with the former one is added to *sum. 0, -ENOSPC, -ENOMEM, -errno: the process has none.
 */
int unwind_mappings_put(struct unwind_mappings *m, pid_t pid, struct unwind_mapping *list,
			uint32_t n, struct unwind_counts *sum) _must_check_;
void unwind_mappings_drop(struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum);
/* Adds what is counted with the present one. */
void unwind_mappings_count(const struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum);
