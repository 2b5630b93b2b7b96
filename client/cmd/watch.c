// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl watch`: the daemon's events, one a line, until interrupted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/stdout.h"
#include "client/ui/trigger.h"
#include "client/ui/view.h"
#include "common/control/protocol.h"

struct options {
	const char *event;
	uint64_t count;
};

static const char *event_word(size_t i)
{
	return i < protocol_n_events ? protocol_events[i].name : NULL;
}

static const struct option_spec specs[] = {
	{.name = "event",
		.letter = 'e',
		.type = OPTION_WORD,
		.offset = offsetof(struct options, event),
		.arg = "NAME",
		.words = event_word,
		.doc = "Print only events of this name, such as snapshot.state."},
	{.name = "count",
		.letter = 'c',
		.type = OPTION_UINT,
		.offset = offsetof(struct options, count),
		.arg = "N",
		.min = 1,
		.max = UINT32_MAX,
		.doc = "End after N events."},
	{0},
};

static void print_json_line(const tracerd_event *event)
{
	_cleanup_json_ struct json_object *o = json_object_new_object();
	struct json_object *data = ctl_event_data(event);

	json_add_string(o, "event", tracerd_event_name(event));
	json_add_uint(o, "seq", tracerd_event_seq(event));
	json_add_uint(o, "missed", tracerd_event_missed(event));
	json_add(o, "data", data);
	human_puts(json_text(o, NULL), stdout);
}

/* "g3 of t1: region serve took 7.31 ms (over 5.00 ms) in thread 1234: snapshot ID" */
static char *hit_words(struct json_object *data)
{
	_cleanup_free_ char *trigger = human_name(field_text(data, "trigger")),
			    *target = human_name(field_text(data, "target")),
			    *snapshot = human_name(field_text(data, "snapshot")),
			    *why = human_name(field_text(data, "suppressed")),
			    *cause = trigger_cause_sentence(field(data, "cause"));
	bool has_trigger = field_text(data, "trigger") != NULL,
	     taken = field_text(data, "snapshot") != NULL;

	return human_format("%s%s%s: %s: %s%s", has_trigger ? trigger : "",
		has_trigger ? " of " : "", target, cause,
		taken ? "snapshot " : "no snapshot: ", taken ? snapshot : why);
}

/* "snapshot ID of slowlock: decoding", "target t3: slowlock (pid 1234): exited" */
static char *event_words(const char *name, struct json_object *data)
{
	if (!strcmp(name, "target.state")) {
		struct json_object *target = field(data, "target") ? field(data, "target") : data;
		_cleanup_free_ char *who = view_target_name(target),
				    *state = human_name(field_text(target, "state"));

		return human_format("target %s: %s", who, state);
	}
	if (!strcmp(name, "snapshot.progress")) {
		struct json_object *p = field(data, "progress");
		_cleanup_free_ char *id = human_name(field_text(data, "snapshot")),
				    *stage = human_name(field_text(p, "stage"));

		return human_format("snapshot %s: %s %" PRIu64 " of %" PRIu64, id, stage,
			field_number(p, "done"), field_number(p, "total"));
	}
	if (!strcmp(name, "snapshot.state")) {
		const char *error = field_text(field(data, "error"), "message");
		_cleanup_free_ char *id = human_name(field_text(data, "id")),
				    *comm = human_name(field_text(data, "comm"));
		_cleanup_free_ char *state = human_name(field_text(data, "state")),
				    *why = human_name(error ? error : "");

		return human_format(
			"snapshot %s of %s: %s%s%s", id, comm, state, error ? ": " : "", why);
	}
	if (!strcmp(name, "trigger.hit"))
		return hit_words(data);
	return human_name(json_text(data, NULL));
}

static void print_human_line(const tracerd_event *event)
{
	_cleanup_json_ struct json_object *data = ctl_event_data(event);
	_cleanup_free_ char *name = human_name(tracerd_event_name(event)),
			    *words = event_words(tracerd_event_name(event), data);
	char when[HUMAN_SIZE];

	(void)human_time(when, (uint64_t)time(NULL) * 1000000000);
	if (tracerd_event_missed(event))
		(void)printf(
			"%s  (%" PRIu64 " events missed)\n", when, tracerd_event_missed(event));
	(void)printf("%s  %-18s %s\n", when, name, words);
}

static int watch_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	struct json_object *params = json_object_new_object(), *events;
	_cleanup_close_ int interrupt_fd = -1;
	uint64_t seen = 0;
	int r;

	if (o->event) {
		events = json_add_new_array(params, "events");
		json_append_string(events, o->event);
	}
	r = ctl_request(ctl, "subscribe", params, NULL);
	if (r != EXIT_OK)
		return r;
	interrupt_fd = interrupt_open();
	while (!o->count || seen < o->count) {
		tracerd_event *event = NULL;

		r = tracerd_next_event(ctl->client, 0, &event);
		if (r == -EAGAIN) {
			/* without a limit: the daemon closes the connection, or a signal comes */
			if (interrupt_pending(interrupt_fd))
				return EXIT_OK;
			r = interrupt_wait(tracerd_get_fd(ctl->client), interrupt_fd, -1);
		} else if (r == 0) {
			if (ctl->json)
				print_json_line(event);
			else
				print_human_line(event);
			tracerd_event_free(event);
			seen++;
			if (stdout_flush() < 0)
				return EXIT_FAILED;
		}
		if (r < 0)
			return ctl_report(ctl, r, NULL);
	}
	return EXIT_OK;
}

const struct command cmd_watch = {
	.name = "watch",
	.args = "",
	.summary = "print events as they happen",
	.doc = "Prints the daemon's events that you may see, one a line, until it is interrupted: "
	       "targets armed, exited and disarmed, hits of triggers with their snapshots, snapshots "
	       "from their begin to their end. With --json each line is one JSON object. When this "
	       "command reads too slowly, the daemon drops events and the output gives their number.",
	.options = specs,
	.options_size = sizeof(struct options),
	.exec = watch_exec,
};
