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
	const char *is = field_text(cause, "kind");

	return is && !strcmp(is, kind);
}

char *trigger_cause_words(struct json_object *cause)
{
	const char *reason = field_text(cause, "reason");
	_cleanup_free_ char *region = NULL;
	char took[HUMAN_SIZE], over[HUMAN_SIZE];

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
	const char *asked = is_kind(cause, "program") && reason && *reason ? "the program asked: " : "";

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
		after ? " after the end" : "");
}

char *trigger_suppressed(struct json_object *counts)
{
	char *text = view_losses(counts);

	for (char *p = text; *p; p++)
		*p = *p == '_' ? ' ' : *p;
	return text;
}

void trigger_view(FILE *out, struct json_object *t)
{
	_cleanup_free_ char *words = trigger_words(t), *limits = limits_words(t);

	(void)fprintf(out, "%s\n", words);
	view_line(out, "limits", "%s", limits);
	if (field_number(t, "programs"))
		view_line(out, "programs", "%" PRIu64, field_number(t, "programs"));
	else
		view_line(out, "programs", "none yet; the trigger waits for one that writes events");
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
		human_table_add(&table, human_name(field_text(t, "region")));
		human_table_add_duration(&table, field_number(t, "over_ns"));
		human_table_add_duration(&table, field_number(t, "cooldown_ns"));
		human_table_add(&table,
			hourly ? human_format("%" PRIu64, hourly) : human_format("%s", "-"));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "programs")));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "hits")));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "snapshots")));
		human_table_add(&table,
			human_format("%s", human_time(buf, field_number(t, "last_hit_at"))));
		human_table_add(&table, trigger_suppressed(field(t, "suppressed")));
	}
	human_table_print(&table, out, 0);
}
