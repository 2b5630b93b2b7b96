/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers a decoder's NEED with a read-only descriptor of a regular file, or with "no" and why.
 *
 * The decoder is not trusted: what it asks for by path is opened beneath fixed roots by openat2
 * without magic links, must be a regular file of a sane size, and, but for perf maps, must begin as
 * an ELF file does. With OPENER_STRICT (the daemon, which may read more than the snapshot's owner)
 * an object is answered only if device and inode are those asked for and a debug file only if
 * everybody may read it; where `uid` owns the file, that is as good. Where the paths are what a user says (`told`), the
 * folders on the way are judged likewise: who may read a file in a closed folder only if they can get there.
 *
 * Order: images/ of the bundle; the kept image (callback); the target's root; the host's root;
 * for debug files .build-id, then the directories of .gnu_debuglink. Event rings are in the bundle or nowhere.
 *
 * May block on slow or hung file systems: the daemon calls it on its copier thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/declink.h"

#define OPENER_MAX_FILE (4ULL << 30)
#define OPENER_MAX_PERFMAP (256ULL << 20)

enum opener_source {
	OPENER_NONE,
	OPENER_BUNDLE,
	OPENER_KEPT,
	OPENER_TARGET,
	OPENER_HOST,
	OPENER_SYMFS,
};
const char *opener_source_to_string(enum opener_source source);

struct opener_options {
	int bundle_fd;	  /* the bundle's directory, for its rings, or -1 */
	int images_fd;	  /* images/ of the bundle, or -1 */
	int symfs_fd;	  /* a tree that a user named (tracectl --symfs), or -1 */
	int target_root;  /* root of the target's mount namespace, or -1 */
	bool host;	  /* look in the host's root too */
	bool strict;	  /* see above */
	bool told;	  /* the records are not the kernel's word; only with strict */
	uid_t uid;	  /* owner of the target: perf maps must be theirs; strict reads what they own */
	/* The image that was opened when its mapping was seen: a borrowed fd or -1. May be NULL. */
	int (*kept)(void *arg, uint32_t maj, uint32_t min, uint64_t ino);
	void *arg;
};

struct opener_answer {
	int fd; /* the caller's; -1: not found */
	enum opener_source source;
	bool changed;
	char why[256]; /* plain words, escaped; where not found */
	char path[DECLINK_MAX_PATH + 1]; /* beneath the root it was found in, without the leading slash; "" for kept */
};

struct opener;

/* The fds in the options are duplicated; `arg` must outlive the opener. */
int opener_new(const struct opener_options *options, struct opener **ret) _must_check_;
void opener_free(struct opener *o);
DEFINE_CLEANUP(struct opener *, opener_free)

/* Fills *ret in any case. Returns 0 (found or not), or -errno where memory or descriptors ran out. */
int opener_open(struct opener *o, const struct declink_need *need, struct opener_answer *ret) _must_check_;

/* Opens a regular file beneath `root` without following magic links. For files that are named by data. */
int opener_open_beneath(int root, const char *path, uint64_t max_size, int *ret_fd) _must_check_;
