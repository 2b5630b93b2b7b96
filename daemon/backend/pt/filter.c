// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "common/base/io.h"
#include "common/base/openat2.h"
#include "common/base/procfs.h"
#include "daemon/base/closer.h"
#include "daemon/base/refusal.h"
#include "daemon/caps.h"

#define MOUNTS_BYTES_MAX (16u << 20)
/* What separates the parts of a filter for perf, or ends a path. */
#define PERF_SEPARATORS " \t\n,;@/\"'\\"

static bool number(const char **p, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;
	const char *s = *p;

	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v) || v > max)
			return false;
	if (s == *p || *s != ':')
		return false;
	*p = s + 1;
	*ret = v;
	return true;
}

int pt_range_parse(const char *text, struct pt_range *ret)
{
	struct pt_range range = {.fd = -1};
	uint64_t maj, min;
	size_t len;

	if (!number(&text, UINT32_MAX, &maj) || !number(&text, UINT32_MAX, &min) ||
	    !number(&text, UINT64_MAX, &range.ino) || !number(&text, INT64_MAX, &range.offset) ||
	    !number(&text, INT64_MAX, &range.size))
		return -EINVAL;
	len = strlen(text);
	if (range.ino == 0 || range.size == 0 || range.size > INT64_MAX - range.offset ||
	    len == 0 || len > PT_FILTER_NAME_MAX)
		return -EINVAL;
	range.maj = (uint32_t)maj;
	range.min = (uint32_t)min;
	memcpy(range.name, text, len + 1);
	*ret = range;
	return 0;
}

int pt_filter_new(const char *const *texts, size_t n, struct closer *closer, struct pt_filter **ret)
{
	_cleanup_(pt_filter_putp) struct pt_filter *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->refs = 1;
	f->closer = closer;
	if (n == 0 || n > TARGET_FILTERS_MAX)
		return -EINVAL;
	for (; f->n < n; f->n++) {
		r = pt_range_parse(texts[f->n], &f->v[f->n]);
		if (r < 0)
			return r;
	}
	*ret = take_ptr(f);
	return 0;
}

struct pt_filter *pt_filter_ref(struct pt_filter *f)
{
	if (f)
		f->refs++;
	return f;
}

struct pt_filter *pt_filter_put(struct pt_filter *f)
{
	if (!f || --f->refs > 0)
		return NULL;
	for (size_t i = 0; i < f->n; i++) {
		closer_close_fd(f->closer, f->v[i].fd);
		free(f->v[i].path);
	}
	free(f);
	return NULL;
}

/* ---- the files */

/*
 * Of the file system of this device, as a mount table has it: "36 35 8:1 / / rw,relatime shared:1 -
 * ext4 ...". Nothing asks the file system itself, which a program may serve, and let wait.
 */
static bool is_served(const char *mounts, uint32_t maj, uint32_t min)
{
	for (const char *line = mounts; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const size_t len = strcspn(line, "\n");
		const char *type = memmem(line, len, " - ", 3);
		unsigned int a, b;

		if (!type || sscanf(line, "%*u %*u %u:%u ", &a, &b) != 2 || a != maj || b != min)
			continue;
		type += 3;
		/* fuse, fuse.NAME, fuseblk */
		return strncmp(type, "fuse", 4) == 0 && strchr(" .b", type[4]);
	}
	return false;
}

static int check_not_served(const struct pt_range *range, int proc_dirfd, char *why, size_t size)
{
	_cleanup_free_ char *mounts = NULL;
	size_t len;
	int r;

	r = io_read_file_at(proc_dirfd, "mountinfo", MOUNTS_BYTES_MAX, &mounts, &len);
	if (r < 0)
		return r;
	if (is_served(mounts, range->maj, range->min))
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "%.64s: its file is on FUSE, where a program can let tracerd wait",
			       range->name);
	return 0;
}

/*
 * By the kernel's own link to what is mapped, or where that is refused by its path in the target's
 * mount namespace.
 */
static int open_mapped(int proc_dirfd, const struct proc_map *map, const char *path,
		       bool *ret_by_link)
{
	_cleanup_close_ int root_fd = -1;
	char link[64];
	int fd;

	(void)snprintf(link, sizeof(link), "map_files/%" PRIx64 "-%" PRIx64, map->start, map->end);
	caps_look_into_folders(true);
	fd = openat(proc_dirfd, link, O_PATH | O_CLOEXEC);
	caps_look_into_folders(false);
	*ret_by_link = fd >= 0;
	if (fd >= 0 || path[0] != '/')
		return fd >= 0 ? fd : -ENOENT;
	root_fd = openat(proc_dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	return openat2_fd(root_fd, path + 1, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

/*
 * What overlayfs maps is a file below it, by whose inode the kernel compares: a filter on the one
 * that has the name would match nothing.
 */
static int check_file(const struct pt_range *range, int fd, bool by_link, char *why, size_t size)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (fs.f_type == OVERLAYFS_SUPER_MAGIC)
		return refusal(
			why, size, TARGET_E_UNSUPPORTED,
			"%.64s: its file is on overlayfs, where the kernel's address filters match nothing",
			range->name);
	/* stat() has another device on btrfs: the kernel's own link needs none. */
	if (!S_ISREG(st.st_mode) || st.st_ino != range->ino ||
	    (!by_link && (major(st.st_dev) != range->maj || minor(st.st_dev) != range->min)))
		return refusal(why, size, TARGET_E_GONE,
			       "%.64s: under the path of its file there is another file by now",
			       range->name);
	return 0;
}

/*
 * The kernel takes a mapping that only touches a range for one that has it, and then traces nothing
 * of it: the one before, when it looks for the file, and the one behind, when that is mapped later.
 * So a range keeps off the edges of its mapping.
 */
static void keep_off_edges(struct pt_range *range, const struct proc_map *map)
{
	const uint64_t last = map->pgoff + (map->end - map->start) - 1;
	uint64_t end = range->offset + range->size;

	if (end > last)
		end = last;
	if (range->offset == map->pgoff)
		range->offset++;
	range->size = end > range->offset ? end - range->offset : 1;
}

static int find_one(struct pt_range *range, int proc_dirfd, const char *maps, size_t len, char *why,
		    size_t size)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;
	bool by_link = false;
	struct proc_map map;
	int r;

	if (proc_map_find_code(maps, len, range->maj, range->min, range->ino, range->offset,
			       &map) < 0)
		return refusal(why, size, TARGET_E_BAD,
			       "%.64s: the process does not have this code mapped", range->name);
	if (map.path_len >= PATH_MAX)
		return refusal(why, size, TARGET_E_BAD, "%.64s: the path of its file is too long",
			       range->name);
	path = strndup(map.path, map.path_len);
	if (!path)
		return -ENOMEM;
	r = check_not_served(range, proc_dirfd, why, size);
	if (r != 0)
		return r;
	fd = open_mapped(proc_dirfd, &map, path, &by_link);
	if (fd == -ENOENT || fd == -ELOOP)
		return refusal(why, size, TARGET_E_GONE, "%.64s: its file cannot be found any more",
			       range->name);
	if (fd < 0)
		return fd;
	r = check_file(range, fd, by_link, why, size);
	if (r != 0)
		return r;
	keep_off_edges(range, &map);
	range->path = take_ptr(path);
	range->fd = take_fd(&fd);
	return 0;
}

int pt_filter_find(struct pt_filter *f, int proc_dirfd, char *why, size_t size)
{
	_cleanup_free_ char *maps = NULL;
	size_t len;
	int r = 0;

	if (f->v[f->n - 1].fd >= 0)
		return 0;
	r = proc_maps_read(proc_dirfd, &maps, &len);
	for (size_t i = 0; r == 0 && i < f->n; i++)
		if (f->v[i].fd < 0)
			r = find_one(&f->v[i], proc_dirfd, maps, len, why, size);
	return r;
}

/* ---- as text */

void pt_filter_kernel_text(const struct pt_filter *f, char ret[PT_FILTER_KERNEL_MAX])
{
	size_t len = 0;

	for (size_t i = 0; i < f->n; i++)
		len += (size_t)snprintf(ret + len, PT_FILTER_KERNEL_MAX - len,
					"%sfilter 0x%" PRIx64 "/0x%" PRIx64 "@/proc/self/fd/%d",
					i ? "," : "", f->v[i].offset, f->v[i].size, f->v[i].fd);
}

/* Between slashes there is nothing that perf would take for the end of the path. */
static bool perf_can_read(const char *path)
{
	while (*path == '/')
		path += 1 + strcspn(path + 1, PERF_SEPARATORS);
	return *path == '\0';
}

char *pt_filter_perf_text(const struct pt_filter *f)
{
	char *text = NULL;

	for (size_t i = 0; i < f->n; i++) {
		_cleanup_free_ char *before = text;

		text = NULL;
		if (!perf_can_read(f->v[i].path) ||
		    asprintf(&text, "%s%sfilter 0x%" PRIx64 "/0x%" PRIx64 "@%s",
			     before ? before : "", before ? "," : "", f->v[i].offset, f->v[i].size,
			     f->v[i].path) < 0)
			return NULL;
	}
	return text;
}
