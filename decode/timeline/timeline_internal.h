/* SPDX-License-Identifier: Apache-2.0 */
/* What decode/timeline*.c share; nobody else includes it. */
#pragma once

#include "common/base/hashmap.h"
#include "decode/timeline/timeline.h"
#include "decode/timeline/waits.h"
#include "decode/writer/writer.h"

enum running { RUNNING_UNKNOWN, RUNNING_ON, RUNNING_OFF };

struct tl_region {
	uint32_t name;
	bool unfinished;
	bool cut;	 /* it began before it could be drawn */
	uint64_t source; /* when it began, on the input's clock: its end says the same */
	uint64_t begin;
	uint64_t children_ns;
	uint64_t on_ns, off_ns; /* what its stack had used when it began */
};

/* The regions that are open on one stack, a thread's or a fiber's. All zero is an empty one. */
struct tl_regions {
	uint32_t track; /* 0 = not declared yet */
	uint32_t n_open, max_open;
	uint32_t hidden; /* beyond the depth limit */
	/* of a fiber: 0, it has a track of its own; TL_LANE_NONE, it needs one when it draws */
	uint32_t lane;
	struct tl_region *open;
};

struct tl_fiber {
	uint32_t pid;
	uint32_t name; /* a writer's */
	uint64_t id;
	struct tl_regions regions;
	struct tl_thread *on; /* the thread that runs it; NULL: none */
	bool goroutine;	      /* of a Go program's runtime (go_internal.h) */
	uint32_t parent_track; /* below which its regions are; 0: the process */
	uint64_t resumed;     /* since when */
	uint64_t base_on, base_off; /* what that thread had used then */
	uint64_t on_ns, off_ns;	    /* used on the threads before */
};

struct tl_thread {
	uint32_t tid, pid;
	uint32_t name; /* a writer's */
	uint32_t index;
	struct lane lane;
	struct waits waits;
	/* the wait from which it comes just now, if nothing else is on record of that; 0 */
	uint64_t waited_ns;
	uint32_t waited_stack;
	struct wait_waker waker; /* who has woken it since it last left the CPU, or came to it */
	struct wait_waker early; /* the same from before it left: it was on its way */
	enum running running;
	bool has_switches;
	bool exited;
	uint64_t closed; /* when it exited, if it did */
	bool renamed;	       /* since the track was last declared */
	/* RUNNING_UNKNOWN: from then on nothing of it was lost; 0 = not known */
	uint64_t complete_from;
	/* what it does: records are missing just now, as was said in advance */
	bool not_known;
	bool forked;	       /* and when is `born` */
	/*
	 * since when it has certainly not been seen on the CPU that it left; 0 = it is known what
	 * it does
	 */
	uint64_t left_unseen;
	uint32_t incomplete_seen; /* how many of the timeline's `incomplete` are over for it */
	uint64_t born;	       /* when it was first declared or seen; 0 = before the recording */
	uint64_t on_since;     /* RUNNING_ON: not yet accounted from here */
	/* a moment (switch-in) after which no stack was seen yet; 0 = none */
	uint64_t resumed;
	uint64_t last_sample;  /* 0 = none */
	uint32_t in_call;      /* the frame of the innermost exact call; 0: none is open */
	uint64_t in_call_since; /* not yet accounted from here */
	uint64_t untraced_at;  /* 0 = it is traced, or never was */
	uint32_t untraced_why; /* a writer's name */
	uint64_t gaps_seen;
	uint64_t on_ns, off_ns; /* accounted */
	struct tl_regions regions; /* on its own stack */
	struct tl_fiber *fiber;	   /* that it runs, NULL: its own stack */
	uint32_t fibers_track;	   /* 0 = it has run none */
	struct tl_goroutine *goroutine; /* that it runs; NULL: none */
	uint32_t goroutines_track;
	uint64_t goroutines_last; /* what is on that track is over then */
	struct {
		uint64_t id; /* the goroutine that it was last seen in; 0: none */
		uint32_t program; /* of its process; whose goroutine */
		uint64_t since;
		uint64_t at; /* the last event that shows it; 0: the last event shows none */
		uint64_t last; /* the last event that shows it, or none */
		/* what an event is said to show, and that event's time on the input's clock */
		uint64_t told, told_at;
	} seen;
	uint32_t cpu; /* where it was last seen; TL_CPU_UNKNOWN */
	uint64_t last_event;	   /* of the program; 0 = none */
};

/* Tracks of one name for what overlaps in time. */
struct tl_lanes {
	uint32_t *tracks;
	bool *busy;
	uint32_t n, max;
	uint32_t maybe_free; /* none below is */
};

struct tl_process {
	uint32_t pid, ppid;
	uint32_t name;
	uint32_t track; /* 0 = not declared yet */
	/*
	 * which one it runs: how many were known to run in it before, and in others of its number
	 */
	uint32_t program;
	bool renamed;
	struct tl_lanes tasks, fibers, goroutines, goroutine_regions;
};

/* Number -> index + 1 by open addressing; entries are replaced, never removed. */
struct tl_map {
	uint32_t *keys, *values;
	uint32_t n_slots, used;
};

struct tl_counter {
	uint32_t pid, name, track;
};

struct tl_loss_track {
	uint32_t name, track;
	uint64_t last_end;
};

/* A task of the program that is open. */
struct tl_task {
	uint64_t owner; /* tl_task_owner() */
	uint32_t pid, tid;
	uint64_t id;
	uint32_t name;
	uint32_t lane, track; /* track 0: it is free */
};

#define TL_MAX_COUNTERS 16384u
#define TL_MAX_TASKS 65536u
#define TL_MAX_FIBERS 65536u
#define TL_FIBER_TRACKS 1024u /* those after share lanes */
#define TL_MAX_LANES 1024u    /* of one process and kind */
#define TL_LANE_NONE UINT32_MAX
#define TL_REACH_PERIODS 2u /* how far back a first sample's stack is believed */
#define TL_REGION_DEPTH 500u  /* as SLICES_MAX_DEPTH */
#define TL_MAX_LOSS_TRACKS 32u
#define TL_RECENT_GAPS 256u
#define TIMELINE_MAX_CPUS 8192u

struct tl_gap {
	uint64_t begin, end;
};

struct timeline {
	struct timeline_options options;
	struct stacktab *st;
	struct writer *w;
	struct slices *slices;
	struct sched *sched;
	struct summary *summary;
	struct wait_drawer *waits;

	struct tl_thread **threads;
	uint32_t n_threads, max_threads;
	struct tl_map thread_map;
	struct tl_thread *last_found; /* by timeline_thread_find() */
	struct tl_thread **cpus; /* who was last seen on each; NULL: nobody */
	uint32_t n_cpus;
	struct tl_process *processes;
	uint32_t n_processes, max_processes;
	struct tl_map process_map;

	bool begun, finished;
	uint64_t last_source; /* input clock: the order */
	uint64_t next_flow;
	uint32_t about_track, losses_track, marks_track, not_known_track;
	struct tl_loss_track *loss_tracks;
	uint32_t n_loss_tracks;
	/* Losses that may touch every thread: each thread looks at its next event. */
	uint64_t gaps;
	struct tl_gap *incomplete; /* input clock; in order of time, not touching */
	uint32_t n_incomplete, n_passed; /* of `incomplete`, those that are over */
	bool not_known;	 /* the next one has begun */
	uint64_t suspended; /* since when nothing was recorded any more; 0: it was */
	uint32_t suspended_why; /* a writer's name */
	struct tl_gap recent_gaps[TL_RECENT_GAPS]; /* the newest, by number */
	struct tl_counter *counters;
	uint32_t n_counters, max_counters;
	struct hashmap counter_map; /* (pid, name) -> index + 1 */
	struct tl_fiber **fibers;
	uint32_t n_fibers, max_fibers;
	struct hashmap fiber_map; /* (pid, id) -> index + 1 */
	struct tl_task *tasks;
	uint32_t n_tasks, max_tasks;
	uint32_t *free_tasks; /* indexes below n_tasks, max_tasks of them have room */
	uint32_t n_free_tasks;
	struct hashmap task_map; /* (owner, id) -> index + 1 */
	struct timeline_go *go;	 /* programs' execution traces, a list */
	/* of goroutines that were only seen: (program and pid, id) -> a writer's name */
	struct hashmap seen_names;
	bool seen;	/* an event that is no early begin */
	bool entering_early;
	bool slow_begun, slow_ended; /* the cause, on the marks' track */
	uint32_t focus_thread; /* index + 1 of the cause's thread */
	struct tl_event_names *event_names;
	uint32_t wakes_category, wakes_prefix, key_wakee, key_count, key_how, key_site, key_insns,
		key_interpolated, interpolated[3], untraced_category, loss_category, gap_name,
		not_known_name, sample_category, mark_category;
	struct timeline_stats stats;
};

/*
 * Begin and end of an event call. Enter checks the order, converts the time, and writes the head
 * before the first event; leave returns the writer's error and winds up when the output is cut.
 */
int timeline_enter(struct timeline *tl, uint64_t ts, uint64_t *ret_mono);
/* What is open ends on paper: the output is full. */
void timeline_wind_up(struct timeline *tl);
static inline int timeline_leave(struct timeline *tl)
{
	if (writer_is_cut(tl->w) && !tl->stats.cut)
		timeline_wind_up(tl);
	return writer_error(tl->w);
}

uint64_t timeline_monotonic(struct timeline *tl, uint64_t ts);

/* The time counts as spent on or off the CPU. 0 or -ENOMEM. */
int timeline_account_on(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to);
int timeline_account_off(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to);
/* What the thread has used until now; true if switches are recorded, so that it means something. */
bool timeline_thread_used(const struct timeline *tl, const struct tl_thread *t, uint64_t mono,
			  uint64_t *ret_on, uint64_t *ret_off);

/*
 * The thread runs another program from now on: nothing of its stack is left, and nothing is known
 * of the new one yet. 0 or -ENOMEM.
 */
int timeline_thread_executes(struct timeline *tl, struct tl_thread *t, uint64_t mono);

/* Ends what is not known of a thread that has left the CPU unseen: it is seen again, or ends. */
void timeline_thread_seen_again(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* Draws a wait that is held back and whose stack is known. 0 or -ENOMEM. */
int timeline_wait_show(struct timeline *tl, struct tl_thread *t);
/* Who exits does so itself, on a CPU: if it was away, its way back was not recorded. */
int timeline_thread_exits(struct timeline *tl, struct tl_thread *t, uint64_t mono);

/* At the end: a thread that never came to the CPU while all of it was recorded. */
void timeline_thread_wait_throughout(struct timeline *tl, struct tl_thread *t, uint64_t mono);

/*
 * In decode/timeline/incomplete.c: the time is `ts` now (input clock). Before any event's own work.
 */
void timeline_incomplete_pass(struct timeline *tl, uint64_t ts);

static inline void timeline_incomplete_until(struct timeline *tl, uint64_t ts)
{
	if (tl->n_passed < tl->n_incomplete)
		timeline_incomplete_pass(tl, ts);
}
/* The recording is over: what is left of it, and the summary's part. */
void timeline_incomplete_finish(struct timeline *tl);
/* The same for a thread, before its event, and at the end. 0 or -ENOMEM. */
int timeline_thread_incomplete(struct timeline *tl, struct tl_thread *t);
/* Whether all of [from, to) is incomplete; whether any of it is (input clock). */
bool timeline_is_incomplete(const struct timeline *tl, uint64_t from, uint64_t to);
bool timeline_has_incomplete(const struct timeline *tl, uint64_t from, uint64_t to);
/*
 * The thread shows that nothing is known of it in between, but, unless it is NULL, how a wait began
 * there.
 */
void timeline_not_known(struct timeline *tl, struct tl_thread *t, uint64_t from, uint64_t to,
			const struct wait *left);
/* A sample where no more than that moment is known. */
void timeline_sample_alone(struct timeline *tl, struct tl_thread *t, uint64_t mono, uint32_t stack);

/*
 * From `mono` on it is not known what the thread does: what is open ends, at the latest there. 0 or
 * -ENOMEM.
 */
int timeline_thread_unknown(struct timeline *tl, struct tl_thread *t, uint64_t mono);

/* NULL if the thread is not known. Most events are of the thread that the one before was of. */
struct tl_thread *timeline_thread_look_up(struct timeline *tl, uint32_t tid);
static inline struct tl_thread *timeline_thread_find(struct timeline *tl, uint32_t tid)
{
	return tl->last_found && tl->last_found->tid == tid ? tl->last_found
							    : timeline_thread_look_up(tl, tid);
}

/* Declares the thread's track, if it was not or has a new name; closes what is open on it. */
void timeline_thread_declare_now(struct timeline *tl, struct tl_thread *t, uint64_t mono);
static inline void timeline_thread_declare(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	if (!t->lane.track || t->renamed)
		timeline_thread_declare_now(tl, t, mono);
}
void timeline_thread_close(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* The losses that the thread has not seen yet. 0 or -ENOMEM. */
int timeline_thread_see_gaps(struct timeline *tl, struct tl_thread *t);
/* The thread that an event is about, with its track; made up if it was never declared. */
int timeline_thread_enter(struct timeline *tl, uint32_t tid, uint64_t mono, struct tl_thread **ret);
/* The same where its process is known. */
int timeline_thread_enter_of(struct timeline *tl, uint32_t pid, uint32_t tid, uint64_t mono,
			     struct tl_thread **ret);

/* NULL if the process is not known. Valid until another one is made. */
struct tl_process *timeline_process_find(const struct timeline *tl, uint32_t pid);
/* The track of the process, declared now if it was not; 0 if there is no room for it. */
uint32_t timeline_process_track(struct timeline *tl, uint32_t pid, uint64_t mono);
/* The process, its track declared; NULL likewise. Valid until another process is made. */
struct tl_process *timeline_process_enter(struct timeline *tl, uint32_t pid, uint64_t mono);

/*
 * Records were lost, perhaps of this thread: its slices end where the evidence does, at the latest
 * where the loss begins. After a long one nothing is known of it until its next event. 0 or
 * -ENOMEM.
 */
int timeline_thread_gap(struct timeline *tl, struct tl_thread *t, const struct tl_gap *gap);

static inline struct wait_who timeline_who(const struct tl_thread *t)
{
	return (struct wait_who){.tid = t->tid, .name = t->name, .index = t->index};
}

static inline struct sched_task timeline_task(const struct tl_thread *t)
{
	return (struct sched_task){.tid = t->tid, .name = t->name};
}

/* In decode/timeline/marks.c: declares the tracks that are no thread's, says what is written. */
int timeline_marks_begin(struct timeline *tl, uint64_t mono);
void timeline_marks_free(struct timeline *tl);
void timeline_mark_cut(struct timeline *tl, uint64_t mono);
/* A loss among the losses; times are MONOTONIC. */
void timeline_loss_draw(struct timeline *tl, uint32_t tid, uint64_t begin, uint64_t end,
			const char *kind, uint64_t count);
/* The track of a counter, declared now if it was not. 0, TIMELINE_E_FULL or -ENOMEM. */
int timeline_counter_track(struct timeline *tl, uint32_t pid, uint64_t mono, const char *name,
			   enum writer_unit unit, uint32_t *ret_track);

/* The track of the marks, declared now if it was not; and a mark on it. */
uint32_t timeline_marks_track(struct timeline *tl);
void timeline_mark_draw(struct timeline *tl, uint64_t mono, const char *name);

/* The cause's marks whose time has come, before what happens at `ts` (input clock). */
void timeline_cause_pass(struct timeline *tl, uint64_t ts);

static inline void timeline_cause_until(struct timeline *tl, uint64_t ts)
{
	if (tl->options.cause.region && !tl->slow_ended)
		timeline_cause_pass(tl, ts);
}

/* ---- events of the program */

/* The names that events use over and over; numbers of the writer. */
struct tl_event_names {
	uint32_t region, instant, log, task, fiber, flow, trigger, loss; /* categories */
	uint32_t key_task, key_task_id, key_tid, key_ended_by, key_fiber, key_level, key_format,
		key_id, key_parent, key_note, key_ns, key_over, key_count;
	uint32_t levels[4];
	uint32_t note_open, note_closed, note_early, deeper;
};

/* The arguments of an event, with room for texts that must be copied. */
struct tl_args {
	struct writer_arg a[WRITER_MAX_ARGS];
	uint32_t n;
	size_t used;
	char texts[8192];
};

void tl_args_event(struct timeline *tl, struct tl_args *a, const struct ringevent *ev);
void tl_args_uint(struct tl_args *a, uint32_t key, uint64_t value);
void tl_args_name(struct tl_args *a, uint32_t key, uint32_t name);
/* The task that the event is a part of, by name if it is open. */
void tl_args_task(struct timeline *tl, struct tl_args *a, const struct ringevent *ev);

/* Where an event is drawn. */
struct tl_place {
	struct tl_thread *thread;
	struct tl_fiber *fiber; /* NULL: on the thread's own stack */
	struct tl_regions *regions;
	uint64_t mono;
};

/* In decode/timeline/regions.c. */
int tl_region_begin(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev);
int tl_region_end(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev);
void tl_region_instant(struct timeline *tl, const struct tl_place *at,
		       const struct writer_event *ev);
/* Ends all of them. */
void tl_regions_close(struct timeline *tl, struct tl_regions *r, uint64_t mono, uint32_t note);
/* Ends on paper what is open. */
void tl_regions_cut(struct timeline *tl, const struct tl_regions *r, uint64_t mono);

/* In decode/timeline/fibers.c. The thread runs that fiber's stack (0: its own) from now on. */
int tl_fiber_switch(struct timeline *tl, struct tl_thread *t, uint32_t pid, uint64_t id,
		    const char *name, uint64_t mono);
int tl_fiber_find(struct timeline *tl, uint32_t pid, uint64_t id, const char *name,
		  struct tl_fiber **ret);
void tl_fiber_used(const struct timeline *tl, const struct tl_fiber *f, uint64_t mono,
		   uint64_t *ret_on, uint64_t *ret_off);
/* Before the fiber's regions are drawn on, and after. */
int tl_fiber_track(struct timeline *tl, struct tl_fiber *f, uint64_t mono);
void tl_fiber_release(struct timeline *tl, struct tl_fiber *f);
/* It runs on the thread from now on, and no more. */
void tl_fiber_run(const struct timeline *tl, struct tl_fiber *f, struct tl_thread *t,
		  uint64_t mono);
void tl_fiber_stop(const struct timeline *tl, struct tl_fiber *f, uint64_t mono);
/* The thread ends: it runs nothing any more. */
void tl_fiber_leave(struct timeline *tl, struct tl_thread *t, uint64_t mono);
void tl_fibers_free(struct timeline *tl);

/* In decode/timeline/async.c. */
int tl_task_begin(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev);
int tl_task_end(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev);
/* A program's tasks and those of its runtime have numbers of their own. */
uint64_t tl_task_owner(const struct ringevent *ev);
/* 0: it is not open */
uint32_t tl_task_name(const struct timeline *tl, uint64_t owner, uint64_t id);
void tl_tasks_close(struct timeline *tl, uint64_t mono);
void tl_tasks_cut(struct timeline *tl, uint64_t mono);
void tl_tasks_free(struct timeline *tl);
/*
 * Something named `part` that belongs to the task begins: a moment on the task's lane, and the flow
 * that leads from there to it. 0 if the task is not open.
 */
uint64_t tl_task_part(struct timeline *tl, uint64_t owner, uint64_t id, uint32_t part,
		      uint64_t mono);
/* One number in the whole trace for a flow's id in a process. */
uint64_t tl_flow_number(uint32_t pid, uint64_t id);
/* A free lane, with its track; false if there is none. */
bool tl_lane_take(struct timeline *tl, struct tl_lanes *l, uint32_t parent, const char *name,
		  uint32_t *ret_lane, uint32_t *ret_track);
void tl_lane_give(struct tl_lanes *l, uint32_t lane);

/* In decode/timeline/go*.c: the thread that runs a goroutine leaves the CPU, comes back, ends. */
void tl_goroutine_off_cpu(struct timeline *tl, const struct tl_thread *t, uint64_t mono,
			  enum off_cpu state, struct sched_task other);
void tl_goroutine_on_cpu(struct timeline *tl, const struct tl_thread *t, uint64_t mono);
/* The longest time since then in which the goroutine did not run; ns 0: none is known. */
struct summary_pause tl_goroutine_pause(const struct timeline *tl, const struct tl_fiber *f,
					uint64_t since);
void tl_goroutine_thread_ends(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* In decode/timeline/go_seen.c: an event of the thread, which shows what it was said to. */
void tl_seen(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* What the thread runs is not known any more, or the output ends. */
void tl_seen_end(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* What is open when the recording ends, and when the output is cut. */
void tl_go_close(struct timeline *tl);
void tl_go_cut(struct timeline *tl, uint64_t mono);
void tl_go_free(struct timeline *tl);

/* In decode/timeline/events.c: what is open when the recording ends, and when the output is cut. */
int tl_events_begin(struct timeline *tl);
void tl_events_close(struct timeline *tl, uint64_t mono);
void tl_events_cut(struct timeline *tl, uint64_t mono);
void tl_events_free(struct timeline *tl);
