// SPDX-License-Identifier: Apache-2.0
/*
 * Opening /proc/PID/maps is where the kernel decides whether this user may trace the process (as
 * for ptrace); the daemon trusts that decision, not our word.
 */
#include "client/lib/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/io.h"

#define STATUS_BYTES_MAX 65536

/*
 * The link of the program is there as long as the memory is; not being permitted to read it says
 * nothing.
 */
static bool has_memory(const char *dir)
{
	char path[96], link[1];

	(void)snprintf(path, sizeof(path), "%s/exe", dir);
	return readlink(path, link, sizeof(link)) >= 0 || errno != ENOENT;
}

/*
 * The directory of the process, or of a thread that lives where its main thread has ended: that has
 * an empty map.
 */
static void find_memory(pid_t pid, char dir[static 64])
{
	const struct dirent *entry;
	char tasks[48];
	DIR *d;

	(void)snprintf(dir, 64, "/proc/%d", (int)pid);
	if (has_memory(dir))
		return;
	(void)snprintf(tasks, sizeof(tasks), "/proc/%d/task", (int)pid);
	d = opendir(tasks);
	while (d && (entry = readdir(d)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(dir, 64, "/proc/%d/task/%.16s", (int)pid, entry->d_name);
		if (has_memory(dir))
			break;
	}
	if (d)
		(void)closedir(d);
}

static int maps_open(pid_t pid, int *ret_fd)
{
	char dir[64], path[96];
	int fd;

	find_memory(pid, dir);
	(void)snprintf(path, sizeof(path), "%s/maps", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd >= 0)
		*ret_fd = fd;
	else if (errno == ENOENT || errno == ESRCH)
		return -ESRCH;
	else if (errno != EACCES && errno != EPERM)
		return -errno;
	return 0;
}

bool process_lives(const struct process_fds *fds)
{
	struct pollfd exited = {.fd = fds->pidfd, .events = POLLIN};

	return poll(&exited, 1, 0) == 0;
}

int process_open(pid_t pid, struct process_fds *ret)
{
	_cleanup_(process_fds_fini) struct process_fds fds = PROCESS_FDS_INIT;
	int r;

	fds.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	/*
	 * EINVAL, or ENOENT of later kernels: the number of a thread that is not its process's
	 * first
	 */
	if (fds.pidfd < 0)
		return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
	r = maps_open(pid, &fds.maps);
	if (r < 0)
		return r;
	/* the process lived after the maps were opened, so the maps are its own */
	if (!process_lives(&fds))
		return -ESRCH;
	ret->pidfd = take_fd(&fds.pidfd);
	ret->maps = take_fd(&fds.maps);
	return 0;
}

int process_of_thread(pid_t tid, pid_t *ret)
{
	_cleanup_free_ char *text = NULL;
	const char *line;
	char path[64];
	size_t len;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	r = io_read_file_at(AT_FDCWD, path, STATUS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	/* The name is in the first line, where a newline is escaped. */
	line = strstr(text, "\nTgid:");
	if (!line)
		return -EBADMSG;
	*ret = (pid_t)strtol(line + strlen("\nTgid:"), NULL, 10);
	return 0;
}

int process_open_thread(pid_t tid, struct process_fds *ret)
{
	_cleanup_(process_fds_fini) struct process_fds fds = PROCESS_FDS_INIT;
	char path[64];
	pid_t pid;
	int r;

	r = process_of_thread(tid, &pid);
	if (r == 0)
		r = process_open(pid, &fds);
	if (r < 0)
		return r;
	/* the number may have been another process's thread before */
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	if (access(path, F_OK) < 0 || !process_lives(&fds))
		return -ESRCH;
	ret->pidfd = take_fd(&fds.pidfd);
	ret->maps = take_fd(&fds.maps);
	return 0;
}

int process_owner(pid_t pid, uid_t *ret)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret = st.st_uid;
	return 0;
}
