/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The execution trace of a Go program on the timeline. The rules of the picture:
 *
 * - A goroutine has a track below its process, "G12 main.worker", with a slice for each of its
 *   states: "running", "runnable", "waiting: REASON", "system call". While it runs and its thread
 *   does not, a slice on top says so. The first TL_GO_TRACKS that do anything have a track each;
 *   later ones share lanes, a slice each around their states. Those that wait from begin to end get
 *   what tracks are left, and are counted else.
 * - What a goroutine was in when the trace began has lasted since then, and what is open at the
 *   trace's end ends there.
 * - Its regions, logs, stops of the world and mark assists are on a track below it; tasks as those
 *   of any program.
 * - The thread shows what goroutine it runs on a track below its own. Each processor (P) has a
 *   track: what it ran, system calls in it, sweeping below.
 * - Flows lead from "go", "unblock" and "exit blocked syscall" to where the goroutine runs next.
 * - Counters: the heap and its goal, GOMAXPROCS, processors that run, goroutines by state.
 *
 * Stacks are arguments: innermost first, each function with file and line.
 */
#pragma once

#include <stdint.h>

#include "decode/go/event.h"
#include "decode/timeline/timeline.h"

struct gosurvey;
struct timeline_go;

#define TL_GO_TRACKS 1024u
#define TL_GO_MAX_PROCS 4096u

/*
 * As the events of timeline.h: 0, a positive enum timeline_error, a negative errno; `ts` is of the
 * input's clock. The trace of process `pid` begins; `survey` is borrowed. *ret is the timeline's.
 */
int timeline_go_begin(struct timeline *tl, uint32_t pid, uint64_t ts, const struct gosurvey *survey,
		      struct timeline_go **ret);

/*
 * `tid` is the thread that the event is about (timeline_go_thread()), 0: none. `gen` has the
 * event's strings and stacks.
 */
int timeline_go_event(struct timeline *tl, struct timeline_go *go, uint64_t ts, uint32_t tid,
		      const struct goevent *ev, const struct gogeneration *gen);
/* The M that runs what the event is about; GOFMT_NO_ID: none. */
uint64_t timeline_go_thread(const struct goevent *ev);

/* It ends, and what is open with it. */
int timeline_go_end(struct timeline *tl, struct timeline_go *go, uint64_t ts);

struct timeline_go_stats {
	uint64_t goroutines, parked; /* seen; of them waited from begin to end without a track */
	uint64_t not_drawn;	     /* had no track for want of room */
};
void timeline_go_stats(const struct timeline_go *go, struct timeline_go_stats *ret);
