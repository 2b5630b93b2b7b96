/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's whole state: what main() builds, in order, and tears down in the opposite order.
 *
 * Only method handlers and the status picture get this struct; the modules below are given what
 * they need in their constructors (event base, config, quota, hub) and never see it.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/json.h"
#include "daemon/config.h"
#include "daemon/quota.h"
#include "daemon/subscribe.h"

struct targets;    /* daemon/target.h */
struct snapshots;  /* daemon/snapshot.h */
struct spool;      /* daemon/spool.h */
struct conns;      /* daemon/conn.h */
struct listener;   /* daemon/listener.h */
struct status;     /* daemon/status.h */
struct notify;     /* daemon/notify.h */

struct daemon {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct hub *hub;
	struct targets *targets;
	struct spool *spool;
	struct snapshots *snapshots;
	struct conns *conns;
	struct listener *control;
	struct listener *status_listener;
	struct status *status;
	struct notify *notify;
	struct event *sigterm, *sigint;
	gid_t admin_gid; /* (gid_t)-1: no such group */
	uint64_t started_ns; /* io_now_ns() */
	bool stopping;
};

/* Builds everything from the configuration, which is taken over. 0, -errno (logged). */
int daemon_new(struct config *config, struct daemon **ret) _must_check_;
/* Runs until SIGTERM or SIGINT. 0, -errno. */
int daemon_run(struct daemon *d) _must_check_;
struct daemon *daemon_free(struct daemon *d);
