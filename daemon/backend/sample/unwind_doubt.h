/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the programs went by a list of mappings that was no longer right: from the moment that a
 * process mapped code over other code until its new list was there. A stack of that time which
 * leads through that memory may be wrong, and is not believed. Pure data.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/*
 * More in the time that rings reach back is a program that does nothing else: then the oldest are
 * joined to one of all its memory.
 */
#define UNWIND_DOUBTS_MAX 1024

struct unwind_doubt {
	uint32_t pid;
	uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC_RAW; UINT64_MAX: it goes on */
	uint64_t start, end;	 /* of the memory */
};

struct unwind_doubts {
	struct unwind_doubt *v; /* owned */
	size_t n;
	uint64_t lost_ns; /* before this all is in doubt that was unwound */
};

void unwind_doubts_fini(struct unwind_doubts *d);
void unwind_doubts_begin(struct unwind_doubts *d, const struct unwind_doubt *doubt);
/* The process's new list is there. */
void unwind_doubts_end(struct unwind_doubts *d, uint32_t pid, uint64_t now_ns);
int unwind_doubts_copy(const struct unwind_doubts *d, struct unwind_doubts *ret) _must_check_;
/* Whether a stack of that time is to be believed. */
bool unwind_doubts_believes(const struct unwind_doubts *d, uint32_t pid, uint64_t time_ns,
			    const uint64_t *chain, size_t n);
