// SPDX-License-Identifier: Apache-2.0
#include "common/decoder/dying.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/wait.h>

#include "common/base/io.h"

struct dying_child {
	LIST_ENTRY(dying_child) entry;
	uid_t uid;
	pid_t pid;
	int pidfd;
};

static LIST_HEAD(, dying_child) dying = LIST_HEAD_INITIALIZER(dying);
static unsigned int n_dying;
static int epoll_fd = -1; /* of their pidfds */

struct dying_child *dying_child_new(uid_t uid)
{
	struct dying_child *c = calloc(1, sizeof(*c));

	if (c) {
		c->uid = uid;
		c->pidfd = -1;
	}
	return c;
}

void dying_child_free(struct dying_child *c)
{
	free(c);
}

bool decoder_dying_full(uid_t uid)
{
	const struct dying_child *c;
	unsigned int of_user = 0;

	decoder_dying_reap();
	LIST_FOREACH(c, &dying, entry)
		of_user += c->uid == uid;
	return n_dying >= DECODER_MAX_DYING || of_user >= DECODER_MAX_DYING_USER;
}

/* A zombie's wait does not wait. Somebody else's reaping (ECHILD) is an end, too. */
static bool reap(pid_t pid)
{
	pid_t r;

	while ((r = waitpid(pid, NULL, WNOHANG)) < 0 && errno == EINTR)
		;
	return r != 0;
}

void decoder_dying_add(struct dying_child *c, pid_t pid, int pidfd)
{
	struct epoll_event event = {.events = EPOLLIN};

	(void)kill(pid, SIGKILL);
	c->pid = pid;
	c->pidfd = pidfd;
	LIST_INSERT_HEAD(&dying, c, entry);
	n_dying++;
	if (pidfd >= 0 && decoder_dying_fd() >= 0)
		(void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pidfd, &event);
	decoder_dying_reap();
}

int decoder_dying_fd(void)
{
	if (epoll_fd < 0)
		epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd < 0 ? -errno : epoll_fd;
}

void decoder_dying_reap(void)
{
	struct dying_child *next;

	for (struct dying_child *c = LIST_FIRST(&dying); c; c = next) {
		next = LIST_NEXT(c, entry);
		if (!reap(c->pid))
			continue;
		LIST_REMOVE(c, entry);
		n_dying--;
		close_fdp(&c->pidfd); /* and out of the epoll */
		free(c);
	}
}

unsigned int decoder_dying_count(void)
{
	return n_dying;
}

void decoder_dying_wait(unsigned int ms)
{
	const uint64_t deadline = io_now_ns() + ms * 1000000ULL;

	for (;;) {
		struct pollfd p = {.fd = epoll_fd, .events = POLLIN};
		const uint64_t now = io_now_ns();

		decoder_dying_reap();
		if (n_dying == 0 || now >= deadline)
			return;
		(void)poll(&p, 1, (int)((deadline - now) / 1000000 + 1));
	}
}
