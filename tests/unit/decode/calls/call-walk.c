// SPDX-License-Identifier: Apache-2.0
/*
 * The rules from branches to calls alone, for tests: functions and branches are read as lines, what
 * begins and ends is printed.
 *
 *	function START SIZE NAME
 *	call|return|jump|loop|stop|resume|gap NS FROM BACK TO	(addresses in hex)
 *
 * A name that ends in "@plt" is a stub. The last line, on stderr, is a summary.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/calls/callstack.h"

#define MAX_FUNCTIONS 4096
#define MAX_NAME 256

static struct callfunc functions[MAX_FUNCTIONS], unknown;
static char names[MAX_FUNCTIONS][MAX_NAME];
static uint32_t n_functions;
static const struct callfunc *open_frames[CALLSTACK_FREE_DEPTH];
static uint32_t n_open;

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	(void)arg;
	for (uint32_t i = 0; i < n_functions; i++) {
		if (ip < functions[i].start || ip - functions[i].start >= functions[i].id)
			continue;
		*ret_first = ip == functions[i].start;
		return &functions[i];
	}
	*ret_first = false;
	return &unknown;
}

static bool on_lands(void *arg, uint64_t call, uint64_t pad)
{
	(void)arg;
	(void)call;
	(void)pad;
	return false;
}

static const char *name_of(const struct callfunc *f)
{
	return f->known ? names[f - functions] : "?";
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	(void)arg;
	(void)call;
	(void)why;
	open_frames[n_open++] = fr->f;
	(void)printf("%" PRIu64 " begin %s\n", time, name_of(fr->f));
}

static void on_end(void *arg, uint64_t time, struct call *call)
{
	(void)arg;
	(void)call;
	(void)printf("%" PRIu64 " end %s\n", time, name_of(open_frames[--n_open]));
}

static bool add_function(const char *line)
{
	struct callfunc *f = &functions[n_functions];
	char *name = names[n_functions];
	size_t n;

	if (n_functions == MAX_FUNCTIONS ||
	    sscanf(line, "function %" SCNx64 " %" SCNx32 " %255s", &f->start, &f->id, name) != 3)
		return false;
	n = strlen(name);
	f->known = true;
	f->is_plt = n > 4 && strcmp(name + n - 4, "@plt") == 0;
	n_functions++;
	return true;
}

static bool walk(struct callstack *cs, const char *line, uint64_t *ret_time)
{
	uint64_t time, from, back, to;
	char kind[16];

	if (sscanf(line, "%15s %" SCNu64 " %" SCNx64 " %" SCNx64 " %" SCNx64, kind, &time, &from,
		   &back, &to) != 5)
		return false;
	*ret_time = time;
	if (strcmp(kind, "call") == 0)
		callstack_call(cs, time, from, back, to);
	else if (strcmp(kind, "return") == 0)
		callstack_return(cs, time, from, to);
	else if (strcmp(kind, "jump") == 0)
		callstack_jump(cs, time, from, to, true);
	else if (strcmp(kind, "loop") == 0) /* a direct one */
		callstack_jump(cs, time, from, to, false);
	else if (strcmp(kind, "stop") == 0)
		callstack_stop(cs, time, from, back);
	else if (strcmp(kind, "resume") == 0)
		callstack_resume(cs, time, to);
	else if (strcmp(kind, "gap") == 0)
		callstack_gap(cs, time);
	else
		return false;
	return true;
}

int main(void)
{
	static const struct callstack_ops ops = {.function = on_function,
						 .lands = on_lands,
						 .begin = on_begin,
						 .end = on_end};
	const struct callstack_stats *s;
	struct callstack *cs;
	char line[512];
	uint64_t time = 0;

	if (callstack_new(&ops, NULL, NULL, &cs) < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		if (!add_function(line) && !walk(cs, line, &time)) {
			(void)fprintf(stderr, "call-walk: not understood: %s", line);
			return 2;
		}
	}
	callstack_finish(cs, time);
	s = callstack_stats(cs);
	(void)fprintf(stderr, "unexplained %" PRIu64 " inferred %" PRIu64 " adopted %" PRIu64 "\n",
		      s->unexplained, s->inferred, s->adopted);
	(void)callstack_free(cs);
	return 0;
}
