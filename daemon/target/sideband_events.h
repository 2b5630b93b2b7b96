/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where side-band records come from: dummy events for mmap, comm, fork, exec, exit and namespaces,
 * on each CPU for the whole machine, or, where that is not permitted, on the tasks of each target.
 * Drains their forward rings at once and hands the records on in the order of time.
 *
 * Does not know targets: all records go to one callback, which may stop what is being drained.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

struct closer;
struct event_base;
struct sideband_events;
struct sideband_follow;

struct sideband_record {
	const struct perf_event_header *header;
	uint64_t time;
	uint32_t pid; /* the process that it is about; 0 of LOST */
};
typedef void (*sideband_fn)(void *arg, const struct sideband_record *record);

/* The attribute of all of them, for the file's event table. */
void sideband_events_attr(struct perf_event_attr *ret);

/* `closer` outlives it. */
int sideband_events_new(struct event_base *base, struct closer *closer, sideband_fn fn, void *arg,
			struct sideband_events **ret) _must_check_;
struct sideband_events *sideband_events_free(struct sideband_events *events);

/* The machine-wide events. Idempotent. -EACCES and -EPERM where the kernel does not permit it. */
int sideband_events_start(struct sideband_events *events) _must_check_;
void sideband_events_stop(struct sideband_events *events);
/* Opens them anew, on the CPUs that are online now, if they run. -errno: they go on as they are. */
int sideband_events_restart(struct sideband_events *events) _must_check_;
bool sideband_events_running(const struct sideband_events *events);

/*
 * The fallback for one process: `tid` 0 all threads and those that come, else that one. `children`:
 * also processes that it forks. Any thread may call it, since a process may have thousands of
 * threads. It records from then on; sideband_follow_begin(), on the loop, hands on what it has
 * recorded. -ECANCELED as soon as *cancel is set.
 */
int sideband_follow_open(int proc_dirfd, pid_t tid, bool children, const atomic_bool *cancel,
			struct sideband_follow **ret) _must_check_;
int sideband_follow_begin(struct sideband_events *events,
			  struct sideband_follow *follow) _must_check_;
/*
 * Also of one that was not begun; `closer` closes its events. May be called from within
 * sideband_fn.
 */
struct sideband_follow *sideband_follow_free(struct sideband_follow *follow, struct closer *closer);
size_t sideband_follow_fds(const struct sideband_follow *follow);
size_t sideband_follow_bytes(const struct sideband_follow *follow);

/*
 * Hands on everything that was written before the call. What comes meanwhile follows within
 * LOOP_BUDGET_NS, or at the loop's next turn.
 */
void sideband_events_drain(struct sideband_events *events);
/* Whether it had no time for all of that. */
bool sideband_events_behind(const struct sideband_events *events);
/*
 * Moves the records that are newer than `horizon` to the front of `buf`, in their order: the bytes
 * that they take. What a round of draining hands on later; here for its test.
 */
size_t sideband_events_hold(uint8_t *buf, size_t used, uint64_t horizon);
/*
 * Until when nothing is missing of what the callback has been given; in the report of a loss, until
 * before that.
 */
uint64_t sideband_events_whole_ns(const struct sideband_events *events);
/* Records that the kernel had no room for. */
uint64_t sideband_events_lost(const struct sideband_events *events);
