/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the stack of calls: callstack.c has the rules, by_code.c those that go by what code does to the
 * stack, goroutines.c those of Go's runtime, frames.c the frames that they move, parked.c those of other stacks, which wait, outer.c those around all, of which only
 * a stack tells.
 */
#pragma once

#include "decode/calls/callstack.h"
#include "decode/calls/goroutines.h"

/* What may go on, of one thread: stacks, and pieces that may turn out to be of one. The oldest are given up first. */
#define MAX_PARKED_STACKS 1024u
#define MAX_PARKED_PIECES 64u
#define MAX_PARKED_BYTES (4u << 20)
#define MAX_PARKED_DEPTH 256u
#define MAX_SETJMPS 64u
/* A goroutine that is one of several: so many returns are kept that show which. */
#define MAX_GO_PATH 64u

struct frame {
	uint64_t back; /* where it returns to; 0: not known */
	const struct callfunc *f;
	uint64_t ip;	 /* an address in it */
	const struct callfunc *origin; /* it has left it by an indirect jump, and may come back; NULL: none */
	uint64_t resume; /* of a signal handler: what it interrupted; else 0 */
	bool pending;	 /* a PLT entry: it begins when it is known who it stands for */
	bool tail;	 /* by a jump */
	bool is_signal;
	bool is_base;	 /* another stack begins here, on top of the one that switched to it */
	bool inner;	 /* called within its own function: half of a jump by push and ret, perhaps */
	bool half;	 /* so it is, by its code: no call */
	bool doubted;	 /* the outermost of a stack: it is not known which of several it is */
	bool begins;	 /* the thread began here: nothing is around it */
	bool first;	 /* a goroutine began here: nothing is around it but runtime.goexit */
	bool seen;	 /* a stack has named it, no branch */
	bool cut;	 /* there are more around it, which that stack has not named */
	uint64_t site;
	struct call call; /* the user's, from begin() to end() */
};

/* Frames that ended although they did not return: the stack of a coroutine, perhaps. */
struct parked {
	struct frame *frames; /* the outermost first */
	uint32_t n;
	uint64_t age;
};

struct setjmp_point {
	uint64_t back;
	uint32_t depth; /* of the frame that called setjmp: its index + 1 */
};

struct callstack {
	struct callstack_ops ops;
	void *arg;
	struct frame *frames;
	uint32_t n, room;
	uint32_t n_open; /* that have begun: neither pending nor hidden */
	uint64_t over; /* calls beyond the deepest frame that is kept */
	struct frame *before; /* the gap: a hypothesis */
	uint32_t n_before;
	/* Around frames[0], which is to return to the last of them: the outermost first. None has begun; a stack has named them. */
	struct frame *outer;
	uint32_t n_outer;
	enum callstack_why outer_why;
	uint32_t believed; /* so many frames, the outermost, are from before the gap, and no return has proven them */
	struct parked *parked;
	uint32_t n_parked, room_parked;
	size_t parked_bytes;
	uint64_t clock;
	struct setjmp_point setjmps[MAX_SETJMPS];
	uint32_t next_setjmp;
	bool is_new; /* nothing came before what is resumed next */
	bool hidden; /* the parent's frames: nobody has seen the child run yet */
	/* where it stopped */
	bool stopped, in_gap;
	uint64_t stop_ip, stop_back;
	struct goroutines *goroutines; /* borrowed; NULL: none */
	uint64_t go_path[MAX_GO_PATH]; /* where the goroutine went on, and what it has returned to since: those that wait so may be it */
	uint32_t n_go_path; /* 0: it is known, or cannot be known */
	bool go_never; /* the thread runs none */
	bool go_unordered, go_doubted; /* of the one that runs, since it went on */
	struct callstack_stats stats;
};

/* ---- callstack.c */

/* The frames from before the gap do not go on: it is at `ip`, and they may be around that, as before any gap. */
void cs_disprove(struct callstack *cs, uint64_t time, uint64_t ip);

/* So many frames, the outermost, are left. */
void cs_unwind_to(struct callstack *cs, uint64_t time, uint32_t keep);

/* ---- by_code.c */

/* What the code in front of a branch did to the stack, as far as that is known. */
enum callstack_slot cs_slot_before(struct callstack *cs, uint64_t from);
/*
 * Into the middle of a function that a call was in before it jumped elsewhere: that call goes on there. Unless a landing pad of
 * an outer one is there, or that function was called since.
 */
bool cs_to_origin(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, const struct callfunc *f);
/* The call on top goes on elsewhere; where that is code without names, or it has left an address of its own to return to, it may come back. */
void cs_replace_by_jump(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t to, uint64_t from, bool indirect);
/*
 * A return of an address that the code has put there is a jump. True: that is all. Else it is still to be looked at as a return, of
 * the frame on top.
 */
bool cs_is_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);

/* ---- goroutines.c */

/* Before what `f` is called for by the frame on top: the goroutine stops, perhaps, and its frames end. True: `f` is on the thread's own stack. */
bool cs_go_leave(struct callstack *cs, uint64_t time, const struct callfunc *f);
/* The frame on top jumps out of the runtime's switch. False: it does not. */
bool cs_go_on(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);
/* Out of the outermost frame of a goroutine of which it is not known which it is. True: it is, now. */
bool cs_go_outward(struct callstack *cs, uint64_t time, uint64_t to);
/* A handler has made the thread call that where it was interrupted. */
bool cs_go_injected(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip);

/* ---- frames.c */

static inline const struct callfunc *cs_function(struct callstack *cs, uint64_t ip, bool *ret_first)
{
	bool first = false;
	const struct callfunc *f = cs->ops.function(cs->arg, ip, &first);

	if (ret_first)
		*ret_first = first && f->known;
	return f;
}

static inline struct frame *cs_top(struct callstack *cs)
{
	return cs->n ? &cs->frames[cs->n - 1] : NULL;
}

/* A frame begins on top; or around everything since the stack was found, with `more` like it to follow. */
void cs_push(struct callstack *cs, uint64_t time, const struct frame *fr, enum callstack_why why);
void cs_push_outside(struct callstack *cs, uint64_t time, const struct frame *fr, uint32_t more, enum callstack_why why);
/* The topmost n end. */
void cs_pop(struct callstack *cs, uint64_t time, uint32_t n);
/* The frame on top is another function's now. */
void cs_replace(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip, uint64_t site);
/* The first frame of what is known. */
void cs_base(struct callstack *cs, uint64_t time, uint64_t ip, enum callstack_why why);
/* The last frame that was known has returned to there: so that was around it. */
void cs_caller(struct callstack *cs, uint64_t time, uint64_t ip);
/* A forked process runs: what its parent was in when it was forked, it is in. */
void cs_show(struct callstack *cs, uint64_t time);

/* ---- outer.c */

/* The frames around all others begin; nothing else is open. */
void cs_push_outer(struct callstack *cs, uint64_t time);
/* The calls have shown that they are not around. */
void cs_forget_outer(struct callstack *cs);
/* All frames inside of the one that returns to `to` end, and that; or inside of the one of function `f`, which `pad` is in. */
bool cs_return_to_outer(struct callstack *cs, uint64_t time, uint64_t to);
bool cs_unwind_to_outer(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t pad);

/* ---- parked.c */

/* These frames, the outermost first, may go on; parked[i] does not. */
void cs_park(struct callstack *cs, const struct frame *frames, uint32_t n);
void cs_park_drop(struct callstack *cs, uint32_t i);
/* The index of the frame that is the base of another stack than the thread's own, or -1. */
int64_t cs_find_base(const struct callstack *cs);
/* Another stack takes the place of the one that runs. Returns where the new base returns to. */
uint64_t cs_leave_stack(struct callstack *cs, uint64_t time);
/* A stack goes on whose innermost call returns to `to`; or else one of which another call does, without what was in that. */
bool cs_unpark_waiting(struct callstack *cs, uint64_t time, uint64_t to);
bool cs_unpark(struct callstack *cs, uint64_t time, uint64_t to);
