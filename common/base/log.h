/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging to stderr. Under systemd (JOURNAL_STREAM set) each line gets the sd-daemon(3)
 * priority prefix, so that the journal stores the level and no library is needed; on a
 * terminal the level is a word. An error is logged once, where it is handled.
 */
#pragma once

#include "common/base/cleanup.h"

enum log_level {
	LOG_L_ERROR = 3,
	LOG_L_WARNING = 4,
	LOG_L_NOTICE = 5,
	LOG_L_INFO = 6,
	LOG_L_DEBUG = 7
};

/* Names the program in each line and sets the highest level that is printed. */
void log_init(const char *program, enum log_level max);

/* Level by name ("error", "warning", "notice", "info", "debug"); -EINVAL for another word. */
int log_level_from_string(const char *s, enum log_level *ret);
const char *log_level_to_string(enum log_level level);

/*
 * One line, at most 1 KiB, newlines and control bytes escaped (names from targets may be in it).
 * Returns nothing and keeps errno. Never waits for a reader: what it does not take is dropped, and
 * the next line that is taken says how many were.
 */
void log_print(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...) log_print(LOG_L_ERROR, __VA_ARGS__)
#define log_warning(...) log_print(LOG_L_WARNING, __VA_ARGS__)
#define log_notice(...) log_print(LOG_L_NOTICE, __VA_ARGS__)
#define log_info(...) log_print(LOG_L_INFO, __VA_ARGS__)
#define log_debug(...) log_print(LOG_L_DEBUG, __VA_ARGS__)
