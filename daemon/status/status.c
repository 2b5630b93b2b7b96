// SPDX-License-Identifier: Apache-2.0
#include "daemon/status/status.h"

#include <unistd.h>

#include "common/base/io.h"
#include "common/base/wall_clock.h"
#include "daemon/base/loop.h"
#include "daemon/caps.h"
#include "daemon/control/audit.h"
#include "daemon/control/conn.h"
#include "daemon/control/listener.h"
#include "daemon/control/quota.h"
#include "daemon/control/subscribers.h"
#include "daemon/producer/producer.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/status/server.h"
#include "daemon/target/opening.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

static struct json_object *clients_json(const struct status_sources *s)
{
	struct json_object *o = json_object_new_object();
	struct conns_stats cs;
	struct status_server_stats ss;
	struct listener_stats ls;
	struct hub_stats hs;

	conns_get_stats(s->conns, &cs);
	status_server_get_stats(s->status_server, &ss);
	listener_get_stats(s->control, &ls);
	hub_get_stats(s->hub, &hs);
	json_add_uint(o, "connected", cs.connected);
	json_add_uint(o, "limit", conns_max(s->conns));
	json_add_uint(o, "accepted", cs.accepted);
	json_add_uint(o, "refused_full", cs.refused_full);
	json_add_uint(o, "refused_quota", cs.refused_quota);
	json_add_uint(o, "accept_pauses", ls.paused);
	json_add_uint(o, "requests", cs.requests);
	json_add_uint(o, "errors", cs.errors);
	json_add_uint(o, "bad_messages", cs.bad_messages);
	json_add_uint(o, "timeouts", cs.timeouts);
	json_add_uint(o, "overflows", cs.overflows);
	json_add_uint(o, "pings", cs.pings);
	json_add_uint(o, "no_memory", cs.no_memory);
	json_add_uint(o, "subscribers", hs.subscribers);
	json_add_uint(o, "events", hs.delivered);
	json_add_uint(o, "events_missed", hs.missed);
	json_add_uint(o, "status_polls", ss.polls);
	json_add_uint(o, "status_waiting", ss.waiting);
	json_add_uint(o, "audit_lines", s->audit->lines);
	json_add_uint(o, "audit_dropped", s->audit->dropped);
	return o;
}

struct json_object *status_to_json(const struct status_sources *s)
{
	struct json_object *o = json_object_new_object(), *caps, *lack, *losses, *loop;

	json_add_string(o, "version", PACKAGE_VERSION);
	json_add_int(o, "pid", getpid());
	json_add_uint(o, "uptime_s", (io_now_ns() - s->started_ns) / 1000000000u);
	/* Without memory for a new one the last picture is shown: here it says of when. */
	json_add_uint(o, "at", wall_clock_ns());
	json_add_string(o, "state", "running");
	caps = json_add_new_object(o, "capabilities");
	json_add(caps, "have", caps_have());
	lack = json_add_new_array(caps, "lack");
	caps_lack(lack);
	(void)targets_status(s->targets, o, lack);
	openings_status(s->openings, o, lack);
	snapshots_status(s->snapshots, o);
	/* Whoever counts losses of its own adds to the same object. */
	losses = json_get_object(o, "losses");
	if (!losses)
		losses = json_add_new_object(o, "losses");
	(void)targets_losses(s->targets, losses);
	producers_status(s->producers, o, losses);
	triggers_status(s->triggers, o);
	json_add(o, "clients", clients_json(s));
	loop = json_add_new_object(o, "loop");
	json_add_uint(loop, "turns", s->meter->turns);
	json_add_uint(loop, "longest_us", s->meter->longest_ns / 1000);
	json_add_uint(loop, "readers_hanging", targets_readers_hanging(s->targets));
	json_add(o, "quota", quota_to_json(s->quota));
	if (s->stopping)
		json_add_string(o, "state", "stopping");
	else if (lack && json_object_array_length(lack) > 0)
		json_add_string(o, "state", "degraded");
	return o;
}
