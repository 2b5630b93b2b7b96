// SPDX-License-Identifier: Apache-2.0
#include "common/base/safefile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/openat2.h"

#define CHUNK (1U << 20)

static int open_beneath(int dir_fd, const char *path, int flags, mode_t mode, int *ret_fd)
{
	int fd = openat2_fd(dir_fd, path, flags | O_NOCTTY, mode,
			    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

static int dup_cloexec(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return r < 0 ? -errno : r;
}

/*
 * ---- walking a tree without recursion: one open directory a level, and no memory, so that what
 * was made can be removed when there is none
 */

enum visit { VISIT_FILE, VISIT_DIR_ENTER, VISIT_DIR_LEAVE };

/*
 * `dir_fd` is the directory that holds `name`; at DIR_LEAVE the directory of that name was walked
 * through. Anything that is no directory is VISIT_FILE, links too.
 */
typedef int (*visit_fn)(void *arg, enum visit what, int dir_fd, const char *name);

struct level {
	int fd;
	size_t at, len; /* how far `entries` was handed out, and how much was read */
	_Alignas(struct dirent64) char entries[512]; /* a longest name has 280 */
	char name[NAME_MAX + 1]; /* of this directory in the one above */
};

static int level_open(struct level *l, int parent_fd, const char *name)
{
	int r = open_beneath(parent_fd, name, O_RDONLY | O_DIRECTORY, 0, &l->fd);

	if (r < 0)
		return r;
	l->at = l->len = 0;
	(void)snprintf(l->name, sizeof(l->name), "%s", name);
	return 0;
}

/* 1 and an entry, which stays until the next; 0 after the last. */
static int level_next(struct level *l, const struct dirent64 **ret)
{
	const struct dirent64 *e;

	do {
		if (l->at == l->len) {
			ssize_t n = getdents64(l->fd, l->entries, sizeof(l->entries));

			if (n <= 0)
				return n < 0 ? -errno : 0;
			l->at = 0;
			l->len = (size_t)n;
		}
		e = (const struct dirent64 *)(l->entries + l->at);
		l->at += e->d_reclen;
	} while (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
	*ret = e;
	return 1;
}

static bool entry_is_dir(int dir_fd, const struct dirent64 *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	return fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int walk(int dir_fd, visit_fn fn, void *arg)
{
	struct level levels[SAFEFILE_MAX_DEPTH];
	size_t depth = 0;
	int r;

	r = level_open(&levels[0], dir_fd, ".");
	if (r == 0)
		depth = 1;
	while (depth > 0 && r == 0) {
		struct level *l = &levels[depth - 1];
		const struct dirent64 *e;

		r = level_next(l, &e);
		if (r < 0)
			break;
		if (r == 0) {
			close_fdp(&l->fd);
			depth--;
			if (depth > 0)
				r = fn(arg, VISIT_DIR_LEAVE, levels[depth - 1].fd, l->name);
			continue;
		}
		if (!entry_is_dir(l->fd, e)) {
			r = fn(arg, VISIT_FILE, l->fd, e->d_name);
			continue;
		}
		if (depth == SAFEFILE_MAX_DEPTH) {
			r = -ELOOP;
			break;
		}
		r = level_open(&levels[depth], l->fd, e->d_name);
		if (r < 0)
			break;
		depth++;
		r = fn(arg, VISIT_DIR_ENTER, l->fd, e->d_name);
	}
	while (depth > 0)
		close_fdp(&levels[--depth].fd);
	return r;
}

static int visit_sync(void *arg, enum visit what, int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	if (what == VISIT_DIR_ENTER)
		return 0;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	r = open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK, 0, &fd);
	if (r < 0)
		return r;
	return fsync(fd) < 0 ? -errno : 0;
}

int safefile_sync_tree(int dir_fd)
{
	int r = walk(dir_fd, visit_sync, NULL);

	if (r < 0)
		return r;
	return fsync(dir_fd) < 0 ? -errno : 0;
}

static int visit_remove(void *arg, enum visit what, int dir_fd, const char *name)
{
	if (what == VISIT_DIR_ENTER)
		return 0;
	return unlinkat(dir_fd, name, what == VISIT_FILE ? 0 : AT_REMOVEDIR) < 0 && errno != ENOENT
		       ? -errno
		       : 0;
}

int safefile_remove_tree(int parent_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (unlinkat(parent_fd, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	r = open_beneath(parent_fd, name, O_RDONLY | O_DIRECTORY, 0, &fd);
	if (r < 0)
		return r;
	r = walk(fd, visit_remove, NULL);
	if (r < 0)
		return r;
	return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/*
 * A write lease is granted only where nobody else has the file open, mapped or on its way through a
 * socket. Whoever opens it while we have the lease waits until we close; the kernel says so by a
 * signal, which is ignored if nobody asked for it. Linux keeps leases on ext4, xfs, btrfs, tmpfs
 * and overlayfs; where there are none every file counts as open.
 */
static bool is_closed_elsewhere(int fd)
{
	return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

/*
 * For writing: one that reads would count itself. 0 and -1 as the fd where it is no regular file.
 */
static int open_to_remove(int dir_fd, const char *name, int *ret_fd, uint64_t *ret_size)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISREG(st.st_mode)) {
		r = open_beneath(dir_fd, name, O_WRONLY | O_NONBLOCK, 0, &fd);
		if (r < 0)
			return r;
	}
	*ret_size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int visit_is_open(void *arg, enum visit what, int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	uint64_t size;
	int r;

	if (what != VISIT_FILE)
		return 0;
	r = open_to_remove(dir_fd, name, &fd, &size);
	if (r < 0)
		return r;
	return fd >= 0 && !is_closed_elsewhere(fd);
}

int safefile_tree_is_open(int dir_fd)
{
	return walk(dir_fd, visit_is_open, NULL);
}

struct removal {
	const char *last;
	bool cut;
	unsigned depth, n_left;
	uint64_t left;
};

static int remove_closed(struct removal *r, int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;
	uint64_t size;
	int e;

	e = open_to_remove(dir_fd, name, &fd, &size);
	if (e < 0)
		return e == -ENOENT ? 0 : e;
	if (fd >= 0 && !is_closed_elsewhere(fd) && !r->cut) {
		r->n_left++;
		r->left += size;
		return 0;
	}
	if (fd >= 0 && ftruncate(fd, 0) < 0)
		return -errno;
	return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int visit_remove_closed(void *arg, enum visit what, int dir_fd, const char *name)
{
	struct removal *r = arg;

	switch (what) {
	case VISIT_DIR_ENTER:
		r->depth++;
		return 0;
	case VISIT_DIR_LEAVE:
		r->depth--;
		return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT &&
				       errno != ENOTEMPTY
			       ? -errno
			       : 0;
	case VISIT_FILE:
		break;
	}
	return r->depth == 0 && !strcmp(name, r->last) ? 0 : remove_closed(r, dir_fd, name);
}

int safefile_remove_closed(int parent_fd, const char *name, const char *last, bool cut,
			   uint64_t *ret_left)
{
	struct removal removal = {.last = last, .cut = cut};
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	r = open_beneath(parent_fd, name, O_RDONLY | O_DIRECTORY, 0, &fd);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = walk(fd, visit_remove_closed, &removal);
	if (r < 0)
		return r;
	if (removal.n_left == 0) {
		r = remove_closed(&removal, fd, last);
		if (r < 0)
			return r;
	} else if (fstatat(fd, last, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		removal.left += (uint64_t)st.st_size;
	}
	if (removal.n_left == 0)
		return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	*ret_left = removal.left;
	return 1;
}

static int visit_size(void *arg, enum visit what, int dir_fd, const char *name)
{
	uint64_t *total = arg;
	struct stat st;

	if (what != VISIT_FILE)
		return 0;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		*total += (uint64_t)st.st_size;
	return 0;
}

int safefile_tree_size(int dir_fd, uint64_t *ret)
{
	uint64_t total = 0;
	int r = walk(dir_fd, visit_size, &total);

	if (r == 0)
		*ret = total;
	return r;
}

int safefile_sweep(int dir_fd, unsigned *ret_removed)
{
	const struct dirent64 *e;
	unsigned removed = 0;
	struct level l;
	int r;

	r = level_open(&l, dir_fd, ".");
	if (r < 0)
		return r;
	while ((r = level_next(&l, &e)) > 0) {
		if (strncmp(e->d_name, SAFEFILE_TMP_PREFIX, strlen(SAFEFILE_TMP_PREFIX)))
			continue;
		r = safefile_remove_tree(dir_fd, e->d_name);
		if (r == 0)
			removed++;
		else /* one that resists must not keep the others, or the daemon from starting */
			log_debug("cannot remove %s: %s", e->d_name, strerror(-r));
	}
	close_fdp(&l.fd);
	if (r < 0)
		return r;
	*ret_removed = removed;
	return 0;
}

/* ---- directories that appear whole */

static int temporary_name(const char *name, char *ret, size_t size)
{
	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	if (strlen(name) > SAFEFILE_MAX_NAME || strlen(name) + sizeof(SAFEFILE_TMP_PREFIX) > size)
		return -ENAMETOOLONG;
	(void)snprintf(ret, size, "%s%s", SAFEFILE_TMP_PREFIX, name);
	return 0;
}

int safedir_begin(int parent_fd, const char *name, struct safedir *ret)
{
	_cleanup_close_ int parent = -1, dir = -1;
	char tmp[NAME_MAX + 1];
	int r;

	r = temporary_name(name, tmp, sizeof(tmp));
	if (r < 0)
		return r;
	parent = dup_cloexec(parent_fd);
	if (parent < 0)
		return parent;
	if (mkdirat(parent, tmp, 0700) < 0)
		return -errno;
	r = open_beneath(parent, tmp, O_RDONLY | O_DIRECTORY, 0, &dir);
	if (r < 0) {
		(void)unlinkat(parent, tmp, AT_REMOVEDIR);
		return r;
	}
	*ret = (struct safedir)SAFEDIR_INIT;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->parent_fd = take_fd(&parent);
	ret->dir_fd = take_fd(&dir);
	return 0;
}

int safedir_publish(struct safedir *d)
{
	char tmp[NAME_MAX + 1];
	int r;

	r = temporary_name(d->name, tmp, sizeof(tmp));
	if (r < 0)
		return r;
	r = safefile_sync_tree(d->dir_fd);
	if (r < 0)
		return r;
	if (renameat2(d->parent_fd, tmp, d->parent_fd, d->name, RENAME_NOREPLACE) < 0)
		return -errno;
	/* It is there and whole; if this fails it may be gone after a power cut, as a whole. */
	(void)fsync(d->parent_fd);
	safedir_close(d);
	return 0;
}

void safedir_close(struct safedir *d)
{
	close_fdp(&d->parent_fd);
	close_fdp(&d->dir_fd);
}

void safedir_abort(struct safedir *d)
{
	char tmp[NAME_MAX + 1];

	if (d->parent_fd >= 0 && temporary_name(d->name, tmp, sizeof(tmp)) == 0) {
		int r = safefile_remove_tree(d->parent_fd, tmp);

		if (r < 0) /* the next start sweeps it */
			log_debug("cannot remove %s: %s", tmp, strerror(-r));
	}
	safedir_close(d);
}

/* ---- files */

int safefile_mkdirs(int dir_fd, const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = dup_cloexec(dir_fd);
	char part[NAME_MAX + 1];
	unsigned depth = 0;

	if (fd < 0)
		return fd;
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		int next = -1, r;

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(part, p, n);
		part[n] = '\0';
		p += n;
		p += strspn(p, "/");
		if (n == 0 || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..") || ++depth > SAFEFILE_MAX_DEPTH)
			return -EINVAL;
		if (mkdirat(fd, part, 0700) < 0 && errno != EEXIST)
			return -errno;
		r = open_beneath(fd, part, O_RDONLY | O_DIRECTORY, 0, &next);
		if (r < 0)
			return r;
		close_fdp(&fd);
		fd = next;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

int safefile_create(int dir_fd, const char *path, int *ret_fd)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_close_ int dir = -1;
	_cleanup_free_ char *dirs = NULL;
	int r;

	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	dirs = strndup(path, slash ? (size_t)(slash - path) : 0);
	if (!dirs)
		return -ENOMEM;
	r = safefile_mkdirs(dir_fd, dirs, &dir);
	if (r < 0)
		return r;
	return open_beneath(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600, ret_fd);
}

static int replace(int dir_fd, const char *name, const void *data, size_t len, bool sync)
{
	_cleanup_close_ int fd = -1;
	char tmp[NAME_MAX + 1];
	int r;

	r = temporary_name(name, tmp, sizeof(tmp));
	if (r < 0)
		return r;
	if (unlinkat(dir_fd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	r = open_beneath(dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL, 0600, &fd);
	if (r < 0)
		return r;
	r = io_write_all(fd, data, len);
	if (r == 0 && sync && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dir_fd, tmp, dir_fd, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir_fd, tmp, 0);
	return r;
}

int safefile_write(int dir_fd, const char *name, const void *data, size_t len)
{
	return replace(dir_fd, name, data, len, true);
}

int safefile_replace(int dir_fd, const char *name, const void *data, size_t len)
{
	return replace(dir_fd, name, data, len, false);
}

int safefile_copy(int from_fd, int to_fd, uint64_t max, uint64_t *ret_copied)
{
	_cleanup_free_ char *buf = NULL;
	bool by_kernel = true;
	uint64_t done = 0;

	for (;;) {
		/* One more than allowed, so that a file that is too long shows. */
		uint64_t left = max - done < CHUNK ? max - done + 1 : CHUNK;
		ssize_t n;

		if (by_kernel) {
			off_t in = (off_t)done;

			n = sendfile(to_fd, from_fd, &in, left);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && (errno == EINVAL || errno == ENOSYS || errno == EOVERFLOW)) {
				by_kernel = false;
				buf = malloc(CHUNK);
				if (!buf)
					return -ENOMEM;
				continue;
			}
			if (n < 0)
				return -errno;
		} else {
			int r;

			n = io_pread_full(from_fd, buf, left, (off_t)done);
			if (n < 0)
				return (int)n;
			r = io_write_all(to_fd, buf, (size_t)n);
			if (r < 0)
				return r;
		}
		if (n == 0)
			break;
		done += (uint64_t)n;
		if (done > max)
			return -EFBIG;
	}
	*ret_copied = done;
	return 0;
}

int safefile_open(int dir_fd, const char *path, int *ret_fd, uint64_t *ret_size)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	r = open_beneath(dir_fd, path, O_RDONLY | O_NONBLOCK, 0, &fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	*ret_size = (uint64_t)st.st_size;
	*ret_fd = take_fd(&fd);
	return 0;
}

int safefile_space(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	struct statvfs v;

	if (fstatvfs(fd, &v) < 0)
		return -errno;
	*ret_free = (uint64_t)v.f_bavail * v.f_frsize;
	*ret_total = (uint64_t)v.f_blocks * v.f_frsize;
	return 0;
}
