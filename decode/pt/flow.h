/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a trace through the code: packets in, executed branches out, in order, with times. Owns
 * the state of one logical processor's trace between two PSBs and over them; must not know what a
 * call stack is, who ran, and where code comes from (decode/pt/block.h).
 *
 * A decision of the trace is applied at the next branch that needs one; an event at an address
 * is applied where the walk reaches it. Where code is missing or contradicts the packets, the way
 * is lost: what follows is skipped to the next packet that has an address, and counted.
 *
 * Work and events are bounded by the bytes of the trace, whatever these and the code are: each byte
 * pays for so many blocks of code that need no decision.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/pt/block.h"
#include "decode/pt/errata.h"
#include "decode/pt/time.h"

/* What happened at a branch, or instead of one. */
enum ptflow_kind {
	PTFLOW_RUN,	    /* all: nothing but instructions; `to` follows `from` */
	PTFLOW_COND,	    /* taken or not: see `to` */
	PTFLOW_JUMP,
	PTFLOW_JUMP_INDIRECT,
	PTFLOW_CALL,
	PTFLOW_CALL_INDIRECT,
	PTFLOW_RET,
	PTFLOW_FAR,	    /* syscall, int, iret ... within what is traced */
	/* an interrupt, fault, abort: from `from`, which was not executed, to `to` */
	PTFLOW_ASYNC,
	PTFLOW_ENABLE,	    /* tracing goes on at `to` */
	PTFLOW_DISABLE,	    /* after the branch at `from` */
	PTFLOW_DISABLE_ASYNC, /* before `from` */
	PTFLOW_OVERFLOW,    /* packets were lost; tracing may go on at `to` */
	PTFLOW_DESYNC,	    /* the way was lost at `from`: `error` */
	PTFLOW_RESYNC,	    /* and is known again at `to` */
	/* nothing of the way: `note` says what, at `from` (0: not known), with the value `to` */
	PTFLOW_NOTE,
};

enum ptflow_error {
	PTFLOW_E_NONE,
	PTFLOW_E_NO_CODE,   /* nothing is mapped at the address */
	PTFLOW_E_MISMATCH,  /* packets and code contradict each other */
	PTFLOW_E_PACKET,    /* bytes that are no packet, or one that cannot come here */
	PTFLOW_E_RETURN,    /* a compressed return without its call */
	PTFLOW_E_RUNAWAY,   /* a loop without decisions */
	_PTFLOW_E_MAX,
};

/* In words. */
const char *ptflow_error_name(enum ptflow_error error);

/* What a note of a transaction (PT_MODE_TSX) says: `detail`. */
enum { PTFLOW_TX_COMMITTED, PTFLOW_TX_BEGUN, PTFLOW_TX_ABORTED };

struct ptflow_event {
	uint64_t from, to; /* address of the branch, and where it went; 0: not known */
	uint64_t time;	   /* stamp (TSC); 0: not known yet */
	uint64_t insns;	   /* executed since the flow began, this branch included */
	uint64_t offset;   /* in the trace */
	uint8_t kind;	   /* enum ptflow_kind */
	uint8_t error;	   /* enum ptflow_error */
	uint8_t length;	   /* of the instruction at `from`; 0: not known */
	bool is_syscall;
	bool speculative;  /* in a transaction */
	bool is32;	   /* of 32-bit code */
	/*
	 * the stack pointer was loaded since the last event of any kind (decode/pt/stack_pointer.h)
	 */
	bool loads_sp;
	bool interpolated; /* `time` lies between two stamps, see decode/pt/interpolation.h */
	bool minor;	   /* all: it does not leave a function, and is reported for its line */
	bool at_psb;	   /* of PTFLOW_ENABLE: it is on, as a PSB says; since when is not known */
	/*
	 * enum ptpacket_type: PTW, MODE_TSX, CFE (`detail`: its type, `to`: the vector), CBR, PWRE,
	 * PWRX, MWAIT, EXSTOP
	 */
	uint8_t note;
	uint8_t detail;
	uint32_t thread;   /* a number, as ptflow_options.enter said */
	/*
	 * PTFLOW_RUN and all others when everything is asked for: first of the line that ended here
	 */
	uint64_t start;
};

/*
 * Packets that nobody here knows, of one kind: what they begin with, the first of them whole as far
 * as it goes.
 */
#define PTFLOW_UNKNOWN_BYTES 16u
#define PTFLOW_UNKNOWN_KINDS 4u
struct ptflow_unknown {
	uint64_t times, offset; /* of the first, in the trace */
	uint8_t bytes[PTFLOW_UNKNOWN_BYTES];
	uint8_t n;
};

/*
 * Counts them in a table of so many kinds: with those that begin in the same way; the second byte
 * counts where the first only says that it is extended. The entry that is new, or NULL: there is
 * one, or no room for one.
 */
struct ptflow_unknown *ptflow_unknown_add(struct ptflow_unknown *kinds, size_t n,
					  const struct ptflow_unknown *u);

struct ptflow_stats {
	uint64_t insns, blocks, packets, bytes;
	uint64_t overflows, errors[_PTFLOW_E_MAX];
	uint64_t skipped_bytes; /* before the first PSB, or after errors of packets */
	/* of the first kinds; .times 0: there are no more */
	struct ptflow_unknown unknown[PTFLOW_UNKNOWN_KINDS];
};

/*
 * Tracing begins or goes on at `ip` (0: that is not known): whose code is it? Answers the blocks of
 * the address space that runs from now on; *thread, which is what was said last, is in the events
 * from here on.
 */
typedef struct codeblocks *(*ptflow_enter)(void *arg, uint64_t stamp, uint64_t ip,
					   uint32_t *thread);

/* Negative: the flow ends with it; positive: it pauses after the packet (ptflow_feed()). */
typedef int (*ptflow_sink)(void *arg, const struct ptflow_event *events, size_t n);

#define PTFLOW_BATCH 1024u
/* What tracing was limited to: addresses from .first to .last. */
struct ptflow_range {
	uint64_t first, last;
};

struct ptflow_options {
	struct codeblocks *code; /* borrowed; until `enter` says something else */
	ptflow_enter enter;	 /* NULL: it is always the same */
	struct pttime *time;	 /* borrowed; NULL: no times */
	ptflow_sink sink;
	void *arg;
	struct ptflow_event *batch; /* as ptflow_use(); NULL: its own */
	struct pterrata errata;
	const struct ptflow_range *filter; /* borrowed */
	size_t n_filter;		   /* 0: none, or not known */
	bool all; /* every branch, with the line before it; else those that may leave a function */
};

struct ptflow;
int ptflow_new(const struct ptflow_options *options, struct ptflow **ret) _must_check_;
struct ptflow *ptflow_free(struct ptflow *f);
DEFINE_CLEANUP(struct ptflow *, ptflow_free)

/*
 * Follows [begin, end) from its first PSB on; whatever was before is forgotten. With `stop` (a PSB
 * within) it ends after that PSB's header, where the walk has come to the address that the header
 * says: so a part of a trace gives the same as the whole. 0 or the sink's negative answer (a
 * positive one does not pause it).
 */
int ptflow_run(struct ptflow *f, const uint8_t *begin, const uint8_t *end,
	       const uint8_t *stop) _must_check_;

/*
 * The same piece by piece: ptflow_reset(), then ptflow_feed() until it answers 0. Each piece begins
 * where the one before was left (*ret_used bytes of it after its begin). `more`: the trace goes on
 * after `end`; a piece must then have more than PTFLOW_LOOKAHEAD bytes. PTFLOW_MORE: it wants the
 * next piece, or the sink paused it.
 */
enum { PTFLOW_MORE = 1 };
#define PTFLOW_LOOKAHEAD 4096u
void ptflow_reset(struct ptflow *f);
int ptflow_feed(struct ptflow *f, const uint8_t *begin, const uint8_t *end, const uint8_t *stop,
		bool more, size_t *ret_used) _must_check_;
/* Between two pieces: other blocks of the same code, for another thread. */
void ptflow_rebind(struct ptflow *f, struct codeblocks *code, void *arg);
/*
 * Between two pieces, or from the sink: what comes next is written to there, PTFLOW_BATCH of them
 * at most. Borrowed.
 */
void ptflow_use(struct ptflow *f, struct ptflow_event *batch);

const struct ptflow_stats *ptflow_stats(const struct ptflow *f);

/* Where the walk stands. */
enum ptflow_state {
	PTFLOW_OFF,	/* tracing is */
	PTFLOW_ON,	/* at *ret_ip */
	PTFLOW_UNKNOWN, /* lost, or an overflow */
};
enum ptflow_state ptflow_where(const struct ptflow *f, uint64_t *ret_ip, uint32_t *ret_thread);
