/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the text views of a trace: calls as a tree for each thread, branches, instructions; one line
 * each, laid out for eyes and diff. It must not know how any of them was found.
 *
 *   # tracerd calls 1                       TIME NS INSNS  name (object) [how]      a call without calls in it
 *   thread PID/TID "name"                   TIME           name (object) [how] {    and one with
 *                                           TIME NS INSNS  } name
 *                                           TIME           -- what is missing here
 *                                           TIME NS INSNS  name (object) job/main.c:12 [how] from
 *                                                          job/main.c:40
 *   # tracerd branches 1                    TIME TID KIND  ADDRESS name+0x12 (object) -> ADDRESS name (object)
 *   # tracerd instructions 1                TIME TID ADDRESS name+0x12 (object)
 *
 * Where the source code is known: of a call where the function is declared and where it is called,
 * of an address after its object the line that it comes from.
 *
 * TIME is ns of the recording's clock, 0 in a trace without time; with a ~ before it, it lies
 * between two that the trace has (decode/pt/interpolation.h). The lines of a thread are together,
 * in order, and callers around what they have called, also where they show themselves later: calls
 * are written when all are known (decode/pt/dump_calls.c). Branches and instructions are in the
 * order of time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/stacktab.h"
#include "decode/calls/call.h"
#include "decode/pt/flow.h"

enum dump_kind { DUMP_NONE, DUMP_CALLS, DUMP_BRANCHES, DUMP_INSNS };

struct dump;
struct dump_thread;

/* Where an address is: `into` its function, or into its object if `frame` is no function. */
struct dump_place {
	uint64_t ip; /* 0: not known */
	uint32_t frame; /* of the stack table; 0: nothing is there */
	uint64_t into;
	/* "job/main.c:40", borrowed until the dump is finished; NULL: not known */
	const char *line;
};

struct dump_time {
	uint64_t ns;
	bool interpolated;
};

struct dump_options {
	enum dump_kind kind;
	int fd; /* borrowed */
	/* of calls: where they wait until all are known; read and written by place, borrowed */
	int scratch_fd;
	uint64_t max_bytes; /* of the output; 0: no limit */
	struct stacktab *st; /* borrowed */
};

int dump_new(const struct dump_options *options, struct dump **ret) _must_check_;
struct dump *dump_free(struct dump *v);
DEFINE_CLEANUP(struct dump *, dump_free)

enum dump_kind dump_kind(const struct dump *v);

/* A thread of the dump of calls. `name` is escaped and copied. 0 or -ENOMEM. */
int dump_thread(struct dump *v, uint32_t pid, uint32_t tid, const char *name,
		struct dump_thread **ret) _must_check_;

/*
 * `how`: a constant word, NULL: nothing is special. `site`: "job/main.c:40", from where it is
 * called, borrowed until the dump is finished; NULL: not known. All answer 0 or -errno.
 */
int dump_call(struct dump_thread *t, struct dump_time at, uint32_t frame, const char *how,
	      const char *site);
/* The stack is seen in the middle of something, from here on; nothing is open. */
int dump_resync(struct dump_thread *t);
/*
 * A call shows itself that was around everything since then; `more` follow now, each inside of the
 * one before. Nothing else is open.
 */
int dump_outside(struct dump_thread *t, struct dump_time at, uint32_t frame, uint32_t more,
		 const char *how);
/*
 * What has begun or shown itself since dump_resync() and said `was` says `is`: both are constant
 * words.
 */
int dump_identified(struct dump_thread *t, const char *was, const char *is);
int dump_return(struct dump_thread *t, struct dump_time at, const struct call *c, uint64_t insns);
int dump_remark(struct dump_thread *t, struct dump_time at, const char *what);

int dump_branch(struct dump *v, struct dump_time at, uint32_t tid, const struct ptflow_event *e,
		  const struct dump_place *from, const struct dump_place *to);
int dump_insn(struct dump *v, struct dump_time at, uint32_t tid, const struct dump_place *place);

/* Everything is written when this has answered 0. */
int dump_finish(struct dump *v) _must_check_;

struct dump_stats {
	uint64_t lines, bytes;
	bool cut;	 /* the limit was reached; what came later is missing */
	int write_error; /* negative errno of the write to the file that failed; 0: none did */
	int scratch_error; /* likewise, or a read, of the scratch file */
};
const struct dump_stats *dump_stats(const struct dump *v);
