/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the text views of a trace: calls as a tree for each thread, branches, instructions; one line each, laid
 * out for eyes and diff. Refuses to know how any of them was found.
 *
 *   # tracerd calls 1                       TIME NS INSNS  name (object) [how]      a call without calls in it
 *   thread PID/TID "name"                   TIME           name (object) [how] {    and one with
 *                                           TIME NS INSNS  } name
 *                                           TIME           -- what is missing here
 *                                           TIME NS INSNS  name (object) job/main.c:12 [how] from job/main.c:40
 *   # tracerd branches 1                    TIME TID KIND  ADDRESS name+0x12 (object) -> ADDRESS name (object)
 *   # tracerd instructions 1                TIME TID ADDRESS name+0x12 (object)
 *
 * Where the source code is known: of a call where the function is declared and where it is called, of an address
 * behind its object the line that it comes from.
 *
 * TIME is ns of the recording's clock, 0 in a trace without time; with a ~ in front it lies between two that the trace
 * tells (decode/pt/interpolation.h). The lines of a thread are together; where they are many,
 * threads alternate. Branches and instructions are in the order of time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/stacktab.h"
#include "decode/calls/call.h"
#include "decode/pt/flow.h"

enum ptview_kind { PTVIEW_NONE, PTVIEW_CALLS, PTVIEW_BRANCHES, PTVIEW_INSNS };

struct ptview;
struct ptview_thread;

/* Where an address is: `into` its function, or into its object if `frame` is no function. */
struct ptview_place {
	uint64_t ip; /* 0: not known */
	uint32_t frame; /* of the stack table; 0: nothing is there */
	uint64_t into;
	const char *line; /* "job/main.c:40", borrowed until the view is finished; NULL: not known */
};

struct ptview_time {
	uint64_t ns;
	bool interpolated;
};

struct ptview_options {
	enum ptview_kind kind;
	int fd; /* borrowed */
	uint64_t max_bytes; /* of the output; 0: no limit */
	struct stacktab *st; /* borrowed */
};

int ptview_new(const struct ptview_options *options, struct ptview **ret) _must_check_;
struct ptview *ptview_free(struct ptview *v);
DEFINE_CLEANUP(struct ptview *, ptview_free)

enum ptview_kind ptview_kind(const struct ptview *v);

/* A thread of the view of calls. `name` is escaped and copied. 0 or -ENOMEM. */
int ptview_thread(struct ptview *v, uint32_t pid, uint32_t tid, const char *name, struct ptview_thread **ret) _must_check_;

/*
 * `how`: a constant word, NULL: nothing is special. `site`: "job/main.c:40", from where it is called, borrowed until the view is finished;
 * NULL: not known. All answer 0 or -errno.
 */
int ptview_call(struct ptview_thread *t, struct ptview_time at, uint32_t frame, const char *how, const char *site);
int ptview_return(struct ptview_thread *t, struct ptview_time at, const struct call *c, uint64_t insns);
int ptview_remark(struct ptview_thread *t, struct ptview_time at, const char *what);

int ptview_branch(struct ptview *v, struct ptview_time at, uint32_t tid, const struct ptflow_event *e,
		  const struct ptview_place *from, const struct ptview_place *to);
int ptview_insn(struct ptview *v, struct ptview_time at, uint32_t tid, const struct ptview_place *place);

/* Everything is written when this has answered 0. */
int ptview_finish(struct ptview *v) _must_check_;

struct ptview_stats {
	uint64_t lines, bytes;
	bool cut; /* the limit was reached; what came later is missing */
};
const struct ptview_stats *ptview_stats(const struct ptview *v);
