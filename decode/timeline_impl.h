/* SPDX-License-Identifier: Apache-2.0 */
/* What decode/timeline*.c share; nobody else includes it. */
#pragma once

#include "decode/timeline.h"
#include "decode/waits.h"
#include "decode/writer_impl.h"

enum running { RUNNING_UNKNOWN, RUNNING_ON, RUNNING_OFF };

struct tl_thread {
	uint32_t tid, pid;
	uint32_t name; /* a writer's */
	uint32_t index;
	struct lane lane;
	struct waits waits;
	struct wait_waker waker; /* who has woken it since it last left the CPU */
	enum running running;
	bool has_switches;
	bool exited;
	bool renamed;	       /* since the track was last declared */
	uint64_t complete_from; /* RUNNING_UNKNOWN: from then on nothing of it was lost; 0 = not known */
	uint64_t born;	       /* when it was first told or seen; 0 = before the recording */
	uint64_t on_since;     /* RUNNING_ON: not yet accounted from here */
	uint64_t resumed;      /* a moment (switch-in) after which no stack was seen yet; 0 = none */
	uint64_t last_sample;  /* 0 = none */
	uint64_t gaps_seen;
};

struct tl_process {
	uint32_t pid, ppid;
	uint32_t name;
	uint32_t track; /* 0 = not declared yet */
	bool renamed;
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

#define TL_MAX_COUNTERS 4096u
#define TL_MAX_LOSS_TRACKS 32u
#define TL_RECENT_GAPS 256u

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
	struct tl_process *processes;
	uint32_t n_processes, max_processes;
	struct tl_map process_map;

	bool begun, finished;
	uint64_t last_source; /* input clock: the order */
	uint64_t next_flow;
	uint32_t about_track, losses_track, marks_track;
	struct tl_loss_track *loss_tracks;
	uint32_t n_loss_tracks;
	/* Losses that may touch every thread: each thread looks at its next event. */
	uint64_t gaps;
	struct tl_gap incomplete[TIMELINE_MAX_INCOMPLETE]; /* input clock */
	uint32_t n_incomplete;
	struct tl_gap recent_gaps[TL_RECENT_GAPS]; /* the newest, by number */
	struct tl_counter *counters;
	uint32_t n_counters;
	uint32_t wakes_category, wakes_prefix, key_wakee, key_count, loss_category, gap_name, mark_category;
	struct timeline_stats stats;
};

/*
 * Begin and end of an event call. Enter checks the order, converts the time, and writes the head
 * before the first event; leave returns the writer's error and winds up when the output is cut.
 */
int timeline_enter(struct timeline *tl, uint64_t ts, uint64_t *ret_mono);
int timeline_leave(struct timeline *tl);

uint64_t timeline_monotonic(struct timeline *tl, uint64_t ts);

/* NULL if the thread is not known. */
struct tl_thread *timeline_thread_find(struct timeline *tl, uint32_t tid);

/* Declares the thread's track, if it was not or has a new name; closes what is open on it. */
void timeline_thread_declare(struct timeline *tl, struct tl_thread *t, uint64_t mono);
void timeline_thread_close(struct timeline *tl, struct tl_thread *t, uint64_t mono);
/* The losses that the thread has not seen yet. 0 or -ENOMEM. */
int timeline_thread_see_gaps(struct timeline *tl, struct tl_thread *t);
/* The thread that an event is about, with its track; made up if it was never told. */
int timeline_thread_enter(struct timeline *tl, uint32_t tid, uint64_t mono, struct tl_thread **ret);

/* The track of the process, declared now if it was not; 0 if there is no room for it. */
uint32_t timeline_process_track(struct timeline *tl, uint32_t pid, uint64_t mono);

/*
 * Records were lost, perhaps of this thread: its slices end where the evidence does, at the latest
 * where the loss begins. After a long one nothing is known of it until its next event. 0 or -ENOMEM.
 */
int timeline_thread_gap(struct timeline *tl, struct tl_thread *t, const struct tl_gap *gap);

static inline struct wait_who timeline_who(const struct tl_thread *t)
{
	return (struct wait_who){.tid = t->tid, .name = t->name};
}

static inline struct sched_task timeline_task(const struct tl_thread *t)
{
	return (struct sched_task){.tid = t->tid, .name = t->name};
}

/* In decode/timeline_marks.c: declares the tracks that are no thread's, says what is written. */
int timeline_marks_begin(struct timeline *tl, uint64_t mono);
void timeline_marks_free(struct timeline *tl);
void timeline_mark_cut(struct timeline *tl, uint64_t mono);
