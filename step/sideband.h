/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side-band of a stepped recording: what the kernel would have told about names, mappings, forks and ends.
 * Owns the records, in the order of their ticks and within a bound; they get their time in nanoseconds when
 * they are written. Refuses to know where the facts come from.
 *
 * A recording without end forgets. So the records come in segments: each begins with the state of all that is
 * recorded (names, threads, mappings), then follows what happened. Without the ones before it a segment
 * tells the same of what came after it began; where the one before is there, its state is not written.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/procfs.h"
#include "common/bundle/perfdata_write.h"
#include "step/clock.h"

/* Ids of the two events of the file: the PT event and the one of the side-band. */
#define STEP_ID_PT 100u
#define STEP_ID_SIDE 101u

struct stepside;
int stepside_new(struct stepside **ret) _must_check_;
struct stepside *stepside_free(struct stepside *s);
DEFINE_CLEANUP(struct stepside *, stepside_free)

/* ---- segments; there is one from the start, without a state */

/* What is added now, until stepside_begin_records(), is the state at `ticks`. 0, -ENOMEM. */
int stepside_begin_segment(struct stepside *s, uint64_t ticks) _must_check_;
void stepside_begin_records(struct stepside *s);
/* The number of the newest one and of the oldest one. */
uint64_t stepside_segment(const struct stepside *s);
uint64_t stepside_first_segment(const struct stepside *s);
/* When the one behind the oldest began; 0: there is one only. */
uint64_t stepside_second_ticks(const struct stepside *s);
/* Forgets the oldest one, but never the only one. */
void stepside_drop_segment(struct stepside *s);
/* Bytes of all of them, and of the records of the newest. */
size_t stepside_bytes(const struct stepside *s);
size_t stepside_segment_bytes(const struct stepside *s);

/* ---- records */

/* All of these: 0, -EFBIG (the bound), -ENOMEM. */
int stepside_comm(struct stepside *s, uint64_t ticks, pid_t pid, pid_t tid, const char *comm, bool exec) _must_check_;
int stepside_fork(struct stepside *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid) _must_check_;
int stepside_exit(struct stepside *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid) _must_check_;
/* `path` instead of the map's own, where not NULL. */
int stepside_mmap(struct stepside *s, uint64_t ticks, pid_t pid, pid_t tid, const struct proc_map *map,
	const char *path) _must_check_;
int stepside_itrace_start(struct stepside *s, uint64_t ticks, pid_t pid, pid_t tid) _must_check_;

/* Hands all of them to the file, on a clock that is settled. */
int stepside_write(const struct stepside *s, const struct stepclock *clock, struct perfdata_writer *w) _must_check_;
/* One more, of the PT event: the AUX record of a thread's buffer. */
int stepside_write_aux(const struct stepclock *clock, uint64_t ticks, pid_t pid, pid_t tid, uint64_t bytes,
	uint64_t flags, struct perfdata_writer *w) _must_check_;
