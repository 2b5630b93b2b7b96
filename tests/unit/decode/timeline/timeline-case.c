/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/decode/timeline/timeline-case.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/decode/timeline/event-case.h"

#define MAX_FIELDS 40

#define MAX_CALLERS 8	 /* threads with calls */
#define MAX_CALLS 1024 /* of one */

/* The stack of a thread whose calls are known: the timeline keeps none. */
struct caller {
	uint32_t tid;
	struct call open[MAX_CALLS];
	uint32_t n;
	uint64_t found, outer_insns;
};

struct player {
	struct caller callers[MAX_CALLERS];
	struct timeline_options options;
	struct clock_map *clocks;
	struct stacktab *st;
	struct timeline *tl; /* made at the first event */
	struct writer *w;
	char release[32];
	char cause[64];
};

static uint64_t number(const char *s)
{
	return s ? strtoull(s, NULL, 10) : 0;
}

static uint32_t frame(struct stacktab *st, char *s)
{
	struct frame_info info = {.name = s,
				  .kind = strcmp(s, "[missing]") == 0 ? FRAME_KIND_MISSING
								      : FRAME_KIND_USER};
	char *object = strchr(s, '@'), *file, *line;

	if (object) {
		*object++ = '\0';
		info.object = object;
		file = strchr(object, ':');
		if (file) {
			*file++ = '\0';
			info.file = file;
			line = strchr(file, ':');
			if (line) {
				*line++ = '\0';
				info.line = (uint32_t)number(line);
			}
		}
	}
	return stacktab_frame(st, &info);
}

static uint32_t stack(struct stacktab *st, char *s)
{
	uint32_t id = STACKTAB_ROOT;
	char *save = NULL;

	if (!s || strcmp(s, "-") == 0)
		return id;
	if (strcmp(s, "later") == 0)
		return TL_STACK_LATER;
	for (char *f = strtok_r(s, ";", &save); f; f = strtok_r(NULL, ";", &save)) {
		char *times = strchr(f, '*'); /* name*N: N frames of it */
		uint64_t n = 1;

		if (times) {
			*times = '\0';
			n = number(times + 1);
		}
		uint32_t fr = frame(st, f);

		while (n--)
			id = stacktab_push(st, id, fr);
	}
	return id;
}

static uint32_t who(char *s, const char **ret_name)
{
	char *name = s ? strchr(s, ':') : NULL;

	*ret_name = NULL;
	if (!s || strcmp(s, "unknown") == 0)
		return TL_TID_UNKNOWN;
	if (name) {
		*name++ = '\0';
		*ret_name = name;
	}
	if (strcmp(s, "idle") == 0)
		return TL_TID_IDLE;
	if (strcmp(s, "other") == 0)
		return TL_TID_OTHER;
	return (uint32_t)number(s);
}

static enum off_cpu wait_state(const char *s)
{
	for (unsigned int i = 0; s && i < OFF_CPUS; i++)
		if (strcmp(s, off_cpu_text(i)) == 0)
			return (enum off_cpu)i;
	return OFF_CPU_UNKNOWN;
}

static uint32_t cpu(const char *s)
{
	return s && strcmp(s, "-") != 0 ? (uint32_t)number(s) : TL_CPU_UNKNOWN;
}

/* 1 = was an option. */
static int option(struct player *p, char **f)
{
	if (strcmp(f[0], "period") == 0) {
		p->options.period_ns = number(f[1]);
	} else if (strcmp(f[0], "depth") == 0) {
		p->options.depth_cap = (uint32_t)number(f[1]);
	} else if (strcmp(f[0], "wait-min") == 0) {
		p->options.wait_min_ns = number(f[1]);
	} else if (strcmp(f[0], "switches") == 0) {
		p->options.switches = true;
	} else if (strcmp(f[0], "complete") == 0) {
		p->options.complete_from_ns = number(f[1]);
	} else if (strcmp(f[0], "focus") == 0) {
		p->options.focus_begin_ns = number(f[1]);
		p->options.focus_end_ns = number(f[2]);
	} else if (strcmp(f[0], "cause") == 0 && f[1]) {
		(void)snprintf(p->cause, sizeof(p->cause), "%s", f[1]);
		p->options.cause = (struct timeline_cause){.region = p->cause,
							   .tid = (uint32_t)number(f[2]),
							   .begin_ns = number(f[3]),
							   .end_ns = number(f[4]),
							   .over_ns = number(f[5])};
	} else if (strcmp(f[0], "kernel") == 0) {
		(void)snprintf(p->release, sizeof(p->release), "%s", f[1] ? f[1] : "6.1.0");
		p->options.kernel_release = p->release;
		p->options.machine = "x86_64";
	} else if (strcmp(f[0], "clock") == 0) {
		if (clock_map_new(strcmp(f[1], "raw") == 0 ? CLOCK_SOURCE_MONOTONIC_RAW :
							      CLOCK_SOURCE_UNKNOWN, &p->clocks) < 0)
			return -ENOMEM;
	} else if (strcmp(f[0], "bracket") == 0 && p->clocks) {
		if (clock_map_add(p->clocks,
				  &(struct clock_bracket){.source = number(f[1]),
							  .monotonic = number(f[2]),
							  .raw = number(f[1]),
							  .realtime = number(f[2]) + 1000000,
							  .boottime = number(f[2]) + 500,
							  .width = number(f[3])}) < 0)
			return -ENOMEM;
	} else {
		return 0;
	}
	return 1;
}

/* Joins the fields from `i` on again. */
static const char *rest(char **f, int i, int n)
{
	for (int k = i; k + 1 < n; k++)
		f[k][strlen(f[k])] = ' ';
	return i < n ? f[i] : "";
}

static const char *const call_events[] = {"call", "called", "return", "found", "outside", "ended"};

static struct caller *caller_of(struct player *p, uint32_t tid)
{
	for (size_t i = 0; i < MAX_CALLERS; i++)
		if (p->callers[i].tid == tid || p->callers[i].tid == 0) {
			p->callers[i].tid = tid;
			return &p->callers[i];
		}
	return NULL;
}

static int call_end(struct player *p, struct caller *c, uint64_t ts, struct timeline_return *end)
{
	struct call call = {0};

	if (c->n)
		call = c->open[--c->n];
	if (c->n) {
		c->open[c->n - 1].callee_insns += end->insns;
		end->caller = c->open[c->n - 1].frame;
	} else {
		c->outer_insns += end->insns;
	}
	return timeline_return(p->tl, c->tid, ts, &call, end);
}

static int call_event(struct player *p, char **f, int n, bool between)
{
	struct caller *c = caller_of(p, (uint32_t)number(f[1]));
	const uint64_t ts = number(f[2] + between);
	struct call *call;

	if (!c || c->n == MAX_CALLS)
		return -EINVAL;
	if (strcmp(f[0], "return") == 0)
		return call_end(p, c, ts,
				&(struct timeline_return){.ns = ts,
							  .insns = number(f[3]),
							  .interpolated = between});
	if (strcmp(f[0], "ended") == 0)
		return call_end(p, c, ts,
				&(struct timeline_return){.ns = number(f[3]),
							  .insns = number(f[4])});
	if (strcmp(f[0], "found") == 0) {
		c->found = ts;
		c->outer_insns = 0;
		return timeline_resync(p->tl, c->tid, ts, n < 4 || strcmp(f[3], "whole") != 0);
	}
	call = &c->open[c->n++];
	*call = (struct call){.frame = frame(p->st, f[3]), .begin = ts, .interpolated = between};
	if (strcmp(f[0], "called") == 0)
		return timeline_call(p->tl, c->tid, call, NULL, f[4]);
	if (strcmp(f[0], "call") == 0)
		return timeline_call(p->tl, c->tid, call,
				     f[4] && strcmp(f[4], "-") != 0 ? rest(f, 4, n) : NULL, NULL);
	call->begin = c->found;
	if (number(f[4]) == 0) {
		call->callee_insns = c->outer_insns;
		c->outer_insns = 0;
	}
	return timeline_call_outside(p->tl, c->tid, ts, call, (uint32_t)number(f[4]),
				     rest(f, 5, n));
}

static int event(struct player *p, char **f, int n)
{
	const bool between = n > 2 && f[2][0] == '~';
	struct timeline *tl = p->tl;
	const char *name;
	uint32_t other;

	if (f[0][0] == '@') {
		struct ringevent ev;
		int r;

		f[0]++;
		r = event_case_parse(f, n, &ev);
		return r < 0 ? r : timeline_event(tl, &ev);
	}
	if (strcmp(f[0], "process") == 0)
		return timeline_process(tl, (uint32_t)number(f[1]), 1, f[3], number(f[2]));
	if (strcmp(f[0], "thread") == 0)
		return timeline_thread(tl, (uint32_t)number(f[1]), (uint32_t)number(f[2]), f[4],
				       number(f[3]));
	if (strcmp(f[0], "forked") == 0) {
		timeline_thread_forked(tl, (uint32_t)number(f[1]));
		return 0;
	}
	if (strcmp(f[0], "exit-all") == 0)
		return timeline_exit(tl, number(f[1]));
	if (strcmp(f[0], "suspended") == 0)
		return timeline_suspended(tl, number(f[1]), rest(f, 2, n));
	if (strcmp(f[0], "exit") == 0)
		return timeline_thread_exit(tl, (uint32_t)number(f[1]), number(f[2]));
	if (strcmp(f[0], "sample") == 0)
		return timeline_sample(tl, (uint32_t)number(f[1]), number(f[2]), cpu(f[3]),
				       stack(p->st, f[4]));
	if (strcmp(f[0], "goroutine") == 0) {
		timeline_in_goroutine(tl, (uint32_t)number(f[1]), number(f[2]), number(f[3]),
				      strcmp(f[4], "-") == 0 ? "" : f[4]);
		return 0;
	}
	if (strcmp(f[0], "program") == 0)
		return timeline_program(tl, (uint32_t)number(f[1]), number(f[2]));
	if (strcmp(f[0], "out") == 0) {
		other = who(f[6], &name);
		return timeline_switch_out(tl, (uint32_t)number(f[1]), number(f[2]), cpu(f[3]),
					   wait_state(f[4]), stack(p->st, f[5]), other, name);
	}
	if (strcmp(f[0], "blocked") == 0)
		return timeline_blocked(tl, (uint32_t)number(f[1]), number(f[2]), wait_state(f[3]),
					stack(p->st, f[4]));
	if (strcmp(f[0], "waited") == 0)
		return timeline_waited(tl, (uint32_t)number(f[1]), number(f[2]), number(f[3]),
				       stack(p->st, f[4]));
	if (strcmp(f[0], "wait-in") == 0) {
		timeline_wait_in(tl, (uint32_t)number(f[1]), f[2],
				 n > 3 ? (uint32_t)number(f[3]) : TL_NO_FD, n > 4 ? f[4] : NULL);
		return 0;
	}
	if (strcmp(f[0], "wait-for") == 0) {
		timeline_wait_for(tl, (uint32_t)number(f[1]), (uint32_t)number(f[2]));
		return 0;
	}
	if (strcmp(f[0], "in") == 0) {
		other = who(f[4], &name);
		return timeline_switch_in(tl, (uint32_t)number(f[1]), number(f[2]), cpu(f[3]),
					  other, name);
	}
	if (strcmp(f[0], "wake") == 0) {
		other = who(f[4], &name);
		return timeline_wakeup(tl, (uint32_t)number(f[1]), number(f[2]), cpu(f[3]), other,
				       0, name, strcmp(f[5], "irq") == 0, stack(p->st, f[6]));
	}
	if (strcmp(f[0], "wake-in") == 0) {
		timeline_wake_in(tl, (uint32_t)number(f[1]), f[2]);
		return 0;
	}
	if (strcmp(f[0], "loss") == 0)
		return timeline_loss(tl, (uint32_t)number(f[1]), number(f[2]), number(f[3]),
				     rest(f, 5, n), number(f[4]));
	if (strcmp(f[0], "incomplete") == 0) {
		timeline_incomplete(tl, number(f[1]), number(f[2]));
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(call_events); i++)
		if (strcmp(f[0], call_events[i]) == 0)
			return call_event(p, f, n, between);
	if (strcmp(f[0], "untraced") == 0)
		return timeline_untraced(tl, (uint32_t)number(f[1]), number(f[2]), rest(f, 3, n));
	if (strcmp(f[0], "traced") == 0)
		return timeline_traced(tl, (uint32_t)number(f[1]), number(f[2]), number(f[2]));
	if (strcmp(f[0], "mark") == 0)
		return timeline_mark(tl, number(f[1]), rest(f, 2, n));
	if (strcmp(f[0], "counter") == 0)
		return timeline_counter(tl, (uint32_t)number(f[1]), number(f[2]), rest(f, 4, n),
					WRITER_UNIT_COUNT, (int64_t)number(f[3]));
	return -EINVAL;
}

static int player_start(struct player *p)
{
	if (p->clocks) {
		clock_map_finish(p->clocks);
		p->options.clocks = p->clocks;
	}
	p->options.version = "test";
	return timeline_new(&p->options, p->st, p->w, &p->tl);
}

static int line_play(struct player *p, char *line, bool *ret_wrong_answer)
{
	char *f[MAX_FIELDS] = {NULL}, *save = NULL;
	bool refused = line[0] == '!';
	int n = 0, r;

	for (char *s = strtok_r(line + refused, " \t", &save); s && n < MAX_FIELDS - 1;
	     s = strtok_r(NULL, " \t", &save))
		f[n++] = s;
	if (n == 0)
		return 0;
	r = option(p, f);
	if (r != 0)
		return r < 0 ? r : 0;
	if (!p->tl && (r = player_start(p)) < 0)
		return r;
	r = event(p, f, n);
	*ret_wrong_answer = r != (refused ? TIMELINE_E_ORDER : 0);
	return r < 0 ? r : 0;
}

int timeline_case_play(char *text, struct writer *w, struct timeline_stats *ret_stats,
		       struct json_object **ret_summary, const char **ret_rest, char *error,
		       size_t error_size)
{
	struct player p = {.w = w};
	char *line = text;
	int r = stacktab_new(0, &p.st), number_of_line = 0;

	*ret_rest = NULL;
	error[0] = '\0';
	while (r == 0 && line && *line) {
		char *end = strchr(line, '\n');
		bool wrong = false;

		number_of_line++;
		if (end)
			*end++ = '\0';
		if (strcmp(line, "---") == 0) {
			*ret_rest = end;
			break;
		}
		if (line[0] != '#')
			r = line_play(&p, line, &wrong);
		if (wrong && r == 0)
			r = -EINVAL;
		if (r < 0)
			(void)snprintf(error, error_size, "line %d: %s", number_of_line,
				       strerror(-r));
		line = end;
	}
	if (r == 0 && !p.tl)
		r = player_start(&p);
	if (r == 0)
		r = timeline_finish(p.tl, ret_summary);
	if (r == 0)
		timeline_stats(p.tl, ret_stats);
	else if (!error[0])
		(void)snprintf(error, error_size, "%s", strerror(-r));
	timeline_free(p.tl);
	stacktab_free(p.st);
	clock_map_free(p.clocks);
	return r == 0 ? 0 : -1;
}
