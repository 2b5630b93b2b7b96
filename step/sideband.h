/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side-band of a stepped recording: the records of names, mappings, forks and exits that the
 * kernel would have written. Owns them, in the order of their ticks and within a bound, and
 * converts their times to nanoseconds when it writes them. Refuses to know where the facts come
 * from.
 *
 * A ring drops its oldest records. So they come in segments, each of which begins with the state at
 * its begin (names, threads, mappings) and continues with what happened. A segment is complete
 * without those before it; only the oldest one's state is written.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/procfs.h"
#include "common/bundle/perfdata_write.h"
#include "step/clock.h"

/* The ids of the file's events. */
#define STEP_ID_PT 100u
#define STEP_ID_SIDE 101u
#define STEP_ID_STACK 102u

struct sideband;
int sideband_new(struct sideband **ret) _must_check_;
struct sideband *sideband_free(struct sideband *s);
DEFINE_CLEANUP(struct sideband *, sideband_free)

/* ---- segments; the first is there from the start, and has no state */

/* Records added until sideband_begin_records() are the state at `ticks`. 0, -ENOMEM. */
int sideband_begin_segment(struct sideband *s, uint64_t ticks) _must_check_;
void sideband_begin_records(struct sideband *s);
/* The number of the newest one and of the oldest one. */
uint64_t sideband_segment(const struct sideband *s);
uint64_t sideband_first_segment(const struct sideband *s);
/* When the one after the oldest began; 0: there is only one. */
uint64_t sideband_second_segment_ticks(const struct sideband *s);
/* Drops the oldest one, but never the only one. */
void sideband_drop_oldest_segment(struct sideband *s);
/* Bytes of all of them, and of the records of the newest. */
size_t sideband_bytes(const struct sideband *s);
size_t sideband_segment_bytes(const struct sideband *s);

/* ---- records */

/* All of these: 0, -EFBIG (the bound), -ENOMEM. */
int sideband_comm(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid, const char *comm,
		  bool exec) _must_check_;
int sideband_fork(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid,
		  pid_t ptid) _must_check_;
int sideband_exit(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid,
		  pid_t ptid) _must_check_;
/* `path` instead of the map's own, where not NULL. */
int sideband_mmap(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid,
		  const struct proc_map *map, const char *path) _must_check_;
int sideband_itrace_start(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid) _must_check_;

/* Writes all records; the clock must be settled. */
int sideband_write(const struct sideband *s, const struct step_clock *clock,
		   struct perfdata_writer *w) _must_check_;
/* Writes the AUX record of a thread's buffer, which belongs to the PT event. */
int sideband_write_aux(const struct step_clock *clock, uint64_t ticks, pid_t pid, pid_t tid,
		       uint64_t bytes, uint64_t flags, struct perfdata_writer *w) _must_check_;
