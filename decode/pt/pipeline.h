/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the blocks of all buffers on some threads and hands out what happened in one order of
 * time:
 * per buffer in order of the trace, buffers merged by time. A block is followed on its own, from
 * its PSB to the next one's, so the result does not depend on the number of threads. Owns the
 * blocks that are in flight; memory is bounded by how many, and by how far one is followed before
 * what came of it has been handed out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/flow.h"

struct json_object;
struct auxtrace;
struct process_maps;
struct ptcode;
struct who_ran;
struct pipeline;
struct workers;
struct budget;

struct pipeline_options {
	struct auxtrace *aux;
	const struct process_maps *maps;
	struct ptcode *code;
	struct who_ran *who_ran;
	struct workers *workers; /* all are borrowed */
	struct budget *budget;
	bool all; /* every branch with its line, for the text views */
	bool verify; /* with libipt, see decode/pt/verify.h; needs `all` */
};

/*
 * As pid and tid of an event: threads that the recording does not name, because its reader may not
 * know them.
 */
#define PIPELINE_OTHERS UINT32_MAX

struct pipeline_event {
	uint64_t ns; /* perf clock; never runs backwards in a buffer */
	uint32_t pid, tid; /* 0, 0: not known */
	uint32_t buffer;
	uint64_t insns; /* executed since the event before it in the buffer */
	uint64_t all_insns, offset; /* since the buffer's begin */
	const struct ptflow_event *flow; /* of the run; what it counts begins with its block */
};

struct pipeline_thread {
	uint32_t pid, tid;
};

/* What happened in one buffer, before anything else did in another one. */
struct pipeline_run {
	/* Until the next call; their .time is ns of the perf clock already. */
	const struct ptflow_event *events;
	size_t n;
	uint32_t buffer;
	uint64_t insns, offset; /* to be added to the events': since the buffer's begin */
	/* instructions before the first one's, since the buffer's begin */
	uint64_t insns_before;
	const struct pipeline_thread *threads; /* by .thread - 1 */
};

int pipeline_new(const struct pipeline_options *options, struct pipeline **ret) _must_check_;
struct pipeline *pipeline_free(struct pipeline *w);
DEFINE_CLEANUP(struct pipeline *, pipeline_free)

/* The time of the next event. 1: there is one; 0: the end; -errno. */
int pipeline_peek(struct pipeline *w, uint64_t *ret_ns);
/*
 * What is next, and some of what follows that happened before `before`. Answers the same; n is 0 if
 * it is later.
 */
int pipeline_run(struct pipeline *w, uint64_t before, struct pipeline_run *ret);

static inline void pipeline_run_event(const struct pipeline_run *run, size_t i,
				      struct pipeline_event *ret)
{
	const struct ptflow_event *e = &run->events[i];

	*ret = (struct pipeline_event){.ns = e->time,
		.buffer = run->buffer,
		.insns = i ? e->insns - e[-1].insns : e->insns + run->insns - run->insns_before,
		.all_insns = e->insns + run->insns,
		.offset = e->offset + run->offset,
		.flow = e};
	if (e->thread) {
		ret->pid = run->threads[e->thread - 1].pid;
		ret->tid = run->threads[e->thread - 1].tid;
	}
}

/*
 * How long the caller waited for workers (or did their work, where there are none); how long each
 * of these worked.
 */
uint64_t pipeline_wait_ns(const struct pipeline *w);
void pipeline_report_times(const struct pipeline *w, struct json_object *stages);
void pipeline_report(const struct pipeline *w, struct json_object *stats,
		     struct json_object *losses);
