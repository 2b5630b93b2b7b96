/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bundle is: the names of its files (design 4.1), how it is opened for reading and how the
 * job for a decoder is made from it. Who writes one is daemon/snapshot/bundle.c. Knows no record
 * and no schema but the few fields of meta.json that a reader needs before it decodes.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define BUNDLE_FORMAT 1 /* "format" in meta.json */

#define BUNDLE_META "meta.json"
#define BUNDLE_PERFDATA "perf.data"
#define BUNDLE_TRACE "trace.pftrace"
#define BUNDLE_GO "go.trace"
#define BUNDLE_RINGS "rings"
#define BUNDLE_IMAGES "images"
#define BUNDLE_VDSO "images/vdso.so"
#define BUNDLE_KALLSYMS "kallsyms"
#define BUNDLE_KCORE "kcore"
#define BUNDLE_MODULES "modules"

#define BUNDLE_MAX_META (16U << 20)
#define BUNDLE_MAX_FILES 4096 /* in images/ */
#define BUNDLE_MAX_DEPTH 64

struct bundle {
	int dir_fd;
	/* -1: not in this bundle */
	int meta_fd, perfdata_fd, vdso_fd, go_fd, kallsyms_fd, kcore_fd;
	int images_fd;				  /* the directory */
	bool has_rings;				  /* there is a directory of event rings */
	struct json_object *meta;		  /* NULL where it is absent or unreadable */
};

#define BUNDLE_INIT                                                                                \
	{                                                                                          \
		.dir_fd = -1, .meta_fd = -1, .perfdata_fd = -1, .vdso_fd = -1, .go_fd = -1,        \
		.kallsyms_fd = -1, .kcore_fd = -1, .images_fd = -1                                 \
	}

/*
 * Opens the files of the bundle in `dir_fd` (duplicated), regular files only, no links. -ENOENT if
 * there is nothing to decode in it, -EPROTO if its meta.json is not JSON or of a newer format.
 */
int bundle_open(int dir_fd, struct bundle *ret) _must_check_;
void bundle_close(struct bundle *b);

/*
 * The job that decodes `b`: JSON body and the fds in its order, which stay the bundle's. `out_fd`
 * is the last. `options` (consumed; may be NULL) become the body's "options".
 */
#define BUNDLE_MAX_JOB_FDS 8
int bundle_job(const struct bundle *b, const char *format, int out_fd, struct json_object *options,
	       struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS],
	       size_t *ret_n_fds) _must_check_;

/* The same for a single perf.data (`in_fd`). */
int bundle_job_perfdata(int in_fd, const char *format, int out_fd, struct json_object *options,
			struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS],
			size_t *ret_n_fds) _must_check_;

/* The same for a single execution trace of a Go program. */
int bundle_job_go(int in_fd, const char *format, int out_fd, struct json_object *options,
		  struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS],
		  size_t *ret_n_fds) _must_check_;

/*
 * Adds a file for what a job must keep until its end (the view of calls): empty, read and written
 * by place. It stays the caller's.
 */
void bundle_job_scratch(struct json_object *body, int fd, int fds[BUNDLE_MAX_JOB_FDS],
			size_t *n_fds);

/*
 * A name that a bundle may hold: harmless UTF-8, no "..", no empty part, at most BUNDLE_MAX_DEPTH
 * deep.
 */
bool bundle_name_is_valid(const char *name);

/*
 * Calls `fn` for each regular file below `dir_fd`, in order of names; stops where it answers
 * non-zero.
 */
typedef int (*bundle_file_fn)(void *arg, const char *name, uint64_t size);
int bundle_files(int dir_fd, bundle_file_fn fn, void *arg) _must_check_;
