// SPDX-License-Identifier: Apache-2.0
/*
 * The summary as text. Every name in it comes from a traced program, through the decoder, and is
 * escaped here for the terminal.
 */
#include "client/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/human.h"
#include "client/view.h"

#define MAX_THREADS 12
#define MAX_STACKS 8
#define MAX_WAITS 5
#define MAX_FRAMES 40

/*
 * A stack (outermost first) as "innermost <- caller <- ...": what is cut off at a terminal's edge
 * is then what all stacks have in common. The caller frees it.
 */
static char *stack_text(struct json_object *stack)
{
	size_t n = stack && json_object_is_type(stack, json_type_array)
			   ? json_object_array_length(stack)
			   : 0;
	char *text = NULL;

	for (size_t i = 0; i < n && i < MAX_FRAMES; i++) {
		struct json_object *frame = json_object_array_get_idx(stack, n - 1 - i);
		_cleanup_free_ char *name =
			human_name(frame ? json_object_get_string(frame) : NULL);
		_cleanup_free_ char *before = text;

		text = before ? human_format("%s <- %s", before, name) : human_format("%s", name);
	}
	return text ? text : human_format("(stack not known)");
}

/* Prints a text behind `indent` spaces and a label, cut at the terminal's edge. */
static void print_cut(FILE *out, size_t indent, const char *label, const char *text)
{
	_cleanup_free_ char *line = human_format("%*s%s%s", (int)indent, "", label, text);

	(void)human_print_cut(out, line, human_columns(out));
	(void)fputc('\n', out);
}

static int by_number_descending(const void *a, const void *b, const char *key)
{
	uint64_t x = field_number(*(struct json_object *const *)a, key);
	uint64_t y = field_number(*(struct json_object *const *)b, key);

	return x < y ? 1 : x > y ? -1 : 0;
}

static int by_on_cpu(const void *a, const void *b)
{
	return by_number_descending(a, b, "on_cpu_ns");
}

static void print_threads(FILE *out, struct json_object *summary)
{
	static const struct human_column columns[] = {
		{"THREAD", 'l'},
		{"TID", 'r'},
		{"ON CPU", 'r'},
		{"OFF CPU", 'r'},
		{"SAMPLES", 'r'},
	};
	_cleanup_(human_table_fini) struct human_table table = HUMAN_TABLE(columns);
	size_t n = field_count(summary, "threads");
	_cleanup_free_ struct json_object **sorted =
		calloc(n ? n : 1, sizeof(struct json_object *));

	if (!n || !sorted)
		return;
	for (size_t i = 0; i < n; i++)
		sorted[i] = field_at(summary, "threads", i);
	qsort(sorted, n, sizeof(*sorted), by_on_cpu);
	for (size_t i = 0; i < n && i < MAX_THREADS; i++) {
		struct json_object *t = sorted[i];
		char buf[HUMAN_SIZE];

		human_table_add(&table, human_name(field_text(t, "name")));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "tid")));
		human_table_add(&table,
			human_format("%s", human_duration(buf, field_number(t, "on_cpu_ns"))));
		human_table_add(&table,
			human_format("%s", human_duration(buf, field_number(t, "off_cpu_ns"))));
		human_table_add(&table, human_format("%" PRIu64, field_number(t, "samples")));
	}
	(void)fputs("\nthreads\n", out);
	human_table_print(&table, out, 2);
	if (n > MAX_THREADS)
		(void)fprintf(out, "  ... and %zu more\n", n - MAX_THREADS);
}

static void print_heaviest(FILE *out, struct json_object *summary)
{
	uint64_t samples = 0;

	if (!field_count(summary, "heaviest"))
		return;
	for (size_t i = 0; i < field_count(summary, "threads"); i++)
		samples += field_number(field_at(summary, "threads", i), "samples");
	(void)fputs("\nheaviest stacks, innermost function first\n", out);
	for (size_t i = 0; i < field_count(summary, "heaviest") && i < MAX_STACKS; i++) {
		struct json_object *h = field_at(summary, "heaviest", i);
		_cleanup_free_ char *stack = stack_text(field(h, "stack")), *label = NULL;
		char percent[HUMAN_SIZE], time[HUMAN_SIZE];

		label = human_format("%7s %9s  ",
			human_percent(percent, field_number(h, "samples"), samples),
			human_duration(time, field_number(h, "ns")));
		print_cut(out, 2, label, stack);
	}
}

/* "sleeping", "preempted" ... as the decoder says it, and when it began. */
static void print_wait(FILE *out, struct json_object *w, size_t rank, uint64_t to_ns)
{
	_cleanup_free_ char *name = human_name(field_text(w, "name")),
			    *state = human_name(field_text(w, "state"));
	_cleanup_free_ char *stack = stack_text(field(w, "stack"));
	struct json_object *by = field(w, "woken_by");
	uint64_t begin = field_number(w, "begin_ns");
	char length[HUMAN_SIZE], before[HUMAN_SIZE];

	(void)fprintf(out, "  %zu. %s  %s (tid %" PRIu64 "), %s", rank,
		human_duration(length, field_number(w, "ns")), name, field_number(w, "tid"), state);
	if (begin && begin < to_ns)
		(void)fprintf(
			out, ", began %s before the end", human_duration(before, to_ns - begin));
	(void)fputc('\n', out);
	print_cut(out, 5, "waited in ", stack);
	if (by && json_object_is_type(by, json_type_object)) {
		_cleanup_free_ char *waker = human_name(field_text(by, "name")), *who = NULL;
		_cleanup_free_ char *where = stack_text(field(by, "stack"));

		who = human_format("ended by %s (tid %" PRIu64 ")%s", waker,
			field_number(by, "tid"), field_count(by, "stack") ? " in " : "");
		print_cut(out, 5, who, field_count(by, "stack") ? where : "");
	}
	if (field_text(w, "text")) {
		_cleanup_free_ char *text = human_name(field_text(w, "text"));

		print_cut(out, 5, "", text);
	}
}

static void print_waits(FILE *out, struct json_object *summary)
{
	size_t n = field_count(summary, "waits");

	if (!n)
		return;
	(void)fputs("\nlongest waits\n", out);
	for (size_t i = 0; i < n && i < MAX_WAITS; i++)
		print_wait(
			out, field_at(summary, "waits", i), i + 1, field_number(summary, "to_ns"));
}

void report_print(FILE *out, struct json_object *summary)
{
	uint64_t from = field_number(summary, "from_ns"), to = field_number(summary, "to_ns");
	struct json_object *losses = field(summary, "losses");
	char span[HUMAN_SIZE];

	if (!summary || !json_object_is_type(summary, json_type_object))
		return;
	if (to > from)
		view_line(out, "recorded", "the last %s", human_duration(span, to - from));
	if (losses && view_sum(losses)) {
		_cleanup_free_ char *text = view_losses(losses);

		view_line(out, "lost", "%s", text);
	}
	print_threads(out, summary);
	print_heaviest(out, summary);
	print_waits(out, summary);
}

void report_print_how_to_open(FILE *out, const char *path)
{
	_cleanup_free_ char *safe = human_name(path);

	(void)fprintf(
		out, "open https://ui.perfetto.dev and drop %s on it; nothing is uploaded\n", safe);
}
