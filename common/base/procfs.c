// SPDX-License-Identifier: Apache-2.0
#include "common/base/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/fileid.h"
#include "common/base/io.h"

#define STATUS_BYTES_MAX 16384
#define STAT_BYTES_MAX 4096
#define CGROUP_BYTES_MAX 65536
#define STRICT_UID_TRIES 4

bool pidfd_alive(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	/* Readable means that all threads have ended. */
	return poll(&p, 1, 0) == 0;
}

bool proc_alive(const struct proc *proc)
{
	return pidfd_alive(proc->pidfd);
}

int pidfd_pid(int pidfd, pid_t *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	const char *line;
	size_t len;
	long pid;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	r = io_read_file_at(AT_FDCWD, path, STATUS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	line = strstr(text, "\nPid:");
	if (!line)
		return PROC_E_MISMATCH;
	pid = strtol(line + 5, NULL, 10);
	if (pid < 0)
		return PROC_E_GONE; /* -1: it ended; 0: it is in another pid namespace */
	if (pid == 0)
		return PROC_E_MISMATCH;
	*ret = (pid_t)pid;
	return 0;
}

void proc_close(struct proc *proc)
{
	proc->pidfd = close_fd(proc->pidfd);
	proc->dirfd = close_fd(proc->dirfd);
}

int proc_open(pid_t pid, int pidfd, struct proc *ret)
{
	_cleanup_close_ int own = -1, dirfd = -1;
	struct proc_stat stat_now;
	char path[32];
	int r;

	if (pidfd >= 0) {
		pid_t named;

		r = pidfd_pid(pidfd, &named);
		if (r != 0)
			return r;
		if (pid > 0 && pid != named)
			return PROC_E_MISMATCH;
		pid = named;
		own = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	} else {
		if (pid <= 0)
			return PROC_E_GONE;
		own = (int)syscall(SYS_pidfd_open, pid, 0);
		/* EINVAL: the number is a thread's, not a process's. */
		if (own < 0 && (errno == ESRCH || errno == EINVAL))
			return PROC_E_GONE;
	}
	if (own < 0)
		return -errno;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dirfd < 0)
		return errno == ENOENT ? PROC_E_GONE : -errno;
	/* Alive after the directory was opened: the number was not reused in between. */
	if (!pidfd_alive(own))
		return PROC_E_GONE;
	r = proc_stat_read(dirfd, &stat_now);
	if (r == -ENOENT || r == -ESRCH)
		return PROC_E_GONE;
	if (r < 0)
		return r;
	if (!pidfd_alive(own))
		return PROC_E_GONE;

	ret->pid = pid;
	ret->start_time = stat_now.start_time;
	ret->pidfd = take_fd(&own);
	ret->dirfd = take_fd(&dirfd);
	return 0;
}

int proc_stat_parse(const char *text, size_t len, struct proc_stat *ret)
{
	const char *end = text + len, *p;
	struct proc_stat out = {0};
	unsigned int field = 3;

	/* The name may hold anything, also ") S 1 ": only the last parenthesis closes it. */
	p = memrchr(text, ')', len);
	if (!p || end - p < 4 || p[1] != ' ')
		return -EBADMSG;
	p += 2;
	out.state = *p;
	while (p < end) {
		const char *space = memchr(p, ' ', (size_t)(end - p));
		size_t n = space ? (size_t)(space - p) : (size_t)(end - p);
		char number[24];

		if (field == 4 || field == 20 || field == 22 || field == 28) {
			char *stop;
			unsigned long long value;

			if (n == 0 || n >= sizeof(number))
				return -EBADMSG;
			memcpy(number, p, n);
			number[n] = '\0';
			errno = 0;
			value = strtoull(number, &stop, 10);
			if (errno || (*stop && *stop != '\n'))
				return -EBADMSG;
			if (field == 4) {
				out.ppid = (pid_t)value;
			} else if (field == 20) {
				out.threads = value;
			} else if (field == 22) {
				out.start_time = value;
			} else {
				out.stack = value;
				*ret = out;
				return 0;
			}
		}
		if (!space)
			break;
		p = space + 1;
		field++;
	}
	return -EBADMSG;
}

int proc_stat_read(int dirfd, struct proc_stat *ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(dirfd, "stat", STAT_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	return proc_stat_parse(text, len, ret);
}

/* The value of a field of status: what follows "\nName:", up to the end of the line. */
static const char *status_field(const char *text, const char *name, size_t *ret_len)
{
	size_t n = strlen(name);
	const char *line = text;

	while (line && *line) {
		if (strncmp(line, name, n) == 0 && line[n] == ':') {
			const char *value = line + n + 1;

			*ret_len = strcspn(value, "\n");
			return value;
		}
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	return NULL;
}

static int field_numbers(const char *text, const char *name, unsigned long *out, size_t n)
{
	size_t len;
	const char *p = status_field(text, name, &len);
	char buf[256];
	char *at = buf;

	if (!p || len >= sizeof(buf))
		return -EBADMSG;
	memcpy(buf, p, len);
	buf[len] = '\0';
	for (size_t i = 0; i < n; i++) {
		char *stop;

		out[i] = strtoul(at, &stop, 10);
		if (stop == at)
			return -EBADMSG;
		at = stop;
	}
	return 0;
}

/* The last number of a field: of the innermost namespace. `def` where there is none. */
static pid_t last_number(const char *text, const char *name, pid_t def)
{
	size_t len;
	const char *value = status_field(text, name, &len), *p;

	if (!value)
		return def;
	p = value + len;
	while (p > value && isdigit((unsigned char)p[-1]))
		p--;
	return p < value + len ? (pid_t)strtol(p, NULL, 10) : def;
}

int proc_status_parse(const char *text, size_t len, struct proc_status *ret)
{
	unsigned long uids[4], gids[2], tgid;
	struct proc_status out;

	if (strlen(text) != len) /* a NUL in the middle: not what the kernel writes */
		return -EBADMSG;
	/*
	 * "Name:" is the first line and its newlines are escaped: no line of it can pose as a
	 * field.
	 */
	if (field_numbers(text, "Uid", uids, 4) < 0 || field_numbers(text, "Gid", gids, 2) < 0 ||
	    field_numbers(text, "Tgid", &tgid, 1) < 0)
		return -EBADMSG;
	out = (struct proc_status){
		.uid = (uid_t)uids[0],
		.euid = (uid_t)uids[1],
		.suid = (uid_t)uids[2],
		.fsuid = (uid_t)uids[3],
		.gid = (gid_t)gids[0],
		.egid = (gid_t)gids[1],
		.tgid = (pid_t)tgid,
		.nspid = (pid_t)tgid,
	};
	out.nspid = last_number(text, "NStgid", out.tgid);
	*ret = out;
	return 0;
}

static int status_read_at(int dirfd, const char *name, struct proc_status *ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(dirfd, name, STATUS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	return proc_status_parse(text, len, ret);
}

int proc_status_read(int dirfd, struct proc_status *ret)
{
	return status_read_at(dirfd, "status", ret);
}

int proc_comm_read(int dirfd, char *buf, size_t size)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(dirfd, "comm", PROC_COMM_MAX, &text, &len);
	if (r < 0)
		return r;
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len >= size)
		len = size - 1;
	memcpy(buf, text, len);
	buf[len] = '\0';
	return 0;
}

/*
 * The link of the executable is there as long as the memory is; not being permitted to read it says
 * nothing.
 */
static bool has_memory(int dirfd, const char *path)
{
	char name[PROC_MEMORY_PATH + 8], link[1];

	(void)snprintf(name, sizeof(name), "%sexe", path);
	return readlinkat(dirfd, name, link, sizeof(link)) >= 0 || errno != ENOENT;
}

int proc_memory_path(int dirfd, char path[PROC_MEMORY_PATH])
{
	_cleanup_free_ pid_t *tids = NULL;
	struct proc_stat stat;
	size_t n;

	path[0] = '\0';
	if (has_memory(dirfd, path))
		return 0;
	if (proc_stat_read(dirfd, &stat) < 0 || stat.threads <= 1 ||
	    proc_tasks_read(dirfd, &tids, &n) < 0)
		return -ENOENT;
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(path, PROC_MEMORY_PATH, "task/%d/", (int)tids[i]);
		if (has_memory(dirfd, path))
			return 0;
	}
	return -ENOENT;
}

static int strict_uid_at(int dirfd, const char *path, uid_t *ret_uid)
{
	char name[PROC_MEMORY_PATH + 8];
	struct proc_status status;
	struct stat st;
	int r;

	(void)snprintf(name, sizeof(name), "%sstatus", path);
	r = status_read_at(dirfd, name, &status);
	if (r < 0)
		return r;
	/*
	 * The directory's owner is the effective uid while the process is dumpable, else root. A
	 * file below it is looked up anew: the O_PATH directory's own inode may be stale.
	 */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (status.uid != status.euid || status.uid != status.suid || status.uid != status.fsuid ||
	    st.st_uid != status.euid)
		*ret_uid = 0;
	else
		*ret_uid = status.uid;
	return 0;
}

int proc_strict_uid(int dirfd, uid_t *ret_uid)
{
	char path[PROC_MEMORY_PATH];
	int r = -ESRCH;

	/*
	 * What has no memory is root's, so a thread that has is asked; and another one where that
	 * has ended meanwhile.
	 */
	for (unsigned int i = 0; i < STRICT_UID_TRIES; i++) {
		const bool lives = proc_memory_path(dirfd, path) == 0;

		r = strict_uid_at(dirfd, lives ? path : "", ret_uid);
		if (!lives || has_memory(dirfd, path))
			break;
	}
	return r;
}

int proc_exe_read(int dirfd, char *buf, size_t size)
{
	char path[PROC_MEMORY_PATH], name[PROC_MEMORY_PATH + 8];
	int r = proc_memory_path(dirfd, path);
	ssize_t n;

	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "%sexe", path);
	n = readlinkat(dirfd, name, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

int proc_maps_read(int dirfd, char **ret, size_t *ret_len)
{
	char path[PROC_MEMORY_PATH], name[PROC_MEMORY_PATH + 8];

	/* What has no memory has an empty one. */
	if (proc_memory_path(dirfd, path) < 0)
		path[0] = '\0';
	(void)snprintf(name, sizeof(name), "%smaps", path);
	return io_read_file_at(dirfd, name, PROC_MAPS_BYTES_MAX, ret, ret_len);
}

int proc_cgroup_parse(const char *text, size_t len, char *buf, size_t size)
{
	const char *end = text + len, *line = text;

	while (line < end) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));
		size_t n = eol ? (size_t)(eol - line) : (size_t)(end - line);

		if (n > 3 && memcmp(line, "0::", 3) == 0) {
			if (n - 3 >= size)
				return -ENAMETOOLONG;
			memcpy(buf, line + 3, n - 3);
			buf[n - 3] = '\0';
			return 0;
		}
		line += n + 1;
	}
	return -ENOENT;
}

int proc_cgroup_read(int dirfd, char *buf, size_t size)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(dirfd, "cgroup", CGROUP_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	return proc_cgroup_parse(text, len, buf, size);
}

int proc_thread_group(pid_t tid, pid_t *ret)
{
	_cleanup_close_ int fd = -1;
	struct proc_status status;
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)tid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? PROC_E_GONE : -errno;
	r = proc_status_read(fd, &status);
	if (r < 0)
		return r == -ESRCH || r == -ENOENT ? PROC_E_GONE : r;
	*ret = status.tgid;
	return 0;
}

int proc_tasks_read(int dirfd, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ pid_t *tids = NULL;
	_cleanup_(closedirp) DIR *dir = NULL;
	_cleanup_close_ int fd = -1;
	size_t n = 0, room = 0;
	struct dirent *de;

	fd = openat(dirfd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)take_fd(&fd);
	while (errno = 0, (de = readdir(dir)) != NULL) {
		long tid = strtol(de->d_name, NULL, 10);

		if (tid <= 0)
			continue;
		if (n == PROC_TASKS_MAX)
			return -E2BIG;
		if (n == room) {
			pid_t *bigger;

			room = room ? room * 2 : 16;
			bigger = reallocarray(tids, room, sizeof(*tids));
			if (!bigger)
				return -ENOMEM;
			tids = bigger;
		}
		tids[n++] = (pid_t)tid;
	}
	if (errno)
		return -errno;
	if (n == 0)
		return -ESRCH;
	*ret = take_ptr(tids);
	*ret_n = n;
	return 0;
}

int proc_thread_nspid(int dirfd, pid_t tid, pid_t *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[48];
	size_t len;
	int r;

	(void)snprintf(path, sizeof(path), "task/%d/status", (int)tid);
	r = io_read_file_at(dirfd, path, STATUS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	*ret = last_number(text, "NSpid", tid);
	return 0;
}

static bool parse_hex(const char **p, const char *end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *at = *p;

	while (at < end && isxdigit((unsigned char)*at)) {
		unsigned int digit = isdigit((unsigned char)*at)
					     ? (unsigned int)(*at - '0')
					     : (unsigned int)((*at | 0x20) - 'a' + 10);

		if (v >> 60)
			return false;
		v = v << 4 | digit;
		at++;
	}
	if (at == *p)
		return false;
	*p = at;
	*ret = v;
	return true;
}

static bool skip_char(const char **p, const char *end, char c)
{
	if (*p >= end || **p != c)
		return false;
	(*p)++;
	return true;
}

static bool map_parse(const char *p, const char *end, struct proc_map *out)
{
	uint64_t maj, min, ino = 0;

	if (!parse_hex(&p, end, &out->start) || !skip_char(&p, end, '-') ||
	    !parse_hex(&p, end, &out->end) || !skip_char(&p, end, ' ') || end - p < 5)
		return false;
	out->prot = (p[0] == 'r' ? PROT_READ : 0u) | (p[1] == 'w' ? PROT_WRITE : 0u) |
		    (p[2] == 'x' ? PROT_EXEC : 0u);
	out->shared = p[3] == 's';
	p += 4;
	if (!skip_char(&p, end, ' ') || !parse_hex(&p, end, &out->pgoff) ||
	    !skip_char(&p, end, ' ') || !parse_hex(&p, end, &maj) || !skip_char(&p, end, ':') ||
	    !parse_hex(&p, end, &min) || !skip_char(&p, end, ' ') || p >= end ||
	    !isdigit((unsigned char)*p))
		return false;
	while (p < end && isdigit((unsigned char)*p)) {
		if (__builtin_mul_overflow(ino, 10u, &ino) ||
		    __builtin_add_overflow(ino, (uint64_t)(*p - '0'), &ino))
			return false;
		p++;
	}
	while (p < end && *p == ' ')
		p++;
	out->maj = (uint32_t)maj;
	out->min = (uint32_t)min;
	out->ino = ino;
	out->path = p;
	out->path_len = (size_t)(end - p);
	return out->start < out->end && maj <= UINT32_MAX && min <= UINT32_MAX;
}

int proc_map_next(const char *text, size_t len, size_t *pos, struct proc_map *ret)
{
	struct proc_map out;
	const char *line, *eol;

	if (*pos >= len)
		return 0;
	line = text + *pos;
	eol = memchr(line, '\n', len - *pos);
	if (!eol)
		eol = text + len;
	*pos = (size_t)(eol - text) + 1;
	if (!map_parse(line, eol, &out))
		return -EBADMSG;
	*ret = out;
	return 1;
}

size_t proc_path_len(const char *path, size_t len)
{
	static const char deleted[] = " (deleted)";
	const size_t n = sizeof(deleted) - 1;

	return len > n && memcmp(path + len - n, deleted, n) == 0 ? len - n : len;
}

bool proc_map_has_code(const struct proc_map *map, uint32_t maj, uint32_t min, uint64_t ino,
		       uint64_t offset)
{
	return (map->prot & PROT_EXEC) && map->ino == ino && map->maj == maj && map->min == min &&
	       offset >= map->pgoff && offset - map->pgoff < map->end - map->start;
}

int proc_map_find_code(const char *text, size_t len, uint32_t maj, uint32_t min, uint64_t ino,
		       uint64_t offset, struct proc_map *ret)
{
	struct proc_map map;
	size_t pos = 0;
	int r;

	while ((r = proc_map_next(text, len, &pos, &map)) != 0)
		if (r > 0 && proc_map_has_code(&map, maj, min, ino, offset)) {
			*ret = map;
			return 0;
		}
	return -ENOENT;
}

/* Our own descriptor of `name`, if `fd` is of the same file. PROC_E_MISMATCH, -errno. */
static int same_open(int dirfd, const char *name, int fd, int *ret_fd)
{
	_cleanup_close_ int own = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	struct fileid own_id = {0};
	int r;

	if (own < 0)
		return errno == ENOENT || errno == ESRCH ? PROC_E_MISMATCH : -errno;
	r = fileid_of(own, &own_id);
	if (r < 0)
		return r;
	if (!fileid_has(&own_id, fd))
		return PROC_E_MISMATCH;
	*ret_fd = take_fd(&own);
	return 0;
}

/*
 * A main thread that has ended has an empty map, which says nothing: then it is that of any other
 * thread.
 */
static int same_maps_open(int dirfd, int fd, int *ret_fd)
{
	_cleanup_free_ pid_t *tids = NULL;
	char name[PROC_MEMORY_PATH + 8];
	size_t n = 0;
	int r = PROC_E_MISMATCH;

	if (has_memory(dirfd, ""))
		return same_open(dirfd, "maps", fd, ret_fd);
	if (proc_tasks_read(dirfd, &tids, &n) < 0)
		return PROC_E_MISMATCH;
	for (size_t i = 0; i < n && r == PROC_E_MISMATCH; i++) {
		(void)snprintf(name, sizeof(name), "task/%d/maps", (int)tids[i]);
		r = same_open(dirfd, name, fd, ret_fd);
	}
	return r;
}

int proc_maps_fd_check(const struct proc *proc, int fd)
{
	_cleanup_close_ int own = -1;
	char theirs[256], ours[256];
	struct stat st;
	struct statfs fs;
	ssize_t n, m;
	int flags, r;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return -errno;
	/* O_PATH asks the kernel nothing: it proves no right. */
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return PROC_E_MISMATCH;
	if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (fs.f_type != PROC_SUPER_MAGIC || !S_ISREG(st.st_mode))
		return PROC_E_MISMATCH;
	/*
	 * The client's open file pins the directory entry, so our own lookup finds the same inode;
	 * a file of a process that had the number before has another one.
	 */
	r = same_maps_open(proc->dirfd, fd, &own);
	if (r != 0)
		return r;
	/*
	 * An exec since the client's open ended what it was allowed: the old memory map reads
	 * empty.
	 */
	n = pread(fd, theirs, sizeof(theirs), 0);
	m = pread(own, ours, sizeof(ours), 0);
	if (n < 0 || m < 0)
		return -errno;
	if (n == 0 || n != m)
		return PROC_E_MISMATCH;
	/* The first line's address range is enough: a page of the list may change meanwhile. */
	for (ssize_t i = 0; i < n && theirs[i] != ' '; i++)
		if (theirs[i] != ours[i])
			return PROC_E_MISMATCH;
	return 0;
}
