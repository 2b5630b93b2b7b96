// SPDX-License-Identifier: Apache-2.0
/* Frames for clients that wait: the same reader and queue under poll() with a deadline. */
#include "common/control/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "common/base/io.h"

/* Waits until `events` are there: 0, -ETIMEDOUT, -errno. */
static int wait_for(int sock, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = sock, .events = events};
		uint64_t now = io_now_ns(), ms;
		int n;

		if (now >= deadline_ns)
			return -ETIMEDOUT;
		ms = (deadline_ns - now + 999999) / 1000000;
		n = poll(&p, 1, ms > INT32_MAX ? INT32_MAX : (int)ms);
		if (n > 0)
			return 0; /* an error or a hang-up shows itself in the call that follows */
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

int frame_send(int sock, const char *text, size_t len, const int *fds, size_t n_fds,
	       uint64_t deadline_ns)
{
	struct frame_queue q;
	int copies[FRAME_FDS_MAX];
	size_t n = 0;
	int r;

	if (len > FRAME_REPLY_MAX || n_fds > FRAME_FDS_MAX)
		return -EMSGSIZE;
	/* The queue closes what it sends; the caller keeps its own. */
	for (; n < n_fds; n++) {
		copies[n] = fcntl(fds[n], F_DUPFD_CLOEXEC, 3);
		if (copies[n] < 0) {
			r = -errno;
			while (n > 0)
				(void)close_fd(copies[--n]);
			return r;
		}
	}
	frame_queue_init(&q);
	r = frame_queue_push(&q, text, len, copies, n);
	while (r == 0) {
		r = frame_queue_flush(&q, sock, SIZE_MAX);
		if (r == FRAME_AGAIN)
			r = wait_for(sock, POLLOUT, deadline_ns);
	}
	frame_queue_fini(&q);
	return r == FRAME_DONE ? 0 : r;
}

int frame_recv(int sock, size_t max, char **ret_text, size_t *ret_len, int ret_fds[FRAME_FDS_MAX],
	       size_t *ret_n_fds, uint64_t deadline_ns)
{
	struct frame_reader reader;
	int r;

	frame_reader_init(&reader, max);
	for (;;) {
		r = frame_reader_read(&reader, sock);
		if (r != FRAME_AGAIN)
			break;
		r = wait_for(sock, POLLIN, deadline_ns);
		if (r < 0)
			break;
	}
	if (r == FRAME_DONE) {
		memcpy(ret_fds, reader.fds, reader.n_fds * sizeof(int));
		*ret_n_fds = reader.n_fds;
		reader.n_fds = 0;
		*ret_text = take_ptr(reader.body);
		if (ret_len)
			*ret_len = reader.len;
		r = 0;
	}
	frame_reader_fini(&reader);
	return r;
}
