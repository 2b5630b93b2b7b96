/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the status object says, gathered from every room. The one who builds the daemon names the
 * rooms for each object anew, so that none is asked after its end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/control/json.h"

struct audit;
struct conns;
struct hub;
struct listener;
struct loop_meter;
struct openings;
struct producers;
struct quota;
struct snapshots;
struct status_server;
struct targets;
struct triggers;

struct status_sources {
	const struct audit *audit;
	const struct quota *quota;
	const struct loop_meter *meter;
	struct hub *hub;
	struct openings *openings;
	struct targets *targets;
	struct producers *producers;
	struct snapshots *snapshots;
	struct triggers *triggers;
	struct conns *conns;
	struct status_server *status_server;
	struct listener *control; /* NULL: none any more */
	uint64_t started_ns;	  /* io_now_ns() */
	bool stopping;
};

/* NULL or incomplete without memory. */
struct json_object *status_to_json(const struct status_sources *s);
