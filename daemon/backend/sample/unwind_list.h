/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a process has mapped code, by what the kernel tells: each mapping replaces what it
 * overlaps. That memory is unmapped is not told, and need not be: nothing runs there until
 * something else is mapped, which is. Pure data.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/* More is some program that makes code at run time, piece by piece. */
#define UNWIND_LIST_MAX 1024

struct unwind_area {
	uint64_t start, end, off;
	uint64_t ino; /* 0: no file */
	uint32_t maj, min;
	bool is_vdso, is_hotspot;
};

struct unwind_list {
	struct unwind_area *areas; /* ascending, none overlaps another; owned */
	size_t n, room;
	bool full; /* some were left out: it does not do */
};

void unwind_list_fini(struct unwind_list *list);
/* 0, -ENOMEM, -EINVAL. */
int unwind_list_add(struct unwind_list *list, const struct unwind_area *area) _must_check_;
/* Whether other code is where this is to be. */
bool unwind_list_overlaps(const struct unwind_list *list, const struct unwind_area *area);
int unwind_list_copy(struct unwind_list *list, const struct unwind_list *from) _must_check_;
