// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl status`: the state of the daemon. The object is that of GET /status on its status
 * socket.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/human.h"
#include "client/ui/trigger.h"
#include "client/ui/view.h"

/*
 * "3 armed, 1 exited": the counters of an object that are not zero, and then the limit. The caller
 * frees it.
 */
static char *counters_text(struct json_object *o)
{
	char *text = NULL;

	if (!o || !json_object_is_type(o, json_type_object))
		return human_format("-");
	json_object_object_foreach (o, key, value) {
		_cleanup_free_ char *name = NULL, *before = NULL;
		uint64_t n = field_value_number(value);

		if (!n || !strcmp(key, "limit"))
			continue;
		name = human_name(key);
		for (char *p = name; *p; p++)
			*p = *p == '_' ? ' ' : *p;
		before = text;
		text = before ? human_format("%s, %" PRIu64 " %s", before, n, name)
			      : human_format("%" PRIu64 " %s", n, name);
	}
	if (!text)
		text = human_format("none");
	if (field_number(o, "limit")) {
		_cleanup_free_ char *before = text;

		text = human_format("%s (at most %" PRIu64 ")", before, field_number(o, "limit"));
	}
	return text;
}

/* "3 live (at most 1024), 1 ended, 12.0 MiB of rings"; the caller frees it. */
static char *programs_text(struct json_object *events)
{
	_cleanup_free_ char *refused = view_losses(field(events, "refused"));
	bool any = view_sum(field(events, "refused")) > 0;
	char bytes[HUMAN_SIZE];

	return human_format("%" PRIu64 " live (at most %" PRIu64 "), %" PRIu64
			    " ended, %s of rings%s%s",
		field_number(events, "programs"), field_number(events, "limit"),
		field_number(events, "ended"), human_bytes(bytes, field_number(events, "bytes")),
		any ? "; refused: " : "", any ? refused : "");
}

static void print_backends(struct json_object *backends)
{
	if (!backends || !json_object_is_type(backends, json_type_object))
		return;
	json_object_object_foreach (backends, key, value) {
		_cleanup_free_ char *name = human_name(key),
				    *method = human_name(field_text(value, "method"));
		_cleanup_free_ char *why = human_name(field_text(value, "why"));
		bool has_why = field_text(value, "why") && *field_text(value, "why");

		if (field_bool(value, "available"))
			view_line(stdout, name, "available, by %s%s%s%s", method,
				  !strcmp(key, "step") ? "" : " events", has_why ? ": " : "",
				  has_why ? why : "");
		else
			view_line(stdout, name, "not available%s%s", has_why ? ": " : "",
				has_why ? why : "");
	}
}

static void print_hits(const char *label, const char *what, struct json_object *counts)
{
	_cleanup_free_ char *why = trigger_suppressed(field(counts, "suppressed"));
	bool suppressed = view_sum(field(counts, "suppressed")) > 0;

	view_line(stdout, label, "%s%" PRIu64 " hits, %" PRIu64 " snapshots%s%s", what,
		field_number(counts, "hits"), field_number(counts, "snapshots"),
		suppressed ? "; suppressed: " : "", suppressed ? why : "");
}

static void print_triggers(struct json_object *triggers)
{
	_cleanup_free_ char *active = human_format("%" PRIu64 " (at most %" PRIu64 "), ",
		field_number(triggers, "active"), field_number(triggers, "limit"));

	print_hits("triggers", active, triggers);
	if (field_number(field(triggers, "requests"), "hits"))
		print_hits("", "asked for by programs: ", field(triggers, "requests"));
}

static void print_status(struct json_object *s)
{
	_cleanup_free_ char *version = human_name(field_text(s, "version")),
			    *state = human_name(field_text(s, "state"));
	_cleanup_free_ char *targets = counters_text(field(s, "targets"));
	_cleanup_free_ char *programs = programs_text(field(s, "events"));
	_cleanup_free_ char *snapshots = counters_text(field(s, "snapshots"));
	_cleanup_free_ char *clients = counters_text(field(s, "clients"));
	_cleanup_free_ char *losses = view_losses(field(s, "losses"));
	struct json_object *spool = field(s, "spool"), *capabilities = field(s, "capabilities");
	char up[HUMAN_SIZE], used[HUMAN_SIZE], limit[HUMAN_SIZE];

	(void)printf("tracerd %s (pid %" PRIu64 "), %s, up %s\n", version, field_number(s, "pid"),
		state, human_duration(up, field_number(s, "uptime_s") * 1000000000));
	view_line(stdout, "targets", "%s", targets);
	view_line(stdout, "programs", "%s", programs);
	print_triggers(field(s, "triggers"));
	view_line(stdout, "snapshots", "%s", snapshots);
	if (spool)
		view_line(stdout, "spool", "%" PRIu64 " snapshots, %s of %s",
			field_number(spool, "count"),
			human_bytes(used, field_number(spool, "bytes")),
			human_bytes(limit, field_number(spool, "limit_bytes")));
	print_backends(field(s, "backends"));
	view_line(stdout, "clients", "%s", clients);
	view_line(stdout, "lost", "%s", losses);
	for (size_t i = 0; i < field_count(capabilities, "lack"); i++) {
		struct json_object *lack = field_at(capabilities, "lack", i);
		_cleanup_free_ char *what = human_name(field_text(lack, "what")),
				    *cost = human_name(field_text(lack, "cost"));

		view_line(stdout, i ? "" : "lacks", "%s: %s", what, cost);
	}
}

static int status_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *status = NULL;
	int r = ctl_request(ctl, "status", NULL, &status);

	if (r != EXIT_OK)
		return r;
	if (ctl->json)
		ctl_print_json(status);
	else
		print_status(status);
	return EXIT_OK;
}

const struct command cmd_status = {
	.name = "status",
	.args = "",
	.summary = "show the state of the daemon",
	.doc = "Shows what the daemon records and keeps, which ways of recording this machine has "
	       "and why, what was lost, and which privileges the daemon lacks and what that "
	       "costs. Programs that poll should read the status socket instead (curl "
	       "--unix-socket /run/tracerd/status.sock http://localhost/status).",
	.exec = status_exec,
};
