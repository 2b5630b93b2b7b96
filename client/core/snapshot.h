/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands about snapshots share: following one to its end, fetching its files, and one
 * call for each of many.
 */
#pragma once

#include "client/core/ctl.h"

/* The moment of one that is asked for now: asked_raw_ns of its request. */
uint64_t snapshot_moment(void);

/* Asks for the events that snapshot_follow() lives on; before that, and when the snapshot is
 * created, as its moment passes. An exit code. */
int snapshot_subscribe(struct ctl *ctl) _must_check_;

/*
 * Waits until the snapshot has ended, with a progress line. A signal in `interrupt_fd` cancels the
 * snapshot. *ret_snapshot is set with EXIT_OK only, and then its state is an end: "done", "failed"
 * or "cancelled". Other exit codes have been reported.
 */
int snapshot_follow(struct ctl *ctl, const char *id, uint64_t timeout_ns, int interrupt_fd,
	struct json_object **ret_snapshot) _must_check_;

/*
 * Fetches the file `name` of a snapshot into the file `path`, or all files into the directory
 * `path`. *ret_bytes is what was written. An exit code; a failure has been reported.
 */
int snapshot_fetch_file(struct ctl *ctl, const char *id, const char *name, const char *path,
	int interrupt_fd, uint64_t *ret_bytes) _must_check_;
int snapshot_fetch_dir(struct ctl *ctl, const char *id, const char *path, int interrupt_fd,
	uint64_t *ret_bytes) _must_check_;

/* What a snapshot has: *ret_files has "files", each with a "name" that is a safe path. */
int snapshot_files(struct ctl *ctl, const char *id, struct json_object **ret_files) _must_check_;

/* Calls `method` for each id and prints "`done` ID". Returns the first failure's exit code. */
int snapshot_each(
	struct ctl *ctl, const char *method, const char *done, const char *const *ids, size_t n);
