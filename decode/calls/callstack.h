/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of calls of one thread, from its branches: who called whom, and when each ended. Owns
 * the rules by which a branch is a call, a return, a tail call, an unwinding, a switch of stacks,
 * and what is believed across a gap. It must not know how branches are found and how calls are
 * drawn.
 *
 * The rules, in the order in which they are tried:
 *
 * return   of an address that the code has put on the stack, in place of that of a call within its
 *          own function (a retpoline), or
 *          on top (push and ret): it is a jump
 *          to where the innermost frame is expected to return: it ends
 *          by code that has loaded the stack pointer, to where stacks wait: see switch
 *          to where an outer frame is: everything inside of it ends, too; it may go on (parked.c)
 *          into a function that is on the stack, but not to the return address of a call: unwinding
 *          to a landing pad; of several
 *          calls of that function to the innermost whose own call has that landing pad. Else it may
 *          have been any of them. Out of a
 *          stack of which it is not known which it is: those that fit must have that landing pad
 *          to where a frame that has ended so is expected to return: that piece goes on
 *          to the return address of a remembered call of getcontext: its frame goes on
 *          out of the outermost frame that is known: the caller shows itself; or, across a gap,
 *          the frames from before the gap do, if one of them was to return there
 *          out of a signal handler to anywhere else: to the kernel's way back. What it has
 *          interrupted is like what it returns to, for a
 *          stack of which it is not known which it is
 *          to a function's first instruction: a jump made of push and ret, or a stack's begin. To
 *          code without names: such a jump
 *          to anywhere else: the frame on top is replaced, and all are in doubt, but for the one
 *          where the thread began
 * call     within a function, to where it only makes a return go elsewhere: half of such a jump,
 *          and not drawn
 *          of who is called back right behind the return of that call: the same call goes on, on a
 *          piece of stack of its own
 * jump     within a function, its cold part included, but for the next: nothing; to a retpoline:
 *          nothing yet, it is about to jump
 *          within a function that is on the stack more than once, and has just loaded the stack
 *          pointer: it may be any of these calls that
 *          goes on, and all are in doubt from the outermost on
 *          out of a PLT entry: the entry was the callee's other name
 *          to a function's first instruction: a tail call, of itself too if it is indirect; a
 *          direct one is a loop
 *          to where a frame is expected to return: as if it had returned. If that has just loaded
 *          the stack pointer, its caller has
 *          by an indirect one into the middle of another function, of a stack of which only that
 *          frame is known, and not its begin: what goes
 *          on there has no known begin either
 *          to the return address of a call of setjmp, by a frame of this stack: that goes on
 *          back into a function that the same call was in before it left that by an indirect jump,
 *          into generated code, or with
 *          an address pushed to come back to: it goes on; so by a return, too
 *          into a function that is on the stack: unwinding, unless known code jumps there directly
 *          by a direct jump to anywhere else, or into code without names: a tail call
 * switch   the stack pointer was loaded from elsewhere (callstack_loaded()), and control leaves the
 *          function, or its call goes on: the stack
 *          that runs is left, and waits (switches.c, waiting.c)
 *          to where one waits: it goes on. Where several that differ do, its callers are not known
 *          until returns have shown which it
 *          is; if it is left before, it waits as one of several
 *          into a function in which some wait, by what it has called to switch, or of which a call
 *          has been to setjmp there: likewise
 *          to where it returns to on this stack, and a call further out has gone on from there,
 *          with what is on top of it now: these are two stacks
 *          that are copied, and it may be either
 *          to a function's first instruction: a new stack begins; to anywhere else: one that nobody
 *          has seen
 * gap      all frames end where the gap begins; they stay as a hypothesis until a return
 *          proves them or none of them is left. Found in the function that was on top, or where one
 *          of them was to return to: they are
 *          taken for proven, until a return from there goes elsewhere; then they end, and are a
 *          hypothesis again
 *          what is found between two gaps, and not proven to be within what was before, is a piece
 *          of its own of the hypothesis
 * begin    a new thread or program: its first frame begins there. A forked process has its parent's
 *          frames
 * Go       runtime.mcall calls: the goroutine stops, with all its calls, and is kept for all
 *          threads of the process (goroutines.c);
 *          what was called runs on the thread's own stack. So does what yields it in place of
 *          runtime.newstack
 *          runtime.gogo jumps: what runs on the thread's own stack ends, and a goroutine goes on;
 *          one that begins, at a function's
 *          first instruction; one that waits there, as at a switch; or the same one, for
 *          runtime.newstack and runtime.recovery; or
 *          the thread ends, on its own stack (runtime.mstart0)
 *          where the runtime has told which goroutine goes on, it is that and no other, whatever
 *          else waits there
 *          no other function of the runtime (systemstack, asmcgocall, cgocallback) switches,
 *          whatever stack it works on
 *          at runtime.asyncPreempt or runtime.sigpanic, after a handler: called at the interrupted
 *          place
 * seen     a stack that was found otherwise, of a thread that is where that says: the calls must be
 *          its innermost part. The rest is
 *          around them, and is drawn when they have ended. Where it is not what they return to, it
 *          is forgotten
 * resume   where it stopped, or after the system call: nothing
 *          at a function's first instruction: a signal handler, until the interrupted place goes
 *          on. Where one has just asked to be ended, and
 *          the function has been none elsewhere: or a stack that it has gone on with
 *          a handler ends elsewhere than where it has interrupted, or another one in the same way:
 *          it may have exchanged the registers, for those
 *          of another stack. From then on each that ends may have, and all is in doubt
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/stackplace.h"
#include "decode/calls/call.h"

#define CALLSTACK_MAX_DEPTH (1u << 20)
#define CALLSTACK_FREE_DEPTH 4096u /* so deep without asking the budget */

/* What a function of Go's runtime does to stacks. */
enum callfunc_go {
	CALLFUNC_GO_NONE,
	CALLFUNC_GO_MCALL, /* leaves the goroutine's stack for the thread's own, and calls */
	CALLFUNC_GO_GOGO, /* goes on with a goroutine */
	/* on the thread's own stack: lets the same one go on, elsewhere perhaps */
	CALLFUNC_GO_SAME,
	CALLFUNC_GO_YIELD, /* likewise: lets others go on first, when called by the former */
	CALLFUNC_GO_END, /* likewise: the goroutine has ended */
	CALLFUNC_GO_BOTTOM, /* what a goroutine's first function returns to */
	CALLFUNC_GO_NEVER, /* never returns, and its thread runs no goroutine */
	CALLFUNC_GO_INJECTED, /* a handler makes its thread call it, where that was interrupted */
	/* a thread's own stack begins with it; gogo goes on there where the thread ends */
	CALLFUNC_GO_THREAD,
	/*
	 * any other of the runtime: on whatever stack it works, it returns to the goroutine that
	 * has called it
	 */
	CALLFUNC_GO_STAYS,
};

/* What the rules ask of a function. The same pointer for the same function, always. */
struct callfunc {
	uint64_t start;	 /* its user's: an address of the object */
	uint32_t id;	 /* its user's */
	bool is_plt;	 /* a stub that only goes on to the function */
	/*
	 * such a stub that stands for one instruction, an indirect branch or a return: a retpoline
	 */
	bool is_thunk;
	bool is_setjmp;	 /* what it returns to may be gone to again */
	bool is_switch;	 /* returns, or jumps, to another stack, of a coroutine */
	bool is_unnamed; /* perhaps a part of another one, of which it is not known that it is */
	bool is_part;	 /* of one of which it is not known which: it begins within its frame */
	uint8_t go;	 /* enum callfunc_go */
	bool known;	 /* false: code that is in no function */
};

enum callstack_why { /* a frame begins or ends */
	CALLSTACK_CALL,	   /* called, returned */
	CALLSTACK_TAIL,	   /* by a jump: its begin, or its predecessor's end */
	CALLSTACK_UNWOUND, /* left by unwinding, longjmp, a switch of stacks */
	CALLSTACK_FOUND,   /* was there before: seen only now */
	CALLSTACK_SIGNAL,  /* a signal handler */
	CALLSTACK_GAP,	   /* ended with what is known; or goes on after a gap */
	CALLSTACK_RESUMED, /* a parked stack goes on */
	CALLSTACK_DOUBTED, /* likewise, or another one that waited at the same place */
	CALLSTACK_GOROUTINE, /* a goroutine goes on */
	CALLSTACK_GOROUTINE_DOUBTED, /* likewise, or another one */
	CALLSTACK_SWITCHED, /* on the thread's own stack, which a goroutine has left */
	CALLSTACK_UNWOUND_DOUBTED, /* left by a panic, or another call of the same function was */
	/*
	 * the same call as before an indirect jump out of it: something has jumped or returned back
	 * into it
	 */
	CALLSTACK_BACK,
	CALLSTACK_FORKED,  /* a process was forked within it */
	CALLSTACK_SEEN,	   /* was there before: a stack says so */
	CALLSTACK_NEW_STACK, /* the first on a stack of its own */
	CALLSTACK_SEEN_CUT, /* likewise, and is not the outermost: the stack's rest is not known */
	/* a signal handler, or a stack that the handler before it has gone on with */
	CALLSTACK_SIGNAL_DOUBTED,
};

/*
 * What the straight code in front of a return or an indirect jump did to the stack, and what is on
 * top of it.
 */
enum callstack_slot {
	CALLSTACK_SLOT_PLAIN,  /* nothing that can be seen: a return is one */
	CALLSTACK_SLOT_LOADED, /* loaded the stack pointer: it may be another stack */
	CALLSTACK_SLOT_FRAME,  /* likewise, by "leave": with where its own frame begins */
	CALLSTACK_SLOT_STORED, /* wrote over it */
	CALLSTACK_SLOT_PUSHED, /* pushed it */
};

/* What the user gets of a frame. */
struct callstack_frame {
	const struct callfunc *f;
	uint64_t ip;   /* where it was entered or first seen: an address in it */
	uint64_t site; /* the branch that entered it; 0: not known */
};

/* A goroutine from where it goes on to where it stops: its runtime's numbers of both. */
struct callstack_run {
	uint64_t goroutine; /* 0: not known */
	uint64_t run;
};

struct callstack_ops {
	/* The function at an address, never NULL, and whether that is its first instruction. */
	const struct callfunc *(*function)(void *arg, uint64_t ip, bool *ret_first);
	/*
	 * Whether what is thrown out of the call around `call` is caught or cleaned up after at
	 * `pad`.
	 */
	bool (*lands)(void *arg, uint64_t call, uint64_t pad);
	/* What the code did in front of the return, or jump, at `ip`. NULL: it is not known. */
	enum callstack_slot (*slot)(void *arg, uint64_t ip);
	/*
	 * Whether the code at `ip`, which was called from its own function, is half of a retpoline.
	 * NULL: it is not known.
	 */
	bool (*is_half)(void *arg, uint64_t ip);
	/*
	 * Whether the direct jump at `from` stays in one function that is in two parts. NULL: it is
	 * not known.
	 */
	bool (*in_parts)(void *arg, uint64_t from, uint64_t to);
	/*
	 * Whether another thread of the process may have done before what is told later: its times
	 * are not exact. NULL: no.
	 */
	bool (*is_unordered)(void *arg);
	/*
	 * What the runtime itself has told of goroutines: the one that goes on on this thread next
	 * after `since` (`begins`), or that stops there. NULL: nothing.
	 */
	struct callstack_run (*goroutine)(void *arg, uint64_t since, bool begins);
	/*
	 * A frame begins on top. `call` is its user's: to be filled in now, and given back when the
	 * frame ends.
	 */
	void (*begin)(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		      enum callstack_why why);
	/*
	 * A frame appears that was around all frames since the stack was found, none of which is
	 * left. `more`: so many like it follow, each inside of the one before. NULL: begin() is
	 * called instead.
	 */
	void (*outside)(void *arg, uint64_t time, const struct callstack_frame *fr,
			struct call *call, uint32_t more, enum callstack_why why);
	/*
	 * It is known whose stack runs: frames that have begun, or appeared, since the stack was
	 * found, as CALLSTACK_FOUND, are those of one that goes on, as `why`. NULL: nobody wants to
	 * know.
	 */
	void (*identified)(void *arg, enum callstack_why why);
	/* The topmost frame ends; callstack_depth() is without it already. */
	void (*end)(void *arg, uint64_t time, struct call *call);
};

struct callstack_stats {
	uint64_t calls, returns, tails, unwound, switches, signals;
	uint64_t skipped;	/* frames that ended without their return */
	uint64_t inferred;	/* callers that showed themselves by a return */
	uint64_t adopted;	/* frames from before a gap that a return proved */
	/*
	 * stacks that have gone on and may have been others, and unwindings that may have gone
	 * further
	 */
	uint64_t doubted;
	uint64_t told;		/* goroutines that have gone on, and the runtime has told which */
	uint64_t contradicted;	/* it has told another one than the calls */
	uint64_t given_up;	/* stacks that waited: there were too many */
	uint64_t forgotten;	/* frames from before gaps: there were too many */
	uint64_t unexplained;	/* returns and jumps that no rule explains */
	uint64_t too_deep;	/* calls beyond CALLSTACK_MAX_DEPTH, or beyond the budget */
	uint64_t seen;		/* callers that a stack has named */
	uint64_t stacks_agree, stacks_disagree; /* with the calls */
	uint64_t seen_refuted;	/* returns that went elsewhere than a stack has said */
};

struct callstack;
struct waiting;
/*
 * `budget`: borrowed; what lies deeper than CALLSTACK_FREE_DEPTH is charged to it. NULL: nothing
 * does.
 */
int callstack_new(const struct callstack_ops *ops, void *arg, struct budget *budget,
		  struct callstack **ret) _must_check_;
struct callstack *callstack_free(struct callstack *cs);
DEFINE_CLEANUP(struct callstack *, callstack_free)

/* The stacks that wait are those of the process: borrowed. NULL: it never runs on another one. */
void callstack_set_waiting(struct callstack *cs, struct waiting *w);
/* False: it will never run one. */
bool callstack_runs_goroutines(const struct callstack *cs);
/*
 * Before anything else: it is the stack of a new thread or program, and begins where it is resumed
 * first.
 */
void callstack_begin(struct callstack *cs);
/*
 * Likewise: it begins as a copy of its parent's, as it is now. It is drawn when it is resumed
 * first. 0 or -ENOMEM.
 */
int callstack_fork(struct callstack *cs, const struct callstack *parent) _must_check_;
/* The bytes of a copy. */
size_t callstack_size(const struct callstack *cs);

/* A call at `from`, to return to `back`. */
void callstack_call(struct callstack *cs, uint64_t time, uint64_t from, uint64_t back, uint64_t to);
void callstack_return(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to);
/* A jump that is not known to stay in its function. */
void callstack_jump(struct callstack *cs, uint64_t time, uint64_t from, uint64_t to, bool indirect);
/*
 * The code that runs has loaded the stack pointer, from elsewhere than where the same call has kept
 * it.
 */
void callstack_loaded(struct callstack *cs);
/* Tracing stops before `ip` (`back` 0), or by the system call at `ip`, to go on at `back`. */
void callstack_stop(struct callstack *cs, uint64_t time, uint64_t ip, uint64_t back);
/* It goes on at `ip`. The first of all begins the stack. */
void callstack_resume(struct callstack *cs, uint64_t time, uint64_t ip);
/*
 * It goes on somewhere within its innermost calls, which is not where it has stopped, nor in a call
 * that is seen: as a thread does that has left the CPU in one function of the scheduler, and comes
 * back in another one. Until it is back in one of these calls nothing of it is told.
 */
void callstack_resume_within(struct callstack *cs);
/*
 * There it is, at `ip`: in the innermost call of that function, and those inside of it end. False:
 * there is no such call.
 */
bool callstack_back_in(struct callstack *cs, uint64_t time, uint64_t ip);
/* Something is missing from here on; and here is what comes after it. */
void callstack_gap(struct callstack *cs, uint64_t time);
void callstack_resync(struct callstack *cs, uint64_t time, uint64_t ip);
/*
 * The thread's stack as it is now: it is at places[0], and its calls return to the others, the
 * innermost first. `cut`: there are more. Stacks that agree and disagree are counted.
 */
enum callstack_seen {
	/* it is not there, or on another stack than its own: nothing can be said */
	CALLSTACK_ELSEWHERE,
	CALLSTACK_AGREES,
	CALLSTACK_DISAGREES,
};
enum callstack_seen callstack_seen(struct callstack *cs, uint64_t time,
				   const struct stack_place *places, uint32_t n, bool cut);
/* What it keeps of a stack of so many places takes at most so many bytes. */
size_t callstack_outer_size(uint32_t n);
/* Ends everything: exec, exit, the trace's end. */
void callstack_finish(struct callstack *cs, uint64_t time);

uint32_t callstack_depth(const struct callstack *cs);
/* Those that a stack has named and that have not begun, around all frames: the outermost is 0. */
uint32_t callstack_n_outer(const struct callstack *cs);
struct callstack_frame callstack_outer_at(const struct callstack *cs, uint32_t i);
/*
 * How many frames have begun and not ended: without entries of the PLT, and what a forked process
 * has not shown.
 */
uint32_t callstack_n_open(const struct callstack *cs);
/*
 * The call of a frame below callstack_depth(), NULL: it has not begun. Valid until the next frame
 * begins.
 */
struct call *callstack_call_at(const struct callstack *cs, uint32_t i);
/* The innermost one that has begun, its function and its frame; NULL: there is none. */
struct call *callstack_innermost(const struct callstack *cs, const struct callfunc **ret_f,
				 uint32_t *ret_i);
const struct callstack_stats *callstack_stats(const struct callstack *cs);
