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
#include <sys/queue.h>
#include <sys/types.h>

#include "common/control/json.h"
#include "daemon/base/loop.h"
#include "daemon/config.h"
#include "daemon/control/audit.h"
#include "daemon/control/quota.h"
#include "daemon/control/subscribers.h"

struct targets;    /* daemon/target/target.h */
struct openings;   /* daemon/target/opening.h */
struct triggers;   /* daemon/trigger/trigger.h */
struct producers;  /* daemon/producer/producer.h */
struct snapshots;  /* daemon/snapshot/snapshot.h */
struct spool;      /* daemon/snapshot/spool.h */
struct copier;     /* daemon/base/copier.h */
struct clockseries; /* daemon/base/clockseries.h */
struct conns;      /* daemon/control/conn.h */
struct listener;   /* daemon/control/listener.h */
struct status;     /* daemon/status/status.h */
struct status_server; /* daemon/status/server.h */
struct notify;     /* daemon/notify.h */

struct daemon {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct audit audit;
	struct hub *hub;
	struct openings *openings;
	struct targets *targets;
	struct clockseries *clocks;
	struct producers *producers;
	struct copier *copier;
	struct spool *spool;
	struct snapshots *snapshots;
	struct triggers *triggers;
	struct conns *conns;
	struct status *status;
	struct status_server *status_server;
	struct listener *control, *status_listener;
	struct notify *notify;
	LIST_HEAD(, asker) askers; /* of the targets' methods: they wait for a survey */
	struct event *sigterm, *sigint, *stop_deadline, *dying;
	int lock_fd;
	gid_t admin_gid;     /* AUTH_NO_GROUP: only root and our own user */
	uint64_t started_ns; /* io_now_ns() */
	struct loop_meter meter;
	bool stopping, draining, gave_up;
};

/* Builds everything from the configuration, which is moved out of `config`. 0, -errno (logged). */
int daemon_new(struct config *config, struct daemon **ret) _must_check_;
/* Runs until SIGTERM or SIGINT, and then until what ran has ended. 0, -errno (logged). */
int daemon_run(struct daemon *d) _must_check_;
struct daemon *daemon_free(struct daemon *d);
