/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable files that targets map. Each is opened when its mapping is first seen, and kept
 * for as long as retained data needs it: a program that has exited or was upgraded still decodes.
 * Also the root directories of targets, below which the decoder's debug files are searched.
 *
 * Never reads the files and opens none itself: tracerd-open does, with the rights of the process
 * that maps it. While the mapping still exists, /proc/PID/map_files gives an O_PATH descriptor,
 * which opens nothing; a thread gets it, because the process can hang whoever looks there. An image
 * belongs to one set of rights: a user never gets what was opened for another.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/base/cred.h"

struct event_base;
struct closer;
struct filenote;
struct image;
struct images;
struct openings;
struct quota;
struct root;

struct image_key {
	uint32_t maj, min;
	uint64_t ino;
};

/*
 * `max`: files kept open at once. `openings`: NULL in tests, then none is opened. `settled` is
 * called when an opening has ended, either way; may be NULL. A copy is charged to the user whose
 * file it is.
 */
int images_new(struct event_base *base, struct closer *closer, size_t max,
	       struct openings *openings, struct quota *quota, void (*settled)(void *arg),
	       void *arg, struct images **ret) _must_check_;
/* All images and roots must have been put back. */
struct images *images_free(struct images *images);
/* The number of threads that hang in a process. */
size_t images_hanging(const struct images *images);
size_t images_count(const struct images *images);
/* Whether some were unanswered since the last call. */
bool images_were_unanswered(struct images *images);
/* Whether the links in map_files may be followed; unknown until tried. */
bool images_by_map_files(const struct images *images);

struct image_request {
	int proc_dirfd;	      /* /proc/PID of the process that maps it, or -1 if it is gone */
	pid_t pid;
	uint64_t start, end;  /* of the mapping */
	const char *path;     /* as the process sees it */
	struct image_key key; /* what the kernel says is mapped */
	struct cred *cred;    /* of the process */
	struct root *root;    /* its root directory, or NULL */
};

/*
 * The image of a mapping; the opening goes on after the call. 0, -ENFILE (the limit), -ENOENT (no
 * file), -ENOMEM. The caller puts the reference back. A later call tries again what could not be
 * opened.
 */
int image_get(struct images *images, const struct image_request *request,
	      struct image **ret) _must_check_;
struct image *image_ref(struct image *image);
struct image *image_put(struct image *image);
/* -1 until it is open. */
int image_fd(const struct image *image);
bool image_is_opening(const struct image *image);
/* It could not be opened, and why. NULL: it could, or may yet be. */
const char *image_missing(const struct image *image);
/*
 * Nobody has answered whether it can be opened, and may later: a file system that did not answer in
 * time, too many requests. image_is_due(): it is time for an image_get() that asks again; after
 * some there is none any more.
 */
bool image_is_unanswered(const struct image *image);
bool image_is_due(const struct image *image);
const struct image_key *image_key(const struct image *image);
/*
 * The digest of its first FILENOTE_HEAD bytes as it was opened, of a file on a mount where only
 * root can have put files of root (see common/decoder/opener_protocol.h). NULL: of another one, or
 * not open.
 */
const uint8_t *image_head(const struct image *image);
/* What the file was when it was opened. NULL: it is not open, or a copy in memory. */
const struct filenote *image_note(const struct image *image);

/*
 * Whether its code keeps frame pointers, as the probe has found. MOSTLY: Go's does, but for
 * functions that call nobody, and those are many: the callers of these are not found by frame
 * pointers.
 */
enum image_frames {
	IMAGE_FRAMES_UNKNOWN,
	IMAGE_FRAMES_KEPT,
	IMAGE_FRAMES_MOSTLY,
	IMAGE_FRAMES_NOT_KEPT,
	IMAGE_FRAMES_NO_VERDICT
};
enum image_frames image_frames(const struct image *image);
void image_set_frames(struct image *image, enum image_frames frames);

/* The root directory of the process. */
int root_get(struct images *images, int proc_dirfd, struct root **ret) _must_check_;
struct root *root_ref(struct root *root);
struct root *root_put(struct root *root);
int root_fd(const struct root *root);

/* A sealed memfd with the ELF image of the vDSO that the kernel gives to all, or -errno. */
int image_vdso(int *ret_fd) _must_check_;
