// SPDX-License-Identifier: Apache-2.0
/* sd_notify(3) with the loop's timers. */
#include "daemon/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "common/log.h"
#include "daemon/subscribe.h"

struct notify {
	struct notify_context ctx;
	struct event *watchdog;
	struct event *status; /* one second behind the first of many changes */
	bool managed, unhealthy;
};

DEFINE_CLEANUP(struct notify *, notify_free)

static void send_status(struct notify *n)
{
	char line[160] = "";

	n->ctx.describe(n->ctx.arg, line, sizeof(line));
	(void)sd_notifyf(0, "STATUS=%s", line);
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
		(void)sd_notify(0, "WATCHDOG=1");
	else if (!n->unhealthy)
		log_error("not healthy: the watchdog is not told that all is well");
	n->unhealthy = !healthy;
}

int notify_new(const struct notify_context *context, struct notify **ret)
{
	_cleanup_(notify_freep) struct notify *n = calloc(1, sizeof(*n));
	uint64_t usec = 0;

	if (!n)
		return -ENOMEM;
	n->ctx = *context;
	n->managed = getenv("NOTIFY_SOCKET") != NULL;
	if (!n->managed) {
		*ret = take_ptr(n);
		return 0;
	}
	n->status = evtimer_new(context->base, on_status, n);
	if (!n->status)
		return -ENOMEM;
	hub_watch(context->hub, on_change, n);
	if (sd_watchdog_enabled(0, &usec) > 0 && usec >= 2) {
		struct timeval tv = {.tv_sec = (time_t)(usec / 2 / 1000000), .tv_usec = (suseconds_t)(usec / 2 % 1000000)};

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
	if (n->managed)
		hub_watch(n->ctx.hub, NULL, NULL);
	if (n->watchdog)
		event_free(n->watchdog);
	if (n->status)
		event_free(n->status);
	free(n);
	return NULL;
}

void notify_ready(struct notify *n)
{
	if (!n->managed)
		return;
	(void)sd_notify(0, "READY=1");
	send_status(n);
}

void notify_stopping(struct notify *n)
{
	if (n->managed)
		(void)sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}
