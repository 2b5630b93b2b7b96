// SPDX-License-Identifier: Apache-2.0
/*
 * The program's own regions in a summary as text: by name, the slowest, and the one that it is
 * about.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "client/ui/human.h"
#include "client/ui/report_internal.h"

#define MAX_REGIONS 10
#define MAX_SLOWEST 5

/* How the region's time was spent: "1.20 ms on the CPU, 6.02 ms waiting"; the rest is not known. */
static void print_spent(FILE *out, struct json_object *region)
{
	uint64_t ns = field_number(region, "ns"), on = field_number(region, "on_cpu_ns"),
		 off = field_number(region, "off_cpu_ns");
	char on_text[HUMAN_SIZE], off_text[HUMAN_SIZE], rest[HUMAN_SIZE];

	if (!field(region, "on_cpu_ns")) {
		(void)fputs("nothing is recorded of how it was spent", out);
		return;
	}
	(void)human_duration(on_text, on);
	if (!field(region, "off_cpu_ns")) {
		(void)fprintf(out, "%s on the CPU; waits were not recorded", on_text);
		return;
	}
	(void)fprintf(out, "%s on the CPU, %s waiting", on_text, human_duration(off_text, off));
	/* less than a tenth may be the last sample's period, or the clocks' error */
	if (on < ns && off < ns - on && ns - on - off > ns / 10)
		(void)fprintf(out,
			      field(region, "fiber") ? ", %s on no thread"
						     : ", of %s nothing is recorded",
			      human_duration(rest, ns - on - off));
}

static void print_region_names(FILE *out, struct json_object *summary)
{
	static const struct human_column columns[] = {
		{"REGION", 'l'},
		{"COUNT", 'r'},
		{"LONGEST", 'r'},
		{"IN ALL", 'r'},
		{"ITSELF", 'r'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);
	size_t n = field_count(summary, "regions");
	uint64_t more = field_number(summary, "regions_omitted");

	if (!n)
		return;
	for (size_t i = 0; i < n && i < MAX_REGIONS; i++) {
		struct json_object *r = field_at(summary, "regions", i);

		human_table_add(&table, human_name(field_text(r, "name")));
		human_table_add(&table, human_format("%" PRIu64, field_number(r, "count")));
		human_table_add_duration(&table, field_number(r, "max_ns"));
		human_table_add_duration(&table, field_number(r, "total_ns"));
		human_table_add_duration(&table, field_number(r, "self_ns"));
	}
	(void)fputs("\nregions of the program\n", out);
	human_table_print(&table, out, 2);
	if (n > MAX_REGIONS || more)
		(void)fprintf(out, "  ... and %" PRIu64 " more\n",
			more + (n > MAX_REGIONS ? n - MAX_REGIONS : 0));
}

/* How long a goroutine did not run, where that was, and who ended it. */
static void print_pause(FILE *out, struct json_object *pause)
{
	char length[HUMAN_SIZE];

	if (!pause)
		return;
	_cleanup_free_ char *state = human_name(field_text(pause, "state")),
			    *stack = human_name(field_text(pause, "stack")),
			    *by = human_name(field_text(pause, "by")),
			    *by_stack = human_name(field_text(pause, "by_stack"));

	(void)fprintf(out, "     %s %s%s%s\n", human_duration(length, field_number(pause, "ns")),
		      state, field_text(pause, "stack") ? " in " : "",
		      field_text(pause, "stack") ? stack : "");
	if (field_text(pause, "by") || field_text(pause, "by_stack"))
		(void)fprintf(out, "     ended by %s%s%s\n",
			      field_text(pause, "by") ? by : "the runtime",
			      field_text(pause, "by_stack") ? " in " : "",
			      field_text(pause, "by_stack") ? by_stack : "");
}

static void print_slow_region(FILE *out, struct json_object *r, size_t rank, uint64_t to_ns)
{
	_cleanup_free_ char *name = human_name(field_text(r, "name")),
			    *thread = human_name(field_text(r, "thread"));
	uint64_t begin = field_number(r, "begin_ns");
	char length[HUMAN_SIZE], before[HUMAN_SIZE];

	(void)fprintf(out, "  %zu. %s  %s in %s (tid %" PRIu64 ")", rank,
		      human_duration(length, field_number(r, "ns")), name, thread,
		      field_number(r, "tid"));
	if (begin && begin < to_ns)
		(void)fprintf(out, ", began %s before the end",
			      human_duration(before, to_ns - begin));
	if (field(r, "on_cpu_ns")) {
		(void)fputs(": ", out);
		print_spent(out, r);
	}
	(void)fputc('\n', out);
	print_pause(out, field(r, "pause"));
	if (field_count(r, "waits")) {
		struct json_object *w = field_at(r, "waits", 0);
		_cleanup_free_ char *label = human_format(
			"waited %s in ", human_duration(length, report_inside_ns(w)));

		report_print_stack(out, 5, label, field(w, "stack"));
		report_print_waker(out, w, report_is_lock_wait(w));
	}
}

static void print_slowest_regions(FILE *out, struct json_object *summary)
{
	size_t n = field_count(summary, "slowest_regions");

	if (n)
		(void)fputs("\nslowest regions\n", out);
	for (size_t i = 0; i < n && i < MAX_SLOWEST; i++)
		print_slow_region(out, field_at(summary, "slowest_regions", i), i + 1,
			field_number(summary, "to_ns"));
}

void report_print_focus_region(FILE *out, struct json_object *region)
{
	_cleanup_free_ char *name = human_name(field_text(region, "name"));
	char took[HUMAN_SIZE], over[HUMAN_SIZE];

	(void)fprintf(out, "\nthe slow region: %s took %s", name,
		human_duration(took, field_number(region, "ns")));
	if (field_number(region, "over_ns"))
		(void)fprintf(out, " (over %s)",
			      human_duration(over, field_number(region, "over_ns")));
	if (field(region, "thread")) {
		_cleanup_free_ char *thread = human_name(field_text(region, "thread"));

		(void)fprintf(out, " in %s (tid %" PRIu64 "): ", thread,
			      field_number(region, "tid"));
		print_spent(out, region);
	}
	(void)fputc('\n', out);
	report_print_heaviest(out, region);
	report_print_waits(out, region, true);
	report_print_waits(out, region, false);
}

static void print_goroutines(FILE *out, struct json_object *summary)
{
	static const struct human_column columns[] = {
		{"GOROUTINES", 'l'}, {"COUNT", 'r'},   {"RUNNING", 'r'},  {"OFF CPU", 'r'},
		{"RUNNABLE", 'r'},   {"LONGEST", 'r'}, {"SYSCALLS", 'r'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);
	size_t n = field_count(summary, "goroutines");
	uint64_t more = field_number(summary, "goroutines_omitted");

	if (!n)
		return;
	for (size_t i = 0; i < n; i++) {
		struct json_object *g = field_at(summary, "goroutines", i);
		const char *function = field_text(g, "function");

		human_table_add(&table, human_name(function && *function ? function
									 : "(no stack recorded)"));
		human_table_add(&table, human_format("%" PRIu64, field_number(g, "count")));
		human_table_add_duration(&table, field_number(g, "running_ns"));
		if (field(g, "off_cpu_ns"))
			human_table_add_duration(&table, field_number(g, "off_cpu_ns"));
		else
			human_table_add(&table, human_format("-"));
		human_table_add_duration(&table, field_number(g, "runnable_ns"));
		human_table_add_duration(&table, field_number(g, "longest_runnable_ns"));
		human_table_add_duration(&table, field_number(g, "syscall_ns"));
	}
	(void)fputs("\ngoroutines by what they began with; \"off CPU\" is of what they ran\n", out);
	human_table_print(&table, out, 2);
	if (more)
		(void)fprintf(out, "  ... and %" PRIu64 " more functions\n", more);
}

void report_print_regions(FILE *out, struct json_object *summary)
{
	print_goroutines(out, summary);
	print_region_names(out, summary);
	print_slowest_regions(out, summary);
}
