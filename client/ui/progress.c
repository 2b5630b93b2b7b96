// SPDX-License-Identifier: Apache-2.0
/*
 * The progress line.
 */
#include "client/ui/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ui/human.h"

void progress_init(struct progress *p)
{
	const char *term = getenv("TERM");

	*p = (struct progress){.on = isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb") != 0)};
}

void progress_show(
	struct progress *p, const char *what, const char *stage, uint64_t done, uint64_t total)
{
	_cleanup_free_ char *safe = NULL, *line = NULL;

	if (!p->on)
		return;
	safe = human_name(stage ? stage : "");
	if (total)
		line = human_format("%s%s%s %" PRIu64 " %%", what, *safe ? ": " : "", safe,
			done < total ? (uint64_t)(100.0 * (double)done / (double)total) : 100);
	else
		line = human_format("%s%s%s ...", what, *safe ? ": " : "", safe);
	/* back to the first column, the text, the rest of the line erased */
	(void)fputc('\r', stderr);
	(void)human_print_cut(stderr, line, human_columns(stderr) - 1);
	(void)fputs("\033[K", stderr);
	(void)fflush(stderr);
	p->drawn = true;
}

void progress_end(struct progress *p)
{
	if (!p->drawn)
		return;
	(void)fputs("\r\033[K", stderr);
	(void)fflush(stderr);
	p->drawn = false;
}
