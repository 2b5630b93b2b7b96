/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the work: pipeline.c owns the blocks and hands out what came of them, pipeline_dates.c
 * says when each begins, pipeline_follow.c follows one on a thread, pipeline_report.c says how it
 * went.
 */
#pragma once

#include "decode/base/workers.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/interpolation.h"
#include "decode/pt/pipeline.h"
#include "decode/pt/verify.h"

struct address_space;

#define PIPELINE_UNKNOWN 16u
#define PIPELINE_SPACES 4u /* address spaces whose blocks one thread keeps */

/* The code of one address space as one thread has found it. */
struct pipeline_known {
	const struct address_space *space;
	struct ptcode *bytes;
	struct codeblocks *code;
	struct block_cache *files; /* the context's */
	uint64_t used;
};

struct pipeline_context { /* of one thread */
	struct pipeline_known known[PIPELINE_SPACES];
	uint64_t clock;
	struct block_cache *files; /* what was found in one of them is there in others */
	struct codeblocks *nothing; /* where no code is known */
	struct codeblocks *others; /* of threads that the recording does not name */
	uint64_t busy_ns;
};

/* A block on its way: read by the caller, followed by a worker, handed out by the caller. */
struct pipeline_block {
	struct work work; /* first */
	struct pipeline *w;
	const struct auxtrace_block *b;
	struct pipeline_context *context; /* whose turn it is */
	struct ptflow *flow;
	struct pttime time;
	/* of who was entered last; NULL: nothing is known of it */
	const struct address_space *space;
	bool foreign;			   /* that is one of PIPELINE_OTHERS */
	uint64_t at;			      /* what was followed of it */
	uint8_t *bytes;
	size_t n_bytes, room;
	struct ptflow_event *events;
	size_t n, cap;
	size_t held; /* after these: they wait for the next stamp */
	uint64_t events_ns; /* of the last event that has its time */
	struct interpolation spread;
	struct pipeline_thread *threads; /* by ptflow_event.thread - 1 */
	uint32_t n_threads;
	uint64_t unowned; /* events of nobody among those */
	struct ptflow_stats stats;
	struct verify *verify;	      /* NULL: nobody wants it */
	struct verify_result verified;
	int error;
	bool submitted, handed; /* to the workers: and not waited for */
	bool more;
	enum ptflow_state end; /* how the walk stood there */
	uint64_t end_ip;
	uint64_t ns; /* it begins, at the earliest */
};

struct pipeline_stream { /* a buffer, as its events are handed out */
	size_t at, end_at; /* blocks[] that are left */
	size_t next;	/* event of blocks[at] */
	uint64_t ns;	/* of the next event, at the earliest */
	bool started;	/* blocks[at] has been waited for */
	uint64_t insns; /* before blocks[at] */
	uint64_t insns_before;	/* insns of the event that was handed out last */
	/* of the block before */
	bool any;
	enum ptflow_state end;
	uint64_t end_ip;
};

/*
 * What was a block's that is over, for the next ones: allocated here and freed on other threads it
 * would go to and fro.
 */
struct pipeline_spare {
	struct ptflow_event *events;
	size_t cap;
	uint8_t *bytes;
	size_t room;
};

struct pipeline {
	struct pipeline_options o;
	const struct auxtrace_config *config;
	struct pipeline_context *contexts;
	unsigned int n_contexts;
	struct pipeline_block *blocks;
	size_t n_blocks;
	uint64_t charged;
	size_t *order; /* blocks by time */
	size_t next_submit, in_flight; /* submitted, and not yet a stream's turn */
	size_t most_ahead;	       /* of those */
	size_t max_events;	       /* of one block at a time */
	uint32_t max_held;	       /* of those, that wait for the next stamp */
	struct pterrata errata;
	struct pipeline_stream *streams;
	uint32_t *heap; /* streams that have something, the earliest on top */
	size_t n_heap;
	struct ptflow_stats stats;
	uint64_t backwards, unowned, cut;
	struct verify_report verify;
	struct ptflow_unknown unknown[PIPELINE_UNKNOWN]; /* packets; .times 0: there are no more */
	uint32_t unknown_buffer[PIPELINE_UNKNOWN]; /* of the first of each */
	uint64_t wait_ns; /* the caller for the workers */
	bool settled;	  /* the earliest event is on top, and nobody has taken it */
	/* a ring: those kept for longest are taken first, for they are in nobody's cache */
	struct pipeline_spare *spares;
	size_t first_spare, n_spares, max_spares;
};

static inline bool pipeline_is_unowned(const struct pipeline_block *b, const struct ptflow_event *e)
{
	return e->kind != PTFLOW_NOTE && (e->thread == 0 || b->threads[e->thread - 1].tid == 0);
}

/* What one thread needs. Cleared, it may be given to _fini(). */
int pipeline_context_init(struct pipeline_context *c) _must_check_;
void pipeline_context_fini(struct pipeline_context *c);

/* work.run of a block: on with it, as far as its bytes go. */
void pipeline_follow(struct work *work, unsigned int worker);
/* It is not needed any more. */
void pipeline_block_fini(struct pipeline_block *b);

/* Which blocks there are, when each begins at the earliest, and in what order. */
void pipeline_make_blocks(struct pipeline *w);
