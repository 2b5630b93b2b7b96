// SPDX-License-Identifier: Apache-2.0
/*
 * Output files. It knows nothing of what is in them.
 */
#include "client/ui/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"

/* Opens the directory of `path` and returns its last part as a new string. */
static int parent_open(const char *path, int *ret_fd, char **ret_name)
{
	_cleanup_free_ char *dir = strdup(path), *base = strdup(path), *name = NULL;
	int fd;

	if (!dir || !base)
		return -ENOMEM;
	name = strdup(basename(base));
	if (!name)
		return -ENOMEM;
	if (!strcmp(name, "/") || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EISDIR;
	fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	*ret_name = take_ptr(name);
	return 0;
}

/* The name in /proc by which an unnamed file can be linked. */
static void proc_name(int fd, char buf[64])
{
	(void)snprintf(buf, 64, "/proc/self/fd/%d", fd);
}

/* A hidden temporary name with our process id in it. */
static char *temporary_name(const char *name)
{
	char *tmp = NULL;

	if (asprintf(&tmp, ".%.200s.%d.tmp", name, (int)getpid()) < 0)
		return NULL;
	return tmp;
}

/*
 * A file without a name, or by a temporary one where the file system has no such files: *ret_tmp,
 * else untouched.
 */
static int temporary_open(int dir_fd, const char *name, char **ret_tmp)
{
	_cleanup_free_ char *tmp = NULL;
	int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	tmp = temporary_name(name);
	if (!tmp)
		return -ENOMEM;
	fd = openat(dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	*ret_tmp = take_ptr(tmp);
	return fd;
}

int output_file_begin(const char *path, struct output_file *ret)
{
	_cleanup_(output_file_fini) struct output_file f = OUTPUT_FILE_INIT;
	_cleanup_free_ char *real = NULL;
	struct stat st;
	int r;

	if (!strcmp(path, "-") || stat(path, &st) == 0) {
		if (!strcmp(path, "-")) {
			f.fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		} else if (S_ISREG(st.st_mode)) {
			/* through a link to what it points to */
			real = realpath(path, NULL);
			if (!real)
				return -errno;
			path = real;
		} else {
			f.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
			if (f.fd < 0)
				return -errno;
		}
		if (!real) {
			if (f.fd < 0)
				return -errno;
			*ret = f;
			f = (struct output_file)OUTPUT_FILE_INIT;
			return 0;
		}
	}
	r = parent_open(path, &f.dir_fd, &f.name);
	if (r < 0)
		return r;
	f.fd = temporary_open(f.dir_fd, f.name, &f.tmp);
	if (f.fd < 0)
		return f.fd;
	*ret = f;
	f = (struct output_file)OUTPUT_FILE_INIT;
	return 0;
}

/* The scratch file has a name for a moment where there are no unnamed files. */
static int scratch_open(int dir_fd)
{
	_cleanup_free_ char *tmp = NULL;
	const int fd = temporary_open(dir_fd, "tracectl-scratch", &tmp);

	if (fd >= 0 && tmp)
		(void)unlinkat(dir_fd, tmp, 0);
	return fd;
}

int output_scratch_open(const struct output_file *f, const char **ret_dir)
{
	_cleanup_close_ int dir = -1;
	const char *path = getenv("TMPDIR");

	*ret_dir = NULL;
	if (f->dir_fd >= 0)
		return scratch_open(f->dir_fd);
	*ret_dir = path && *path ? path : "/var/tmp";
	dir = open(*ret_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -errno : scratch_open(dir);
}

int output_file_commit(struct output_file *f)
{
	char proc[64];

	if (f->dir_fd < 0) {
		output_file_fini(f);
		return 0;
	}
	if (!f->tmp) {
		proc_name(f->fd, proc);
		if (linkat(AT_FDCWD, proc, f->dir_fd, f->name, AT_SYMLINK_FOLLOW) == 0) {
			output_file_fini(f);
			return 0;
		}
		if (errno != EEXIST)
			return -errno;
		/* a link cannot replace; a rename can, from a name of its own */
		f->tmp = temporary_name(f->name);
		if (!f->tmp)
			return -ENOMEM;
		if (linkat(AT_FDCWD, proc, f->dir_fd, f->tmp, AT_SYMLINK_FOLLOW) < 0) {
			int r = -errno;

			free(take_ptr(f->tmp));
			return r;
		}
	}
	if (renameat(f->dir_fd, f->tmp, f->dir_fd, f->name) < 0)
		return -errno;
	free(take_ptr(f->tmp));
	output_file_fini(f);
	return 0;
}

void output_file_fini(struct output_file *f)
{
	if (f->tmp)
		(void)unlinkat(f->dir_fd, f->tmp, 0);
	free(f->tmp);
	free(f->name);
	(void)close_fd(f->fd);
	(void)close_fd(f->dir_fd);
	*f = (struct output_file)OUTPUT_FILE_INIT;
}

int output_dir_begin(const char *path, struct safedir *ret)
{
	_cleanup_close_ int parent = -1;
	_cleanup_free_ char *name = NULL;
	int r = parent_open(path, &parent, &name);

	if (r < 0)
		return r;
	/* only an empty one can be removed; what cannot be made again is never touched */
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return errno == EEXIST ? -ENOTEMPTY : -errno;
	return safedir_begin(parent, name, ret);
}

bool output_is_dir(const char *path)
{
	size_t n = strlen(path);
	struct stat st;

	return (n && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}
