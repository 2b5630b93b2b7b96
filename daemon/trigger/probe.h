/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The breakpoints of one place in one process: perf events on each of its threads, which threads
 * that they start inherit (but those of a uprobe), and the hits that they report. Opening them
 * reads the process and may hang, so threads do that (daemon/base/readers.h); closing takes long,
 * so a thread does that, too. Does not know what a hit is good for, and keeps no process: it ends
 * with it, or when that executes another program.
 *
 * A place is an offset in a file. Where the process has it mapped is looked up here, and no byte of
 * the file is read. It may have it at several addresses, as where a library was loaded twice: each
 * is watched, as far as the processor has breakpoints.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct event_base;
struct pausable;
struct probe;
struct probes;
struct quota;

enum probe_by { PROBE_AUTO, PROBE_BREAKPOINT, PROBE_UPROBE };
const char *probe_by_name(enum probe_by by);

/*
 * Events of one process; of a uprobe, whose events take the kernel a tenth of a second each to
 * close, fewer.
 */
#define PROBE_FDS_MAX 16384u
#define PROBE_UPROBE_FDS_MAX 256u

/* Where a process has one place: as many as the processor has breakpoints. */
#define PROBE_COPIES_MAX 4u
struct probe_copies {
	uint64_t at[PROBE_COPIES_MAX];
	size_t n;
	size_t left_out; /* others, which are not watched */
};

struct probe_place {
	uint32_t maj, min; /* as the kernel names the file in /proc/PID/maps */
	uint64_t ino, offset;
	enum probe_by by;
};

enum probe_state {
	PROBE_OPENING,
	PROBE_OPEN,
	PROBE_NOT_MAPPED, /* the process does not have the file's code mapped */
	PROBE_FAILED,
	PROBE_ENDED,      /* the process has, or it has executed another program */
};

struct probe_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* CLOCK_MONOTONIC_RAW */
	bool paused;	  /* the thread's trace: it ends with the hit */
};

struct probe_process {
	pid_t pid, tid; /* tid 0: all threads */
	uint64_t start_time;
	uid_t uid;     /* who pays, and whose process it must be */
	bool any_user; /* it may be anybody's */
	uid_t of;      /* whose it is, as far as is known: for daemon/base/readers.h */
	struct pausable *trace; /* that a hit pauses, or NULL: the probe references it */
};

struct probe_callbacks {
	/* `first` is the earliest of `n` hits. Must not free the probe. */
	void (*hit)(void *arg, struct probe *probe, const struct probe_hit *first, uint64_t n);
	/* It is in another state than before. Must not free the probe. */
	void (*changed)(void *arg, struct probe *probe);
};

/* What all of them share: the threads, and what the machine can do. */
int probes_new(struct event_base *base, struct quota *quota, struct probes **ret) _must_check_;
struct probes *probes_free(struct probes *ps);
DEFINE_CLEANUP(struct probes *, probes_free)

/*
 * Begins to open: 0, -ENOMEM, -EBUSY (processes of this user hang whoever reads them, or too much
 * is still being closed).
 */
int probe_new(struct probes *ps, const struct probe_place *place,
	      const struct probe_process *process, const struct probe_callbacks *callbacks,
	      void *arg, struct probe **ret) _must_check_;
/* Closes the events; no callback comes any more. */
struct probe *probe_free(struct probe *p);

/*
 * Off, the place reports nothing and costs the program nothing, but with a uprobe, which stays in
 * its code until the probe is freed. Switched on: how many hits there were between the last report
 * and the moment when it was off. `at_once`: here, which takes some microseconds for each event;
 * else a thread does it.
 */
uint64_t probe_enable(struct probe *p, bool on, bool at_once);

/* Whether it is switched on by now. One that is not open has nothing to be switched. */
bool probe_is_on(const struct probe *p);

enum probe_state probe_state(const struct probe *p);
pid_t probe_pid(const struct probe *p);
uint64_t probe_start_time(const struct probe *p);
/* Of one that is open: the threads that it was opened on, its events, and how it was done. */
size_t probe_threads(const struct probe *p);
size_t probe_fds(const struct probe *p);
/*
 * Threads that began while it was opened, where it is not known whether they, and what they start,
 * are watched.
 */
size_t probe_unsure(const struct probe *p);
/* Those of the threads whose trace a hit pauses. */
size_t probe_pausing(const struct probe *p);
enum probe_by probe_used(const struct probe *p);
/* Of one that is open: where it is watched; by a uprobe, where it was when that was opened. */
const struct probe_copies *probe_copies(const struct probe *p);
/* Of one that has failed: a sentence. */
const char *probe_why(const struct probe *p);

/*
 * For tests: what the kernel is asked for. `uprobe_type` is the PMU's number; the path lives as
 * long as the attributes.
 */
void probe_attr_breakpoint(uint64_t address, bool inherit, struct perf_event_attr *ret);
void probe_attr_uprobe(uint32_t uprobe_type, const char *path, uint64_t offset,
		       struct perf_event_attr *ret);
