// SPDX-License-Identifier: Apache-2.0
/*
 * Text for the protocol's Target and Snapshot objects. Every name in them is escaped again here:
 * they come from other people's programs, and this goes to a terminal.
 */
#include "client/ui/view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/trigger.h"

void view_line(FILE *out, const char *label, const char *fmt, ...)
{
	va_list ap;

	(void)fprintf(out, "  %-11s ", label);
	va_start(ap, fmt);
	(void)vfprintf(out, fmt, ap);
	va_end(ap);
	(void)fputc('\n', out);
}

uint64_t view_counter(struct json_object *v)
{
	if (!v || !json_object_is_type(v, json_type_object))
		return field_value_number(v);
	return field_number(v, "count") ? field_number(v, "count") : field_number(v, "events");
}

uint64_t view_sum(struct json_object *counters)
{
	uint64_t sum = 0;

	if (!counters || !json_object_is_type(counters, json_type_object))
		return 0;
	json_object_object_foreach (counters, key, value) {
		(void)key;
		sum += view_counter(value);
	}
	return sum;
}

char *view_losses(struct json_object *losses)
{
	char *text = NULL;

	if (!losses || !json_object_is_type(losses, json_type_object))
		return human_format("none");
	json_object_object_foreach (losses, key, value) {
		_cleanup_free_ char *kind = NULL, *before = NULL;
		uint64_t n = view_counter(value);

		if (!n)
			continue;
		kind = human_name(key);
		before = text;
		text = before ? human_format("%s, %s %" PRIu64, before, kind, n)
			      : human_format("%s %" PRIu64, kind, n);
	}
	return text ? text : human_format("none");
}

/* ---- targets */

static bool is_host(struct json_object *t)
{
	return field_is(t, "scope", "host");
}

char *view_target_name(struct json_object *t)
{
	_cleanup_free_ char *id = human_name(field_text(t, "id"));
	_cleanup_free_ char *comm = human_name(field_text(t, "comm"));
	_cleanup_free_ char *unit = human_name(field_text(t, "unit"));

	if (is_host(t))
		return human_format("%s: the host", id);
	if (field_text(t, "unit"))
		return human_format("%s: unit %s", id, unit);
	if (field_number(t, "tid"))
		return human_format("%s: %s (pid %" PRIu64 ", thread %" PRIu64 ")", id, comm,
			field_number(t, "pid"), field_number(t, "tid"));
	return human_format("%s: %s (pid %" PRIu64 ")", id, comm, field_number(t, "pid"));
}

/* Its programs write events, and nobody armed it. */
static bool is_events_only(struct json_object *t)
{
	return field_is(t, "backend", "events");
}

/* A tracerd-step records it, every instruction. */
static bool is_stepped(struct json_object *t)
{
	return field_is(t, "backend", "step");
}

/* The processor records it: each branch (Intel PT). */
static bool is_traced(struct json_object *t)
{
	return field_is(t, "backend", "pt");
}

/* It has no samples of its own. */
static bool is_exact(struct json_object *t)
{
	return is_stepped(t) || is_traced(t);
}

char *view_target_how(struct json_object *t)
{
	_cleanup_free_ char *stacks = human_name(field_text(t, "stacks"));
	_cleanup_free_ char *method = human_name(field_text(t, "method"));

	if (is_events_only(t))
		return human_format("its own events only; 'tracectl arm %" PRIu64
				    "' adds stacks and waits",
			field_number(t, "pid"));
	if (is_stepped(t))
		return human_format("every instruction, by tracerd-step");
	if (is_traced(t))
		return human_format("every call, by the processor (Intel PT)");
	return human_format("stacks %s%s%s, waits %s, recorded by %s events", stacks,
			    field_bool(t, "stacks_pending") ? " until its files have been looked at"
							    : "",
			    field_bool(t, "kernel") ? " and the kernel's" : "",
			    field_bool(t, "waits") ? "on" : "without stacks", method);
}

/* "3 threads, 2.00 MiB": the event rings of its programs; "-" without. The caller frees it. */
static char *rings_short(struct json_object *events)
{
	uint64_t threads = field_number(events, "threads");
	const char *state = field_text(events, "state");
	char bytes[HUMAN_SIZE];

	if (!state)
		return human_format("%s", "-");
	return human_format("%" PRIu64 " thread%s, %s%s", threads, threads == 1 ? "" : "s",
		human_bytes(bytes, field_number(events, "bytes")),
		!strcmp(state, "live") ? "" : ", ended");
}

static void view_rings(FILE *out, struct json_object *events)
{
	_cleanup_free_ char *state = human_name(field_text(events, "state")),
			    *clock = human_name(field_text(events, "clock")),
			    *lost = view_losses(field(events, "lost"));
	uint64_t programs = field_number(events, "programs");
	char since[HUMAN_SIZE], bytes[HUMAN_SIZE], ring[HUMAN_SIZE];

	if (!field_text(events, "state"))
		return;
	view_line(out, "events", "%" PRIu64 " program%s, %s since %s, clock %s", programs,
		programs == 1 ? "" : "s", state,
		human_time(since, field_number(events, "registered_at")), clock);
	view_line(out, "",
		"%" PRIu64 " of %" PRIu64 " threads, %s each, %" PRIu64 " names, %s in all",
		field_number(events, "threads"), field_number(events, "threads_max"),
		human_bytes(ring, field_number(events, "ring_bytes")),
		field_number(events, "names"), human_bytes(bytes, field_number(events, "bytes")));
	view_line(out, "", "lost: %s", lost);
}

/* Stacks that were unwound in the kernel, and how many were copied since that did not do. */
static void view_unwound(FILE *out, struct json_object *u)
{
	if (!u)
		return;
	view_line(out, "unwound",
		  "%" PRIu64 " stacks in the kernel, of which %" PRIu64 " are cut; %" PRIu64
		  " frames by frame pointers",
		  field_number(u, "complete") + field_number(u, "cut"), field_number(u, "cut"),
		  field_number(u, "by_frame_pointer"));
	view_line(out, "",
		  "copied: %" PRIu64 " through code without a table, %" PRIu64
		  " without a rule, %" PRIu64 " not readable, %" PRIu64 " astray, %" PRIu64
		  " through code that keeps no frame pointer",
		  field_number(u, "no_table"), field_number(u, "no_rule"),
		  field_number(u, "no_read"), field_number(u, "bad"), field_number(u, "no_frame"));
	if (field_number(u, "other_stack"))
		view_line(out, "",
			  "%" PRIu64 " lead to another stack of Go's: not known from there on",
			  field_number(u, "other_stack"));
	view_line(out, "",
		  "code: %" PRIu64 " mappings with a table, %" PRIu64 " waiting for one, %" PRIu64
		  " without",
		  field_number(u, "mappings"), field_number(u, "mappings_waiting"),
		  field_number(u, "mappings_without"));
}

/* The Python functions of processes that run an interpreter. */
static void view_python(FILE *out, struct json_object *list)
{
	const size_t n = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *p = json_object_array_get_idx(list, i);
		const char *refused = field_text(p, "refused");

		if (refused && *refused) {
			view_line(out, i ? "" : "python",
				  "%s of process %" PRIu64 ": its functions are not found: %s",
				  field_text(p, "version"), field_number(p, "pid"), refused);
			continue;
		}
		view_line(out, i ? "" : "python",
			  "%s of process %" PRIu64 ": functions of %" PRIu64
			  " stacks, of which %" PRIu64 " are cut; %" PRIu64
			  " of threads it does not know, %" PRIu64 " not readable, %" PRIu64
			  " among subinterpreters, %" PRIu64 " between two"
			  " functions; %" PRIu64 " without a name",
			  field_text(p, "version"), field_number(p, "pid"),
			  field_number(p, "complete") + field_number(p, "cut"),
			  field_number(p, "cut"),
			  field_number(p, "no_thread") + field_number(p, "crowded"),
			  field_number(p, "no_read"), field_number(p, "subinterpreters"),
			  field_number(p, "between"), field_number(p, "unnamed"));
	}
}

/* The goroutines of processes that are Go programs. */
static void view_go(FILE *out, struct json_object *list)
{
	const size_t n = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *p = json_object_array_get_idx(list, i);
		const char *refused = field_text(p, "refused");

		if (refused && *refused)
			view_line(out, i ? "" : "go",
				  "%s of process %" PRIu64 ": its goroutines are not read: %s",
				  field_text(p, "version"), field_number(p, "pid"), refused);
		else
			view_line(out, i ? "" : "go",
				  "%s of process %" PRIu64 ": read %" PRIu64
				  " times which goroutine runs, %" PRIu64
				  " times none did; %" PRIu64
				  " times of a thread that the runtime does not know, %" PRIu64
				  " not readable",
				  field_text(p, "version"), field_number(p, "pid"),
				  field_number(p, "found"), field_number(p, "none"),
				  field_number(p, "no_thread"), field_number(p, "no_read"));
	}
}

/* What there is, of what was asked for if that is more. */
static char *look_back(struct json_object *t)
{
	const uint64_t is = field_number(t, "lookback_ns"), wanted = field_number(t, "keep_ns");
	char have[HUMAN_SIZE], keep[HUMAN_SIZE];

	return is < wanted ? human_format("%s of %s", human_duration(have, is),
					  human_duration(keep, wanted))
			   : human_format("%s", human_duration(have, is));
}

static void view_shorts(FILE *out, struct json_object *targets)
{
	for (size_t i = 0; i < json_object_array_length(targets); i++) {
		struct json_object *t = json_object_array_get_idx(targets, i);
		_cleanup_free_ char *id = human_name(field_text(t, "id")),
				    *why = human_name(field_text(t, "keep_short")),
				    *has = look_back(t);

		if (field_text(t, "keep_short"))
			(void)fprintf(out, "%s looks back %s: %s\n", id, has, why);
	}
}

void view_targets(FILE *out, struct json_object *targets)
{
	static const struct human_column columns[] = {
		{"TARGET", 'l'},
		{"PID", 'r'},
		{"NAME", 'l'},
		{"UID", 'r'},
		{"STATE", 'l'},
		{"STACKS", 'l'},
		{"EVENTS", 'l'},
		{"LOOK-BACK", 'r'},
		{"SAMPLES", 'r'},
		{"RINGS", 'l'},
		{"TRIGGERS", 'r'},
		{"LOST", 'r'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);

	for (size_t i = 0; i < json_object_array_length(targets); i++) {
		struct json_object *t = json_object_array_get_idx(targets, i);
		struct json_object *events = field(t, "events"), *step = field(t, "step");
		const char *unit = field_text(t, "unit");
		uint64_t tid = field_number(t, "tid"), pid = field_number(t, "pid"),
			 processes = field_number(t, "processes");
		const uint64_t others = unit || processes < 2 ? 0 : processes - 1;
		_cleanup_free_ char *name = human_name(unit ? unit : field_text(t, "comm"));

		human_table_add(&table, human_name(field_text(t, "id")));
		human_table_add(&table, tid ? human_format("%" PRIu64 "/%" PRIu64, pid, tid)
					    : human_format(pid ? "%" PRIu64 : "-", pid));
		human_table_add(&table,
				others ? human_format("%s and %" PRIu64 " more", name, others)
				       : take_ptr(name));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "uid")));
		human_table_add(&table, human_name(field_text(t, "state")));
		human_table_add(&table, human_name(is_events_only(t) || is_exact(t)
							   ? "-"
							   : field_text(t, "stacks")));
		human_table_add(
			&table, human_name(is_events_only(t) ? "own" : field_text(t, "method")));
		if (is_events_only(t) || is_traced(t)) {
			/*
			 * it has no samples, and its rings look back by events or bytes, not by
			 * time
			 */
			human_table_add(&table, human_format(is_traced(t) ? "not measured" : "-"));
			human_table_add(&table, human_format("-"));
		} else {
			human_table_add(&table, look_back(t));
			human_table_add(&table, is_stepped(t)
							? human_format("%" PRIu64 " insns",
								       field_number(step, "insns"))
							: human_format("%" PRIu64,
								       field_number(t, "samples")));
		}
		human_table_add(&table, rings_short(events));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "triggers")));
		human_table_add(&table,
				human_format("%" PRIu64, view_sum(field(t, "lost")) +
								 view_sum(field(events, "lost")) +
								 view_sum(field(step, "lost")) +
								 field_number(field(t, "pt"),
									      "cpus_not_traced")));
	}
	human_table_print(&table, out, 0);
	view_shorts(out, targets);
}

static void view_strings(FILE *out, const char *label, struct json_object *o, const char *key)
{
	for (size_t i = 0; i < field_count(o, key); i++) {
		_cleanup_free_ char *s = human_name(json_object_get_string(field_at(o, key, i)));

		view_line(out, i ? "" : label, "%s", s);
	}
}

static void view_step(FILE *out, struct json_object *step)
{
	_cleanup_free_ char *lost = view_losses(field(step, "lost")),
			    *state = human_name(field_text(step, "state")),
			    *error = human_name(field_text(step, "error"));
	char bytes[HUMAN_SIZE], max[HUMAN_SIZE], over[HUMAN_SIZE];

	view_line(out, "recorded",
		  "%" PRIu64 " instructions, %" PRIu64 " system calls, %" PRIu64
		  " signals; %" PRIu64 " of %" PRIu64 " threads alive",
		  field_number(step, "insns"), field_number(step, "syscalls"),
		  field_number(step, "signals"), field_number(step, "threads"),
		  field_number(step, "threads_all"));
	view_line(out, "stepper", "%s%s%s; %s of %s kept, %s overwritten", state,
		  field_text(step, "error") ? ": " : "", field_text(step, "error") ? error : "",
		  human_bytes(bytes, field_number(step, "bytes")),
		  human_bytes(max, field_number(step, "max_bytes")),
		  human_bytes(over, field_number(step, "overwritten_bytes")));
	view_line(out, "", "lost: %s", lost);
}

static void view_trace(FILE *out, struct json_object *pt)
{
	_cleanup_free_ char *timing = human_name(field_text(pt, "timing"));
	char ring[HUMAN_SIZE], blind[HUMAN_SIZE];

	view_line(out, "trace",
		  "%s on each of %" PRIu64
		  " CPUs, timing %s; CPUs were copied, and not traced, for %s",
		  human_bytes(ring, field_number(pt, "ring_bytes")), field_number(pt, "cpus"),
		  timing, human_duration(blind, field_number(pt, "blind_ns")));
	if (field_number(pt, "cpus_not_traced"))
		view_line(out, "", "CPUs that came online later, and are not traced: %" PRIu64,
			  field_number(pt, "cpus_not_traced"));
}

void view_target(FILE *out, struct json_object *t)
{
	_cleanup_free_ char *name = view_target_name(t), *how = view_target_how(t);
	_cleanup_free_ char *exe = human_name(field_text(t, "exe"));
	_cleanup_free_ char *state = human_name(field_text(t, "state"));
	_cleanup_free_ char *lost = view_losses(field(t, "lost"));
	_cleanup_free_ char *has = look_back(t), *why = human_name(field_text(t, "keep_short"));
	char since[HUMAN_SIZE], ring[HUMAN_SIZE];

	(void)fprintf(out, "%s\n", name);
	view_line(out, "program", "%s", exe);
	if (is_events_only(t))
		view_line(out, "owner", "uid %" PRIu64, field_number(t, "uid"));
	else
		view_line(out, "owner", "uid %" PRIu64 "; armed by uid %" PRIu64,
			  field_number(t, "uid"), field_number(t, "owner_uid"));
	view_line(
		out, "state", "%s since %s", state, human_time(since, field_number(t, "state_at")));
	if (field_number(t, "processes") > 1)
		view_line(out, "processes", "%" PRIu64 ", of which %" PRIu64 " live",
			  field_number(t, "processes"), field_number(t, "living"));
	view_line(out, "recording", "%s", how);
	view_strings(out, "because", t, "why");
	view_strings(out, "warning", t, "warnings");
	if (is_traced(t)) {
		view_line(
			out, "look-back",
			"not measured: a ring of trace holds bytes, not time; a snapshot says what it has");
		view_trace(out, field(t, "pt"));
	} else if (!is_events_only(t)) {
		view_line(out, "look-back", "%s%s%s", has, field_text(t, "keep_short") ? ": " : "",
			  field_text(t, "keep_short") ? why : "");
		if (is_stepped(t))
			view_step(out, field(t, "step"));
		else
			view_line(out, "recorded", "%" PRIu64 " samples, %" PRIu64 " switches",
				field_number(t, "samples"), field_number(t, "switches"));
	}
	if (field_number(t, "wait_min_ns"))
		view_line(out, "waits", "with stacks from %s on",
			  human_duration(since, field_number(t, "wait_min_ns")));
	view_unwound(out, field(field(t, "sample"), "unwound"));
	view_python(out, field(field(t, "sample"), "python"));
	view_go(out, field(field(t, "sample"), "go"));
	view_line(out, "lost", "%s", lost);
	view_rings(out, field(t, "events"));
	if (field_number(t, "triggers"))
		view_line(out, "triggers", "%" PRIu64, field_number(t, "triggers"));
	view_line(out, "cost", "%s of rings, %" PRIu64 " file descriptors",
		human_bytes(ring, field_number(t, "ring_bytes")), field_number(t, "fds"));
}

/* ---- snapshots */

void view_snapshots(FILE *out, struct json_object *snapshots)
{
	static const struct human_column columns[] = {
		{"SNAPSHOT", 'l'},
		{"TARGET", 'l'},
		{"PID", 'r'},
		{"NAME", 'l'},
		{"STATE", 'l'},
		{"SIZE", 'r'},
		{"CREATED", 'l'},
		{"REASON", 'l'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);

	for (size_t i = 0; i < json_object_array_length(snapshots); i++) {
		struct json_object *s = json_object_array_get_idx(snapshots, i);
		char buf[HUMAN_SIZE];

		human_table_add(&table, human_name(field_text(s, "id")));
		human_table_add(&table, human_name(field_text(s, "target")));
		human_table_add(&table, human_format("%" PRIu64, field_number(s, "pid")));
		human_table_add(&table, human_name(field_text(s, "comm")));
		human_table_add(&table, human_name(field_text(s, "state")));
		human_table_add(
			&table, human_format("%s", human_bytes(buf, field_number(s, "bytes"))));
		human_table_add(
			&table, human_format("%s", human_time(buf, field_number(s, "created_at"))));
		human_table_add(&table, trigger_cause_words(field(s, "cause")));
	}
	human_table_print(&table, out, 0);
}

/* Who asked and why; of a trigger, which region and how long it took. */
static void view_cause(FILE *out, struct json_object *cause)
{
	_cleanup_free_ char *words = trigger_cause_sentence(cause),
			    *trigger = human_name(field_text(cause, "trigger"));
	const char *kind = field_text(cause, "kind");

	if (!*words)
		return;
	if (field_text(cause, "trigger"))
		view_line(out, "cause", "%s, trigger %s", words, trigger);
	else
		view_line(
			out, kind && strcmp(kind, "client") != 0 ? "cause" : "reason", "%s", words);
}

static bool is_of_host(struct json_object *s)
{
	return field_is(s, "unit", "/");
}

void view_snapshot(FILE *out, struct json_object *s)
{
	_cleanup_free_ char *id = human_name(field_text(s, "id"));
	_cleanup_free_ char *unit = human_name(field_text(s, "unit"));
	_cleanup_free_ char *comm = human_name(field_text(s, "comm"));
	_cleanup_free_ char *target = human_name(field_text(s, "target"));
	_cleanup_free_ char *state = human_name(field_text(s, "state"));
	const char *error = field_text(field(s, "error"), "message");
	const char *stage = field_text(field(s, "progress"), "stage");
	uint64_t created = field_number(s, "created_at"),
		 published = field_number(s, "published_at");
	char buf[HUMAN_SIZE], gap[HUMAN_SIZE];

	if (is_of_host(s))
		(void)fprintf(out, "snapshot %s of the host (target %s)\n", id, target);
	else if (field_text(s, "unit"))
		(void)fprintf(out, "snapshot %s of unit %s (target %s)\n", id, unit, target);
	else
		(void)fprintf(out, "snapshot %s of %s (pid %" PRIu64 ", target %s)\n", id, comm,
			      field_number(s, "pid"), target);
	if (published > created)
		view_line(
			out, "state", "%s in %s", state, human_duration(buf, published - created));
	else if (stage && *stage) {
		_cleanup_free_ char *safe = human_name(stage);

		view_line(out, "state", "%s (%s)", state, safe);
	} else {
		view_line(out, "state", "%s", state);
	}
	view_line(out, "created", "%s", human_time(buf, created));
	if (field_number(s, "late_ns"))
		view_line(
			out, "frozen",
			"%s after it was asked for: the end of the recording, that times count from, is so much later",
			human_duration(gap, field_number(s, "late_ns")));
	view_cause(out, field(s, "cause"));
	if (error && *error) {
		_cleanup_free_ char *safe = human_name(error);

		view_line(out, "error", "%s", safe);
	}
	if (field_number(s, "bytes"))
		view_line(out, "size", "%s", human_bytes(buf, field_number(s, "bytes")));
	if (field_number(s, "blind_ns"))
		view_line(out, "blind gap", "%s", human_duration(gap, field_number(s, "blind_ns")));
	for (size_t i = 0; i < field_count(s, "files"); i++) {
		struct json_object *f = field_at(s, "files", i);
		_cleanup_free_ char *name = human_name(field_text(f, "name"));

		view_line(out, i ? "" : "files", "%s (%s)", name,
			human_bytes(buf, field_number(f, "size")));
	}
}
