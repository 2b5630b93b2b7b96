// SPDX-License-Identifier: Apache-2.0
/* The table of metrics and its rendering. */
#include "daemon/status/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct metric {
	const char *name; /* without _total */
	bool counter;
	const char *path;  /* in the status object, '.' between levels */
	/* the path leads to an object: one sample a member, named by this label */
	const char *label;
	const char *only;  /* of a member that is an object: this number in it */
	const char *help;
};

static const struct metric metrics[] = {
	{"tracerd_uptime_seconds", false, "uptime_s", NULL, NULL, "Time since the daemon started."},
	{"tracerd_targets", false, "targets", "state", NULL, "Targets by state."},
	{"tracerd_event_programs", false, "events.programs", NULL, NULL,
	 "Live producers of events."},
	{"tracerd_event_programs_ended", false, "events.ended", NULL, NULL,
	 "Ended producers whose event rings are kept."},
	{"tracerd_event_bytes", false, "events.bytes", NULL, NULL, "Memory of all event rings."},
	{"tracerd_event_refused", true, "events.refused", "why", NULL,
	 "Event rings that were refused."},
	{"tracerd_event_causes", true, "events.causes", NULL, NULL,
	 "Causes of snapshots that producers wrote."},
	{"tracerd_snapshots", false, "snapshots", "state", NULL,
	 "Snapshots by state since the daemon started."},
	{"tracerd_triggers", false, "triggers.active", NULL, NULL, "Triggers."},
	{"tracerd_trigger_hits", true, "triggers.hits", NULL, NULL, "Hits of triggers."},
	{"tracerd_trigger_snapshots", true, "triggers.snapshots", NULL, NULL,
	 "Snapshots that triggers took."},
	{"tracerd_trigger_suppressed", true, "triggers.suppressed", "why", NULL,
	 "Hits of triggers without a snapshot."},
	{"tracerd_program_requests", true, "triggers.requests.hits", NULL, NULL,
	 "Snapshots that producers asked for."},
	{"tracerd_program_snapshots", true, "triggers.requests.snapshots", NULL, NULL,
	 "Snapshots that were taken because a producer asked."},
	{"tracerd_opener_opened", true, "opener.opened", NULL, NULL,
	 "Files of targets that were opened."},
	{"tracerd_opener_missing", true, "opener.missing", NULL, NULL,
	 "Files of targets that could not be opened."},
	{"tracerd_opener_timeouts", true, "opener.timeouts", NULL, NULL,
	 "Files of targets whose file system did not answer in time."},
	{"tracerd_opener_hanging", false, "opener.hanging", NULL, NULL,
	 "Openers that hang in a file system."},
	{"tracerd_spool_bytes", false, "spool.bytes", NULL, NULL,
	 "Size of snapshots on the disk, including removed ones that are still there."},
	{"tracerd_spool_removing_bytes", false, "spool.removing_bytes", NULL, NULL,
	 "Size of removed snapshots that are still on the disk."},
	{"tracerd_spool_snapshots", false, "spool.count", NULL, NULL, "Published snapshots."},
	{"tracerd_spool_limit_bytes", false, "spool.limit_bytes", NULL, NULL,
	 "Size above which the oldest are removed."},
	{"tracerd_losses", true, "losses", "kind", NULL, "What was lost, by kind."},
	{"tracerd_connections", false, "clients.connected", NULL, NULL,
	 "Clients of the control socket."},
	{"tracerd_subscribers", false, "clients.subscribers", NULL, NULL,
	 "Clients that get events."},
	{"tracerd_requests", true, "clients.requests", NULL, NULL, "Messages of clients."},
	{"tracerd_request_errors", true, "clients.errors", NULL, NULL,
	 "Requests answered with an error."},
	{"tracerd_bad_messages", true, "clients.bad_messages", NULL, NULL,
	 "Connections closed because of a bad message."},
	{"tracerd_client_timeouts", true, "clients.timeouts", NULL, NULL,
	 "Clients dropped because they were too slow or silent."},
	{"tracerd_client_overflows", true, "clients.overflows", NULL, NULL,
	 "Clients dropped because they did not read their output."},
	{"tracerd_no_memory", true, "clients.no_memory", NULL, NULL,
	 "Answers lost for lack of memory."},
	{"tracerd_refused_connections_full", true, "clients.refused_full", NULL, NULL,
	 "Connections refused: the daemon is full."},
	{"tracerd_refused_connections_quota", true, "clients.refused_quota", NULL, NULL,
	 "Connections refused: the user has too many."},
	{"tracerd_events", true, "clients.events", NULL, NULL, "Events delivered."},
	{"tracerd_events_missed", true, "clients.events_missed", NULL, NULL,
	 "Events that slow subscribers missed."},
	{"tracerd_status_polls", true, "clients.status_polls", NULL, NULL,
	 "Requests of the status socket."},
	{"tracerd_audit_dropped", true, "clients.audit_dropped", NULL, NULL,
	 "Audit lines over the rate limit."},
	{"tracerd_quota_used", false, "quota", "kind", "used", "Resources that all users hold."},
};

static struct json_object *walk(struct json_object *o, const char *path)
{
	char key[64];

	while (o && *path) {
		size_t n = strcspn(path, ".");
		struct json_object *next = NULL;

		if (n >= sizeof(key) || !json_object_is_type(o, json_type_object))
			return NULL;
		memcpy(key, path, n);
		key[n] = '\0';
		if (!json_object_object_get_ex(o, key, &next))
			return NULL;
		o = next;
		path += n;
		if (*path == '.')
			path++;
	}
	return o;
}

static bool is_label(const char *s)
{
	return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")] ==
	       '\0';
}

/* A stream without room goes on with the next piece: only `failed` remembers. */
struct out {
	FILE *f;
	bool failed;
};

static void _printf_(2, 3) say(struct out *o, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vfprintf(o->f, fmt, ap) < 0)
		o->failed = true;
	va_end(ap);
}

static void sample(struct out *f, const struct metric *m, const char *label,
		   struct json_object *value)
{
	if (m->only)
		value = json_get(value, m->only, json_type_int);
	if (!json_object_is_type(value, json_type_int))
		return;
	say(f, "%s%s", m->name, m->counter ? "_total" : "");
	if (label)
		say(f, "{%s=\"%s\"}", m->label, label);
	say(f, " %" PRId64 "\n", json_object_get_int64(value));
}

char *metrics_render(struct json_object *status, size_t *ret_len)
{
	char *text = NULL;
	size_t len = 0;
	struct out out = {.f = open_memstream(&text, &len)}, *f = &out;
	const char *version = json_get_string(status, "version"),
		   *state = json_get_string(status, "state");

	if (!out.f)
		return NULL;
	say(f, "# TYPE tracerd_build info\n# HELP tracerd_build Version of the daemon.\n"
			 "tracerd_build_info{version=\"%s\"} 1\n", version ? version : "");
	say(f,
	    "# TYPE tracerd_degraded gauge\n# HELP tracerd_degraded 1 if something is missing; /status says what.\n"
	    "tracerd_degraded %d\n",
	    state && strcmp(state, "degraded") == 0);
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		const struct metric *m = &metrics[i];
		struct json_object *o = walk(status, m->path);

		if (!o)
			continue;
		say(f, "# TYPE %s %s\n# HELP %s %s\n", m->name, m->counter ? "counter" : "gauge",
		    m->name, m->help);
		if (m->label) {
			json_object_object_foreach(o, key, value)
				if (is_label(key))
					sample(f, m, key, value);
		} else
			sample(f, m, NULL, o);
	}
	say(f, "# EOF\n");
	if (fclose(out.f) != 0 || out.failed) {
		free(text);
		return NULL;
	}
	*ret_len = len;
	return text;
}
