/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a decoder was given, remembered so that a bundle "with objects" can hold copies of them: executables,
 * libraries, debug files, perf maps, in a tree that `perf --symfs` and gdb's sysroot read. A second file of
 * one path (a program that was upgraded while it ran) goes to .inode/MAJ-MIN-INO.
 *
 * objects_add() on the loop, objects_copy() on the copier thread once nothing is added any more.
 */
#pragma once

#include <json-c/json.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/declink.h"

#define OBJECTS_MAX 512

struct objects;

/* `all`: programs, libraries and debug files, too; else only what is gone with the process: a JIT's perf map. */
int objects_new(bool all, struct objects **ret) _must_check_;
void objects_free(struct objects *o);
DEFINE_CLEANUP(struct objects *, objects_free)

/*
 * Remembers a file by a duplicate of `fd`. `found` is where it was found beneath its root ("" for an image that was
 * kept open: then the path of the request is its place). What is over OBJECTS_MAX is counted only.
 */
void objects_add(struct objects *o, const struct declink_need *need, const char *found, int fd);

/* Copies all into `images_fd`, at most `max_bytes` together; those that do not fit are counted. -ENOSPC, -ECANCELED ... */
int objects_copy(struct objects *o, int images_fd, uint64_t max_bytes, const atomic_bool *cancel) _must_check_;

/* [{"path","file","maj","min","ino","size"}] of what was copied, and how many were not. */
struct json_object *objects_to_json(const struct objects *o);
uint64_t objects_left_out(const struct objects *o);
