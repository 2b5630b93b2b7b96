// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "common/base/openat2.h"

#define MOUNTINFO_MAX (4u << 20)
#define PROCS_BYTES_MAX (1u << 20)
#define SEARCH_DEPTH 8
#define SEARCH_DIRS_MAX 20000

/* mountinfo writes blanks, newlines and backslashes as \ooo. */
static int unescape_octal(const char *from, size_t len, char *to, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = from[i];

		if (c == '\\' && len - i > 3) {
			c = (char)((from[i + 1] - '0') << 6 | (from[i + 2] - '0') << 3 |
				   (from[i + 3] - '0'));
			i += 3;
		}
		if (n + 1 >= size)
			return -ENAMETOOLONG;
		to[n++] = c;
	}
	to[n] = '\0';
	return 0;
}

int cgroup_mount_parse(const char *text, size_t len, char *buf, size_t size)
{
	const char *end = text + len, *line = text;

	while (line < end) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));
		const char *fs, *point = line;
		size_t n;

		if (!eol)
			eol = end;
		fs = memmem(line, (size_t)(eol - line), " - cgroup2 ", 11);
		/* Fields: id, parent, device, root, mount point. */
		for (int field = 0; fs && field < 4; field++) {
			point = memchr(point, ' ', (size_t)(fs - point));
			if (!point)
				break;
			point++;
		}
		if (fs && point && point < fs) {
			const char *stop = memchr(point, ' ', (size_t)(eol - point));

			n = (size_t)(stop - point);
			if (stop && unescape_octal(point, n, buf, size) == 0)
				return 0;
		}
		line = eol + 1;
	}
	return CGROUP_E_NONE;
}

int cgroup_mount_open(int *ret_fd)
{
	_cleanup_free_ char *text = NULL;
	char path[4096];
	size_t len;
	int r, fd;

	r = io_read_file_at(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, &len);
	if (r < 0)
		return r;
	r = cgroup_mount_parse(text, len, path, sizeof(path));
	if (r != 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int open_beneath(int dirfd, const char *path)
{
	return openat2_fd(dirfd, path, O_RDONLY | O_DIRECTORY, 0,
			  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
				  RESOLVE_NO_XDEV);
}

/*
 * The directories still to look into, by path below the mount: breadth first, so the shortest wins.
 */
struct search {
	char **paths;
	size_t n, next, room;
};

static void search_fini(struct search *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->paths[i]);
	free(s->paths);
}

static int search_push(struct search *s, const char *parent, const char *name)
{
	char *path;

	if (s->n == s->room) {
		size_t room = s->room ? s->room * 2 : 64;
		char **bigger = reallocarray(s->paths, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		s->paths = bigger;
		s->room = room;
	}
	if (asprintf(&path, "%s%s%s", parent, *parent ? "/" : "", name) < 0)
		return -ENOMEM;
	s->paths[s->n++] = path;
	return 0;
}

static unsigned int path_depth(const char *path)
{
	unsigned int depth = *path ? 1 : 0;

	for (; *path; path++)
		depth += *path == '/';
	return depth;
}

static int search_dir(struct search *s, int mount_fd, const char *path, const char *name,
		      char *found, size_t *n_found)
{
	struct dirent *de;
	DIR *dir;
	int fd, r = 0;

	fd = open_beneath(mount_fd, *path ? path : ".");
	if (fd < 0)
		return 0; /* removed meanwhile */
	dir = fdopendir(fd);
	if (!dir) {
		(void)close_fd(fd);
		return -ENOMEM;
	}
	while (r == 0 && (de = readdir(dir)) != NULL) {
		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		if (strcmp(de->d_name, name) == 0) {
			if ((*n_found)++ == 0 &&
			    snprintf(found, CGROUP_NAME_MAX, "%s%s%s", path, *path ? "/" : "",
				     de->d_name) >= CGROUP_NAME_MAX)
				r = -ENAMETOOLONG;
		} else if (s->n < SEARCH_DIRS_MAX && path_depth(path) < SEARCH_DEPTH) {
			r = search_push(s, path, de->d_name);
		}
	}
	(void)closedir(dir);
	return r;
}

static int cgroup_search(int mount_fd, const char *name, char *found)
{
	_cleanup_(search_fini) struct search s = {0};
	size_t n_found = 0;
	int r;

	r = search_push(&s, "", "");
	while (r == 0 && s.next < s.n)
		r = search_dir(&s, mount_fd, s.paths[s.next++], name, found, &n_found);
	if (r < 0)
		return r;
	if (n_found == 0)
		return CGROUP_E_NONE;
	/* The same unit name in several user managers: the path says which is meant. */
	return n_found > 1 ? CGROUP_E_MANY : 0;
}

/* Its processes are those of a cgroup above, which alone can list them. */
static bool is_threaded(int dirfd)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	return io_read_file_at(dirfd, "cgroup.type", 64, &text, &len) == 0 &&
	       strcmp(text, "threaded\n") == 0;
}

/* Cuts the path down to the cgroup that has the processes; "/" is the root. */
static void cut_to_domain(int mount_fd, char *path)
{
	_cleanup_close_ int fd = -1;
	char *slash;

	do {
		slash = strrchr(path, '/');
		slash[slash == path] = '\0';
		close_fdp(&fd);
		fd = path[1] ? open_beneath(mount_fd, path + 1) : -1;
	} while (fd >= 0 && is_threaded(fd));
}

static int open_path(int mount_fd, const char *path, struct cgroup *ret)
{
	_cleanup_close_ int fd = open_beneath(mount_fd, path);
	struct stat st;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return CGROUP_E_NONE;
	if (fd == -EXDEV || fd == -ELOOP)
		return CGROUP_E_BAD_NAME;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	(void)snprintf(ret->path, sizeof(ret->path), "/%.*s", (int)sizeof(ret->path) - 2, path);
	if (is_threaded(fd)) {
		cut_to_domain(mount_fd, ret->path);
		return CGROUP_E_THREADED;
	}
	ret->ino = st.st_ino;
	ret->dirfd = take_fd(&fd);
	return 0;
}

int cgroup_open(int mount_fd, const char *name, struct cgroup *ret)
{
	char path[CGROUP_NAME_MAX];
	int r;

	if (mount_fd < 0)
		return CGROUP_E_NONE;
	if (!*name || strlen(name) >= sizeof(path) - 1 || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return CGROUP_E_BAD_NAME;
	if (strchr(name, '/')) {
		while (*name == '/')
			name++;
		(void)snprintf(path, sizeof(path), "%s", name);
	} else {
		r = cgroup_search(mount_fd, name, path);
		if (r != 0)
			return r;
	}
	if (!*path)
		return CGROUP_E_BAD_NAME; /* the root is the whole machine */
	return open_path(mount_fd, path, ret);
}

int cgroup_open_root(int mount_fd, struct cgroup *ret)
{
	int r;

	r = mount_fd < 0 ? CGROUP_E_NONE : open_path(mount_fd, ".", ret);
	if (r == 0)
		memcpy(ret->path, "/", sizeof("/"));
	return r;
}

void cgroup_close(struct cgroup *cgroup)
{
	cgroup->dirfd = close_fd(cgroup->dirfd);
}

struct pids {
	pid_t *pids;
	size_t n, room;
};

/* Adds the processes of one directory. */
static int procs_read(int dirfd, struct pids *out)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	char *p;
	int r;

	r = io_read_file_at(dirfd, "cgroup.procs", PROCS_BYTES_MAX, &text, &len);
	if (r == -EOPNOTSUPP || r == -ENOENT || r == -ENODEV)
		/* a threaded cgroup: its domain lists the processes; or removed meanwhile */
		return 0;
	if (r < 0)
		return r;
	for (p = text; *p;) {
		char *stop;
		long pid = strtol(p, &stop, 10);

		if (stop == p)
			break;
		p = stop + (*stop == '\n');
		if (pid <= 0)
			continue; /* in another pid namespace */
		if (out->n == CGROUP_PROCS_MAX)
			return CGROUP_E_MANY;
		if (out->n == out->room) {
			size_t room = out->room ? out->room * 2 : 32;
			pid_t *bigger = reallocarray(out->pids, room, sizeof(*bigger));

			if (!bigger)
				return -ENOMEM;
			out->pids = bigger;
			out->room = room;
		}
		out->pids[out->n++] = (pid_t)pid;
	}
	return 0;
}

static int procs_below(struct search *s, int dirfd, const char *path, struct pids *out)
{
	struct dirent *de;
	DIR *dir;
	int fd, r;

	fd = open_beneath(dirfd, *path ? path : ".");
	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close_fd(fd);
		return -ENOMEM;
	}
	r = procs_read(fd, out);
	while (r == 0 && (de = readdir(dir)) != NULL)
		if (de->d_type == DT_DIR && de->d_name[0] != '.' && s->n < SEARCH_DIRS_MAX)
			r = search_push(s, path, de->d_name);
	(void)closedir(dir);
	return r;
}

int cgroup_procs(const struct cgroup *cgroup, pid_t **ret, size_t *ret_n)
{
	_cleanup_(search_fini) struct search s = {0};
	struct pids out = {0};
	int r;

	r = search_push(&s, "", "");
	while (r == 0 && s.next < s.n)
		r = procs_below(&s, cgroup->dirfd, s.paths[s.next++], &out);
	if (r != 0) {
		free(out.pids);
		return r;
	}
	*ret = out.pids;
	*ret_n = out.n;
	return 0;
}

bool cgroup_holds_only(const struct cgroup *cgroup, pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	struct pids out = {0};
	const char *below;
	size_t len;
	bool only;

	if (io_read_file_at(cgroup->dirfd, "cgroup.stat", 4096, &text, &len) < 0)
		return false;
	below = strstr(text, "nr_descendants ");
	if (!below || strtol(below + strlen("nr_descendants "), NULL, 10) != 0)
		return false;
	only = procs_read(cgroup->dirfd, &out) == 0 && out.n == 1 && out.pids[0] == pid;
	free(out.pids);
	return only;
}

bool cgroup_gone(const struct cgroup *cgroup)
{
	return faccessat(cgroup->dirfd, "cgroup.procs", F_OK, 0) < 0;
}
