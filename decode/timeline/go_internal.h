/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the picture of Go programs: go.c takes events apart, go_goroutines.c draws goroutines,
 * go_procs.c processors, go_user.c what the program and its runtime say besides.
 */
#pragma once

#include "decode/go/survey.h"
#include "decode/timeline/go.h"
#include "decode/timeline/timeline_internal.h"

#define N_GOSTATES (GOSTATE_SYSCALL + 1)

struct tl_go_proc {
	uint64_t id;
	uint32_t track, sweep_track; /* 0: not declared yet */
	struct tl_goroutine *g;	     /* that it runs; NULL: none */
	bool in_syscall, sweeping, runs;
	/* MONOTONIC: it runs the goroutine since, and what is on its track is over then */
	uint64_t since, last;
};

#define TL_GO_PAUSES 8u

/* It did not run; texts are writer's names. */
struct tl_go_pause {
	uint64_t begin, ns;
	uint32_t state, stack, by, by_stack;
};

/* A goroutine is a fiber that the runtime tells of. */
struct tl_goroutine {
	struct tl_fiber fiber; /* its id is the goroutine's */
	uint32_t function;     /* that it began with, a writer's name; 0: not known */
	enum gostate state;
	uint64_t since; /* MONOTONIC */
	uint64_t ns[N_GOSTATES], longest_runnable_ns;
	uint32_t track;	  /* 0: it is not drawn */
	uint32_t lane;	  /* of the shared ones; 0: the track is its own */
	bool off_cpu;	  /* on top of its state: its thread does not run */
	bool assists;	  /* in the marking of the garbage collector */
	bool parked;	  /* it does nothing but wait, as the survey says */
	bool early_done;  /* what it had open when the trace began is drawn */
	uint32_t reason, stack, label; /* of the state; writer's names */
	struct tl_go_pause pauses[TL_GO_PAUSES]; /* the longest since its outermost region began */
	uint32_t n_pauses;
	uint64_t flow;	  /* from what made it runnable to where it runs; 0: none */
	struct tl_go_proc *proc;
};

/* Sums of the goroutines that began with one function. */
struct tl_go_group {
	uint32_t function;
	uint64_t count, ns[N_GOSTATES], longest_runnable_ns, off_ns;
};

struct tl_go_names {
	uint32_t goroutine, gc, proc, sample; /* categories */
	uint32_t running, runnable, waiting, syscall, off_cpu[OFF_CPUS];
	uint32_t key_goroutine, key_name, key_tid, key_proc, key_cpu, key_stack, key_reason,
		key_label, key_note, key_blocked, key_swept, key_reclaimed, key_other,
		key_other_tid, key_task;
	uint32_t go, unblock, exit_syscall, proc_start, proc_stop, cpu_sample, yes, no;
	uint32_t note_before, note_end, note_early;
};

enum tl_go_counter {
	TL_GO_RUNNING,
	TL_GO_RUNNABLE,
	TL_GO_WAITING,
	TL_GO_SYSCALL,
	TL_GO_GC_WAITING,
	TL_GO_PROCS,
	TL_GO_N_COUNTERS,
};

struct timeline_go {
	struct timeline_go *next; /* of the timeline's */
	uint32_t pid;
	uint64_t begin, last; /* MONOTONIC */
	const struct gosurvey *survey;
	bool ended;
	struct tl_go_names n;
	struct hashmap goroutines, procs; /* by id: pointers */
	struct hashmap m_procs;		  /* by thread (M): the processor that it has */
	uint32_t n_tracks, n_procs;
	uint32_t goroutines_track, procs_track, gc_track, stw_track; /* 0: not declared yet */
	bool in_gc, in_stw;
	bool in_gc_before; /* the trace has told of a collection */
	uint64_t counts[TL_GO_N_COUNTERS], shown[TL_GO_N_COUNTERS];
	uint32_t counter_tracks[TL_GO_N_COUNTERS];
	struct hashmap stacks; /* of the generation: number -> writer's name + 1 */
	uint64_t generation;
	struct tl_go_group *groups;
	uint32_t n_groups, max_groups;
	struct hashmap group_map; /* function -> index + 1 */
	struct timeline_go_stats stats;
};

/* An event on its way: what all of it need. */
struct tl_go_at {
	struct timeline *tl;
	struct timeline_go *go;
	const struct goevent *ev;
	const struct gogeneration *gen;
	struct tl_thread *thread; /* NULL: none */
	uint64_t mono;
};

/* ---- go.c */

/* The texts as a writer's name: escaped; a stack's frames, innermost first. 0: there is none. */
uint32_t tl_go_text(const struct tl_go_at *at, const struct gostring *s);
uint32_t tl_go_stack(const struct tl_go_at *at, uint64_t stack);
/* Draws what has changed. */
int tl_go_counters(const struct tl_go_at *at);
/* A child of the process. */
uint32_t tl_go_track(const struct tl_go_at *at, uint32_t *track, uint32_t parent, const char *name);
uint32_t tl_go_process(const struct tl_go_at *at);

/* ---- go_goroutines.c */

/* Made if it is new; 0, TIMELINE_E_FULL or -ENOMEM. */
int tl_goroutine_get(const struct tl_go_at *at, uint64_t id, struct tl_goroutine **ret);
int tl_goroutine_transition(const struct tl_go_at *at);
/*
 * A moment on its track; without one, on the track of the processor, or thread, that the event is
 * of.
 */
void tl_goroutine_instant(const struct tl_go_at *at, uint64_t id, const struct writer_event *ev);
/* All end. */
void tl_goroutines_end(const struct tl_go_at *at);
void tl_goroutines_sum(struct timeline *tl, const struct timeline_go *go);
void tl_goroutines_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono);
void tl_goroutines_free(struct timeline_go *go);

/* ---- go_procs.c */

struct tl_go_proc *tl_go_proc_of(const struct timeline_go *go, uint64_t id);
/* The processor begins to run the goroutine at that time, and ends; a system call is in between. */
int tl_go_proc_run(const struct tl_go_at *at, uint64_t id, struct tl_goroutine *g, uint64_t mono);
void tl_go_proc_leave(struct timeline *tl, struct timeline_go *go, struct tl_goroutine *g,
		      uint64_t mono);
void tl_go_proc_syscall(const struct tl_go_at *at, struct tl_goroutine *g, uint64_t mono);
void tl_go_proc_syscall_end(struct timeline *tl, struct timeline_go *go, struct tl_goroutine *g,
			    uint64_t mono, bool blocked);
int tl_go_proc_transition(const struct tl_go_at *at);
int tl_go_proc_sweep(const struct tl_go_at *at);
void tl_go_proc_instant(const struct tl_go_at *at, uint64_t id, const struct writer_event *ev);
void tl_go_procs_end(const struct tl_go_at *at);
void tl_go_procs_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono);
void tl_go_procs_free(struct timeline_go *go);

/* ---- go_user.c */

int tl_go_range(const struct tl_go_at *at);
int tl_go_metric(const struct tl_go_at *at);
int tl_go_user(const struct tl_go_at *at);
void tl_go_cpu_sample(const struct tl_go_at *at);
/* What the survey has found open: tasks of the program, and regions of a goroutine. */
int tl_go_early_tasks(const struct tl_go_at *at);
int tl_go_early_regions(const struct tl_go_at *at, struct tl_goroutine *g);
void tl_go_ranges_end(const struct tl_go_at *at);
void tl_go_ranges_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono);
