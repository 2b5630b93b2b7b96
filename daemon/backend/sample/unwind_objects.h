/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that are mapped as code: what table of unwind rules each has, and what runtime is in
 * it. An object is a file by device, inode, size and times: its table is made once, for all
 * processes, and stays. Knows of processes only whose files they have mapped.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/goroutines.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwind_list.h"
#include "daemon/backend/sample/unwind_tables.h"

struct filter;
struct json_object;
struct targets;
struct unwind_objects;

struct unwind_object {
	enum {
		UNWIND_OBJECT_NEW,
		UNWIND_OBJECT_BUILDING,
		UNWIND_OBJECT_READY,
		UNWIND_OBJECT_NONE
	} state;
	struct unwind_place place; /* of one that is ready */
	struct python_object *python; /* NULL: it is no interpreter; owned */
	struct go_object *go;	      /* NULL: it is no Go program; owned */
	bool looked;		      /* what it is is known, also where no table was asked for */
};

/* Objects have changed. On the loop. */
typedef void (*unwind_objects_fn)(void *arg);

/* `filter` unwinds (filter_unwinds()), and outlives it. */
int unwind_objects_new(struct targets *targets, const struct filter *filter, unwind_objects_fn fn,
		       void *arg, struct unwind_objects **ret) _must_check_;
/* The sampler's thread has ended. */
struct unwind_objects *unwind_objects_free(struct unwind_objects *o);

/*
 * The object of a mapping of the process, as far as it is known; asks for its table, or only what
 * it is. NULL: it will have none. Valid until the loop goes on.
 */
const struct unwind_object *unwind_objects_look(struct unwind_objects *o, pid_t pid,
						const struct unwind_area *area, bool tables);
/*
 * What has been asked for since is made, some files at a time: `fn` is called, and who misses some
 * asks again.
 */
void unwind_objects_make(struct unwind_objects *o);

void unwind_objects_status(const struct unwind_objects *o, struct json_object *status);
