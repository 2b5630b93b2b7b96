/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of one PT recording: for each thread and CPU one that traces and a dummy that records
 * switches, all of a CPU's in one AUX area and two rings. Owns their life: opened, frozen, running
 * again CPU by CPU, closed. Does not know targets.
 *
 * The PMU is exclusive: a thread has one tracing event a CPU, and a second one is refused (EBUSY).
 * So a thread that has inherited its events is recognised by that, and what is found between two
 * looks at a process is covered once.
 *
 * Frozen means that all its tracing events are disabled, so that the AUX areas hold still. The loop
 * says so, and whoever calls pt_events_stop() after that does it: of thousands of threads that
 * takes a second, see daemon/backend/pt/stopper.h. The copier's thread lets each CPU run as soon as
 * it has its copy, unless somebody else froze it meanwhile. The dummies are never stopped.
 */
#pragma once

#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/pids.h"
#include "common/bundle/timeconv.h"
#include "daemon/perf/eventset.h"

struct closer;
struct pt_resume;

enum pt_event { PT_EVENT_TRACE, PT_EVENT_SIDE, PT_EVENT_KINDS };

/* Each snapshot has one of each CPU; what is forgotten must be older than what a ring still has. */
#define PT_GAPS_MAX 2048

/* A CPU was not traced while it was copied. */
struct pt_gap {
	int cpu;
	uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC_RAW */
};

/* What the kernel says beside the trace that it could not record. */
struct pt_losses {
	uint64_t truncated; /* the trace of a CPU stopped for want of memory (AUX records) */
	/* it has gaps that the processor made, as where it ran a guest (the same) */
	uint64_t partial;
	uint64_t records;   /* of who began to be traced: LOST */
};

#define PT_STARTS_BYTES (64u << 10)
#define PT_GAP_RECORDS_BYTES (16u << 10)

struct pt_batch { /* of threads that were opened together */
	STAILQ_ENTRY(pt_batch) link;
	pid_t *tids; /* the subjects of its sets; NULL: the machine's CPUs */
	struct eventset sets[PT_EVENT_KINDS];
	/*
	 * of those that trace, which have an event that lets them go on
	 * (daemon/backend/pt/resume.h); NULL: none
	 */
	bool *resumable;
};

STAILQ_HEAD(pt_batches, pt_batch);

struct pt_events {
	unsigned int refs;     /* the loop's */
	unsigned int users;    /* recordings that go on; the loop's */
	/* owned; NULL: nothing can pause it (daemon/backend/pt/resume.h) */
	struct pt_resume *resume;
	bool of_cpus;	       /* not of threads */
	bool to_come;	       /* of threads also on CPUs that are offline */
	/* of daemon/backend/pt/newcomers.h, before they were opened; the loop's */
	unsigned int epoch;
	struct closer *closer; /* not owned */
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct timeconv_moment begin; /* TSC and MONOTONIC_RAW when it was opened */
	const struct pt_batch *first; /* of `batches`: it has the rings, and stays as it is */
	pthread_mutex_t growing; /* who grows; for `filter` and `tids` */
	const char *filter; /* of who opens or grows, while it does; NULL: none */
	struct pid_set tids; /* opened, or known to be covered; of who opens or grows */
	/*
	 * Held while the events of a CPU are stopped or let go, which may take long: the loop takes
	 * it where they are few.
	 */
	pthread_mutex_t switching; /* before `lock`; for what follows */
	struct pt_batches batches;
	pthread_mutex_t lock; /* never held for long; for what follows */
	/*
	 * of each CPU: since when; 0: it runs. Changed under `switching`, too: each is enough to
	 * read
	 */
	uint64_t *stopped_ns;
	size_t n_fds;
	unsigned int frozen; /* how many hold it still */
	bool ended;	     /* for good */
	/* what freezing cost so far */
	struct pt_gap gaps[PT_GAPS_MAX]; /* the last ones, a ring */
	uint64_t n_gaps, gap_ns;
	/* of the tracing events' own rings, see pt_events_drain(); the copier's */
	struct pt_losses losses;
	/* the oldest ones: ITRACE_START, and AUX that say that something is missing */
	uint8_t *records;
	size_t n_records, n_starts, n_gap_records; /* bytes; of these; of those */
	uint8_t *drained; /* room for one ring */
};

/*
 * How the threads are found: again and again, until there is no new one. 0, -ESRCH, -ENOMEM...
 * NULL: the machine's CPUs.
 */
typedef int (*pt_threads_fn)(void *arg, pid_t **ret, size_t *ret_n);

/*
 * Opens the events of all threads that `threads` finds, disabled; with `to_come` also on CPUs that
 * are offline. `filter` limits the code that is traced, see daemon/backend/pt/filter.h; NULL: none.
 * Any thread. 0; -ERANGE: the kernel refuses the filter; -ESRCH: none is left; -EBUSY: the PMU, or
 * a thread, is somebody else's; -ENOBUFS: no locked memory; -ECANCELED; what perf_event_open()
 * said.
 */
int pt_events_open(const struct perf_event_attr attrs[PT_EVENT_KINDS], const char *filter,
		   bool to_come, size_t aux_bytes, struct closer *closer, pt_threads_fn threads,
		   void *arg, const atomic_bool *cancel, struct pt_events **ret) _must_check_;
/*
 * Opens those of threads that are new. The same answers; 0 also if there are none. Any thread, one
 * at a time.
 */
int pt_events_grow(struct pt_events *events, const char *filter, pt_threads_fn threads, void *arg,
		   const atomic_bool *cancel) _must_check_;

/*
 * Of `pids`, in place, those of which no thread was opened or found covered so far; how many. Any
 * thread.
 */
size_t pt_events_keep_new(struct pt_events *events, pid_t *pids, size_t n);

/*
 * Whoever they are of has ended: closes the events of all but the first ones, which have the rings,
 * and forgets whose they are. Somebody else may have got the number of one of them, and is not
 * covered. A thread that may wait, before it grows.
 */
void pt_events_forget(struct pt_events *events);

struct pt_events *pt_events_ref(struct pt_events *events);
struct pt_events *pt_events_put(struct pt_events *events);

/*
 * One more, or one less, wants it to hold still: pt_events_stop(), pt_events_go_on() do what
 * follows from it. The loop.
 */
void pt_events_freeze(struct pt_events *events);
void pt_events_thaw(struct pt_events *events);
/* Stops all CPUs, or lets all go on, unless that is not wanted any more. Any thread. */
void pt_events_stop(struct pt_events *events);
void pt_events_go_on(struct pt_events *events);
/*
 * Stops the CPU once more. A thread that an inherited thread made while they were stopped may have
 * found its event still enabled, and have come too late to be disabled with the others: it is now.
 * The copier's thread.
 */
void pt_events_stop_again(struct pt_events *events, size_t index);
/*
 * The copy of the CPU at `index` is done: how long it was not traced; 0: it still is not. The
 * copier's thread.
 */
uint64_t pt_events_resume_cpu(struct pt_events *events, size_t index);
/*
 * Several targets may be recorded by the same events; with the last of them all are to be disabled,
 * for good. True: this was the last. The loop.
 */
void pt_events_use(struct pt_events *events);
bool pt_events_leave(struct pt_events *events);

/* Takes over what is in the tracing events' own rings. The copier's thread. */
void pt_events_drain(struct pt_events *events);

/*
 * Since when all switches of all CPUs are there, at least since `armed_ns`: what ran before that is
 * nobody's for sure. Any thread. 0, -ENOMEM.
 */
int pt_events_look_back(const struct pt_events *events, uint64_t armed_ns,
			uint64_t *ret_ns) _must_check_;

/* For how long CPUs were not traced while they were copied, all together. */
uint64_t pt_events_blind_ns(struct pt_events *events);
size_t pt_events_fds(struct pt_events *events);
size_t pt_events_bytes(const struct pt_events *events);
size_t pt_events_cpus(const struct pt_events *events);
