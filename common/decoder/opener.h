/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers a decoder's NEED with a read-only descriptor of a regular file, or with "no" and why.
 *
 * The decoder is not trusted: what it asks for by path is opened beneath fixed roots by openat2
 * without magic links, must be a regular file of a sane size, and, but for perf maps, must begin as
 * an ELF file does, or be in a tree that the user named, or without `strict` the very file of the
 * record. Whether it is the file that was asked for (build id, CRC, the lines of a map) only the
 * decoder finds out.
 *
 * With `strict` an object is answered only if it is the very file of the record, as the kernel
 * names it: common/base/fileid.h.
 *
 * The opener asks the kernel with the rights of its caller, and checks none by itself: permissions,
 * ACLs, groups and mounts are the kernel's to judge. So tracectl opens as its user, and on behalf
 * of a target this runs in a process that has the rights of the target's user and no others
 * (open/).
 *
 * Order: images/ of the bundle; a tree that the user named; the mapped file itself; the root that
 * the paths are of. For debug files .build-id, then the directories of .gnu_debuglink. Event rings
 * are in the bundle or nowhere.
 *
 * May block for as long as a file system likes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/decoder/protocol.h"

#define OPENER_MAX_FILE (4ULL << 30)
#define OPENER_MAX_FLAT (1ULL << 47) /* of memory, by its addresses: mostly a hole */
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
	int bundle_fd;	/* the bundle's directory, for its rings, or -1 */
	int images_fd;	/* images/ of the bundle, or -1 */
	int symfs_fd;	/* a tree that a user named (tracectl --symfs), or -1 */
	int root_fd;	/* the root of the paths, or -1; absolute links stay in it */
	enum opener_source root_source; /* what that root is: OPENER_TARGET or OPENER_HOST */
	/* of an object: what /proc/PID/map_files says that is mapped (O_PATH), or -1 */
	int mapped_fd;
	bool strict;	/* see above */
	uid_t uid;	/* perf maps must be theirs */
};

struct opener_answer {
	int fd; /* the caller's; -1: not found */
	enum opener_source source;
	bool changed;
	struct stat stat; /* of what was found */
	char why[256]; /* plain words, escaped; where not found */
	/* beneath the root it was found in, without the leading slash; "" for what is mapped */
	char path[FILE_REQUEST_MAX_PATH + 1];
};

struct opener;

/* The fds in the options are duplicated. */
int opener_new(const struct opener_options *options, struct opener **ret) _must_check_;
void opener_free(struct opener *o);
DEFINE_CLEANUP(struct opener *, opener_free)

/*
 * Fills *ret in any case. Returns 0 (found or not), or -errno where memory or descriptors ran out.
 */
int opener_open(struct opener *o, const struct file_request *request,
		struct opener_answer *ret) _must_check_;
