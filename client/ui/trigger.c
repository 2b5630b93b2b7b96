// SPDX-License-Identifier: Apache-2.0
/*
 * Text for the protocol's Trigger and Cause. Names of regions and reasons come from other people's
 * programs, and are escaped here again.
 */
#include "client/ui/trigger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/view.h"

static bool is_kind(struct json_object *cause, const char *kind)
{
	return field_is(cause, "kind", kind);
}

char *trigger_cause_words(struct json_object *cause)
{
	const char *reason = field_text(cause, "reason");
	_cleanup_free_ char *region = NULL;
	char took[HUMAN_SIZE], over[HUMAN_SIZE];

	if (is_kind(cause, "hit")) {
		_cleanup_free_ char *hit = human_name(field_text(cause, "hit"));

		return human_format("hit %s", hit);
	}
	if (is_kind(cause, "program") && (!reason || !*reason))
		return human_format("the program asked");
	if (!is_kind(cause, "region"))
		return human_name(reason ? reason : "");
	region = human_name(field_text(cause, "region"));
	return human_format("region %s took %s (over %s)", region,
		human_duration(took, field_number(cause, "duration_ns")),
		human_duration(over, field_number(cause, "over_ns")));
}

char *trigger_cause_sentence(struct json_object *cause)
{
	_cleanup_free_ char *words = trigger_cause_words(cause);
	uint64_t tid = field_number(cause, "tid");
	const char *reason = field_text(cause, "reason");
	const char *asked = is_kind(cause, "program") && reason && *reason ? "the program asked: "
									   : "";

	if (is_kind(cause, "hit") && field_number(cause, "late_ns")) {
		const bool paused = json_object_get_boolean(field(cause, "paused"));
		char late[HUMAN_SIZE];

		return human_format("%s in thread %" PRIu64 "%s, frozen %s later", words, tid,
				    paused ? ", whose trace ends there" : "",
				    human_duration(late, field_number(cause, "late_ns")));
	}
	if (tid)
		return human_format("%s%s in thread %" PRIu64, asked, words, tid);
	return human_format("%s%s", asked, words);
}

char *trigger_words(struct json_object *t)
{
	_cleanup_free_ char *id = human_name(field_text(t, "id")),
			    *region = human_name(field_text(t, "region"));
	_cleanup_free_ char *target = human_name(field_text(t, "target")),
			    *comm = human_name(field_text(t, "comm"));
	char over[HUMAN_SIZE];

	if (field(t, "hit")) {
		_cleanup_free_ char *hit = human_name(field_text(t, "hit"));

		return human_format("%s: hit %s in %s (%s, pid %" PRIu64 ")", id, hit, target, comm,
				    field_number(t, "pid"));
	}
	return human_format("%s: region %s of %s (%s, pid %" PRIu64 ") over %s", id, region, target,
		comm, field_number(t, "pid"), human_duration(over, field_number(t, "over_ns")));
}

/* How often it may fire: "cooldown 10.0 s, at most 60 an hour, 2.00 ms after". */
static char *limits_words(struct json_object *t)
{
	uint64_t hourly = field_number(t, "max_per_hour"), after = field_number(t, "after_ns");
	_cleanup_free_ char *an_hour =
		hourly ? human_format(", at most %" PRIu64 " an hour", hourly)
		       : human_format("%s", "");
	char cooldown[HUMAN_SIZE], wait[HUMAN_SIZE];

	return human_format("cooldown %s%s%s%s%s",
		human_duration(cooldown, field_number(t, "cooldown_ns")), an_hour,
		after ? ", freezes " : "", after ? human_duration(wait, after) : "",
		after ? field(t, "hit") ? " after the hit" : " after the end" : "");
}

char *trigger_suppressed(struct json_object *counts)
{
	char *text = view_losses(counts);

	for (char *p = text; *p; p++)
		*p = *p == '_' ? ' ' : *p;
	return text;
}

/* For a table: processes, and what is lacking. */
static char *coverage_short(struct json_object *c)
{
	const uint64_t rest = field_number(c, "failed") + field_number(c, "without_code") +
			      field_number(c, "left_out");

	if (rest)
		return human_format("%" PRIu64 " of %" PRIu64, field_number(c, "processes"),
				    field_number(c, "processes") + rest);
	return human_format("%" PRIu64, field_number(c, "processes"));
}

/* "a hit ends the trace of 2 of them"; NULL: no trace is to end. */
static char *pausing_words(struct json_object *c)
{
	_cleanup_free_ char *why = human_name(field_text(c, "not_paused"));
	const uint64_t pausing = field_number(c, "pausing");

	if (pausing && field(c, "not_paused"))
		return human_format("a hit ends the trace of %" PRIu64
				    " of these threads and of their new ones; %s",
				    pausing, why);
	if (pausing)
		return human_format("a hit ends the trace of its thread at the very instruction");
	return field(c, "not_paused")
		       ? human_format("the trace goes on for some microseconds: %s", why)
		       : NULL;
}

/* "3 threads of 1 process and new ones, by breakpoint"; what is not watched follows. */
static char *coverage_words(struct json_object *c)
{
	const uint64_t processes = field_number(c, "processes"),
		       threads = field_number(c, "threads");
	const uint64_t uprobes = field_number(c, "by_uprobe"), failed = field_number(c, "failed");
	const char *by = uprobes == 0           ? "breakpoint"
			 : uprobes == processes ? "uprobe"
						: "breakpoint or uprobe";
	_cleanup_free_ char *why = human_name(field_text(c, "why")), *more = NULL;
	const char *new = json_object_get_boolean(field(c, "new_threads")) ? " and their new ones"
									   : "";
	const uint64_t unsure = field_number(c, "threads_unsure"),
		       copies = field_number(c, "copies_left_out");
	_cleanup_free_ char *less = human_format("%s", ""), *without = NULL;

	if (unsure) {
		free(less);
		less = human_format(
			"; %" PRIu64
			" thread%s began while that was set up, and may not be watched, nor what %s",
			unsure, unsure == 1 ? "" : "s", unsure == 1 ? "it starts" : "they start");
	}
	without = copies ? human_format("; the code is mapped %" PRIu64
					" time%s more, where no breakpoint or descriptor is free",
					copies, copies == 1 ? "" : "s")
			 : human_format("%s", "");
	more = human_format("%s%s%s%s%s%s%s%s", less, without,
			    field_number(c, "opening") ? "; others are being looked at" : "",
			    field_number(c, "without_code") ? "; others do not have this code" : "",
			    field_number(c, "left_out") ? "; others are too many" : "",
			    failed ? "; others cannot be watched: " : "", failed ? why : "",
			    json_object_get_boolean(field(c, "resting"))
				    ? "; not until the cooldown is over"
				    : "");
	if (!processes)
		return human_format("no process%s", more);
	return human_format("%" PRIu64 " thread%s of %" PRIu64 " process%s%s, by %s%s", threads,
			    threads == 1 ? "" : "s", processes, processes == 1 ? "" : "es", new, by,
			    more);
}

void trigger_view(FILE *out, struct json_object *t)
{
	_cleanup_free_ char *words = trigger_words(t), *limits = limits_words(t);

	(void)fprintf(out, "%s\n", words);
	view_line(out, "limits", "%s", limits);
	if (field(t, "hit")) {
		_cleanup_free_ char *coverage = coverage_words(field(t, "coverage"));

		_cleanup_free_ char *pausing = pausing_words(field(t, "coverage"));

		view_line(out, "watches", "%s", coverage);
		if (pausing)
			view_line(out, "at a hit", "%s", pausing);
	} else if (field_number(t, "programs") + field_number(t, "programs_left_out"))
		view_line(out, "programs", "%" PRIu64, field_number(t, "programs"));
	else
		view_line(out, "programs",
			  "none yet; the trigger waits for one that writes events");
}

/* For the same table: programs, and how many have no room for it. */
static char *programs_short(struct json_object *t)
{
	const uint64_t programs = field_number(t, "programs"),
		       left_out = field_number(t, "programs_left_out");

	return left_out ? human_format("%" PRIu64 " of %" PRIu64, programs, programs + left_out)
			: human_format("%" PRIu64, programs);
}

/*
 * Under the table: where triggers on places in code watch, and what a hit does; and regions that
 * are not watched everywhere.
 */
static void view_coverage(FILE *out, struct json_object *triggers)
{
	bool first = true;

	for (size_t i = 0; i < json_object_array_length(triggers); i++) {
		struct json_object *t = json_object_array_get_idx(triggers, i),
				   *c = field(t, "coverage");
		_cleanup_free_ char *id = human_name(field_text(t, "id")), *words = NULL,
				    *pausing = NULL;

		if (field_number(t, "programs_left_out")) {
			(void)fprintf(
				out,
				"%s%s is not in %" PRIu64
				" program%s, which have no room for another threshold: remove other triggers\n",
				first ? "\n" : "", id, field_number(t, "programs_left_out"),
				field_number(t, "programs_left_out") == 1 ? "" : "s");
			first = false;
		}
		if (!field(t, "hit"))
			continue;
		words = coverage_words(c);
		pausing = pausing_words(c);
		(void)fprintf(out, "%s%s watches %s%s%s\n", first ? "\n" : "", id, words,
			      pausing ? "; " : "", pausing ? pausing : "");
		first = false;
	}
}

void trigger_view_list(FILE *out, struct json_object *triggers)
{
	static const struct human_column columns[] = {
		{"TRIGGER", 'l'},
		{"TARGET", 'l'},
		{"PID", 'r'},
		{"NAME", 'l'},
		{"REGION", 'l'},
		{"OVER", 'r'},
		{"COOLDOWN", 'r'},
		{"HOURLY", 'r'},
		{"PROGRAMS", 'r'},
		{"HITS", 'r'},
		{"SNAPSHOTS", 'r'},
		{"LAST HIT", 'l'},
		{"SUPPRESSED", 'l'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);

	for (size_t i = 0; i < json_object_array_length(triggers); i++) {
		struct json_object *t = json_object_array_get_idx(triggers, i);
		uint64_t hourly = field_number(t, "max_per_hour");
		char buf[HUMAN_SIZE];

		human_table_add(&table, human_name(field_text(t, "id")));
		human_table_add(&table, human_name(field_text(t, "target")));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "pid")));
		human_table_add(&table, human_name(field_text(t, "comm")));
		if (field(t, "hit")) {
			_cleanup_free_ char *hit = human_name(field_text(t, "hit"));

			human_table_add(&table, human_format("hit %s", hit));
			human_table_add(&table, human_format("-"));
		} else {
			human_table_add(&table, human_name(field_text(t, "region")));
			human_table_add_duration(&table, field_number(t, "over_ns"));
		}
		human_table_add_duration(&table, field_number(t, "cooldown_ns"));
		human_table_add(&table,
			hourly ? human_format("%" PRIu64, hourly) : human_format("%s", "-"));
		if (field(t, "hit"))
			human_table_add(&table, coverage_short(field(t, "coverage")));
		else
			human_table_add(&table, programs_short(t));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "hits")));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "snapshots")));
		human_table_add(&table,
			human_format("%s", human_time(buf, field_number(t, "last_hit_at"))));
		human_table_add(&table, trigger_suppressed(field(t, "suppressed")));
	}
	human_table_print(&table, out, 0);
	view_coverage(out, triggers);
}
