// SPDX-License-Identifier: Apache-2.0
#include "common/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int io_write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int io_pwrite_all(int fd, const void *buf, size_t len, off_t off)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, off);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t io_read_full(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t io_pread_full(int fd, void *buf, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, off + (off_t)done);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* `from_begin`: wherever it stands; else it need not be one in which one can seek. */
static int read_whole(int fd, bool from_begin, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_free_ char *buf = NULL;
	size_t size = 0, len = 0;

	for (;;) {
		ssize_t n;

		if (len == size) {
			char *p;

			if (size > max)
				return -EFBIG;
			size = size ? size * 2 : 4096;
			if (size > max)
				size = max + 1;
			p = realloc(buf, size + 1);
			if (!p)
				return -ENOMEM;
			buf = p;
		}
		n = from_begin ? io_pread_full(fd, buf + len, size - len, (off_t)len)
			       : io_read_full(fd, buf + len, size - len);
		if (n < 0)
			return (int)n;
		len += (size_t)n;
		if (len < size)
			break;
	}
	if (len > max)
		return -EFBIG;
	buf[len] = '\0';
	*ret = take_ptr(buf);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int io_pread_file(int fd, size_t max, char **ret, size_t *ret_len)
{
	return read_whole(fd, true, max, ret, ret_len);
}

int io_read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? -errno : read_whole(fd, false, max, ret, ret_len);
}

ssize_t io_send_fds(int sock, const void *buf, size_t len, const int *fds, size_t n_fds, int flags)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * IO_MAX_FDS)];
	} control;
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (n_fds > IO_MAX_FDS || (n_fds > 0 && len == 0))
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do
		n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t io_recv_fds(int sock, void *buf, size_t len, int *fds, size_t max_fds, size_t *ret_n_fds,
		    int flags)
{
	/* SCM_MAX_FD of the kernel is 253: room for all of them, so that none is left unclosed. */
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int) * 253)];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	size_t n_fds = 0;
	int bad = 0;
	ssize_t n;

	do
		n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n_fds < max_fds)
				fds[n_fds++] = fd;
			else {
				(void)close_fd(fd);
				bad = 1;
			}
		}
	}
	if (bad || (msg.msg_flags & MSG_CTRUNC)) {
		while (n_fds > 0)
			(void)close_fd(fds[--n_fds]);
		return -EPROTO;
	}
	*ret_n_fds = n_fds;
	return n;
}

int io_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	/* MFD_NOEXEC_SEAL came with Linux 6.3. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

int io_above_stdio(int fd)
{
	int high, error;

	if (fd < 0 || fd > 2)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	error = errno;
	(void)close_fd(fd);
	errno = error;
	return high;
}

uint64_t io_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
