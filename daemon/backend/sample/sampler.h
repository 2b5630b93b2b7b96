/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling on this machine: finds out what the kernel permits, shares groups of events among
 * targets, and stops the clocks of CPUs on which no target runs. Does not know targets.
 *
 * Scope by cost. A cgroup's events are on only while its threads run. Machine-wide events cost each
 * CPU one timer, however many targets there are; a BPF program lets the targets' ticks pass, and
 * while no target runs the timer is stopped until the switch program reports one. Events on tasks
 * start and stop a timer at each switch, which is expensive on virtual machines: the last resort.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/event_group.h"
#include "daemon/base/copier.h"

struct cgroup;
struct closer;
struct config;
struct event_base;
struct filter;
struct filter_entry;
struct json_object;
struct sampler;
struct unwind;

struct sampler_can {
	bool cpu_wide;    /* events on cpus: CAP_PERFMON or perf_event_paranoid */
	bool any;         /* events at all */
	bool filter;      /* the BPF programs are loaded */
	bool dwarf;       /* registers of this machine are known */
	int cpu_wide_error, any_error; /* negative errno */
	const char *filter_why; /* why not; "" if it is */
};

/* `closer` outlives it, but not its thread: see sampler_free(). */
int sampler_new(struct event_base *base, const struct config *config, struct closer *closer,
		struct sampler **ret) _must_check_;
/* All groups must have been put back, except those in jobs of a thread that has ended. */
struct sampler *sampler_free(struct sampler *sampler);
const struct sampler_can *sampler_can(const struct sampler *sampler);
/*
 * What follows processes whose stacks are unwound in the kernel; its owner sets it. NULL: this
 * kernel does not do that.
 */
struct unwind *sampler_unwind(const struct sampler *sampler);
void sampler_set_unwind(struct sampler *sampler, struct unwind *unwind);
/* NULL without BPF. */
struct filter *sampler_filter(const struct sampler *sampler);

/*
 * Sets, with a reference for the caller. 0: one that is there; SAMPLER_OPEN: it is to be opened,
 * which may take long; -errno. One opening at a time: two of a shared group would be two groups.
 */
enum { SAMPLER_OPEN = 1 };
struct group_wish {
	enum stacks_mode stacks; /* fp or dwarf */
	bool kernel;		 /* also the kernel's */
	size_t ring_bytes;	 /* of each CPU; at least what is configured */
	size_t switch_bytes;	 /* likewise */
};
/* What is configured for such stacks. */
size_t sampler_ring_bytes(const struct sampler *sampler, enum stacks_mode stacks);
/* What has no stack has half as much again. */
size_t sampler_switch_bytes(const struct sampler *sampler, enum stacks_mode stacks);
/* Than what is configured. */
bool sampler_is_larger(const struct sampler *sampler, const struct group_spec *spec);
struct sampler_opening {
	struct sampler *sampler; /* NULL: none is prepared */
	struct group_spec spec;    /* its subjects are added by the caller */
	unsigned int index;
	struct event_group *group;
};
int sampler_cpu_group(struct sampler *sampler, struct group_wish wish,
		      struct sampler_opening *opening, struct event_group **ret) _must_check_;
/*
 * -ENOSPC: as many cgroups have events of their own as are allowed to. All: -EDQUOT: keep_total_mib
 * is used up.
 */
int sampler_cgroup_group(struct sampler *sampler, const struct cgroup *cgroup,
			 struct group_wish wish, struct sampler_opening *opening,
			 struct event_group **ret) _must_check_;
int sampler_task_group(struct sampler *sampler, bool inherit, bool processes,
		       struct group_wish wish, struct sampler_opening *opening) _must_check_;
/* Any thread. -errno as of perf_event_open(). */
int sampler_open(struct sampler_opening *opening) _must_check_;
/* On the loop after it: takes over the opened group, or drops what was or was not opened. */
struct event_group *sampler_adopt(struct sampler_opening *opening);
void sampler_drop(struct sampler_opening *opening);

struct event_group *event_group_ref(struct event_group *group);
struct event_group *event_group_put(struct event_group *group);
/* Stops the clock of a group, soon: it may have thousands. */
void sampler_stop_group(struct event_group *group);

/*
 * Work on the closer's thread. free() comes on the loop, after done(), or without it when the
 * thread has ended.
 */
struct sampler_job {
	struct copier_job job; /* first: its run() */
	LIST_ENTRY(sampler_job) link;
	void (*done)(struct sampler_job *job);
	void (*free)(struct sampler_job *job);
};
void sampler_submit(struct sampler *sampler, struct sampler_job *job);

/*
 * Groups of daemon/backend/sample/aside.h: whether there is memory for one more, and counts one,
 * until it is put back.
 */
bool sampler_may_set_aside(const struct sampler *sampler, uint64_t bytes);
void sampler_set_aside(struct event_group *group);

/*
 * Begins a survey of it on the closer's thread, unless the last one is a second old at most. `fn`
 * is called when one ends.
 */
void sampler_survey(struct event_group *group);
void sampler_on_survey(struct sampler *sampler, void (*fn)(void *arg), void *arg);

/* Starts all clocks: a new target may be running now. */
void sampler_wake(struct sampler *sampler);
/* Attaches the switch programs, or, when nothing is armed, detaches them and stops the clocks. */
int sampler_programs(struct sampler *sampler, bool wanted) _must_check_;

/*
 * CPUs that went offline, or came, since groups were opened: these record nothing of them, and have
 * to be replaced. The sampler looks each second while a clock runs; others ask it to, and may not
 * want to wait until the last look is a moment old. `fn` is called at the loop's next turn when
 * groups of before sampler_epoch() are out of date, and each second while one is.
 */
void sampler_look_at_cpus(struct sampler *sampler, bool at_once);
void sampler_on_cpus(struct sampler *sampler, void (*fn)(void *arg, bool changed), void *arg);
unsigned int sampler_epoch(const struct sampler *sampler);

/*
 * What groups of this epoch and before it have missed: the CPU, and since when. The last ones, in
 * order of time. Borrowed.
 */
struct sampler_outage {
	int cpu;
	unsigned int epoch;
	uint64_t from_ns;
};
#define SAMPLER_OUTAGES_MAX 64
const struct sampler_outage *sampler_outages(const struct sampler *sampler, size_t *ret_n);

/* Cpus whose clocks are stopped, of how many. */
void sampler_resting(const struct sampler *sampler, size_t *ret_resting, size_t *ret_cpus);
/*
 * Samples and switches that the kernel had no room for, in the rings of all targets, as last
 * counted.
 */
uint64_t sampler_lost(const struct sampler *sampler);
/* Ring memory and fds of the shared groups. */
void sampler_usage(const struct sampler *sampler, size_t *ret_groups, uint64_t *ret_bytes,
		   uint64_t *ret_fds);
/* What groups that are set aside hold. */
uint64_t sampler_aside_bytes(const struct sampler *sampler);
