/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as people read them: durations, sizes, times, names that may hold anything, and tables.
 * Everything goes to stdio streams or to small buffers of the caller.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/cleanup.h"

/* Buffers of this size hold every duration, size and time. */
#define HUMAN_SIZE 32

/* "312 ns", "4.21 us", "38.2 ms", "3.18 s", "2 min 5 s", "3 h 12 min", "2 d 4 h". Returns buf. */
const char *human_duration(char buf[HUMAN_SIZE], uint64_t ns);

/* "512 B", "8.2 KiB", "1.0 MiB". Returns buf. */
const char *human_bytes(char buf[HUMAN_SIZE], uint64_t bytes);

/* Local time of day from nanoseconds since 1970: "2026-11-21 10:15:00". "-" for 0. Returns buf. */
const char *human_time(char buf[HUMAN_SIZE], uint64_t unix_ns);

/* "45.2 %" of part in whole; "-" if whole is 0. Returns buf. */
const char *human_percent(char buf[HUMAN_SIZE], uint64_t part, uint64_t whole);

/*
 * A name from outside, safe on a terminal (common/base/escape.h), as a new string that the caller
 * frees. NULL text gives "-". Does not return without memory.
 */
char *human_name(const char *text);

/* printf into a new string; does not return without memory. */
char *human_format(const char *fmt, ...) _printf_(1, 2);
/* A line; NULL is text that there was no memory for, and does not return. */
void human_puts(const char *text, FILE *stream);

/* How many columns `text` (valid UTF-8) takes, one a character. */
size_t human_width(const char *text);

/*
 * Columns of the terminal that `stream` writes to, 0 if it is none: then nothing is cut. COLUMNS in
 * the environment wins.
 */
size_t human_columns(FILE *stream);

/* From now on stdout has no edge, whatever it is (--wide). */
void human_set_wide(void);

/* Prints `text` cut to `columns` (0: whole), the last one then being "~". Returns the columns used.
 */
size_t human_print_cut(FILE *out, const char *text, size_t columns);

/*
 * Prints words in order, joined by `joint`, after the `column` characters that the line has
 * already. What does not fit the terminal goes on in lines indented by `indent` spaces. If that
 * takes more than HUMAN_LINES of them, words in the middle are left out, and their number is there
 * instead; of a word longer than a line its middle is left out.
 */
#define HUMAN_LINES 4
void human_print_words(FILE *out, size_t column, size_t indent, const char *joint,
		       char *const *words, size_t n);

/* ---- tables: collect rows of cells, print them aligned */

struct human_column {
	const char *title;
	char align; /* 'l' or 'r' */
};

struct human_table {
	const struct human_column *columns;
	size_t n_columns;
	char **cells; /* row after row, owned */
	size_t n_cells;
};

#define HUMAN_TABLE(cols) ((struct human_table){.columns = (cols), .n_columns = ARRAY_SIZE(cols)})

/* Adds the next cell; takes `text`, which was allocated. */
void human_table_add(struct human_table *t, char *text);
/* The same, of nanoseconds. */
void human_table_add_duration(struct human_table *t, uint64_t ns);

/*
 * Prints titles and rows, each indented by `indent` spaces; lines are cut at the terminal's width.
 * A table without rows prints nothing.
 */
void human_table_print(const struct human_table *t, FILE *out, size_t indent);

void human_table_fini(struct human_table *t);
