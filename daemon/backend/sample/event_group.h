/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of sampling events with its overwrite rings, one on each CPU: the clock, and the outputs
 * of the switch programs. Targets whose threads it covers share a group and count references; a
 * frozen recording holds one, too. It does not change once made, except that its clocks stop and
 * start, so the copier thread may read its rings at any time.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/switch_ring.h"
#include "daemon/perf/eventset.h"
#include "daemon/perf/record.h"
#include "daemon/target/target.h"

struct closer;
struct filter;
struct sampler;
struct survey_job;

enum group_kind { GROUP_CPU, GROUP_CGROUP, GROUP_TASK, GROUP_KINDS };
enum group_event { GROUP_CLOCK, GROUP_STACK, GROUP_PLAIN, GROUP_EVENTS };

struct group_spec {
	enum group_kind kind;
	enum stacks_mode stacks; /* fp or dwarf */
	const pid_t *subjects;   /* GROUP_TASK: threads; GROUP_CGROUP: one directory fd */
	size_t n_subjects;
	uint64_t cgroup_ino;
	bool inherit, inherit_processes; /* GROUP_TASK: threads to come; also processes to come */
	/* PERF_RECORD_SWITCH, where no BPF program reports switches */
	bool switch_records;
	bool kernel;                     /* ticks in the kernel count too (with the user's stack) */
	/* also the kernel's stack: in the rings of such targets only, see group_find() */
	bool kernel_stacks;
	unsigned int hz;
	size_t ring_bytes;   /* of each CPU */
	size_t switch_bytes; /* likewise, for what has no stack, where that has a ring of its own */
	unsigned int stack_bytes;
	unsigned int epoch; /* of CPUs: sampler_epoch() */
	const atomic_bool *cancel; /* while it is opened; may be NULL */
};

/*
 * A group has two kinds of rings on each CPU: those of its events, and those for what has no stack.
 */
enum group_ring { GROUP_RING_EVENTS, GROUP_RING_SWITCHES, GROUP_RINGS };

/* What the rings held at one moment. */
struct group_tally {
	uint32_t pid, tid;
	uint64_t samples, switches;
};
struct group_survey {
	uint64_t at_ns;     /* CLOCK_MONOTONIC_RAW; 0: never made */
	uint64_t oldest_ns; /* everything since then is there, */
	uint64_t oldest_of[GROUP_RINGS]; /* and of each kind of ring */
	uint64_t lost;      /* what the kernel had lost */
	struct group_tally *tallies; /* owned */
	size_t n_tallies, room;
};
void group_survey_fini(struct group_survey *survey);

struct event_group {
	LIST_ENTRY(event_group) link; /* of the sampler */
	struct sampler *sampler;     /* back pointer, not owned */
	unsigned int refs;
	struct group_spec spec; /* without subjects */
	unsigned int index;   /* for the filter; FILTER_NO_GROUP without */
	uint64_t created_ns;  /* CLOCK_MONOTONIC_RAW */
	struct perf_event_attr attrs[GROUP_EVENTS];
	struct record_layout layouts[GROUP_EVENTS];
	struct eventset events[GROUP_EVENTS]; /* STACK and PLAIN write to the rings of CLOCK */
	/* owned, one for each of CLOCK's CPUs; NULL: what has no stack goes to PLAIN */
	struct switch_ring *switches;
	struct filter_rings switch_map; /* mapped: where they are; base is NULL for images */
	struct group_id {
		uint64_t id;
		enum group_event event;
	} *ids; /* owned, sorted */
	size_t n_ids;
	bool is_aside;		    /* no events any more: daemon/backend/sample/aside.h */
	uint64_t lost_before;	    /* by events that it has no more */
	struct group_survey survey; /* the last one; the loop's */
	struct survey_job *surveying; /* the sampler's; NULL: none is under way */
};

const char *group_kind_name(enum group_kind kind);

/*
 * For the sampler, which numbers, shares and frees groups. `filter` may be NULL. Opened on any
 * thread.
 */
int event_group_open(const struct group_spec *spec, struct filter *filter, unsigned int index,
		     uint64_t read_format, struct event_group **ret) _must_check_;
struct event_group *event_group_close(struct event_group *group, struct filter *filter,
				      struct closer *closer);

/* Which event of the group has this id: GROUP_EVENTS if none. Any thread. */
enum group_event event_group_event(const struct event_group *group, uint64_t id);
/* Walks all rings, which takes as long as copying them: any thread but the loop's. 0, -ENOMEM. */
int event_group_look(const struct event_group *group, struct group_survey *ret) _must_check_;
/*
 * The event as a bundle has it: records are CLOCK_MONOTONIC in the rings, and CLOCK_MONOTONIC_RAW
 * in a bundle, as all others there.
 */
struct perf_event_attr event_group_exported_attr(const struct event_group *group,
						 enum group_event event);
/* The memory of its rings, of all CPUs. */
uint64_t event_group_bytes(const struct event_group *group);
uint64_t event_group_lost(const struct event_group *group);
size_t event_group_fds(const struct event_group *group);
