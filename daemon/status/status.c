// SPDX-License-Identifier: Apache-2.0
/* What is in the picture, and its cache. */
#include "daemon/status/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/io.h"
#include "daemon/caps.h"
#include "daemon/control/conn.h"
#include "daemon/control/listener.h"
#include "daemon/daemon.h"
#include "daemon/producer/producer.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/status/metrics.h"
#include "daemon/status/server.h"
#include "daemon/target/opening.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

#define PICTURE_MAX_AGE_NS 250000000ull

struct picture {
	unsigned int refs;
	struct json_object *object;
	char *status, *metrics;
	size_t status_len, metrics_len;
};

struct status {
	struct daemon *daemon; /* not owned */
	struct picture *picture;
	uint64_t built_ns;
};

DEFINE_CLEANUP(struct picture *, picture_unref)

struct picture *picture_ref(struct picture *p)
{
	p->refs++;
	return p;
}

void picture_unref(struct picture *p)
{
	if (!p || --p->refs > 0)
		return;
	json_object_put(p->object);
	free(p->status);
	free(p->metrics);
	free(p);
}

struct json_object *picture_object(const struct picture *p)
{
	return p->object;
}

const char *picture_status(const struct picture *p, size_t *ret_len)
{
	*ret_len = p->status_len;
	return p->status;
}

const char *picture_metrics(const struct picture *p, size_t *ret_len)
{
	*ret_len = p->metrics_len;
	return p->metrics;
}

static struct json_object *clients_json(const struct daemon *d)
{
	struct json_object *o = json_object_new_object();
	struct conns_stats cs;
	struct status_server_stats ss;
	struct listener_stats ls;
	struct hub_stats hs;

	conns_get_stats(d->conns, &cs);
	status_server_get_stats(d->status_server, &ss);
	listener_get_stats(d->control, &ls);
	hub_get_stats(d->hub, &hs);
	json_add_uint(o, "connected", cs.connected);
	json_add_uint(o, "limit", conns_max(d->conns));
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
	json_add_uint(o, "audit_lines", d->audit.lines);
	json_add_uint(o, "audit_dropped", d->audit.dropped);
	return o;
}

static struct json_object *status_json(struct daemon *d)
{
	struct json_object *o = json_object_new_object(), *caps, *lack, *losses, *loop;
	struct timespec now;

	json_add_string(o, "version", PACKAGE_VERSION);
	json_add_int(o, "pid", getpid());
	json_add_uint(o, "uptime_s", (io_now_ns() - d->started_ns) / 1000000000u);
	/* Without memory for a new one the last picture is shown: here it says of when. */
	(void)clock_gettime(CLOCK_REALTIME, &now);
	json_add_uint(o, "at", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	json_add_string(o, "state", "running");
	caps = json_add_new_object(o, "capabilities");
	json_add(caps, "have", caps_have());
	lack = json_add_new_array(caps, "lack");
	caps_lack(lack);
	(void)targets_status(d->targets, o, lack);
	openings_status(d->openings, o, lack);
	snapshots_status(d->snapshots, o);
	/* Whoever counts losses of its own adds to the same object. */
	losses = json_get_object(o, "losses");
	if (!losses)
		losses = json_add_new_object(o, "losses");
	(void)targets_losses(d->targets, losses);
	producers_status(d->producers, o, losses);
	triggers_status(d->triggers, o);
	json_add(o, "clients", clients_json(d));
	loop = json_add_new_object(o, "loop");
	json_add_uint(loop, "turns", d->meter.turns);
	json_add_uint(loop, "longest_us", d->meter.longest_ns / 1000);
	json_add_uint(loop, "readers_hanging", targets_readers_hanging(d->targets));
	json_add(o, "quota", quota_to_json(&d->quota));
	if (d->stopping)
		json_add_string(o, "state", "stopping");
	else if (lack && json_object_array_length(lack) > 0)
		json_add_string(o, "state", "degraded");
	return o;
}

static int answer(const char *type, const char *body, size_t body_len, char **ret, size_t *ret_len)
{
	char head[160];
	int n = snprintf(head, sizeof(head), "HTTP/1.0 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n\r\n",
		type, body_len);
	char *buf = malloc((size_t)n + body_len);

	if (!buf)
		return -ENOMEM;
	memcpy(buf, head, (size_t)n);
	memcpy(buf + n, body, body_len);
	*ret = buf;
	*ret_len = (size_t)n + body_len;
	return 0;
}

static struct picture *build(struct daemon *d)
{
	_cleanup_(picture_unrefp) struct picture *p = calloc(1, sizeof(*p));
	_cleanup_free_ char *metrics = NULL;
	const char *text;
	size_t len;

	if (!p)
		return NULL;
	p->refs = 1;
	p->object = status_json(d);
	text = p->object ? json_text(p->object, &len) : NULL;
	if (!text || answer("application/json", text, len, &p->status, &p->status_len) < 0)
		return NULL;
	metrics = metrics_render(p->object, &len);
	if (!metrics || answer("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics, len, &p->metrics,
				&p->metrics_len) < 0)
		return NULL;
	return take_ptr(p);
}

struct picture *status_picture(struct status *s)
{
	uint64_t now = io_now_ns();

	if (!s->picture || now - s->built_ns >= PICTURE_MAX_AGE_NS) {
		struct picture *p = build(s->daemon);

		if (!p)
			return s->picture ? picture_ref(s->picture) : NULL;
		picture_unref(s->picture);
		s->picture = p;
		s->built_ns = now;
	}
	return picture_ref(s->picture);
}

int status_new(struct daemon *d, struct status **ret)
{
	struct status *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->daemon = d;
	*ret = s;
	return 0;
}

struct status *status_free(struct status *s)
{
	if (!s)
		return NULL;
	picture_unref(s->picture);
	free(s);
	return NULL;
}
