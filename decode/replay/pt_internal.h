/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the PT half of a session: pt.c has the threads and goes through the events, pt_event.c
 * says what each is, pt_draw.c draws calls, pt_inline.c those that were inlined in them,
 * pt_stacks.c has the stacks that tell who is around them.
 */
#pragma once

#include "common/base/hashmap.h"
#include "decode/calls/callstack.h"
#include "decode/dwarf/scope.h"
#include "decode/pt/blind.h"
#include "decode/pt/dump.h"
#include "decode/pt/pipeline.h"
#include "decode/replay/goruns.h"
#include "decode/replay/pt.h"

/* What function an address is in: the same few are asked for again and again. */
#define KNOWN 1024u
struct known {
	const struct address_space *space;
	uint64_t ip;
	const struct callfunc *f; /* NULL: nothing is known */
	bool first;
};

/* What the code in front of a return did to the stack. */
#define KNOWN_SLOTS 4096u
struct known_slot {
	uint64_t ip;
	const struct address_space *space; /* NULL: nothing is known */
	enum callstack_slot slot;
};

/*
 * A call that the compiler inlined. The code makes none there, so it is not on the stack of calls,
 * but within one of them.
 */
struct inlined {
	struct call call;
	const struct dwarf_scope *scope;
	uint32_t within; /* the frame of the call, see callstack_innermost() */
};

/* What the threads of a process share. */
struct pt_program {
	struct waiting *waiting; /* stacks */
	struct goruns *runs; /* what it tells of its goroutines; NULL: nothing */
	/*
	 * threads that have not stopped, and may run goroutines: what they do may be told out of
	 * order
	 */
	uint32_t n_running;
	bool inexact; /* some times of theirs are interpolated */
};

struct pt_thread {
	struct replay_pt *p;
	uint32_t tid, pid;
	struct callstack *calls;
	/* since its trace began last; NULL: nothing is known of it */
	const struct address_space *space;
	struct thread *thread; /* the session's; NULL: to be looked up */
	struct inlined *inlined; /* that are open, the outermost first */
	uint32_t n_inlined, room_inlined;
	uint64_t last_ns, insns;
	uint64_t stopped_ns; /* its trace, or of a new one its begin */
	uint64_t found_ns, found_insns; /* when its stack was found last */
	/* of calls that have ended since then, within none that is known */
	uint64_t outer_insns;
	size_t forked_bytes;		/* of the stack that is a copy of its parent's */
	struct pt_program *program; /* of the process, NULL: of none */
	bool running; /* is counted there */
	/* where it has entered the kernel, and would return to; 0: not known */
	uint64_t entered_ip, entered_back;
	bool in_kernel; /* there it was stopped */
	bool comes; /* to where it was stopped, in the kernel */
	uint32_t depth; /* of the calls of that way */
	bool untraced;
	bool is_new; /* its first event is its begin, unless that is but a PSB */
	const char *missing; /* what is, since missing_ns; NULL: nothing */
	uint64_t missing_ns;
	/* a stack of the place where it stops next; NULL: there is none */
	struct stack_place *later;
	uint32_t n_later;
	bool later_cut;
	size_t outer_bytes; /* of the budget, for who is around its calls */
	uint32_t n_around; /* of these are part of the stacks that its calls have by now */
	struct dump_thread *dump; /* of the dump of calls */
	struct pt_thread *next;
	struct pt_thread *sibling, *elder; /* of the process, those since its last exec */
};

#define THREAD_BYTES 4096u /* that one takes, about, but for its stack */
/* of stacks that are copies, of all that live: a recording may name children that it never shows */
#define FORKED_BYTES (16u << 20)

struct replay_pt {
	struct auxtrace *aux;
	struct process_maps *maps; /* borrowed */
	struct ptcode *code;
	struct who_ran *who_ran;
	struct workers *workers; /* borrowed */
	struct pipeline *work;
	struct pt_notes *notes;
	const struct pt_blind *blinds; /* borrowed */
	size_t n_blinds;
	uint64_t end_ns; /* 0: not known */
	/* threads that ran while they were not traced, and went on somewhere */
	uint64_t blind_resumes;
	struct missing_code *missing; /* code; made when the first is met */
	struct dump *dump; /* borrowed; NULL: it is drawn */
	enum dump_kind kind; /* of it */
	struct budget *budget;
	bool verify; /* with libipt */
	struct pt_inline *inlined; /* pt_inline.c's; NULL: inlined calls are not shown */
	size_t forked_bytes;
	uint64_t forks_without; /* children that begin without their parent's stack */
	uint64_t stacks_elsewhere; /* of threads that were somewhere else by their calls */
	uint64_t stacks_dropped; /* for want of memory */
	uint64_t code_ns; /* it took to open all code */
	struct hashmap threads, processes; /* the latter by pid: its first thread */
	struct hashmap programs; /* by pid */
	uint64_t runs_not_read;  /* traces of Go programs for which there was no memory */
	struct pt_thread *all, *last;
	struct known known[KNOWN];
	struct known_slot slots[KNOWN_SLOTS];
	uint32_t *frames; /* of the stack table, by callfunc.id */
	uint32_t n_frames;
	/* of the event that is being drawn */
	struct session *s;
	uint64_t ns;
	bool interpolated; /* ns */
	int error;
};

/* ---- pt_event.c: 0, a positive enum timeline_error, or -errno */

int replay_pt_event(struct replay_pt *p, struct pt_thread *t, const struct pipeline_event *ev);
/* Where it has entered the kernel is not known any more. */
void pt_event_forget_kernel(struct pt_thread *t);
/* From there on another program may run, or other code. */
bool pt_event_leaves_kernel(const struct ptflow_event *e);
/*
 * If it has run while its CPU was not traced, since it stopped: its calls end there. 0 or -errno.
 */
int replay_pt_end_blind(struct replay_pt *p, struct pt_thread *t);
/* What is missing of the thread, if anything, is missing until now. */
int replay_pt_end_gap(struct replay_pt *p, struct pt_thread *t, uint64_t ns);
int replay_pt_view_branch(struct replay_pt *p, const struct pt_thread *t,
			  const struct ptflow_event *e);
int replay_pt_view_line(struct replay_pt *p, const struct pt_thread *t,
			const struct ptflow_event *e);

/* ---- pt_draw.c */

/* What the stack of a thread (struct pt_thread) asks for and reports. */
extern const struct callstack_ops replay_pt_drawing;

/* Of what happens at the event, or (what was there before) earlier. */
struct dump_time replay_pt_time(const struct replay_pt *p, uint64_t ns);

/* The source line of the code there, "job/main.c:40"; NULL: not known, or not asked for. */
const char *replay_pt_line(struct replay_pt *p, const struct pt_thread *t, uint64_t ip);

/* The code of the thread's process as the thread runs it; NULL: no memory. */
struct code *replay_pt_code(const struct pt_thread *t);

/* The function at an address, and whether that is its first instruction. */
const struct callfunc *replay_pt_function(struct pt_thread *t, uint64_t ip, bool *ret_first);

/* Its frame of the stack table. */
uint32_t replay_pt_frame(struct pt_thread *t, const struct callfunc *f, uint64_t ip);

/* The innermost call that is open, or NULL. */
struct call *replay_pt_innermost(const struct pt_thread *t);

/*
 * A call begins within all that are open; one that is off its stack ends, back in `caller`. Errors
 * are kept in p->error.
 */
void replay_pt_begin_call(struct pt_thread *t, const struct call *c, const char *how,
			  const char *site);
void replay_pt_end_call(struct pt_thread *t, uint64_t time, const struct call *c,
			struct call *caller);

/* ---- pt_stacks.c */

/* Its trace stops: the stack that is kept may be of this moment. 0 or -errno. */
int pt_stacks_stopped(struct pt_thread *t);
/* It never was. */
void pt_stacks_end(struct pt_thread *t);
/* The same, and gives back what the thread's stacks took of the budget: its calls are over. */
void pt_stacks_free(struct pt_thread *t);

/* ---- pt_inline.c */

int pt_inline_new(struct pt_inline **ret) _must_check_;
struct pt_inline *pt_inline_free(struct pt_inline *in);

/*
 * Before what happens at an event: over the line that ends with it, which began with so many
 * instructions.
 */
void pt_inline_line(struct pt_thread *t, const struct ptflow_event *e, uint64_t insns);
/* After it: control goes on somewhere. */
void pt_inline_go_on(struct pt_thread *t, const struct ptflow_event *e);

uint64_t pt_inline_calls(const struct pt_inline *in);
