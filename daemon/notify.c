// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol of sd_notify(3) on a socket that never blocks, driven by the timers of the loop.
 * sd_notify() itself blocks while the manager's socket is full, and the recording would wait with
 * it.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "common/base/log.h"
#include "daemon/control/subscribers.h"

struct notify {
	struct notify_context ctx;
	struct event *watchdog;
	struct event *status; /* one second after the first of many changes */
	int sock; /* to the manager; -1 without one */
	bool unhealthy;
};

#define READY_WAIT_MS 5000 /* for the manager to take READY; nothing is recorded yet */

DEFINE_CLEANUP(struct notify *, notify_free)

/* A path, or '@' and a name in the abstract namespace. */
static int manager_connect(const char *where)
{
	_cleanup_close_ int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	size_t len = strlen(where);

	if (sock < 0)
		return -errno;
	if ((where[0] != '/' && where[0] != '@') || len < 2 || len >= sizeof(sa.sun_path))
		return -EINVAL;
	memcpy(sa.sun_path, where, len);
	if (where[0] == '@')
		sa.sun_path[0] = '\0';
	if (connect(sock, (struct sockaddr *)&sa,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		return -errno;
	return take_fd(&sock);
}

/* What finds the manager's socket full is not said: the next status or sign of life follows. */
static bool manager_notify(const struct notify *n, const char *text)
{
	return send(n->sock, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

static void send_status(struct notify *n)
{
	char line[160] = "", text[192];

	n->ctx.describe(n->ctx.arg, line, sizeof(line));
	(void)snprintf(text, sizeof(text), "STATUS=%s", line);
	(void)manager_notify(n, text);
}

static void on_status(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	send_status(arg);
}

static void on_change(void *arg)
{
	static const struct timeval later = {.tv_sec = 1};
	struct notify *n = arg;

	if (!evtimer_pending(n->status, NULL))
		(void)evtimer_add(n->status, &later);
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	struct notify *n = arg;
	bool healthy = n->ctx.healthy(n->ctx.arg);

	(void)fd;
	(void)what;
	if (healthy)
		(void)manager_notify(n, "WATCHDOG=1");
	else if (!n->unhealthy)
		log_error("not healthy: no sign of life for the watchdog");
	n->unhealthy = !healthy;
}

int notify_new(const struct notify_context *context, struct notify **ret)
{
	_cleanup_(notify_freep) struct notify *n = calloc(1, sizeof(*n));
	const char *where = getenv("NOTIFY_SOCKET");
	uint64_t usec = 0;

	if (!n)
		return -ENOMEM;
	n->ctx = *context;
	n->sock = where && *where ? manager_connect(where) : -1;
	if (n->sock < 0) {
		if (where && *where)
			log_warning("NOTIFY_SOCKET: %s: %s", where, strerror(-n->sock));
		n->sock = -1;
		*ret = take_ptr(n);
		return 0;
	}
	n->status = evtimer_new(context->base, on_status, n);
	if (!n->status)
		return -ENOMEM;
	hub_watch(context->hub, on_change, n);
	if (sd_watchdog_enabled(0, &usec) > 0 && usec >= 2) {
		struct timeval tv = {.tv_sec = (time_t)(usec / 2 / 1000000),
				     .tv_usec = (suseconds_t)(usec / 2 % 1000000)};

		n->watchdog = event_new(context->base, -1, EV_PERSIST, on_watchdog, n);
		if (!n->watchdog || event_add(n->watchdog, &tv) < 0)
			return -ENOMEM;
	}
	*ret = take_ptr(n);
	return 0;
}

struct notify *notify_free(struct notify *n)
{
	if (!n)
		return NULL;
	if (n->sock >= 0)
		hub_watch(n->ctx.hub, NULL, NULL);
	(void)close_fd(n->sock);
	if (n->watchdog)
		event_free(n->watchdog);
	if (n->status)
		event_free(n->status);
	free(n);
	return NULL;
}

void notify_ready(struct notify *n)
{
	struct pollfd wait = {.fd = n->sock, .events = POLLOUT};

	if (n->sock < 0)
		return;
	/* The one message that must arrive. */
	(void)poll(&wait, 1, READY_WAIT_MS);
	if (!manager_notify(n, "READY=1"))
		log_warning("cannot tell the service manager that tracerd is ready: %s",
			    strerror(errno));
	send_status(n);
}

void notify_stopping(struct notify *n)
{
	if (n->sock >= 0)
		(void)manager_notify(n, "STOPPING=1\nSTATUS=stopping");
}
