// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"

static const char *log_program = "tracerd";
static enum log_level log_max = LOG_L_INFO;
static bool log_journal;
static _Atomic uint64_t log_dropped; /* lines since the last one that was taken */

static const struct {
	const char *name;
	enum log_level level;
} log_levels[] = {
	{"error", LOG_L_ERROR}, {"warning", LOG_L_WARNING}, {"notice", LOG_L_NOTICE},
	{"info", LOG_L_INFO},	{"debug", LOG_L_DEBUG},
};

void log_init(const char *program, enum log_level max)
{
	log_program = program;
	log_max = max;
	log_journal = getenv("JOURNAL_STREAM") != NULL && !isatty(STDERR_FILENO);
}

int log_level_from_string(const char *s, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(log_levels); i++)
		if (strcmp(s, log_levels[i].name) == 0) {
			*ret = log_levels[i].level;
			return 0;
		}
	return -EINVAL;
}

const char *log_level_to_string(enum log_level level)
{
	for (size_t i = 0; i < ARRAY_SIZE(log_levels); i++)
		if (log_levels[i].level == level)
			return log_levels[i].name;
	return "info";
}

/* One write a line, so that lines of several processes on one stderr stay whole. */
static void put_line(enum log_level level, const char *text)
{
	char line[3072];
	int len;

	if (log_journal)
		len = snprintf(line, sizeof(line), "<%d>%s\n", (int)level, text);
	else
		len = snprintf(line, sizeof(line), "%s: %s%s%s\n", log_program,
			level == LOG_L_INFO ? "" : log_level_to_string(level),
			level == LOG_L_INFO ? "" : ": ", text);
	if (len > 0)
		(void)!write(STDERR_FILENO, line,
			     (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

/*
 * Whoever reads the log may have stopped reading, and a write would wait for it, and with it all
 * that the caller has to do. Our lines are shorter than what a pipe or a socket has room for when
 * it is writable at all. Not O_NONBLOCK: others share the descriptor.
 */
static bool is_taken(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&p, 1, 0) != 0;
}

void log_print(enum log_level level, const char *fmt, ...)
{
	int saved = errno, n;
	char raw[1024], safe[2048];
	uint64_t dropped;
	va_list ap;

	if (level > log_max)
		return;
	va_start(ap, fmt);
	n = vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	if (n < 0)
		goto out;
	escape_text(safe, sizeof(safe), raw, strlen(raw));
	if (!is_taken()) {
		log_dropped++;
		goto out;
	}
	dropped = atomic_exchange(&log_dropped, 0);
	if (dropped > 0) {
		(void)snprintf(raw, sizeof(raw),
			       "%" PRIu64 " lines before this one were lost: nobody read them",
			       dropped);
		put_line(LOG_L_WARNING, raw);
		if (!is_taken()) {
			log_dropped++;
			goto out;
		}
	}
	put_line(level, safe);
out:
	errno = saved;
}
