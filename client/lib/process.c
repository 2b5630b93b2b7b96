// SPDX-License-Identifier: Apache-2.0
/*
 * Opening /proc/PID/maps is where the kernel decides whether this user may trace the process (as
 * for ptrace); the daemon trusts that decision, not our word.
 */
#include "client/lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int maps_open(pid_t pid, int *ret_fd)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
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
	/* EINVAL: the number of a thread that is not its process's first */
	if (fds.pidfd < 0)
		return errno == EINVAL ? -ESRCH : -errno;
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

int process_open_thread(pid_t tid, struct process_fds *ret)
{
	int fd = -1, r = maps_open(tid, &fd);

	if (r < 0)
		return r;
	ret->maps = fd;
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
