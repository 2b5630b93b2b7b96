// SPDX-License-Identifier: Apache-2.0
#include "daemon/image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "common/io.h"
#include "daemon/procfs.h"

#define N_BUCKETS 1024
#define OVERLAYFS_MAGIC 0x794c7630
#define BTRFS_MAGIC 0x9123683E

struct image {
	LIST_ENTRY(image) link;
	struct images *images; /* where it is counted; outlives it */
	unsigned int refs;
	int fd;
	struct image_key key;
	enum image_frames frames;
};

struct root {
	LIST_ENTRY(root) link;
	unsigned int refs;
	int fd;
	uint64_t mount, ino;
};

struct images {
	LIST_HEAD(, image) buckets[N_BUCKETS];
	LIST_HEAD(, root) roots;
	size_t n, max;
	bool map_files_refused;
};

int images_new(size_t max, struct images **ret)
{
	struct images *images = calloc(1, sizeof(*images));

	if (!images)
		return -ENOMEM;
	images->max = max;
	*ret = images;
	return 0;
}

struct images *images_free(struct images *images)
{
	free(images);
	return NULL;
}

size_t images_count(const struct images *images)
{
	return images->n;
}

bool images_by_map_files(const struct images *images)
{
	return !images->map_files_refused;
}

static size_t bucket_of(const struct image_key *key)
{
	uint64_t h = (key->ino * 0x9e3779b97f4a7c15ULL) ^ ((uint64_t)key->maj << 20 | key->min);

	return (size_t)(h >> 17) % N_BUCKETS;
}

static bool key_equal(const struct image_key *a, const struct image_key *b)
{
	return a->ino == b->ino && a->maj == b->maj && a->min == b->min;
}

/* Overlay and btrfs show one device in mappings and another in stat. */
static bool device_may_differ(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	return (uint64_t)fs.f_type == OVERLAYFS_MAGIC || (uint64_t)fs.f_type == BTRFS_MAGIC;
}

static int check_file(int fd, const struct image_key *key)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_ino != key->ino)
		return -ESTALE;
	if ((major(st.st_dev) != key->maj || minor(st.st_dev) != key->min) && !device_may_differ(fd))
		return -ESTALE;
	return 0;
}

/* The mapping itself names the file, whatever has become of its path; needs a capability. */
static int open_map_file(struct images *images, int proc_dirfd, uint64_t start, uint64_t end)
{
	char name[64];
	int fd;

	if (images->map_files_refused)
		return -EPERM;
	(void)snprintf(name, sizeof(name), "map_files/%llx-%llx", (unsigned long long)start, (unsigned long long)end);
	fd = openat(proc_dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		if (errno == EPERM)
			images->map_files_refused = true;
		return -errno;
	}
	return fd;
}

static int open_by_path(int proc_dirfd, const char *path, const struct image_key *key)
{
	_cleanup_close_ int root = -1, fd = -1;
	/*
	 * In the target's root, links in its file system are followed as it would itself. What lies there
	 * is the target's choice, and to open a device does something: so it is looked at first.
	 */
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	char name[32];
	int r, opened;

	root = openat(proc_dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	if (fd < 0)
		return -errno;
	r = check_file(fd, key);
	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	opened = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return opened < 0 ? -errno : opened;
}

int image_get(struct images *images, int proc_dirfd, uint64_t start, uint64_t end, const char *path,
	      const struct image_key *key, struct image **ret)
{
	_cleanup_close_ int fd = -1;
	size_t bucket = bucket_of(key);
	struct image *image;
	int r;

	LIST_FOREACH(image, &images->buckets[bucket], link) {
		if (key_equal(&image->key, key)) {
			*ret = image_ref(image);
			return 0;
		}
	}
	if (images->n >= images->max)
		return -ENFILE;

	fd = open_map_file(images, proc_dirfd, start, end);
	if (fd < 0 || check_file(fd, key) < 0) {
		fd = close_fd(fd);
		if (path[0] != '/')
			return -ENOENT;
		r = open_by_path(proc_dirfd, path, key);
		if (r < 0)
			return r;
		fd = r;
	}
	image = calloc(1, sizeof(*image));
	if (!image)
		return -ENOMEM;
	image->images = images;
	image->refs = 1;
	image->key = *key;
	image->fd = take_fd(&fd);
	LIST_INSERT_HEAD(&images->buckets[bucket], image, link);
	images->n++;
	*ret = image;
	return 0;
}

struct image *image_ref(struct image *image)
{
	image->refs++;
	return image;
}

struct image *image_put(struct image *image)
{
	if (!image || --image->refs > 0)
		return NULL;
	LIST_REMOVE(image, link);
	image->images->n--;
	(void)close_fd(image->fd);
	free(image);
	return NULL;
}

int image_fd(const struct image *image)
{
	return image->fd;
}

const struct image_key *image_key(const struct image *image)
{
	return &image->key;
}

enum image_frames image_frames(const struct image *image)
{
	return image->frames;
}

void image_set_frames(struct image *image, enum image_frames frames)
{
	image->frames = frames;
}

int root_get(struct images *images, int proc_dirfd, struct root **ret)
{
	_cleanup_close_ int fd = -1;
	struct statx stx;
	struct root *root;

	fd = openat(proc_dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &stx) < 0)
		return -errno;
	LIST_FOREACH(root, &images->roots, link) {
		if (root->ino == stx.stx_ino && root->mount == stx.stx_mnt_id) {
			*ret = root_ref(root);
			return 0;
		}
	}
	root = calloc(1, sizeof(*root));
	if (!root)
		return -ENOMEM;
	root->refs = 1;
	root->ino = stx.stx_ino;
	root->mount = stx.stx_mnt_id;
	root->fd = take_fd(&fd);
	LIST_INSERT_HEAD(&images->roots, root, link);
	*ret = root;
	return 0;
}

struct root *root_ref(struct root *root)
{
	root->refs++;
	return root;
}

struct root *root_put(struct root *root)
{
	if (!root || --root->refs > 0)
		return NULL;
	LIST_REMOVE(root, link);
	(void)close_fd(root->fd);
	free(root);
	return NULL;
}

int root_fd(const struct root *root)
{
	return root->fd;
}

int image_vdso(int *ret_fd)
{
	_cleanup_free_ char *maps = NULL;
	_cleanup_close_ int fd = -1;
	unsigned long address = getauxval(AT_SYSINFO_EHDR);
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	if (!address)
		return -ENOENT;
	r = io_read_file_at(AT_FDCWD, "/proc/self/maps", PROC_MAPS_BYTES_MAX, &maps, &len);
	if (r < 0)
		return r;
	do {
		r = proc_map_next(maps, len, &pos, &map);
		if (r == 0)
			return -ENOENT;
	} while (r < 0 || map.start != address);

	fd = io_memfd("tracerd-vdso");
	if (fd < 0)
		return fd;
	r = io_write_all(fd, (const void *)address, (size_t)(map.end - map.start));
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}
