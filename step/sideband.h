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

struct sideband;
int sideband_new(struct sideband **ret) _must_check_;
struct sideband *sideband_free(struct sideband *s);
DEFINE_CLEANUP(struct sideband *, sideband_free)

/* ---- segments; there is one from the start, without a state */

/* What is added now, until sideband_begin_records(), is the state at `ticks`. 0, -ENOMEM. */
int sideband_begin_segment(struct sideband *s, uint64_t ticks) _must_check_;
void sideband_begin_records(struct sideband *s);
/* The number of the newest one and of the oldest one. */
uint64_t sideband_segment(const struct sideband *s);
uint64_t sideband_first_segment(const struct sideband *s);
/* When the one behind the oldest began; 0: there is one only. */
uint64_t sideband_second_segment_ticks(const struct sideband *s);
/* Forgets the oldest one, but never the only one. */
void sideband_drop_oldest_segment(struct sideband *s);
/* Bytes of all of them, and of the records of the newest. */
size_t sideband_bytes(const struct sideband *s);
size_t sideband_segment_bytes(const struct sideband *s);

/* ---- records */

/* All of these: 0, -EFBIG (the bound), -ENOMEM. */
int sideband_comm(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid, const char *comm, bool exec) _must_check_;
int sideband_fork(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid) _must_check_;
int sideband_exit(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid) _must_check_;
/* `path` instead of the map's own, where not NULL. */
int sideband_mmap(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid, const struct proc_map *map,
	const char *path) _must_check_;
int sideband_itrace_start(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid) _must_check_;

/* Hands all of them to the file, on a clock that is settled. */
int sideband_write(const struct sideband *s, const struct step_clock *clock, struct perfdata_writer *w) _must_check_;
/* One more, of the PT event: the AUX record of a thread's buffer. */
int sideband_write_aux(const struct step_clock *clock, uint64_t ticks, pid_t pid, pid_t tid, uint64_t bytes,
	uint64_t flags, struct perfdata_writer *w) _must_check_;
