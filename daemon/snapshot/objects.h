/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a decoder was given and recognised, remembered so that a bundle "with objects" can
 * hold copies of them: executables, libraries, debug files, perf maps, in a tree that `perf
 * --symfs` and gdb's sysroot read. A second file of one path (a program that was upgraded while it
 * ran) goes to .inode/MAJ-MIN-INO.
 *
 *   objects_offer   when the decoder gets the file: it waits for the verdict
 *   objects_judge   the verdict: it is one of the objects, or nothing
 *   objects_settle  no verdict comes any more: what waits is dropped
 *   objects_copy    on the copier thread, after that; the others are on the loop, and make no call
 *                   on a file that its file system could hang, but the close
 */
#pragma once

#include <json-c/json.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/decoder/protocol.h"

#define OBJECTS_MAX 512
/* files whose verdict is still to come: as many as a decoder may have */
#define OBJECTS_MAX_OFFERED 64

struct objects;

/*
 * `all`: programs, libraries and debug files, too; else only what is gone with the process: a JIT's
 * perf map.
 */
int objects_new(bool all, struct objects **ret) _must_check_;
void objects_free(struct objects *o);
DEFINE_CLEANUP(struct objects *, objects_free)

/* Whether a file of this kind is of any use. */
bool objects_want(const struct objects *o, enum file_request_kind kind);

/*
 * What was given for `need`. Takes `fd` over. `dev` and `ino` are the file's own, whatever the
 * request says; `found` is where it was found beneath its root ("" for an image that was kept open:
 * then the path of the request is its place). What is over OBJECTS_MAX_OFFERED is counted only.
 */
void objects_offer(struct objects *o, const struct file_request *request, const char *found,
		   uint64_t dev, uint64_t ino, int fd);

/*
 * The verdict on the file of a request; of one that was not offered it says nothing. Over
 * OBJECTS_MAX: counted only.
 */
void objects_judge(struct objects *o, uint32_t req, bool recognised);
void objects_settle(struct objects *o);

/*
 * Copies all into `images_fd`, at most `max_bytes` together; those that do not fit are counted.
 * -ENOSPC, -ECANCELED ...
 */
int objects_copy(struct objects *o, int images_fd, uint64_t max_bytes,
		 const atomic_bool *cancel) _must_check_;

/* [{"path","file","maj","min","ino","size"}] of what was copied, and how many were not. */
struct json_object *objects_to_json(const struct objects *o);
uint64_t objects_left_out(const struct objects *o);
