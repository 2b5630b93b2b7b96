// SPDX-License-Identifier: Apache-2.0
/*
 * Output for people. Knows nothing of commands or of the protocol.
 */
#include "client/ui/human.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/ui/option.h"
#include "common/base/escape.h"

/* Out of memory ends tracectl, which the daemon could not do; nothing is left half-written. */
static void *must_alloc(void *p)
{
	if (p)
		return p;
	(void)fputs("tracectl: out of memory\n", stderr);
	exit(1);
}

/* Three significant digits of n / unit, rounded down so that it never shows 1000. */
static void three_digits(char buf[HUMAN_SIZE], uint64_t n, uint64_t unit, const char *name)
{
	uint64_t whole = n / unit, rest = n % unit;

	if (whole >= 100)
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 " %s", whole, name);
	else if (whole >= 10)
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 ".%" PRIu64 " %s", whole,
			rest / (unit / 10), name);
	else
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 ".%02" PRIu64 " %s", whole,
			rest / (unit / 100), name);
}

const char *human_duration(char buf[HUMAN_SIZE], uint64_t ns)
{
	uint64_t s = ns / 1000000000;

	if (ns < 1000)
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		three_digits(buf, ns, 1000, "us");
	else if (ns < 1000000000)
		three_digits(buf, ns, 1000000, "ms");
	else if (s < 60)
		three_digits(buf, ns, 1000000000, "s");
	else if (s < 3600)
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		(void)snprintf(
			buf, HUMAN_SIZE, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		(void)snprintf(
			buf, HUMAN_SIZE, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

const char *human_bytes(char buf[HUMAN_SIZE], uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	uint64_t unit = 1024;
	size_t i = 0;

	if (bytes < 1024) {
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 " B", bytes);
		return buf;
	}
	while (i + 1 < ARRAY_SIZE(units) && bytes / unit >= 1024) {
		unit *= 1024;
		i++;
	}
	if (bytes / unit >= 100)
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 " %s", bytes / unit, units[i]);
	else
		(void)snprintf(buf, HUMAN_SIZE, "%" PRIu64 ".%" PRIu64 " %s", bytes / unit,
			bytes % unit / (unit / 1024) * 10 / 1024, units[i]);
	return buf;
}

const char *human_time(char buf[HUMAN_SIZE], uint64_t unix_ns)
{
	time_t t = (time_t)(unix_ns / 1000000000);
	struct tm tm;

	if (!unix_ns || !localtime_r(&t, &tm) ||
		!strftime(buf, HUMAN_SIZE, "%Y-%m-%d %H:%M:%S", &tm))
		(void)snprintf(buf, HUMAN_SIZE, "-");
	return buf;
}

const char *human_percent(char buf[HUMAN_SIZE], uint64_t part, uint64_t whole)
{
	if (!whole)
		(void)snprintf(buf, HUMAN_SIZE, "-");
	else
		(void)snprintf(buf, HUMAN_SIZE, "%.1f %%", 100.0 * (double)part / (double)whole);
	return buf;
}

char *human_name(const char *text)
{
	size_t len, size;
	char *s;

	if (!text)
		text = "-";
	len = strlen(text);
	size = len * 4 + 1; /* each byte may become \xNN */
	s = must_alloc(malloc(size));
	(void)escape_text(s, size, text, len);
	return s;
}

char *human_format(const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return must_alloc(n < 0 ? NULL : s);
}

void human_puts(const char *text, FILE *stream)
{
	(void)fprintf(stream, "%s\n", (const char *)must_alloc((char *)(uintptr_t)text));
}

size_t human_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static bool wide;

void human_set_wide(void)
{
	wide = true;
}

size_t human_columns(FILE *stream)
{
	const char *env = getenv("COLUMNS");
	struct winsize ws = {0};
	uint64_t n;

	if (wide && stream == stdout)
		return 0;
	/* tracectl's own stdout (client/ui/stdout.h) has no descriptor that stdio knows */
	if (ioctl(stream == stdout ? STDOUT_FILENO : fileno(stream), TIOCGWINSZ, &ws) < 0)
		return 0;
	if (env && option_parse_u64(env, 20, 10000, &n) == 0)
		return n;
	return ws.ws_col >= 20 ? ws.ws_col : 80;
}

size_t human_print_cut(FILE *out, const char *text, size_t columns)
{
	size_t width = human_width(text), n = 0;

	if (!columns || width <= columns) {
		(void)fputs(text, out);
		return width;
	}
	for (const char *p = text; *p; p++) {
		if (((unsigned char)*p & 0xc0) != 0x80 && ++n >= columns)
			break;
		(void)fputc(*p, out);
	}
	(void)fputc('~', out);
	return columns;
}

/* The first byte of character `i`, or the end. */
static const char *character(const char *text, size_t i)
{
	for (; *text; text++)
		if (((unsigned char)*text & 0xc0) != 0x80 && i-- == 0)
			break;
	return text;
}

/* Of a word that is longer than `columns` the begin and the end; both tell more than its middle. */
static void print_word(FILE *out, const char *word, size_t columns)
{
	size_t width = human_width(word);

	if (!columns || width <= columns)
		(void)fputs(word, out);
	else
		(void)fprintf(out, "%.*s~%s", (int)(character(word, columns / 2) - word), word,
			character(word, width - (columns - columns / 2 - 1)));
}

/* Words with those from `omit` to `resume` left out, wrapped at `columns`. */
struct wrapping {
	size_t column, indent, columns, omit, resume;
	const char *joint;
};

/* Prints them (`out` may be NULL), and returns how many lines it takes. */
static size_t wrap(FILE *out, const struct wrapping *w, char *const *words, size_t n)
{
	size_t column = w->column, lines = 1, joint = human_width(w->joint);

	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *more =
			i == w->omit && w->resume > w->omit
				? human_format("(%zu more)", w->resume - w->omit)
				: NULL;
		const char *word = more ? more : words[i];
		size_t before = i ? joint : 0, width = human_width(word);
		const size_t room = w->columns - w->indent - joint;
		bool fits;

		width = width < room ? width : room;
		fits = column + before + width <= w->columns;
		if (!fits) {
			lines++;
			column = w->indent;
		}
		column += before + width;
		if (out) {
			if (!fits)
				(void)fprintf(out, "\n%*s", (int)w->indent, "");
			if (i)
				(void)fputs(w->joint + (!fits && *w->joint == ' '), out);
			print_word(out, word, room);
		}
		if (more)
			i = w->resume - 1;
	}
	return lines;
}

void human_print_words(FILE *out, size_t column, size_t indent, const char *joint,
		       char *const *words, size_t n)
{
	struct wrapping w = {.column = column,
			     .indent = indent,
			     .columns = human_columns(out),
			     .joint = joint};

	if (!w.columns) {
		for (size_t i = 0; i < n; i++)
			(void)fprintf(out, "%s%s", i ? joint : "", words[i]);
		return;
	}
	for (size_t left_out = 2; wrap(NULL, &w, words, n) > HUMAN_LINES && left_out + 2 <= n;
	     left_out++) {
		w.omit = (n - left_out) / 2;
		w.resume = w.omit + left_out;
	}
	(void)wrap(out, &w, words, n);
}

void human_table_add(struct human_table *t, char *text)
{
	char **cells = must_alloc(reallocarray(t->cells, t->n_cells + 1, sizeof(*cells)));

	t->cells = cells;
	t->cells[t->n_cells++] = must_alloc(text);
}

void human_table_add_duration(struct human_table *t, uint64_t ns)
{
	char buf[HUMAN_SIZE];

	human_table_add(t, human_format("%s", human_duration(buf, ns)));
}

static size_t column_width(const struct human_table *t, size_t column)
{
	size_t width = human_width(t->columns[column].title);

	for (size_t i = column; i < t->n_cells; i += t->n_columns) {
		size_t w = human_width(t->cells[i]);

		width = w > width ? w : width;
	}
	return width;
}

static const char *cell_text(const struct human_table *t, size_t row, size_t column)
{
	return row ? t->cells[(row - 1) * t->n_columns + column] : t->columns[column].title;
}

/* One line of the table; the caller frees it. */
static char *table_line(
	const struct human_table *t, size_t row, const size_t *widths, size_t indent)
{
	char *line = NULL;
	size_t size = 0;
	FILE *out = must_alloc(open_memstream(&line, &size));

	(void)fprintf(out, "%*s", (int)indent, "");
	for (size_t c = 0; c < t->n_columns; c++) {
		const char *text = cell_text(t, row, c);
		int pad = (int)(widths[c] - human_width(text));
		bool right = t->columns[c].align == 'r';

		(void)fprintf(out, "%s%*s%s", c ? "  " : "", right ? pad : 0, "", text);
		if (!right && c + 1 < t->n_columns)
			(void)fprintf(out, "%*s", pad, "");
	}
	(void)fclose(out);
	must_alloc(line);
	while (size > 0 && line[size - 1] == ' ')
		line[--size] = 0;
	return line;
}

void human_table_print(const struct human_table *t, FILE *out, size_t indent)
{
	_cleanup_free_ size_t *widths = NULL;
	size_t columns = human_columns(out);

	if (!t->n_cells)
		return;
	widths = must_alloc(calloc(t->n_columns, sizeof(*widths)));
	for (size_t c = 0; c < t->n_columns; c++)
		widths[c] = column_width(t, c);
	for (size_t row = 0; row <= t->n_cells / t->n_columns; row++) {
		_cleanup_free_ char *line = table_line(t, row, widths, indent);

		(void)human_print_cut(out, line, columns);
		(void)fputc('\n', out);
	}
}

void human_table_fini(struct human_table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct human_table){.columns = t->columns, .n_columns = t->n_columns};
}
