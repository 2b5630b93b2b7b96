// SPDX-License-Identifier: Apache-2.0
/* What the decoder counted, as text: what there was, what went wrong, where the time went. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/report.h"

struct line {
	const char *key, *text;
};

static void print_counts(FILE *out, struct json_object *o, const struct line *lines, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (field(o, lines[i].key))
			(void)fprintf(out, "  %-36s %15" PRIu64 "\n", lines[i].text,
				      field_number(o, lines[i].key));
}

/* What several did at once: each of them beside it. */
static void print_each(FILE *out, struct json_object *stages, const char *key)
{
	const size_t n = key ? field_count(stages, key) : 0;
	char buf[HUMAN_SIZE];

	for (size_t i = 0; i < n && n > 1; i++)
		(void)fprintf(out, "%s%s", i ? " + " : "   ",
			      human_duration(buf,
					     json_object_get_uint64(field_at(stages, key, i))));
}

static void print_stages(FILE *out, struct json_object *stages)
{
	static const struct {
		const char *key, *text, *each;
	} lines[] = {
		{"reading_ns", "reading the recording", NULL},
		{"code_ns", "opening the code", NULL},
		{"following_ns", "following the trace", "following_each_ns"},
		{"waiting_ns", "  waiting for that", NULL},
		{"drawing_ns", "drawing", NULL},
		{"writing_ns", "writing", NULL},
		{"total_ns", "in all", NULL},
		{"cpu_ns", "on processors", "cpu_each_ns"},
	};
	char buf[HUMAN_SIZE];

	(void)fputs("\ntime\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		if (!field(stages, lines[i].key))
			continue;
		(void)fprintf(out, "  %-36s %15s", lines[i].text,
			      human_duration(buf, field_number(stages, lines[i].key)));
		print_each(out, stages, lines[i].each);
		(void)fputc('\n', out);
	}
}

static void print_rate(FILE *out, struct json_object *stats)
{
	const uint64_t ns = field_number(field(stats, "stages"), "total_ns");
	const double seconds = (double)ns / 1e9;

	if (ns == 0 || !field(stats, "pt_bytes"))
		return;
	(void)fprintf(out, "  %-36s %10.1f MB/s, %.2f million calls/s\n", "Intel PT",
		(double)field_number(stats, "pt_bytes") / seconds / 1e6,
		(double)field_number(stats, "calls") / seconds / 1e6);
}

/*
 * Code that is known by name only: how often the trace went there, and how much of it is lost by
 * that.
 */
static void print_missing_code(FILE *out, struct json_object *losses)
{
	const size_t n = field_count(losses, "code_missing");

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = field_at(losses, "code_missing", i);
		_cleanup_free_ char *name = human_name(field_text(o, "name"));
		char buf[HUMAN_SIZE];

		(void)fprintf(out, "%s%" PRIu64 " times, %s of the trace: %s\n",
			      i ? "    " : "  code missing, by object\n    ",
			      field_number(o, "times"),
			      human_bytes(buf, field_number(o, "trace_bytes")), name);
	}
}

/* Packets of kinds that are not known: what they begin with. */
static void print_unknown_packets(FILE *out, struct json_object *losses)
{
	const size_t n = field_count(losses, "pt_unknown_packets");

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = field_at(losses, "pt_unknown_packets", i);
		_cleanup_free_ char *bytes = human_name(field_text(o, "bytes"));

		(void)fprintf(out,
			      "%s%" PRIu64 " times, first at byte 0x%" PRIx64 " of buffer %" PRIu64
			      ": %s\n",
			      i ? "    " : "  packets of unknown kinds\n    ",
			      field_number(o, "times"), field_number(o, "offset"),
			      field_number(o, "buffer"), bytes);
	}
}

/* Their names say it themselves, but for the underlines. */
static void print_losses(FILE *out, struct json_object *losses)
{
	if (!losses || json_object_object_length(losses) == 0) {
		(void)fputs("  nothing\n", out);
		return;
	}
	json_object_object_foreach(losses, key, value) {
		_cleanup_free_ char *name = human_name(key);

		for (char *p = name; *p; p++)
			if (*p == '_')
				*p = ' ';
		if (json_object_is_type(value, json_type_int))
			(void)fprintf(out, "  %-36s %15" PRIu64 "\n", name,
				      json_object_get_uint64(value));
		else if (json_object_is_type(value, json_type_array) &&
			 strcmp(key, "code_missing") != 0 && strcmp(key, "pt_unknown_packets") != 0)
			(void)fprintf(out, "  %-36s %15zu\n", name,
				      json_object_array_length(value));
		else if (json_object_is_type(value, json_type_boolean))
			(void)fprintf(out, "  %-36s %15s\n", name,
				      json_object_get_boolean(value) ? "yes" : "no");
	}
	print_missing_code(out, losses);
	print_unknown_packets(out, losses);
}

void report_print_stats(FILE *out, struct json_object *result)
{
	static const struct line decoded[] = {
		{"samples", "samples"},
		{"switches", "switches"},
		{"events", "events of programs"},
		{"pt_buffers", "Intel PT buffers"},
		{"pt_bytes", "Intel PT bytes"},
		{"pt_blocks", "blocks"},
		{"pt_packets", "packets"},
		{"instructions", "instructions"},
		{"calls", "calls"},
		{"inlined_calls", "inlined calls"},
		{"returns", "returns"},
		{"tail_calls", "tail calls"},
		{"unwindings", "unwindings"},
		{"stack_switches", "switches of stacks"},
		{"signals", "signal handlers"},
		{"callers_inferred", "callers that a return showed"},
		{"frames_kept_over_gaps", "frames kept over gaps"},
		{"callers_from_stacks", "callers that a stack has named"},
		{"goroutines_told", "goroutines that the program's own trace has named"},
		{"stacks_that_agree", "stacks that agree with the calls"},
		{"stacks_of_another_place", "stacks of another place"},
		{"frames_without_symbol", "frames without a symbol"},
		{"images_with_debug_info", "objects with debug information"},
		{"ptwrites", "values written (PTWRITE)"},
		{"transactions", "transactions"},
		{"transactions_aborted", "transactions aborted"},
		{"interruptions", "interrupts and faults"},
		{"frequency_changes", "changes of frequency"},
		{"power_events", "power events"},
		{"slices", "slices written"},
		{"lines", "lines written"},
		{"bytes_out", "bytes written"},
	};
	struct json_object *stats = field(result, "stats"), *losses = field(result, "losses");

	(void)fputs("\ndecoded\n", out);
	print_counts(out, stats, decoded, ARRAY_SIZE(decoded));
	(void)fputs("\nnot decoded, and in doubt\n", out);
	print_losses(out, losses);
	if (field(stats, "stages")) {
		print_stages(out, field(stats, "stages"));
		print_rate(out, stats);
	}
	if (field_number(result, "max_rss_bytes")) {
		char buf[HUMAN_SIZE];

		(void)fprintf(out, "  %-36s %15s\n", "memory, at most",
			human_bytes(buf, field_number(result, "max_rss_bytes")));
	}
}
