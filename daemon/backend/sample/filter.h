/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF programs: which threads pass the shared clocks, whose switches and wake-ups are recorded
 * and to which rings, and when the last target left a CPU. Owns the loaded object and does not know
 * targets. Without BPF (not built in, not permitted, no BTF) filter_new() fails and says why.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/filter.h"

struct event_base;
struct filter;

/* A target runs again on `cpu`, whose clocks had been stopped (filter_cpu_rest()). */
typedef void (*filter_wake_fn)(void *arg, uint32_t cpu);

/* `python`: the frames of Python's functions are wanted. */
int filter_new(struct event_base *base, bool python, filter_wake_fn fn, void *arg,
	       struct filter **ret, char *why, size_t why_size) _must_check_;
struct filter *filter_free(struct filter *filter);

/* Attaches the programs to the scheduler's tracepoints, while somebody needs them. Idempotent. */
int filter_start(struct filter *filter) _must_check_;
void filter_stop(struct filter *filter);

/* The program for machine-wide clocks, with periods of FILTER_CLOCK_PERIOD(). Borrowed. */
int filter_clock_fd(const struct filter *filter, bool own);

/* Whether the programs unwind stacks by the maps of daemon/backend/sample/bpf/unwind.h. */
bool filter_unwinds(const struct filter *filter);
/*
 * Whether they also find the frames of Python's functions, by those of
 * daemon/backend/sample/bpf/python.h.
 */
bool filter_finds_python(const struct filter *filter);
/* A map of the programs, by its name. Borrowed. */
int filter_map_fd(const struct filter *filter, const char *name);

/* Where group `group` wants its records of `cpu`. */
int filter_output(struct filter *filter, unsigned int group, unsigned int kind, int cpu,
		  int fd) _must_check_;
void filter_output_clear(struct filter *filter, unsigned int group, unsigned int kind, int cpu);

/*
 * Gives group `group` rings (struct filter_ring) for its records of these CPUs that have no stack,
 * each of `bytes`. *ret is their map, read only, which the caller unmaps. -EOPNOTSUPP: this kernel
 * has none (before 5.10), and they go where filter_output() says. Both wait for the kernel, some
 * milliseconds at least: any thread but the loop's.
 */
struct filter_rings {
	/* as many as there are possible CPUs, by number; records behind them */
	const struct filter_ring *base;
	size_t bytes;
};
int filter_rings_open(const struct filter *filter, unsigned int group, const int *cpus,
		      size_t n_cpus, size_t bytes, struct filter_rings *ret) _must_check_;
/* No program writes to them any more. They are there as long as they are mapped. */
void filter_rings_close(const struct filter *filter, unsigned int group);
/* The records of a ring, NULL if it has none. */
const struct filter_record *filter_ring_records(const struct filter_rings *rings, int cpu);

/* What to do with a thread group, or a thread. An entry that asks for nothing is removed. */
int filter_process(struct filter *filter, pid_t tgid,
		   const struct filter_entry *entry) _must_check_;
int filter_thread(struct filter *filter, pid_t tid, const struct filter_entry *entry) _must_check_;
struct filter_entry filter_entry_none(void);
/* Whether there is something of that kind, before there is. That of threads is known here. */
int filter_use(const struct filter *filter, enum filter_use use, bool is_used) _must_check_;

/*
 * Records the stacks of the threads that run now and whose entries have FILTER_STACKS. It
 * interrupts all CPUs, one after the other. Kernels before 5.10 cannot: -errno.
 */
int filter_stacks(const struct filter *filter);

/*
 * The threads that sleep. filter_tasks_fd() is a descriptor of its own that any thread may give to
 * filter_tasks(), whatever becomes of the filter; -EOPNOTSUPP: this kernel has no such iterator.
 * filter_tasks() calls back for each.
 */
int filter_tasks_fd(const struct filter *filter) _must_check_;
int filter_tasks(int fd, void (*fn)(void *arg, const struct filter_task *task),
		 void *arg) _must_check_;

/* Nanoseconds since a target ran on `cpu`; 0: one runs now. UINT64_MAX: never. */
uint64_t filter_cpu_idle(const struct filter *filter, uint32_t cpu);
/* Asks to be woken when a target runs on `cpu`; false if one does already. */
bool filter_cpu_rest(struct filter *filter, uint32_t cpu);
/* Records of switches that found no room. */
uint64_t filter_drops(const struct filter *filter);
