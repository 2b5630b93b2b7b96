// SPDX-License-Identifier: Apache-2.0
/*
 * Asks for the status as fast as one client can and prints how long the answers took.
 *
 *	poll control SOCKET SECONDS	requests on one connection of the control socket
 *	poll http SOCKET SECONDS	a new connection for each GET /status
 *
 * Output: polls, polls a second, p50, p99 and the longest in microseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/io.h"

#define MAX_POLLS 4000000u
#define MAX_ANSWER (1u << 20)

static char answer[MAX_ANSWER];

static int connect_to(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return take_fd(&fd);
}

static int poll_control(int fd)
{
	static const char request[] = "{\"v\":1,\"id\":1,\"method\":\"status\",\"params\":{}}";
	char frame[4 + sizeof(request) - 1];
	uint32_t size = htonl(sizeof(request) - 1);
	ssize_t n;
	int r;

	memcpy(frame, &size, 4);
	memcpy(frame + 4, request, sizeof(request) - 1);
	r = io_write_all(fd, frame, sizeof(frame));
	if (r < 0)
		return r;
	n = io_read_full(fd, &size, 4);
	if (n != 4)
		return n < 0 ? (int)n : -EPIPE;
	size = ntohl(size);
	if (size > sizeof(answer))
		return -EMSGSIZE;
	n = io_read_full(fd, answer, size);
	if (n != (ssize_t)size)
		return n < 0 ? (int)n : -EPIPE;
	return memmem(answer, size, "\"error\"", 7) && !memmem(answer, size, "\"result\"", 8)
		       ? -EPROTO
		       : 0;
}

static int poll_http(const char *path)
{
	static const char get[] = "GET /status HTTP/1.0\r\n\r\n";
	int s = connect_to(path);
	_cleanup_close_ int fd = s;
	ssize_t n;
	int r;

	if (s < 0)
		return s;
	r = io_write_all(fd, get, sizeof(get) - 1);
	if (r < 0)
		return r;
	n = io_read_full(fd, answer, sizeof(answer));
	if (n < 0)
		return (int)n;
	return n > 12 && memcmp(answer + 9, "200", 3) == 0 ? 0 : -EPROTO;
}

static int by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	_cleanup_free_ uint32_t *ns = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t began, end, now;
	size_t n = 0;
	int http, r = 0;

	if (argc != 4 || (strcmp(argv[1], "control") != 0 && strcmp(argv[1], "http") != 0)) {
		(void)fprintf(stderr, "usage: poll control|http SOCKET SECONDS\n");
		return 2;
	}
	http = argv[1][0] == 'h';
	ns = calloc(MAX_POLLS, sizeof(*ns));
	if (!ns)
		return 1;
	if (!http) {
		fd = connect_to(argv[2]);
		r = fd < 0 ? fd : 0;
	}
	began = now = io_now_ns();
	end = began + (uint64_t)(strtod(argv[3], NULL) * 1e9);
	while (r == 0 && now < end && n < MAX_POLLS) {
		uint64_t took;

		r = http ? poll_http(argv[2]) : poll_control(fd);
		took = io_now_ns() - now;
		now += took;
		ns[n++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
	}
	if (r < 0 || n == 0) {
		(void)fprintf(stderr, "poll: %s: %s\n", argv[2], strerror(-r));
		return 1;
	}
	qsort(ns, n, sizeof(*ns), by_value);
	(void)printf("%zu %.0f %.1f %.1f %.1f\n", n, (double)n * 1e9 / (double)(now - began),
		     ns[n / 2] / 1e3, ns[n * 99 / 100] / 1e3, ns[n - 1] / 1e3);
	return 0;
}
