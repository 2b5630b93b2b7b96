// SPDX-License-Identifier: Apache-2.0
/* Peer credentials, groups and pidfd of a Unix socket. */
#include "daemon/control/auth.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define GROUPS_MAX 65536 /* NGROUPS_MAX of the kernel */

/*
 * Supplementary groups of the peer; a list that grows between the two calls cannot be (it is fixed
 * at connect).
 */
static int has_group(int sock, gid_t wanted, bool *ret)
{
	_cleanup_free_ gid_t *groups = NULL;
	socklen_t len = 0;

	*ret = false;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) < 0 && errno != ERANGE)
		return errno == ENODATA ? 0 : -errno;
	if (len == 0)
		return 0;
	if (len > GROUPS_MAX * sizeof(gid_t))
		return -E2BIG;
	groups = malloc(len);
	if (!groups)
		return -ENOMEM;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0)
		return -errno;
	for (size_t i = 0; i < len / sizeof(gid_t); i++)
		if (groups[i] == wanted)
			*ret = true;
	return 0;
}

/*
 * Before Linux 6.5 the pid has to be looked up, and may be another process's by now. Nothing is
 * granted by it, but it should not be plainly wrong: it must still be of the same user.
 */
static int pidfd_by_pid(pid_t pid, uid_t uid)
{
	_cleanup_close_ int fd = -1;
	char path[32];
	struct stat st;

	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) < 0 || st.st_uid != uid)
		return -1;
	return take_fd(&fd);
}

int peer_init(struct peer *p, int sock, gid_t admin_gid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	bool in_group = false;
	int fd = -1, r;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	if (admin_gid != AUTH_NO_GROUP && cred.gid != admin_gid) {
		r = has_group(sock, admin_gid, &in_group);
		if (r < 0)
			return r;
	}
	len = sizeof(fd);
	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) < 0)
		fd = errno == ENOPROTOOPT ? pidfd_by_pid(cred.pid, cred.uid) : -1;
	*p = (struct peer){
		.uid = cred.uid,
		.gid = cred.gid,
		.pid = cred.pid,
		.pidfd = fd,
		.admin = cred.uid == 0 || cred.uid == geteuid() || in_group ||
			 (admin_gid != AUTH_NO_GROUP && cred.gid == admin_gid),
	};
	return 0;
}

void peer_fini(struct peer *p)
{
	p->pidfd = close_fd(p->pidfd);
}

int auth_group(const char *name, gid_t *ret)
{
	_cleanup_free_ char *buf = NULL;
	size_t size = 4096;
	struct group g, *found = NULL;

	for (;;) {
		int r;

		buf = malloc(size);
		if (!buf)
			return -ENOMEM;
		r = getgrnam_r(name, &g, buf, size, &found);
		if (r == 0)
			break;
		if (r != ERANGE || size > 1024 * 1024)
			return -r;
		free(take_ptr(buf));
		size *= 4;
	}
	if (!found)
		return -ENOENT;
	*ret = g.gr_gid;
	return 0;
}
