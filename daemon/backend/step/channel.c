// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/step/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A stepper sends two packets a second; one that sends more is read later. */
#define READ_AT_ONCE 4
#define READ_PAUSE_US 100000
/* The kernel's minimum: room for a few unread requests, not for hundreds. */
#define SEND_BYTES 1

struct step_channel {
	int fd;
	struct step_channel_callbacks callbacks;
	struct event *readable, *again;
	struct stepabi_stats stats;
};

static int bad(char *why, size_t size, const char *text)
{
	(void)snprintf(why, size, "step: %s", text);
	return STEP_CHANNEL_E_BAD;
}

static int check(int fd, char *why, size_t size)
{
	struct sockaddr_un peer;
	socklen_t len = sizeof(int);
	int type = 0, domain = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return errno == ENOTSOCK ? bad(why, size, "not a socket") : -errno;
	len = sizeof(domain);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return -errno;
	if (domain != AF_UNIX || type != SOCK_SEQPACKET)
		return bad(why, size, "not a unix socket of type SOCK_SEQPACKET");
	len = sizeof(peer);
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return bad(why, size, "not connected with a stepper");
	return 0;
}

static void bound(uint64_t *n)
{
	if (*n > INT64_MAX)
		*n = INT64_MAX;
}

void step_channel_bound(struct stepabi_stats *stats)
{
	bound(&stats->insns);
	bound(&stats->syscalls);
	bound(&stats->signals);
	bound(&stats->threads_all);
	bound(&stats->processes_all);
	bound(&stats->unexpected_jumps);
	bound(&stats->threads_not_recorded);
	bound(&stats->stacks_not_written);
	bound(&stats->overwritten);
	bound(&stats->bytes);
	bound(&stats->max_bytes);
	bound(&stats->oldest_raw_ns);
	if (stats->error > 0 || stats->error < -4095)
		stats->error = -EIO;
}

/*
 * 1: took a packet; 0: there is none; negative: the end, and why. The kernel closes descriptors
 * that come along.
 */
static int take_packet(struct step_channel *c, const char **ret_why)
{
	struct stepabi_stats stats;
	ssize_t n;

	n = recv(c->fd, &stats, sizeof(stats), MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		*ret_why = "its stepper has ended";
		return -EPIPE;
	}
	if (n != sizeof(stats) || stats.type != STEPABI_STATS) {
		*ret_why = "its stepper sent a malformed packet";
		return -EPROTO;
	}
	step_channel_bound(&stats);
	c->stats = stats;
	return 1;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval pause = {.tv_usec = READ_PAUSE_US};
	struct step_channel *c = arg;
	const char *why = NULL;
	bool news = false;
	int r = 1;

	for (int i = 0; i < READ_AT_ONCE && r > 0; i++) {
		r = take_packet(c, &why);
		news = news || r > 0;
	}
	if (r < 0) {
		(void)event_del(c->readable);
		c->callbacks.ended(c->callbacks.arg, why);
		return;
	}
	(void)event_del(c->readable);
	(void)event_add(c->again, &pause);
	if (news)
		c->callbacks.stats(c->callbacks.arg);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct step_channel *c = arg;

	(void)event_add(c->readable, NULL);
}

int step_channel_new(struct event_base *base, int fd,
		     const struct step_channel_callbacks *callbacks, struct step_channel **ret,
		     char *why, size_t why_size)
{
	_cleanup_(step_channel_freep) struct step_channel *c = NULL;
	int r;

	r = check(fd, why, why_size);
	if (r != 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->callbacks = *callbacks;
	c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (c->fd < 0)
		return -errno;
	c->readable = event_new(base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
	c->again = evtimer_new(base, on_again, c);
	if (!c->readable || !c->again || event_add(c->readable, NULL) < 0)
		return -ENOMEM;
	*ret = take_ptr(c);
	return 0;
}

struct step_channel *step_channel_free(struct step_channel *c)
{
	if (!c)
		return NULL;
	if (c->readable)
		event_free(c->readable);
	if (c->again)
		event_free(c->again);
	(void)close_fd(c->fd);
	free(c);
	return NULL;
}

const struct stepabi_stats *step_channel_stats(const struct step_channel *c)
{
	return &c->stats;
}

int step_channel_freeze(struct step_channel *c, uint64_t max_bytes, int *ret_fd)
{
	struct stepabi_freeze request = {.type = STEPABI_FREEZE, .max_bytes = max_bytes};
	struct iovec iov = {.iov_base = &request, .iov_len = sizeof(request)};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	_cleanup_close_ int ours = -1, theirs = -1;
	const int room = SEND_BYTES;
	struct cmsghdr *cmsg;
	int pair[2];

	/* Each time, since others who hold the socket may have changed it. */
	(void)setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ours = pair[0];
	theirs = pair[1];
	cmsg = CMSG_FIRSTHDR(&message);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &theirs, sizeof(theirs));
	if (sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	*ret_fd = take_fd(&ours);
	return 0;
}
