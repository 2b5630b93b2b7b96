/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.sock: HTTP/1.0 GET of /status and /metrics, one request a connection. Never touches the
 * control path: it reads a request line, writes the cached picture and closes. A client whose
 * request is there already when it is accepted, which is nearly every one, costs no event, no
 * timer and no allocation; the others wait under a deadline and count as connections.
 */
#pragma once

#include <event2/event.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct config;
struct pictures;
struct quota;
struct status_server;

struct status_server_context { /* all borrowed */
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct pictures *pictures;
	/* How many more connections may wait; and: one has been closed. */
	unsigned int (*room)(void *arg);
	void (*on_change)(void *arg);
	void *arg;
};

int status_server_new(const struct status_server_context *context,
		      struct status_server **ret) _must_check_;
struct status_server *status_server_free(struct status_server *s);
/* Takes over `fd`. */
void status_server_accept(struct status_server *s, int fd);

struct status_server_stats {
	uint64_t polls, bad, timeouts, refused;
	unsigned int waiting;
};
void status_server_get_stats(const struct status_server *s, struct status_server_stats *ret);
