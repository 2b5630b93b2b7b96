/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories that appear whole or not at all, and files that are replaced at once.
 *
 * A directory is built under ".tmp-NAME", every file and directory in it is fsynced, then it is
 * renamed to NAME (never over another) and the parent is fsynced. Whatever kills the process
 * before, only names that begin with ".tmp-" are left, and safefile_sweep() removes those.
 *
 * All paths are relative to a directory fd and are walked without following links.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define SAFEFILE_TMP_PREFIX ".tmp-"
#define SAFEFILE_MAX_NAME 200
#define SAFEFILE_MAX_DEPTH 80

struct safedir {
	int parent_fd, dir_fd;
	char name[SAFEFILE_MAX_NAME + 1];
};

#define SAFEDIR_INIT {.parent_fd = -1, .dir_fd = -1}

/* Makes the temporary directory, mode 0700. `parent_fd` is duplicated. */
int safedir_begin(int parent_fd, const char *name, struct safedir *ret) _must_check_;

/*
 * fsync of all, rename, fsync of the parent. -EEXIST if NAME is there. On failure safedir_abort()
 * is the caller's.
 */
int safedir_publish(struct safedir *d) _must_check_;

/* Removes what was built; of one that was published only the fds are closed. NULL state is fine. */
void safedir_abort(struct safedir *d);

/* Closes the fds and leaves the files. */
void safedir_close(struct safedir *d);

/* Creates a new file (0600, never an existing one); directories of `path` are made (0700). */
int safefile_create(int dir_fd, const char *path, int *ret_fd) _must_check_;
int safefile_mkdirs(int dir_fd, const char *path, int *ret_fd) _must_check_;

/*
 * Writes a file under a temporary name, fsyncs it and renames it over `name` (no directory part).
 */
int safefile_write(int dir_fd, const char *name, const void *data, size_t len) _must_check_;
/*
 * The same without waiting for the disk. After a power cut there may be anything under that name:
 * who reads it must be able to tell.
 */
int safefile_replace(int dir_fd, const char *name, const void *data, size_t len) _must_check_;

/*
 * Copies up to the end of `from_fd` (from offset 0, its position is not used) to `to_fd`. -EFBIG
 * past `max`.
 */
int safefile_copy(int from_fd, int to_fd, uint64_t max, uint64_t *ret_copied) _must_check_;

/* Opens an existing regular file read-only, no links in any part of the path. */
int safefile_open(int dir_fd, const char *path, int *ret_fd, uint64_t *ret_size) _must_check_;

/* fsyncs every file and directory below. */
int safefile_sync_tree(int dir_fd) _must_check_;

/*
 * Removes a file or a tree; -ENOENT if it is not there. Stops with -ELOOP below SAFEFILE_MAX_DEPTH.
 */
int safefile_remove_tree(int parent_fd, const char *name) _must_check_;

/*
 * 1 if somebody else has a regular file below open (or cannot be known not to), else 0. A
 * descriptor that was opened with O_PATH does not count: nothing can be read from it.
 */
int safefile_tree_is_open(int dir_fd) _must_check_;

/*
 * Removes a tree as far as nobody has its files open; with `cut` the others too. A file is made
 * empty before it loses its name, so that its space is free whatever still refers to it: who reads
 * on meets the end of the file. `last` (of the top) goes when nothing else is left. 0: the tree is
 * gone; 1: *ret_left bytes of it stay.
 */
int safefile_remove_closed(int parent_fd, const char *name, const char *last, bool cut,
			   uint64_t *ret_left) _must_check_;

/* Bytes of all regular files below (the size, not the blocks). */
int safefile_tree_size(int dir_fd, uint64_t *ret) _must_check_;

/* Removes every ".tmp-*" in the directory; *ret_removed counts them. */
int safefile_sweep(int dir_fd, unsigned *ret_removed) _must_check_;

/* Free (for us) and total bytes of the file system. */
int safefile_space(int fd, uint64_t *ret_free, uint64_t *ret_total) _must_check_;
