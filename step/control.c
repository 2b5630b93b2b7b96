// SPDX-License-Identifier: Apache-2.0
#include "step/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/stepabi.h"

/* So many requests are answered at once, while the threads wait. */
#define TURN_MAX 4
#define STATS_NS 500000000ULL

struct step_control {
	int fd; /* -1: the other end is closed */
	struct step *step; /* not owned */
	struct stepabi_stats sent;
	uint64_t sent_at; /* io_now_ns() */
};

static bool is_seqpacket(int fd)
{
	socklen_t len = sizeof(int);
	int type = 0, domain = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return false;
	len = sizeof(int);
	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
	       type == SOCK_SEQPACKET;
}

static void on_io(int signal)
{
	(void)signal;
	step_wake();
}

int step_control_new(int *fd, struct step_control **ret)
{
	/* no SA_RESTART: it interrupts waits */
	const struct sigaction action = {.sa_handler = on_io};
	struct step_control *c;

	if (!is_seqpacket(*fd))
		return -EPROTOTYPE;
	if (sigaction(SIGIO, &action, NULL) < 0 || fcntl(*fd, F_SETOWN, getpid()) < 0 ||
	    fcntl(*fd, F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC) < 0)
		return -errno;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = take_fd(fd);
	*ret = c;
	return 0;
}

struct step_control *step_control_free(struct step_control *c)
{
	if (c)
		(void)close_fd(c->fd);
	free(c);
	return NULL;
}

static int send_packet(int fd, const void *packet, size_t size, const int *fds, size_t n_fds)
{
	ssize_t n = io_send_fds(fd, packet, size, fds, n_fds, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 ? (int)n : 0;
}

int step_control_hello(struct step_control *c, pid_t pid, int error, const char *why)
{
	struct stepabi_hello hello = {.type = STEPABI_HELLO,
				      .version = STEPABI_VERSION,
				      .pid = (int32_t)pid,
				      .error = error};

	(void)snprintf(hello.why, sizeof(hello.why), "%s", why);
	return send_packet(c->fd, &hello, sizeof(hello), NULL, 0);
}

/* ---- statistics */

static void fill_stats(struct step_control *c, struct stepabi_stats *out)
{
	const struct step_stats *s = step_stats(c->step);

	*out = (struct stepabi_stats){
		.type = STEPABI_STATS,
		.ended = (uint32_t)s->end,
		.error = s->error,
		.threads = (uint32_t)step_alive(c->step),
		.insns = s->insns,
		.syscalls = s->syscalls,
		.signals = s->signals,
		.threads_all = s->threads,
		.processes_all = s->processes,
		.unexpected_jumps = s->unexpected_jumps,
		.threads_not_recorded = s->threads_not_recorded,
		.stacks_not_written = s->stacks_not_written,
		.overwritten = s->overwritten,
		.bytes = s->bytes,
		.max_bytes = step_max_bytes(c->step),
		.oldest_raw_ns = step_oldest_raw_ns(c->step),
	};
}

/* The time of the oldest packet does not count: it is computed anew each time. */
static bool changed(const struct stepabi_stats *now, const struct stepabi_stats *sent)
{
	struct stepabi_stats a = *now, b = *sent;

	a.oldest_raw_ns = b.oldest_raw_ns = 0;
	return memcmp(&a, &b, sizeof(a)) != 0;
}

/*
 * Sends what has changed. If it is too soon for that, returns the ns to wait; 0: there is nothing
 * more to send.
 */
static uint64_t send_stats(struct step_control *c)
{
	const uint64_t now = io_now_ns();
	struct stepabi_stats stats;

	fill_stats(c, &stats);
	if (!changed(&stats, &c->sent))
		return 0;
	if (c->sent_at && now - c->sent_at < STATS_NS)
		return STATS_NS - (now - c->sent_at);
	c->sent_at = now;
	if (send_packet(c->fd, &stats, sizeof(stats), NULL, 0) < 0)
		return STATS_NS; /* nobody reads: send newer ones later */
	c->sent = stats;
	return 0;
}

/* ---- requests */

static void answer(struct step_control *c, const struct stepabi_freeze *request, int to)
{
	_cleanup_(step_files_fini) struct step_files f = STEP_FILES_INIT;
	struct stepabi_frozen frozen = {.type = STEPABI_FROZEN};
	const uint64_t begin = io_now_ns();
	int fds[3], r;
	size_t n = 0;

	frozen.error = step_freeze(c->step, request->max_bytes, &f);
	frozen.raw_ns = f.raw_ns;
	fill_stats(c, &frozen.stats);
	if (frozen.error == 0) {
		const int all[] = {f.perfdata, f.code, f.vdso};

		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			if (all[i] >= 0) {
				frozen.files |= 1u << i;
				fds[n++] = all[i];
			}
	}
	r = send_packet(to, &frozen, sizeof(frozen), fds, n);
	log_info("copied %llu bytes of packets: %s; threads waited %llu us",
		 (unsigned long long)frozen.stats.bytes,
		 r < 0              ? "not sent"
		 : frozen.error < 0 ? strerror(-frozen.error)
				    : "sent",
		 (unsigned long long)((io_now_ns() - begin) / 1000));
}

/* One request; false if there is none now. */
static bool take_request(struct step_control *c)
{
	union {
		struct stepabi_freeze freeze;
		uint8_t bytes[STEPABI_MAX];
	} packet;
	int fds[1] = {-1};
	size_t n_fds = 0;
	ssize_t n = io_recv_fds(c->fd, &packet, sizeof(packet), fds, ARRAY_SIZE(fds), &n_fds,
				MSG_DONTWAIT);
	_cleanup_close_ int to = n_fds > 0 ? fds[0] : -1;

	if (n == -EAGAIN)
		return false;
	if (n == -EPROTO) {
		log_warning("received a request with too many descriptors");
		return true;
	}
	if (n <= 0) {
		c->fd = close_fd(c->fd);
		step_ask_end();
		return false;
	}
	if ((size_t)n != sizeof(packet.freeze) || packet.freeze.type != STEPABI_FREEZE || to < 0 ||
	    !is_seqpacket(to))
		log_warning("received a malformed request");
	else
		answer(c, &packet.freeze, to);
	return true;
}

static void on_wake(void *arg)
{
	struct step_control *c = arg;
	unsigned int n = 0;
	uint64_t later;

	while (n < TURN_MAX && c->fd >= 0 && take_request(c))
		n++;
	if (c->fd < 0)
		return;
	later = send_stats(c);
	step_wake_in(c->step, later ? later : STATS_NS, later > 0);
	if (n == TURN_MAX)
		step_wake();
}

/* Nothing is stepped any more: answers requests until the other end is closed. */
static void serve(struct step_control *c)
{
	const int asks = step_asks();

	while (c->fd >= 0 && step_asks() == asks) {
		struct pollfd fd = {.fd = c->fd, .events = POLLIN};
		const uint64_t later = send_stats(c);

		if (poll(&fd, 1, later ? (int)(later / 1000000 + 1) : -1) < 0 && errno != EINTR)
			break;
		while (c->fd >= 0 && take_request(c))
			;
	}
}

void step_control_run(struct step_control *c, struct step *s)
{
	c->step = s;
	step_on_wake(s, on_wake, c);
	step_run(s);
	if (step_has_tail(s))
		step_run_tail(s);
	log_info("%s", step_end_name(step_stats(s)->end));
	if (c->fd >= 0)
		(void)fcntl(c->fd, F_SETFL, O_RDWR | O_NONBLOCK);
	step_on_wake(s, NULL, NULL);
	serve(c);
}
