/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable files that targets map, opened when the mapping is first seen and kept until
 * nobody's retained data needs them: a program that has exited or was upgraded still decodes.
 * Also the root directories of targets, shared alike, beneath which the decoder's debug files are looked for.
 *
 * Refuses to look into the files, and opens none: tracerd-open does, with the rights of the process that maps it. What
 * is done here at once, while the mapping is still there, is to hold it by what /proc/PID/map_files says that it is, which
 * opens nothing; on a thread, as the process can hang whoever looks there. One file for each set of rights, whoever maps it: another user's is never taken.
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
 * `max`: files kept open at once. `openings`: NULL in tests, then none is opened. `settled` is called when one that was being
 * opened is open or is not; may be NULL. What had to be copied is charged to the user whose file it is.
 */
int images_new(struct event_base *base, struct closer *closer, size_t max, struct openings *openings, struct quota *quota,
	       void (*settled)(void *arg), void *arg, struct images **ret) _must_check_;
/* All images and roots must have been put back. */
struct images *images_free(struct images *images);
/* Threads that hang in a process whose mapping was looked at. */
size_t images_hanging(const struct images *images);
size_t images_count(const struct images *images);
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
 * The image of a mapping; it is being opened when this is back. 0, -ENFILE (the limit), -ENOENT (no file), -ENOMEM. The
 * caller puts the reference back. One that could not be opened is tried again with a later mapping.
 */
int image_get(struct images *images, const struct image_request *request, struct image **ret) _must_check_;
struct image *image_ref(struct image *image);
struct image *image_put(struct image *image);
/* -1 until it is open. */
int image_fd(const struct image *image);
bool image_is_opening(const struct image *image);
/* It could not be opened, and why. NULL: it could, or may yet be. */
const char *image_missing(const struct image *image);
const struct image_key *image_key(const struct image *image);

/* Whether its code keeps frame pointers, once somebody has found out. */
enum image_frames { IMAGE_FRAMES_UNKNOWN, IMAGE_FRAMES_KEPT, IMAGE_FRAMES_NOT_KEPT, IMAGE_FRAMES_NO_VERDICT };
enum image_frames image_frames(const struct image *image);
void image_set_frames(struct image *image, enum image_frames frames);

/* The root directory of the process. */
int root_get(struct images *images, int proc_dirfd, struct root **ret) _must_check_;
struct root *root_ref(struct root *root);
struct root *root_put(struct root *root);
int root_fd(const struct root *root);

/* A sealed memfd with the ELF image of the vDSO that the kernel gives to all, or -errno. */
int image_vdso(int *ret_fd) _must_check_;
