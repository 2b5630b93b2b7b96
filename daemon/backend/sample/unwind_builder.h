/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has tables of unwind rules made of files: tracerd-decode reads them, sandboxed and at low
 * priority, the sampler's thread checks and loads what it wrote, and keeps it on disk where it may;
 * what is there is not made. One batch at a time. Knows no processes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/goroutines.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwind_cache.h"
#include "daemon/backend/sample/unwind_tables.h"

#define UNWIND_BATCH_MAX 8

struct json_object;
struct targets;
struct unwind_builder;

struct unwind_source {
	int fd;
	bool kept; /* it is looked for on disk, and kept there, by `key` */
	struct unwind_key key;
};

/* What became of each file: 0, or -errno. On the loop. */
struct unwind_built {
	int result;
	struct unwind_place place;
	struct python_object python; /* of an interpreter */
	struct go_object go;	     /* of a Go program */
};
typedef void (*unwind_built_fn)(void *arg, const struct unwind_built *built, size_t n);

int unwind_builder_new(struct targets *targets, struct unwind_tables *tables, unwind_built_fn fn,
		       void *arg, struct unwind_builder **ret) _must_check_;
/* The sampler's thread has ended, or has no job of it. */
struct unwind_builder *unwind_builder_free(struct unwind_builder *b);
bool unwind_builder_is_busy(const struct unwind_builder *b);

/*
 * Files of one owner, which one decoder reads, for one user; the descriptors stay the caller's and
 * are duplicated. Without `tables` only what they are is asked for, and the result of that is
 * -ENODATA. `fn` is called once, later. 0, -errno: it is not.
 */
int unwind_builder_start(struct unwind_builder *b, uid_t uid, const struct unwind_source *sources,
			 size_t n, bool tables) _must_check_;

/* Adds "cache". */
void unwind_builder_status(const struct unwind_builder *b, struct json_object *status);
