/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to the service manager: READY, STATUS, STOPPING, and the watchdog's sign of life,
 * which is given only while the rest of the daemon says that it is healthy. Without a manager
 * (no NOTIFY_SOCKET) all of it does nothing and wakes nobody.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>

#include "common/base/cleanup.h"

struct hub;
struct notify;

struct notify_context { /* all borrowed */
	struct event_base *base;
	struct hub *hub; /* its events make the status text be looked at again */
	bool (*healthy)(void *arg);
	void (*describe)(void *arg, char *buf, size_t size); /* one line for STATUS= */
	void *arg;
};

int notify_new(const struct notify_context *context, struct notify **ret) _must_check_;
struct notify *notify_free(struct notify *n);
void notify_ready(struct notify *n);
void notify_stopping(struct notify *n);
