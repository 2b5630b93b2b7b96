/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of sampling events with its overwrite rings, one a cpu: the clock, and the outputs of the
 * switch programs. A set is shared by the targets whose threads it covers and counted by
 * references; a frozen recording holds one too. Immutable once made, but for the clocks being
 * stopped and started, so the copier thread reads its rings freely.
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
#include "daemon/perf/eventset.h"
#include "daemon/perf/record.h"
#include "daemon/target/target.h"

struct closer;
struct filter;
struct sampler;
struct survey_job;

enum set_kind { SET_CPU, SET_CGROUP, SET_TASK, SET_KINDS };
enum set_event { SET_CLOCK, SET_STACK, SET_PLAIN, SET_EVENTS };

struct set_spec {
	enum set_kind kind;
	enum stacks_mode stacks; /* fp or dwarf */
	const pid_t *subjects;   /* SET_TASK: threads; SET_CGROUP: one directory fd */
	size_t n_subjects;
	uint64_t cgroup_ino;
	bool inherit, inherit_processes; /* SET_TASK: threads to come; also processes to come */
	bool switch_records;             /* PERF_RECORD_SWITCH, where no program tells of switches */
	bool kernel;                     /* ticks in the kernel count too (with the user's stack) */
	unsigned int hz;
	size_t ring_bytes;
	unsigned int stack_bytes;
	const atomic_bool *cancel; /* while it is opened; may be NULL */
};

/* What the rings held at one moment. */
struct set_tally {
	uint32_t pid, tid;
	uint64_t samples, switches;
};
struct set_survey {
	uint64_t at_ns;     /* CLOCK_MONOTONIC_RAW; 0: never made */
	uint64_t oldest_ns; /* everything since then is there */
	uint64_t lost;      /* what the kernel had lost */
	struct set_tally *tallies; /* owned */
	size_t n_tallies, room;
};
void set_survey_fini(struct set_survey *survey);

struct sample_set {
	LIST_ENTRY(sample_set) link; /* of the sampler */
	struct sampler *sampler;     /* back pointer, not owned */
	unsigned int refs;
	struct set_spec spec; /* without subjects */
	unsigned int index;   /* for the filter; FILTER_NO_SET without */
	uint64_t created_ns;  /* CLOCK_MONOTONIC_RAW */
	struct perf_event_attr attrs[SET_EVENTS];
	struct record_layout layouts[SET_EVENTS];
	struct eventset events[SET_EVENTS]; /* STACK and PLAIN write to the rings of CLOCK */
	struct set_id {
		uint64_t id;
		enum set_event event;
	} *ids; /* owned, sorted */
	size_t n_ids;
	struct set_survey survey; /* the last one that was made: the loop's */
	struct survey_job *surveying; /* the sampler's; NULL: none is under way */
};

const char *set_kind_name(enum set_kind kind);

/* For the sampler, which numbers, shares and frees sets. `filter` may be NULL. Opened on any thread. */
int sample_set_open(const struct set_spec *spec, struct filter *filter, unsigned int index, uint64_t read_format,
		    struct sample_set **ret) _must_check_;
struct sample_set *sample_set_close(struct sample_set *set, struct filter *filter, struct closer *closer);

/* Which event of the set has this id: SET_EVENTS if none. Any thread. */
enum set_event sample_set_event(const struct sample_set *set, uint64_t id);
/* Walks all rings, which takes as long as copying them: any thread but the loop's. 0, -ENOMEM. */
int sample_set_look(const struct sample_set *set, struct set_survey *ret) _must_check_;
uint64_t sample_set_lost(const struct sample_set *set);
size_t sample_set_fds(const struct sample_set *set);
