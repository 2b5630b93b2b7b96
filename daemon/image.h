/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable files that targets map, opened when the mapping is first seen and kept until
 * nobody's retained data needs them: a program that has exited or was upgraded still decodes.
 * One fd for each file, whoever maps it. Also the root directories of targets, shared alike,
 * beneath which the decoder's opener looks for debug files.
 *
 * Refuses to look into the files.
 *
 * Threat: paths are the target's. They are opened beneath its root without following magic
 * links, never by O_CREAT or blocking, and count only if device and inode are the mapping's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

struct image;
struct images;
struct root;

struct image_key {
	uint32_t maj, min;
	uint64_t ino;
};

/* `max`: files kept open at once. */
int images_new(size_t max, struct images **ret) _must_check_;
/* All images and roots must have been put back. */
struct images *images_free(struct images *images);
size_t images_count(const struct images *images);
/* Whether the links in map_files may be followed; unknown until tried. */
bool images_by_map_files(const struct images *images);

/*
 * The image of a mapping [start, end) of the process whose /proc directory is `proc_dirfd`. 0;
 * -ENFILE (the limit), -ESTALE (another file is there by now), or what open said. The caller
 * puts the reference back.
 */
int image_get(struct images *images, int proc_dirfd, uint64_t start, uint64_t end, const char *path,
	      const struct image_key *key, struct image **ret) _must_check_;
struct image *image_ref(struct image *image);
struct image *image_put(struct image *image);
int image_fd(const struct image *image);
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
