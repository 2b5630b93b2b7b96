/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side-band of a stepped recording: what the kernel would have told about names, mappings, forks and ends.
 * Owns the records, in the order of their ticks and within a bound; they get their time in nanoseconds when
 * they are written. Refuses to know where the facts come from.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/perfdata_write.h"
#include "daemon/procfs.h"
#include "daemon/stepclock.h"

/* Ids of the two events of the file: the PT event and the one of the side-band. */
#define STEP_ID_PT 100u
#define STEP_ID_SIDE 101u

struct stepside;
int stepside_new(struct stepside **ret) _must_check_;
struct stepside *stepside_free(struct stepside *s);
DEFINE_CLEANUP(struct stepside *, stepside_free)

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
