/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's two sockets: taken from the service manager by name, or made in the runtime
 * directory, which is locked for as long as the daemon lives. Must not know what is spoken on them.
 */
#pragma once

#include <event2/event.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/control/listener.h"

struct config;

struct sockets_context { /* all borrowed */
	struct event_base *base;
	const struct config *config;
	gid_t admin_gid;
	listener_accept on_control, on_status;
	void *arg;
};

struct sockets {
	struct listener *control, *status;
	int lock_fd; /* -1: none */
};

/* 0, -errno (logged); what is open in *s then is the caller's to close all the same. */
int sockets_open(const struct sockets_context *c, struct sockets *s) _must_check_;
/* A descriptor was closed: accepts again where accepting was paused. */
void sockets_resume(struct sockets *s);
void sockets_close(struct sockets *s);
/* Last of all: another daemon may start here. */
void sockets_unlock(struct sockets *s);
