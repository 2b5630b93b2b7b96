/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the stack of calls: callstack.c has the rules, by_code.c those that go by what code
 * does to the stack, switches.c those of several stacks, goroutines.c those of Go's runtime,
 * frames.c the frames that they move, waiting.c the stacks that do not run, parked.c pieces that
 * have ended and may go on, outer.c the frames around all, of which only a stack tells.
 */
#pragma once

#include "decode/calls/callstack.h"
#include "decode/calls/waiting.h"

/*
 * What may go on, of one thread: pieces of a stack that ended without a return. The oldest are
 * given up first.
 */
#define MAX_PARKED_PIECES 64u
#define MAX_PARKED_DEPTH 256u
/* Of one call: the last of those where it has called setjmp. */
#define MAX_POINTS 2u
#define MAX_SETJMPS 64u
/*
 * From before gaps: the first piece and the last one, and of those between as many as make no more
 * frames.
 */
#define MAX_BEFORE 1024u
/* What switches stacks has so many frames, with its caller. */
#define SWITCH_DEPTH 4u
/*
 * So far out a call is looked for on top of which a stack of its own has begun: some do that at
 * each switch.
 */
#define MAX_SPLIT_DEPTH 1024u
/* A stack that is one of several: so many returns are kept that show which. */
#define MAX_PATH 64u

struct frame {
	uint64_t back; /* where it returns to; 0: not known */
	const struct callfunc *f;
	uint64_t ip;	 /* an address in it */
	/* it has left it by an indirect jump, and may come back; NULL: none */
	const struct callfunc *origin;
	/* it has gone on in that, which is a part of it, or code that is shared; NULL: none */
	const struct callfunc *part;
	uint64_t resume; /* of a signal handler: what it interrupted; else 0 */
	bool pending;	 /* a PLT entry: it begins when it is known who it stands for */
	bool tail;	 /* by a jump */
	bool is_signal;
	/* it has loaded the stack pointer: it returns, or jumps, on another stack perhaps */
	bool loaded;
	bool called;	 /* and has called something since */
	/* called within its own function: half of a jump by push and ret, perhaps */
	bool inner;
	bool half;	 /* so it is, by its code: no call */
	/*
	 * called back by what its caller, of the same function, has called: it is the same call,
	 * see cs_is_same_call()
	 */
	bool same;
	bool begins;	 /* the thread began here: nothing is around it */
	/*
	 * a stack of its own began here: nothing is around it but what has set that up, as
	 * runtime.goexit
	 */
	bool first;
	bool seen;	 /* a stack has named it, no branch */
	bool cut;	 /* there are more around it, which that stack has not named */
	/* it was a signal handler, of which it is not known what it has interrupted */
	bool handled;
	/*
	 * a signal handler that began where another one had asked to be ended: a stack of its own,
	 * perhaps
	 */
	bool in_place;
	/*
	 * in `before`: what stands before it is from an earlier gap, and it is not proven that it
	 * is around it
	 */
	bool apart;
	bool more_points; /* than are kept */
	uint64_t points[MAX_POINTS]; /* where its calls of setjmp return to; 0: none */
	/*
	 * bits of where calls have returned to that did not load the stack pointer, see
	 * cs_return_bit()
	 */
	uint64_t returned;
	uint64_t site;
	/* the last member: the user's, from begin() to end(), and nothing before */
	struct call call;
};

/* Frames that ended although they did not return: the stack of a coroutine, perhaps. */
struct parked {
	struct frame *frames; /* the outermost first */
	uint32_t n;
	uint64_t age;
};

/* Where a stack has gone on, and what it has returned to since: those that wait so may be it. */
struct way {
	/*
	 * NULL: to path[0]; else within this function, who knows where: path[0] is the first return
	 * after that
	 */
	const struct callfunc *in;
	/*
	 * and there one of its calls has been to setjmp, which returns again; 0: nobody knows one
	 * there
	 */
	uint64_t point;
	uint64_t path[MAX_PATH]; /* behind a signal handler: what it has interrupted */
	bool pads[MAX_PATH]; /* an exception landed there */
	uint32_t n; /* of path */
};

static inline bool way_is_open(const struct way *w)
{
	return w->n || w->in;
}

static inline void way_add(struct way *w, uint64_t to, bool is_pad)
{
	w->pads[w->n] = is_pad;
	w->path[w->n++] = to;
}

static inline void way_close(struct way *w)
{
	w->in = NULL;
	w->point = 0;
	w->n = 0;
}

/*
 * Stacks that are the same from end to end, and wait: it makes no difference which of them goes on.
 */
struct waiting_stack {
	/* the outermost first. The innermost has switched, and returns to where they wait */
	struct frame *frames;
	/*
	 * of the last time that it ran: what is around is that of one that fits. NULL: it is known
	 * whose frames these are
	 */
	struct way *way;
	uint32_t n;
	uint64_t count;
	const struct callstack *owner; /* a thread's own stack: it goes on there. NULL: anywhere */
	const struct callstack *left_by; /* NULL: several, or nobody that is known */
	bool doubted; /* it may have been another one's */
	bool is_goroutine;
	struct callstack_run run; /* that has ended here, as the runtime has told */
	struct waiting_stack **here; /* what points to it among those that wait there */
	struct waiting_stack *next_here, *older, *younger; /* of the pool */
};

struct callstack {
	struct callstack_ops ops;
	void *arg;
	struct frame *frames;
	uint32_t n, room;
	struct budget *budget; /* borrowed; may be NULL */
	/* frames beyond CALLSTACK_FREE_DEPTH that there is room for */
	size_t charged, charged_before;
	uint32_t n_open; /* that have begun: neither pending nor hidden */
	uint64_t over; /* calls beyond the deepest frame that is kept */
	/*
	 * Gaps: a hypothesis. The outermost first, in pieces of which each lies between two gaps,
	 * see frame.apart.
	 */
	struct frame *before;
	uint32_t n_before;
	/*
	 * Around frames[0], which is to return to the last of them: the outermost first. None has
	 * begun; a stack has named them.
	 */
	struct frame *outer;
	uint32_t n_outer;
	enum callstack_why outer_why;
	/* so many frames, the outermost, are from before the gap, and no return has proven them */
	uint32_t believed;
	struct parked *parked;
	uint32_t n_parked;
	uint64_t clock;
	uint64_t points[MAX_SETJMPS]; /* of frame.points, the last of all calls */
	uint32_t next_point;
	bool is_new; /* nothing came before what is resumed next */
	bool hidden; /* the parent's frames: nobody has seen the child run yet */
	/* where it stopped */
	bool stopped, in_gap;
	uint64_t stop_ip, stop_back;
	struct waiting *waiting; /* borrowed; NULL: it runs on one stack */
	struct way way;	 /* of the stack that runs; way_is_open(): it is one of several that fit */
	bool is_own;	 /* it is the thread's own stack */
	bool unordered, doubted; /* of the stack that runs, since it went on */
	bool go_never;	 /* the thread runs no goroutine */
	struct callstack_run run; /* of the stack that runs, as the runtime has told */
	/*
	 * What the runtime tells next is of after these; 0: not known. Times may be later than what
	 * they are of, so they are those of the switch before, where the runtime has told of that.
	 */
	uint64_t left_at; /* a goroutine was left last, or the thread began */
	uint64_t stops_after, goes_on_after;
	struct callstack_stats stats;
};

/*
 * Room for so many frames was asked for: whether the budget has it. *charged: what was taken
 * before.
 */
bool cs_charge(struct callstack *cs, size_t *charged, size_t n);
void cs_uncharge(struct callstack *cs);

/* ---- callstack.c */

/*
 * The frames from before the gap do not go on: it is at `ip`, and they may be around that, as
 * before any gap.
 */
void cs_disprove(struct callstack *cs, uint64_t time, uint64_t ip);

/* So many frames, the outermost, are left. */
void cs_unwind_to(struct callstack *cs, uint64_t time, uint32_t keep);
/* They were unwound to the frame on top, or to one further out: down to the one with that index. */
void cs_doubt(struct callstack *cs, uint64_t time, uint32_t from);

/* ---- gaps.c */

/* The first frame of a piece of what was before gaps. */
uint32_t cs_piece_of(const struct callstack *cs, uint32_t i);

/* ---- by_code.c */

/* What the code in front of a branch did to the stack, as far as that is known. */
enum callstack_slot cs_slot_before(struct callstack *cs, uint64_t from);

static inline bool cs_slot_loads(enum callstack_slot slot)
{
	return slot == CALLSTACK_SLOT_LOADED || slot == CALLSTACK_SLOT_FRAME;
}

/*
 * Into the middle of a function that a call was in before it jumped elsewhere: that call goes on
 * there. Unless a landing pad of an outer one is there, or that function was called since.
 */
bool cs_to_origin(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
		  const struct callfunc *f);
/*
 * The call on top goes on elsewhere; where that is code without names, or it has left an address of
 * its own to return to, it may come back.
 */
void cs_replace_by_jump(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t to,
			uint64_t from, bool indirect);
/*
 * A return of an address that the code has put there is a jump. True: that is all. Else it is still
 * to be looked at as a return, of the frame on top.
 */
bool cs_is_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);

/*
 * The frame on top calls its caller back, right behind the return that it would have returned to:
 * on a piece of a stack that it has made for the rest of that call (-fsplit-stack).
 */
bool cs_is_same_call(const struct callstack *cs, uint64_t to, const struct callfunc *f);

/* ---- goroutines.c */

/*
 * Before what `f` is called for by the frame on top: the goroutine stops, perhaps, and its frames
 * end. True: `f` is on the thread's own stack.
 */
bool cs_go_leave(struct callstack *cs, uint64_t time, const struct callfunc *f);
/* The frame on top jumps out of the runtime's switch. False: it does not. */
bool cs_go_on(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);
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

/* One of 64, by a hash of the address. */
static inline uint64_t cs_return_bit(uint64_t to)
{
	return 1ull << ((to * 0x9e3779b97f4a7c15ull) >> 58);
}

/* Whether it has been to setjmp there, as far as that is known. */
static inline bool cs_has_point(const struct frame *fr, uint64_t to)
{
	for (uint32_t i = 0; i < MAX_POINTS; i++)
		if (fr->points[i] == to)
			return true;
	return false;
}

static inline bool cs_is_in(const struct frame *fr, const struct callfunc *f)
{
	return fr->f == f || fr->part == f;
}

static inline struct frame *cs_top(struct callstack *cs)
{
	return cs->n ? &cs->frames[cs->n - 1] : NULL;
}

/* Whether an exception that leaves the frame lands at `pad`, in its caller. */
static inline bool cs_lands(struct callstack *cs, const struct frame *callee, uint64_t pad)
{
	return callee->back && cs->ops.lands(cs->arg, callee->back - 1, pad);
}

/*
 * Room for one more on top, to be filled in, and then begun unless it is pending. NULL: it is too
 * deep, and counted as that.
 */
struct frame *cs_add(struct callstack *cs);
void cs_begin(struct callstack *cs, uint64_t time, struct frame *fr, enum callstack_why why);
/* All frames end, and what the runtime has told of them. */
void cs_drop(struct callstack *cs, uint64_t time);
/*
 * A frame begins on top; or around everything since the stack was found, with `more` like it to
 * follow.
 */
void cs_push(struct callstack *cs, uint64_t time, const struct frame *fr, enum callstack_why why);
void cs_push_outside(struct callstack *cs, uint64_t time, const struct frame *fr, uint32_t more,
		     enum callstack_why why);
/* The topmost n end. */
void cs_pop(struct callstack *cs, uint64_t time, uint32_t n);
/* The frame on top is another function's now. */
void cs_replace(struct callstack *cs, uint64_t time, const struct callfunc *f, uint64_t ip,
		uint64_t site);
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
/*
 * All frames inside of the one that returns to `to` end, and that; or inside of the one of function
 * `f`, which `pad` is in.
 */
bool cs_return_to_outer(struct callstack *cs, uint64_t time, uint64_t to);
bool cs_unwind_to_outer(struct callstack *cs, uint64_t time, const struct callfunc *f,
			uint64_t pad);

/* ---- parked.c */

/* These frames, the outermost first, may go on. */
void cs_park(struct callstack *cs, const struct frame *frames, uint32_t n);
void cs_park_drop(struct callstack *cs, uint32_t i);
/* A piece of which a call returns to `to` goes on, without what was in that. */
bool cs_unpark(struct callstack *cs, uint64_t time, uint64_t to);

/* ---- switches.c */

/* The frame on top may return or jump to another stack. Asked at each call and return. */
static inline bool cs_is_switching(const struct callstack *cs)
{
	const struct frame *top = cs->n ? &cs->frames[cs->n - 1] : NULL;

	return cs->waiting && top && !cs->over && (top->loaded || top->f->is_switch) &&
	       top->f->go == CALLFUNC_GO_NONE;
}

/* And has called nothing since: what begins now, or has not been seen, may be another stack. */
static inline bool cs_has_just_switched(const struct callstack *cs)
{
	return cs_is_switching(cs) && !cs->frames[cs->n - 1].called;
}

bool cs_try_switch(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);
bool cs_try_switch_inlined(struct callstack *cs, uint64_t time, uint64_t ip);

/*
 * It does, from `from` to `to`: a stack goes on that waits there. False: it stays on its stack, or
 * unwinds it, or another one begins.
 */
static inline bool cs_switch(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to)
{
	return cs_is_switching(cs) && cs_try_switch(cs, time, from, to);
}

/* Likewise, and goes on in the same function, of which a copy of the code that switches is part. */
static inline bool cs_switch_inlined(struct callstack *cs, uint64_t time, uint64_t ip)
{
	return cs_has_just_switched(cs) && cs->frames[cs->n - 1].loaded &&
	       cs_try_switch_inlined(cs, time, ip);
}

/* No other rule knows what is there: it is a stack that nobody has seen. */
void cs_switch_unknown(struct callstack *cs, uint64_t time, uint64_t to);
void cs_switch_new(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to,
		   const struct callfunc *f);

/* The stack that runs is left: its `keep` outermost frames wait, and all frames end. */
void cs_stack_leave(struct callstack *cs, uint64_t time, uint32_t keep, bool go);
/* Nothing runs: all frames end, and those around them. */
void cs_stack_end(struct callstack *cs, uint64_t time);
/*
 * One goes on that waits at `to`; `in`: or within that function, at `to` now, where a call of it
 * has been to setjmp, if any has.
 */
void cs_stack_resume(struct callstack *cs, uint64_t time, uint64_t to, const struct callfunc *in);
/*
 * The runtime has told which goes on, and it waits there. False: it has not, or that was not seen
 * to stop there.
 */
bool cs_stack_told(struct callstack *cs, uint64_t time, uint64_t to);
/* Out of the outermost frame of a stack of which it is not known which it is. True: it is, now. */
bool cs_stack_outward(struct callstack *cs, uint64_t time, uint64_t to);
/*
 * Likewise, an exception that lands at `to`, outside of all frames that are known. False: that is
 * no landing pad of one that fits.
 */
bool cs_stack_unwound(struct callstack *cs, uint64_t time, uint64_t to);
/* Likewise, whether that would be one of those. */
bool cs_stack_unwinds(struct callstack *cs, uint64_t to);
/*
 * Out of its outermost frame that is known, which may be a signal handler, to the kernel's way
 * back.
 */
bool cs_stack_may_be_handler(struct callstack *cs, uint64_t to);

/* ---- waiting.c */

/* Where it waits. */
static inline uint64_t waiting_at(const struct waiting_stack *s)
{
	return s->frames[s->n - 1].back;
}

void waiting_stack_fini(struct waiting_stack *s);
bool waiting_is_complete(const struct waiting *w);
/*
 * What the runtime has told was not what the calls showed: whatever it tells from now on may be of
 * another switch.
 */
void waiting_contradict(struct waiting *w);
bool waiting_is_contradicted(const struct waiting *w);
/* Takes what is in *s; false: it is given up. */
bool waiting_put(struct waiting *w, struct waiting_stack *s) _must_check_;
/* One of them is not there any more; the frames may be freed with it. */
void waiting_take(struct waiting *w, struct waiting_stack *s, const struct callstack *by);
/*
 * The stack that the goroutine has left at the end of that run, NULL: it is not there, or has gone
 * on since.
 */
struct waiting_stack *waiting_of_goroutine(struct waiting *w, struct callstack_run run);
/* How many differ that fit, and one of these. */
uint32_t waiting_find(struct callstack *cs, const struct way *way, struct waiting_stack **ret);
/*
 * So many of its frames, the outermost, have not returned on that way; 0: or others, around them.
 */
uint32_t waiting_depth(struct callstack *cs, const struct waiting_stack *s, const struct way *way);
/* So many of its frames, the outermost, were there when it went on in the one that fits. */
uint32_t waiting_known(struct callstack *cs, const struct waiting_stack *s, const struct way *way);
/*
 * Whether one of those that fit is in a frame then that is known; `handler`: of a signal handler.
 */
bool waiting_has(struct callstack *cs, const struct way *way, bool handler);
/* Functions that are signal handlers for certain. Too many of them are none. */
void waiting_add_handler(struct waiting *w, const struct callfunc *f);
bool waiting_has_handler(const struct waiting *w, const struct callfunc *f);
/* A signal handler has gone on with another stack than the one it had interrupted, or may have. */
void waiting_exchange(struct waiting *w);
bool waiting_exchanges(const struct waiting *w);
/* Whether any stack has ever waited. */
bool waiting_was_used(const struct waiting *w);
/* Whether a call of `f` that waits, or has called who waits, has been to setjmp there. */
bool waiting_has_point(struct callstack *cs, const struct callfunc *f, uint64_t to);
/* Whether stacks of this process go on on other threads than those that have left them. */
bool waiting_moves(const struct waiting *w);
/*
 * A process was forked, by a thread: its stacks are those of its parent, but for those of the
 * parent's other threads.
 */
void waiting_fork(struct waiting *w, const struct callstack *mine, const struct waiting *parent,
		  const struct callstack *theirs);
/* The thread has ended. */
void waiting_forget(struct waiting *w, const struct callstack *cs);
