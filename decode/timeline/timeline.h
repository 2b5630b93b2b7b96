/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the model of what happened, from samples, switches, wake-ups and losses to slices on
 * tracks, streaming: it keeps only what is open. It must not know where events come from and
 * what the trace looks like on disk (decode/writer/writer.h).
 *
 * Events must come sorted by time (of the input's clock); an event earlier than its predecessor is
 * refused with TIMELINE_E_ORDER, counted, and changes nothing. The exception is the begin of a
 * loss.
 *
 * The rules of the picture:
 * - The stack of a sample holds until the thread's next evidence (sample, switch, wake-up by it).
 *   What two consecutive stacks share stays one slice.
 * - The first sample after a switch-in reaches back to the switch-in, if that is at most two
 *   periods ago.
 * - At a switch-out the stack of the wait is shown, with a leaf "off CPU: ..." on top. Without a
 *   stack (0), the leaf stands alone and says that the stack was not recorded. One that may come
 *   later is
 *   waited for: such a wait is drawn when it ends. A short preemption without one ends nothing that
 *   was seen of its goroutine.
 * - A thread that was declared (timeline_thread) and of which a complete recording has no event was
 *   off the CPU: its leaf stands alone, from the recording's begin or its own.
 * - Where records of some CPU are missing (timeline_incomplete, or before complete_from_ns) each
 *   thread shows "not known"; what it did before ends there, samples are moments.
 * - The stack of a program ends where the process begins another one, and the first stack of that
 *   begins there at the earliest.
 * - A waker's stack (a wake-up's) is exact for that moment only and is drawn without duration.
 * - Without switches a thread's slices end one period after its last sample once three periods
 *   pass without one. After a loss they end likewise, at the latest where the loss begins.
 * - Frames beyond the depth cap become one leaf "… N frames".
 *
 * - What goroutine a thread runs by its samples and switches (timeline_in_goroutine()) is on a
 *   track below the thread's, and an argument of the wait.
 *
 * The program's own events (decode/rings/event.h):
 * - Regions, moments and logs are on a track "regions" below their thread's, so that they need not
 *   nest with the stacks; those of a fiber on the fiber's track below the process. What fiber a
 *   thread runs is on a track "fibers" below the thread's.
 * - A region that is still open when the one around it ends has ended with it.
 * - Tasks are on lanes "tasks" below the process. Where a region or another task begins that
 *   belongs to one, a moment on its lane says so, and a flow leads from there to what begins.
 * - Other flows lead from moment to moment, each within the region that is open there.
 * - What began before anything else is known does not make the recording begin earlier.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/clockmap.h"
#include "decode/base/off_cpu.h"
#include "decode/base/stacktab.h"
#include "decode/calls/call.h"
#include "decode/rings/event.h"
#include "decode/writer/writer.h"

struct json_object;
struct timeline;

/* Positive answers of the event calls. */
enum timeline_error {
	TIMELINE_E_ORDER = 1, /* earlier than the event before; ignored, counted */
	TIMELINE_E_FULL,      /* more threads or CPUs than the limit; ignored, counted */
};

/* Who ran instead, or woke: a real tid, or one of these. */
#define TL_TID_IDLE 0u
#define TL_TID_OTHER 0xffffffffu   /* somebody of whom nothing may be said */
#define TL_TID_UNKNOWN 0xfffffffeu /* not recorded */
#define TL_CPU_UNKNOWN 0xffffffffu
#define TL_NO_FD 0xffffffffu

/* The region of the program because of which this was recorded; times are the input's. */
struct timeline_cause {
	const char *region; /* escaped; NULL: it was no region */
	uint32_t tid;	    /* 0: not known */
	uint64_t begin_ns, end_ns, over_ns;
};

struct timeline_options {
	uint64_t period_ns;	      /* of the sampling; 0 = 1 ms */
	struct clock_map *clocks;     /* borrowed; NULL: input is MONOTONIC */
	uint32_t depth_cap;	      /* 0 = 500; at most 500 */
	uint32_t max_threads;	      /* 0 = 65536 */
	bool switches;		      /* the recording has switches (of every thread) */
	/* the program was stepped: how long something took says nothing */
	bool stepped;
	/* input clock: from then on every switch is there, before not; 0 = not known */
	uint64_t complete_from_ns;
	/* shorter waits were recorded without a stack; 0: all have one */
	uint64_t wait_min_ns;
	/* window of the summary's "focus", input clock; both 0 = none */
	uint64_t focus_begin_ns;
	uint64_t focus_end_ns;
	struct timeline_cause cause; /* marked, and the focus unless there is one */
	const char *version;	      /* as in struct writer_meta */
	const char *kernel_release;
	const char *machine;
};

/* Writes the trace's head. Everything is borrowed and must outlive the timeline. */
int timeline_new(const struct timeline_options *options, struct stacktab *st, struct writer *w,
		 struct timeline **ret) _must_check_;
struct timeline *timeline_free(struct timeline *tl);
DEFINE_CLEANUP(struct timeline *, timeline_free)

/*
 * All return 0, a positive enum timeline_error, or a negative errno: out of memory, or the
 * writer's error; then it makes no sense to go on. `ts` is ns of the input's clock. Names are
 * escaped by the caller and copied.
 */

/* A process or thread is there, or has a new name. An unknown tid in an event is made up. */
int timeline_process(struct timeline *tl, uint32_t pid, uint32_t ppid, const char *name,
		     uint64_t ts);
int timeline_thread(struct timeline *tl, uint32_t pid, uint32_t tid, const char *name, uint64_t ts);
/*
 * From then on the process runs another program, or is another process with the number of one
 * before: it has other goroutines, and the stack of its first thread is another one. Time 0: not
 * known when.
 */
int timeline_program(struct timeline *tl, uint32_t pid, uint64_t ts);
/* The thread that was just made known was forked then. */
void timeline_thread_forked(struct timeline *tl, uint32_t tid);
int timeline_thread_exit(struct timeline *tl, uint32_t tid, uint64_t ts);
/* Of all threads those that have not exited yet exit. */
int timeline_exit(struct timeline *tl, uint64_t ts);

/*
 * The thread was seen running; stack 0 = seen, stack unknown. Within exact calls it is a moment of
 * them.
 */
int timeline_sample(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu, uint32_t stack);

/*
 * The sample or switch-out of the thread that follows with the same time shows it in this
 * goroutine, whose first function is `function`, or "" where that is not known. id 0: in none, or
 * it is not known in which.
 */
void timeline_in_goroutine(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t id,
			   const char *function);

/*
 * `other_name` NULL or "" if unknown; `stack` 0 if unknown, TL_STACK_LATER if it comes when the
 * wait ends (timeline_waited()) or the recording (timeline_blocked()), and not of a short wait.
 */
#define TL_STACK_LATER UINT32_MAX
int timeline_switch_out(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
			enum off_cpu state, uint32_t stack, uint32_t other_tid,
			const char *other_name);
/* Of a thread that has exited and has no number any more: see `cpu`. */
int timeline_switch_gone(struct timeline *tl, uint64_t ts, uint32_t cpu, uint32_t other_tid,
			 const char *other_name);
/*
 * The system call in which the thread waits that has just been switched out; `fd` TL_NO_FD: it is
 * given none; `kind` of file that is, NULL: not known.
 */
void timeline_wait_in(struct timeline *tl, uint32_t tid, const char *call, uint32_t fd,
		      const char *kind);
/* And for which futex: a number that tells one from another. */
void timeline_wait_for(struct timeline *tl, uint32_t tid, uint32_t futex);
/*
 * The thread is about to come back (timeline_switch_in() with the same time) from a wait of `ns`,
 * with this stack.
 */
int timeline_waited(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t ns, uint32_t stack);
int timeline_switch_in(struct timeline *tl, uint32_t tid, uint64_t ts, uint32_t cpu,
		       uint32_t other_tid, const char *other_name);
/*
 * The thread sleeps at `ts`. If its wait is on record, this is the stack. If nothing is on record
 * of it, where everything would be, it has waited there since before that: its wait is the one of
 * timeline_wait_in(), which may follow.
 */
int timeline_blocked(struct timeline *tl, uint32_t tid, uint64_t ts, enum off_cpu state,
		     uint32_t stack);

/* `cpu` is where the waker ran; `in_irq`: an interrupt woke, the waker was only interrupted. */
int timeline_wakeup(struct timeline *tl, uint32_t wakee_tid, uint64_t ts, uint32_t cpu,
		    uint32_t waker_tid, uint32_t waker_pid, const char *waker_name, bool in_irq,
		    uint32_t stack);
/* In what system call the waker of the last timeline_wakeup() of this thread was. */
void timeline_wake_in(struct timeline *tl, uint32_t wakee_tid, const char *call);

/*
 * Exact calls (Intel PT): one begins on top of the thread's others, at call->begin, and the topmost
 * ends. Whoever reports them has their stack; the timeline keeps a lane. `how` says what is special
 * about a call (a constant word such as "tail call"), NULL: nothing; `site` where in the source
 * code it is called ("job/main.c:40"), NULL: not known. Stacks of waits that are given for such a
 * thread must be what its calls are. A time that is interpolated lies between two times that the
 * recording has; the slice says so of its ends.
 */
int timeline_call(struct timeline *tl, uint32_t tid, const struct call *call, const char *how,
		  const char *site);

struct timeline_return {
	/* before the event's time: the call ended there, where what is missing began */
	uint64_t ns;
	uint64_t insns; /* executed in it and in what it called; 0: not known */
	bool interpolated;
	uint32_t caller; /* the frame of the call that is innermost then; 0: none is */
};
int timeline_return(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
		    const struct timeline_return *end);

/*
 * The thread's stack is seen in the middle from here on: nothing is open. Then, whenever nothing is
 * open again, calls that were around all since: they begin where that began (drawn a ns earlier, so
 * that they are around it), and are reported at `ts`. `more` of them follow, each inside of the one
 * before. `in_call`: there may be such callers.
 */
int timeline_resync(struct timeline *tl, uint32_t tid, uint64_t ts, bool in_call);
/* What has begun or shown itself since then and said `was` says `is`. */
int timeline_identified(struct timeline *tl, uint32_t tid, const char *was, const char *is);
int timeline_call_outside(struct timeline *tl, uint32_t tid, uint64_t ts, const struct call *call,
			  uint32_t more, const char *how);

/*
 * Something that happened on the thread: a moment on top of what it shows. `category` and the keys
 * are constants; at most TIMELINE_MAX_VALUES.
 */
#define TIMELINE_MAX_VALUES 4u
struct timeline_value {
	const char *key;
	uint64_t value;
	bool hex; /* an address, or bits */
};
int timeline_moment(struct timeline *tl, uint32_t tid, uint64_t ts, const char *category,
		    const char *name, const struct timeline_value *values, uint32_t n_values);

/*
 * The thread was not traced from here on (`why`: "system call", ...), and is again: drawn on top of
 * its frames. `until` (not after `ts`): that is why for so long, and what came then nobody knows.
 */
int timeline_untraced(struct timeline *tl, uint32_t tid, uint64_t ts, const char *why);
int timeline_traced(struct timeline *tl, uint32_t tid, uint64_t ts, uint64_t until);

/*
 * Something was lost between the two times (sorted by `ts_end`), of one thread or of all (tid 0).
 * `kind` is a short constant word such as "samples overwritten"; count 0 = not known.
 */
int timeline_loss(struct timeline *tl, uint32_t tid, uint64_t ts_begin, uint64_t ts_end,
		  const char *kind, uint64_t count);

/* The same of what a program was to tell: threads go on. */
int timeline_program_loss(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end, const char *kind,
			  uint64_t count);

/* The same where nobody knows when: a moment at the end. Called last of all; count is not 0. */
void timeline_loss_untimed(struct timeline *tl, const char *kind, uint64_t count);

/*
 * Known in advance (a CPU's ring that begins later than the others, a loss): between the two times
 * records of some CPU are missing. Nobody is drawn as running or waiting there, and nothing of it
 * is added up; a thread may have done anything where nothing was recorded. Draws no loss, that is
 * timeline_loss()'s. Call it before the first event, and not where calls are known exactly; more
 * than TIMELINE_MAX_INCOMPLETE windows grow together.
 */
#define TIMELINE_MAX_INCOMPLETE 1024u
void timeline_incomplete(struct timeline *tl, uint64_t ts_begin, uint64_t ts_end);

/*
 * From then on nothing was recorded, and `why`. What is open ends there when the timeline is
 * finished, and so does the summary's time; until the last event it is not known what happened.
 */
int timeline_suspended(struct timeline *tl, uint64_t ts, const char *why);

/* The trigger or freeze, on a track of its own and as a moment of the summary. */
int timeline_mark(struct timeline *tl, uint64_t ts, const char *name);

/* A value over time; `pid` 0: of the whole machine. */
int timeline_counter(struct timeline *tl, uint32_t pid, uint64_t ts, const char *name,
		     enum writer_unit unit, int64_t value);

/* An event of the program. Its thread should have been declared. Texts are copied. */
int timeline_event(struct timeline *tl, const struct ringevent *ev);

struct timeline_stats {
	uint64_t events, samples, switches_out, switches_in, wakeups, losses, marks, counters,
		calls;
	uint64_t calls_late;   /* that were there before: no room to let them begin there */
	uint64_t out_of_order; /* refused */
	uint64_t refused_full; /* refused: limit of threads, CPUs or tracks */
	uint64_t folded;       /* frames beyond the depth cap */
	/* switches that contradict each other: something between is missing */
	uint64_t inconsistent;
	uint64_t threads, processes;
	uint64_t regions, logs, tasks, flows, fibers; /* of programs */
	uint64_t regions_folded;     /* beyond the depth limit */
	uint64_t regions_not_nested; /* ended from outside, or without a begin */
	uint64_t first_ns, last_ns; /* MONOTONIC */
	bool cut;		    /* the output reached its limit at cut_ns */
	uint64_t cut_ns;
};
void timeline_stats(const struct timeline *tl, struct timeline_stats *ret_stats);

/*
 * Closes what is open, ends the writer and makes the summary (the caller's, json_object_put()).
 * Nothing may follow but timeline_stats() and timeline_free().
 */
int timeline_finish(struct timeline *tl, struct json_object **ret_summary) _must_check_;
