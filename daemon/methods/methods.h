/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of the protocol's methods, one function each: parameters to calls of the other
 * rooms, errors of those to errors of the protocol. Owns nothing but the requests that wait for an
 * answer. A new method is a line in common/control/protocol.c, one in methods.c, and its handler in
 * the file of its noun.
 */
#pragma once

#include <event2/event.h>
#include <sys/queue.h>

#include "daemon/control/call.h"

struct audit;
struct clockseries;
struct config;
struct pictures;
struct producers;
struct snapshots;
struct targets;
struct triggers;

/* What the handlers work on; all borrowed. */
struct methods {
	struct event_base *base;
	const struct config *config;
	struct audit *audit;
	struct clockseries *clocks;
	struct producers *producers;
	struct targets *targets;
	struct snapshots *snapshots;
	struct triggers *triggers;
	struct pictures *pictures;
	/* requests about targets that wait for a survey of their rings */
	LIST_HEAD(, asker) askers;
};

/* By the index of protocol_methods[]. */
extern const method_handler methods_handlers[];

/* A survey of the targets' rings has ended: answers who waits for it. */
void methods_surveyed(struct methods *m);
