// SPDX-License-Identifier: Apache-2.0
/*
 * A signalfd for the signals that ask a program to end. A signal is left in the descriptor: who
 * asks a second time gets the same answer.
 */
#include "client/ui/interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

int interrupt_open(void)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) {
		(void)close_fd(fd);
		return -errno;
	}
	return fd;
}

bool interrupt_pending(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return fd >= 0 && poll(&p, 1, 0) > 0;
}

int interrupt_wait(int fd, int interrupt_fd, int timeout_ms)
{
	struct pollfd p[2] = {
		{.fd = fd, .events = POLLIN},
		{.fd = interrupt_fd, .events = POLLIN},
	};
	int r = poll(p, 2, timeout_ms);

	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	return p[0].revents != 0;
}
