// SPDX-License-Identifier: Apache-2.0
/*
 * The summary as text. Every name in it comes from a traced program, through the decoder, and is
 * escaped here for the terminal.
 */
#include "client/ui/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/report_internal.h"
#include "client/ui/view.h"
#include "common/base/loss_kinds.h"
#include "common/base/waitfor.h"

#define MAX_THREADS 12
#define MAX_STACKS 8
#define MAX_FUNCTIONS 12
#define MAX_WAITS 5
#define MAX_LISTED 64 /* more than the decoder gives */
#define MAX_THROUGHOUT 2
#define NOTABLE_NS 1000000u /* for a CPU, or it goes without saying */
#define SIMILAR 4 /* times as long */
#define MAX_FRAMES 64 /* more than the decoder gives */

void report_print_stack(FILE *out, size_t indent, const char *label, struct json_object *stack)
{
	static const char nothing[] = "(stack not recorded)";
	size_t n = stack && json_object_is_type(stack, json_type_array)
			   ? json_object_array_length(stack)
			   : 0;
	char *names[MAX_FRAMES];
	size_t shown = 0;

	for (; shown < n && shown < MAX_FRAMES; shown++) {
		struct json_object *frame = json_object_array_get_idx(stack, n - 1 - shown);

		names[shown] = human_name(frame ? json_object_get_string(frame) : NULL);
	}
	(void)fprintf(out, "%*s%s", (int)indent, "", label);
	if (shown)
		human_print_words(out, indent + human_width(label), indent + 4, " <- ", names,
				  shown);
	else
		(void)fputs(nothing, out);
	(void)fputc('\n', out);
	for (size_t i = 0; i < shown; i++)
		free(names[i]);
}

/* A time that was not recorded is unknown, not zero. */
static void add_time(struct human_table *table, struct json_object *o, const char *key)
{
	if (field(o, key))
		human_table_add_duration(table, field_number(o, key));
	else
		human_table_add(table, human_format("unknown"));
}

/* Whether more is recorded of threads than the program's own events. */
static bool any_times(struct json_object *summary)
{
	for (size_t i = 0; i < field_count(summary, "threads"); i++) {
		struct json_object *t = field_at(summary, "threads", i);

		if (field(t, "on_cpu_ns") || field(t, "off_cpu_ns") || field_number(t, "samples") ||
			field_number(t, "calls") || field_number(t, "instructions"))
			return true;
	}
	return false;
}

/* Whether the threads are of more than one process. */
static bool is_of_several(struct json_object *summary)
{
	for (size_t i = 1; i < field_count(summary, "threads"); i++)
		if (field_number(field_at(summary, "threads", i), "pid") !=
		    field_number(field_at(summary, "threads", 0), "pid"))
			return true;
	return false;
}

static void print_threads(FILE *out, struct json_object *summary, bool stepped)
{
	static const struct human_column sampled[] = {
		{"THREAD", 'l'},
		{"TID", 'r'},
		{"ON CPU", 'r'},
		{"OFF CPU", 'r'},
		{"SAMPLES", 'r'},
	};
	static const struct human_column exact[] = {
		{"THREAD", 'l'},
		{"TID", 'r'},
		{"TRACED", 'r'},
		{"OUTSIDE", 'r'},
		{"CALLS", 'r'},
	};
	static const struct human_column by_insns[] = {
		{"THREAD", 'l'},
		{"TID", 'r'},
		{"INSTRUCTIONS", 'r'},
		{"CALLS", 'r'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(sampled);
	size_t n = field_count(summary, "threads");
	uint64_t more = field_number(summary, "threads_omitted");
	const bool calls = field_count(summary, "functions") > 0, several = is_of_several(summary);

	if (!n)
		return;
	if (!any_times(summary)) {
		(void)fprintf(out,
			      "\nthreads: %" PRIu64 "; when they ran and waited is not recorded\n",
			      n + more);
		return;
	}
	if (stepped)
		table = (struct human_table)HUMAN_TABLE(by_insns);
	else if (calls)
		table.columns = exact;
	for (size_t i = 0; i < n && i < MAX_THREADS; i++) {
		struct json_object *t = field_at(summary, "threads", i);

		_cleanup_free_ char *name = human_name(field_text(t, "name"));

		human_table_add(&table, several ? human_format("%s, of process %" PRIu64, name,
							       field_number(t, "pid"))
						: take_ptr(name));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "tid")));
		if (stepped) {
			human_table_add(&table,
					human_format("%" PRIu64, field_number(t, "instructions")));
		} else if (calls) {
			human_table_add_duration(&table, field_number(t, "traced_ns"));
			human_table_add_duration(&table, field_number(t, "outside_ns"));
		} else {
			add_time(&table, t, "on_cpu_ns");
			add_time(&table, t, "off_cpu_ns");
		}
		human_table_add(&table,
				human_format("%" PRIu64,
					     field_number(t,
							  calls || stepped ? "calls" : "samples")));
	}
	(void)fputs("\nthreads\n", out);
	human_table_print(&table, out, 2);
	if (n > MAX_THREADS || more)
		(void)fprintf(out, "  ... and %" PRIu64 " more\n",
			more + (n > MAX_THREADS ? n - MAX_THREADS : 0));
}

/* Where every call is known: what ran how long by itself, and what waited outside of the trace. */
static void print_functions(FILE *out, struct json_object *window)
{
	static const struct human_column columns[] = {
		{"ITSELF", 'r'},
		{"OUTSIDE", 'r'},
		{"CALLS", 'r'},
		{"LONGEST", 'r'},
		{"INSTRUCTIONS", 'r'},
		{"FUNCTION", 'l'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);
	size_t n = field_count(window, "functions");

	if (!n)
		return;
	for (size_t i = 0; i < n && i < MAX_FUNCTIONS; i++) {
		struct json_object *f = field_at(window, "functions", i);

		human_table_add_duration(&table, field_number(f, "self_ns"));
		human_table_add_duration(&table, field_number(f, "outside_ns"));
		human_table_add(&table, human_format("%" PRIu64, field_number(f, "calls")));
		human_table_add_duration(&table, field_number(f, "max_ns"));
		human_table_add(&table, human_format("%" PRIu64, field_number(f, "instructions")));
		human_table_add(&table, human_name(field_text(f, "name")));
	}
	(void)fputs(
		"\nfunctions, by the time in themselves and outside of the trace (system calls, off the CPU)\n",
		out);
	human_table_print(&table, out, 2);
}

/* The same of a program that was stepped, where times are the stepper's. */
static void print_stepped_functions(FILE *out, struct json_object *window)
{
	static const struct human_column columns[] = {
		{"INSTRUCTIONS", 'r'},
		{"CALLS", 'r'},
		{"FUNCTION", 'l'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);
	size_t n = field_count(window, "functions");

	if (!n)
		return;
	for (size_t i = 0; i < n && i < MAX_FUNCTIONS; i++) {
		struct json_object *f = field_at(window, "functions", i);

		human_table_add(&table, human_format("%" PRIu64, field_number(f, "instructions")));
		human_table_add(&table, human_format("%" PRIu64, field_number(f, "calls")));
		human_table_add(&table, human_name(field_text(f, "name")));
	}
	(void)fputs("\nfunctions, by the instructions in themselves\n", out);
	human_table_print(&table, out, 2);
}

void report_print_heaviest(FILE *out, struct json_object *summary)
{
	/* a region has samples of its one thread */
	uint64_t samples =
		field_number(summary, "samples_omitted") + field_number(summary, "samples");

	if (!field_count(summary, "heaviest"))
		return;
	for (size_t i = 0; i < field_count(summary, "threads"); i++)
		samples += field_number(field_at(summary, "threads", i), "samples");
	(void)fputs("\nheaviest stacks, innermost function first\n", out);
	for (size_t i = 0; i < field_count(summary, "heaviest") && i < MAX_STACKS; i++) {
		struct json_object *h = field_at(summary, "heaviest", i);
		_cleanup_free_ char *label = NULL;
		char percent[HUMAN_SIZE], time[HUMAN_SIZE];

		label = human_format("%7s %9s  ",
			human_percent(percent, field_number(h, "samples"), samples),
			human_duration(time, field_number(h, "ns")));
		report_print_stack(out, 2, label, field(h, "stack"));
	}
}

uint64_t report_inside_ns(struct json_object *wait)
{
	return field_number(wait, field(wait, "inside_ns") ? "inside_ns" : "ns");
}

/* A wait for a semaphore or a condition is none; "ended by" is true of both. */
bool report_is_lock_wait(struct json_object *wait)
{
	const char *names[WAITFOR_FRAMES], *state = field_text(wait, "state"),
					   *call = field_text(wait, "call");
	size_t n = field_count(wait, "stack"), shown = 0;

	if (!state || strcmp(state, "sleeping") != 0 || !waitfor_may_lock(call))
		return false;
	if (waitfor_is_file_lock(call))
		return true;
	for (; shown < n && shown < WAITFOR_FRAMES; shown++)
		names[shown] = json_object_get_string(field_at(wait, "stack", n - 1 - shown));
	return waitfor_is_lock(waitfor_functions(names, shown));
}

/* "maintenance (tid 7)" and where; prints "`before` WHO`between`WHERE". */
static void print_who(FILE *out, struct json_object *by, const char *before, const char *between)
{
	_cleanup_free_ char *name = human_name(field_text(by, "name"));
	_cleanup_free_ char *who =
		human_format("%s %s (tid %" PRIu64 ")", before, name, field_number(by, "tid"));
	_cleanup_free_ char *label = human_format("%s%s", who, between);

	if (field_count(by, "stack"))
		report_print_stack(out, 5, label, field(by, "stack"));
	else
		(void)fprintf(out, "     %s\n", who);
}

/*
 * Who ends a wait for a lock held it, but for who sent a signal. Where his system call is not known
 * his stack at least is.
 */
static bool has_released(struct json_object *w, struct json_object *by)
{
	const char *call = field_text(by, "call");

	return call ? waitfor_may_release(field_text(w, "call"), call)
		    : field_count(by, "stack") > 0;
}

/* Who had it first, who had it last, and who had it longest if that was not the first one. */
static void print_held(FILE *out, struct json_object *by, struct json_object *held)
{
	const uint64_t handovers = field_number(held, "handovers");
	struct json_object *longest = field(held, "longest");
	char length[HUMAN_SIZE];

	if (field(held, "ran_ns")) {
		_cleanup_free_ char *name = human_name(field_text(held, "name"));
		_cleanup_free_ char *who = human_format(
			"perhaps held by %s (tid %" PRIu64
			"), which alone ran or was preempted nearly all the time (%s), mostly in ",
			name, field_number(held, "tid"),
			human_duration(length, field_number(held, "ran_ns")));

		report_print_stack(out, 5, who, field(held, "stack"));
		return;
	}
	print_who(out, held, "held by",
		  field_bool(held, "cut")
			  ? ", and by somebody before who is not known; it was released in "
			  : ", which released it in ");
	if (handovers) {
		_cleanup_free_ char *then = human_format("then by %" PRIu64
							 " that had waited longer, the last",
							 handovers);

		print_who(out, by, then, " in ");
	}
	if (longest) {
		_cleanup_free_ char *name = human_name(field_text(longest, "name"));

		(void)fprintf(out, "     held longest by %s (tid %" PRIu64 "), %s\n", name,
			      field_number(longest, "tid"),
			      human_duration(length, field_number(longest, "ns")));
	}
}

void report_print_waker(FILE *out, struct json_object *w, bool lock)
{
	struct json_object *by = field(w, "woken_by"), *held = field(w, "held_by");
	const bool by_other = held && field(held, "ran_ns"),
		   unknown = field_bool(w, "holder_unknown");

	if (by_other)
		print_held(out, by, held);
	if (!by || !json_object_is_type(by, json_type_object)) {
		if (unknown)
			(void)fputs("     who held it is not known\n", out);
		return;
	}
	if (field_bool(by, "interrupt")) {
		(void)fputs("     ended by an interrupt (a timer, a device)\n", out);
	} else if (by_other || unknown || !lock || !has_released(w, by)) {
		print_who(out, by, "ended by", " in ");
	} else if (!held) {
		print_who(out, by, "held by", ", which released it in ");
	} else {
		print_held(out, by, held);
	}
	if (unknown)
		(void)fputs("     who held it until then is not known\n", out);
}

/* The innermost function says what it waits for; the rest is in the trace. */
static void print_kernel(FILE *out, struct json_object *w)
{
	_cleanup_free_ char *name = human_name(
		json_object_get_string(json_object_array_get_idx(field_array(w, "kernel"), 0)));

	(void)fprintf(out, ", in the kernel's %s()", name);
}

static void print_other(FILE *out, const char *how, struct json_object *other)
{
	_cleanup_free_ char *name = human_name(field_text(other, "name"));

	if (field_text(other, "name"))
		(void)fprintf(out, "%s%s (tid %" PRIu64 ")", how, name, field_number(other, "tid"));
}

/* Who could run on waits for nothing but a CPU. */
static bool is_ready(const char *state)
{
	return strcmp(state, "preempted") == 0 || strcmp(state, "throttled") == 0;
}

static void print_wait(FILE *out, struct json_object *w, size_t rank, uint64_t to_ns, bool lock)
{
	_cleanup_free_ char *name = human_name(field_text(w, "name"));
	_cleanup_free_ char *state = human_name(field_text(w, "state")),
			    *call = human_name(field_text(w, "call")),
			    *kind = human_name(field_text(w, "fd_kind"));
	const bool throttled = strcmp(state, "throttled") == 0;
	uint64_t begin = field_number(w, "begin_ns"), count = field_number(w, "count"),
		 runnable = field_number(w, "runnable_ns");
	char length[HUMAN_SIZE], before[HUMAN_SIZE], total[HUMAN_SIZE];

	(void)fprintf(out, "  %zu. %s  %s (tid %" PRIu64 "), ", rank,
		      human_duration(length, field_number(w, "ns")), name, field_number(w, "tid"));
	if (field(w, "goroutine"))
		(void)fprintf(out, "goroutine %" PRIu64 ", ", field_number(w, "goroutine"));
	(void)fputs(throttled ? "throttled (the CPU quota of its cgroup was used up as it began)"
			      : state,
		    out);
	print_other(out, " by ", field(w, "instead"));
	if (field_text(w, "call"))
		(void)fprintf(out, " in %s()", call);
	if (field(w, "fd"))
		(void)fprintf(out, " of descriptor %" PRIu64, field_number(w, "fd"));
	if (field_text(w, "fd_kind"))
		(void)fprintf(out, " (%s)", kind);
	/* what it did there it did not wait for */
	if (field_count(w, "kernel") && !is_ready(state))
		print_kernel(out, w);
	if (begin && begin < to_ns)
		(void)fprintf(
			out, ", began %s before the end", human_duration(before, to_ns - begin));
	if (field(w, "inside_ns"))
		(void)fprintf(out, ", %s of it in this time",
			      human_duration(length, field_number(w, "inside_ns")));
	if (runnable > NOTABLE_NS && runnable > field_number(w, "ns") / 10 &&
	    runnable <= field_number(w, "ns")) {
		(void)fprintf(out, ", woken after %s, then %s for a CPU",
			      human_duration(total, field_number(w, "ns") - runnable),
			      human_duration(length, runnable));
		print_other(out, " behind ", field(w, "behind"));
	}
	/* the kernel does not say when the quota was there again */
	if (throttled)
		print_other(out, ", at last behind ", field(w, "behind"));
	if (field_bool(w, "open"))
		(void)fputs(", not over yet", out);
	if (field_bool(w, "since_before"))
		(void)fputs(", since before what is recorded", out);
	else if (field_bool(w, "uncertain"))
		(void)fputs(", length uncertain", out);
	if (count > 1)
		(void)fprintf(out, "; the longest of %" PRIu64 " here, %s in all", count,
			human_duration(total, field_number(w, "total_ns")));
	(void)fputc('\n', out);
	if (field_bool(w, "brief"))
		(void)fputs("     (stacks of short waits are not recorded: see --wait-min)\n", out);
	else
		report_print_stack(out, 5, "waited in ", field(w, "stack"));
	/* who was ready was not woken: it got the CPU back */
	if (!is_ready(state))
		report_print_waker(out, w, lock);
}

/*
 * A timer ends it again and again, or nothing has: who sleeps so is idle mostly. A lock that nobody
 * gives back is another matter.
 */
static bool is_idle(struct json_object *w, bool lock)
{
	return (field_number(w, "count") > 1 && field_bool(field(w, "woken_by"), "interrupt")) ||
	       (!lock && field_bool(w, "open"));
}

/*
 * What a wait counts for where lines are few, 0 for one of the other section. Not known for how
 * long: nearly nothing. An idle thread's: less than another of similar length. Who waits for no
 * lock throughout the recording may be stuck: the longest of these are enough.
 */
static uint64_t weight(struct json_object *w, bool lock, size_t *throughout)
{
	const bool is_throughout = !lock && field_bool(w, "open") && field_bool(w, "since_before");

	if (report_is_lock_wait(w) != lock)
		return 0;
	if (field_bool(w, "uncertain") || (is_throughout && ++*throughout > MAX_THROUGHOUT))
		return 1;
	return report_inside_ns(w) / (is_idle(w, lock) && !is_throughout ? SIMILAR : 1) + 1;
}

/* Whether it is one of the first MAX_WAITS. */
static bool has_line(const uint64_t *weights, size_t n, size_t i)
{
	size_t before = 0;

	for (size_t k = 0; k < n; k++)
		before += weights[k] > weights[i] || (weights[k] == weights[i] && k < i);
	return weights[i] && before < MAX_WAITS;
}

void report_print_waits(FILE *out, struct json_object *window, bool lock)
{
	size_t n = field_count(window, "waits"), shown = 0, throughout = 0;
	uint64_t weights[MAX_LISTED];

	if (n > MAX_LISTED)
		n = MAX_LISTED;
	for (size_t i = 0; i < n; i++)
		weights[i] = weight(field_at(window, "waits", i), lock, &throughout);
	for (size_t i = 0; i < n; i++) {
		if (!has_line(weights, n, i))
			continue;
		if (!shown)
			(void)fputs(
				lock ? "\nlongest waits for a lock\n" : "\nlongest other waits\n",
				out);
		print_wait(out, field_at(window, "waits", i), ++shown,
			   field_number(window, "to_ns"), lock);
	}
}

static void print_throttled(FILE *out, struct json_object *throttled)
{
	const uint64_t waits = field_number(throttled, "waits");
	char total[HUMAN_SIZE];

	if (waits)
		(void)fprintf(out,
			      "\nthe CPU quota of the cgroup was used up: %" PRIu64
			      " %s of all threads began so, %s in all\n",
			      waits, waits == 1 ? "wait" : "waits",
			      human_duration(total, field_number(throttled, "ns")));
}

static void print_window(FILE *out, struct json_object *window, bool stepped)
{
	print_threads(out, window, stepped);
	print_throttled(out, field(window, "throttled"));
	if (stepped)
		print_stepped_functions(out, window);
	else
		print_functions(out, window);
	report_print_heaviest(out, window);
	report_print_waits(out, window, true);
	report_print_waits(out, window, false);
}

/* How long it was, and for how much of that all CPUs are known: what follows counts only that. */
static void print_span(FILE *out, struct json_object *summary)
{
	const uint64_t from = field_number(summary, "from_ns"), to = field_number(summary, "to_ns"),
		       complete = field_number(summary, "complete_ns"),
		       complete_from = field_number(summary, "complete_from_ns");
	struct json_object *suspended = field(summary, "suspended");
	const char *until = field_bool(summary, "exited") ? " before it exited"
			    : suspended                   ? " before it was suspended"
							  : "";
	char span[HUMAN_SIZE], whole[HUMAN_SIZE];

	if (suspended) {
		_cleanup_free_ char *why = human_name(field_text(suspended, "why"));

		view_line(out, "suspended", "%s before the snapshot: %s",
			  human_duration(span, field_number(suspended, "ns")), why);
	}
	if (to <= from)
		return;
	(void)human_duration(span, to - from);
	(void)human_duration(whole, complete);
	if (!field(summary, "complete_ns"))
		view_line(out, "recorded", "the last %s%s", span, until);
	else if (complete_from && complete_from + complete >= to)
		view_line(out, "recorded", "complete for %s, parts back to %s%s", whole, span,
			  until);
	else
		view_line(out, "recorded", "complete for %s of the last %s%s", whole, span, until);
}

static void print_losses(FILE *out, struct json_object *losses)
{
	const char *label = "lost";

	if (!view_sum(losses))
		return;
	json_object_object_foreach (losses, key, value) {
		_cleanup_free_ char *kind = human_name(key);
		const char *text = loss_kind_meaning(key);
		const uint64_t n = view_counter(value);

		if (!n)
			continue;
		view_line(out, label, "%s %" PRIu64 "%s%s", kind, n, text ? ": " : "",
			  text ? text : "");
		label = "";
	}
}

void report_print(FILE *out, struct json_object *summary)
{
	struct json_object *losses = field(summary, "losses"), *focus = field(summary, "focus");
	const bool stepped = field_bool(summary, "stepped");
	char span[HUMAN_SIZE];

	if (!summary || !json_object_is_type(summary, json_type_object))
		return;
	print_span(out, summary);
	for (size_t i = 0; i < field_count(summary, "only"); i++) {
		_cleanup_free_ char *name =
			human_name(json_object_get_string(field_at(summary, "only", i)));

		view_line(out, "traced", "only %s: what else it executes is not in the calls",
			  name);
	}
	if (stepped)
		view_line(out, "stepped",
			  "times are the stepper's, not what the program takes by itself");
	print_losses(out, losses);
	for (size_t i = 0; i < field_count(summary, "hints"); i++) {
		struct json_object *hint = field_at(summary, "hints", i);
		_cleanup_free_ char *process = human_name(field_text(hint, "process")),
				    *text = human_name(field_text(hint, "text"));

		view_line(out, "hint", "%s (%" PRIu64 "): %s", process, field_number(hint, "pid"),
			  text);
	}
	if (focus) {
		struct json_object *region = field(focus, "region");

		if (region && json_object_is_type(region, json_type_object)) {
			report_print_focus_region(out, region);
			(void)fputs("\nin all threads meanwhile:\n", out);
		} else {
			(void)fprintf(out, "\nin the slow moment, %s long",
				      human_duration(span, field_number(focus, "to_ns") -
								   field_number(focus, "from_ns")));
			if (field(focus, "complete_ns"))
				(void)fprintf(out, ", complete for %s",
					human_duration(span, field_number(focus, "complete_ns")));
			(void)fputs(":\n", out);
		}
		print_window(out, focus, stepped);
		(void)fputs("\nin all that was recorded:\n", out);
	}
	print_window(out, summary, stepped);
	report_print_regions(out, summary);
}

/* Some names of a list: a damaged recording may lack hundreds. */
static void print_names(FILE *out, const char *label, struct json_object *names)
{
	enum { SHOWN = 5 };
	size_t n = names && json_object_is_type(names, json_type_array)
			   ? json_object_array_length(names)
			   : 0;

	for (size_t i = 0; i < n && i < SHOWN; i++) {
		_cleanup_free_ char *name =
			human_name(json_object_get_string(json_object_array_get_idx(names, i)));

		view_line(out, i ? "" : label, "%s", name);
	}
	if (n > SHOWN)
		view_line(out, "", "and %zu more", n - SHOWN);
}

static char *spaced(const char *key)
{
	char *text = human_name(key);

	for (char *p = text; p && *p; p++)
		if (*p == '_')
			*p = ' ';
	return text;
}

void report_print_incomplete(FILE *out, struct json_object *result)
{
	struct json_object *losses = field(result, "losses"), *stats = field(result, "stats");
	const char *label = "incomplete";

	if (stats && !field_number(stats, "samples") && !field_number(stats, "switches") &&
		!field_count(field(result, "summary"), "threads"))
		view_line(out, "empty", "the recording holds no samples");
	if (!losses || !json_object_is_type(losses, json_type_object))
		return;
	json_object_object_foreach (losses, key, value) {
		_cleanup_free_ char *kind = NULL;

		if (!json_object_is_type(value, json_type_int) || !field_value_number(value))
			continue;
		kind = spaced(key);
		view_line(out, label, "%s: %" PRIu64, kind, field_value_number(value));
		label = "";
	}
	if (field_text(losses, "go_trace_broken"))
		view_line(out, label, "Go trace broken, what came before is drawn: %s",
			  field_text(losses, "go_trace_broken"));
	print_names(out, "not found", field(losses, "images_missing"));
	print_names(out, "changed", field(losses, "images_changed"));
	print_names(out, "not usable", field(losses, "images_broken"));
}

void report_print_how_to_open(FILE *out, const char *path)
{
	_cleanup_free_ char *safe = human_name(path);

	(void)fprintf(
		out, "open https://ui.perfetto.dev and drop %s on it; nothing is uploaded\n", safe);
}
