/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has tables of unwind rules made of files: tracerd-decode reads them, sandboxed and at idle priority, the sampler's thread checks and
 * loads what it wrote. One batch at a time. Knows no processes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/unwind_tables.h"

#define UNWIND_BATCH_MAX 8

struct targets;
struct unwind_builder;

/* What became of each file: 0, or -errno. On the loop. */
struct unwind_built {
	int result;
	struct unwind_place place;
};
typedef void (*unwind_built_fn)(void *arg, const struct unwind_built *built, size_t n);

int unwind_builder_new(struct targets *targets, struct unwind_tables *tables, unwind_built_fn fn, void *arg,
		       struct unwind_builder **ret) _must_check_;
/* The sampler's thread has ended, or has no job of it. */
struct unwind_builder *unwind_builder_free(struct unwind_builder *b);
bool unwind_builder_is_busy(const struct unwind_builder *b);

/* The files of one user; the descriptors stay the caller's and are duplicated by the kernel. `fn` is called once, later. 0, -errno: it is not. */
int unwind_builder_start(struct unwind_builder *b, uid_t uid, const int *fds, size_t n) _must_check_;
