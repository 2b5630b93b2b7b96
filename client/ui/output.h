/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and bundle directories that tracectl writes for its user, with the user's own rights: whole
 * or not at all. A file is written without a name and gets it in the end; a directory is built
 * under a temporary name. What exists and is no regular file (a terminal, /dev/null, a pipe) is
 * written as it is. New files are readable by their owner only: a recording may hold anything.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"
#include "common/base/safefile.h"

struct output_file {
	int fd;     /* to write to */
	int dir_fd; /* where it will be; -1: nothing is to be named */
	char *name; /* in dir_fd */
	char *tmp;  /* the temporary name where the file system has no unnamed files, else NULL */
};

#define OUTPUT_FILE_INIT                                                                           \
	{                                                                                          \
		.fd = -1, .dir_fd = -1                                                             \
	}

/* 0 or -errno. "-" is the standard output. */
int output_file_begin(const char *path, struct output_file *ret) _must_check_;

/* Gives the file its name, replacing one that is there; the file is finished then. 0 or -errno. */
int output_file_commit(struct output_file *f) _must_check_;

/*
 * An unnamed file in the directory of a file that was begun, else in $TMPDIR or /var/tmp. *ret_dir:
 * which that was, NULL: the file's own.
 */
int output_scratch_open(const struct output_file *f, const char **ret_dir) _must_check_;

/* Drops what was not committed. */
void output_file_fini(struct output_file *f);

/*
 * Begins a directory at `path`, which must not exist or be empty. Finish with safedir_publish() and
 * safedir_abort(). 0, -ENOTEMPTY, -ENOTDIR, -errno.
 */
int output_dir_begin(const char *path, struct safedir *ret) _must_check_;

/* Does `path` name a directory: by a slash at its end, or because there is one? */
bool output_is_dir(const char *path);
