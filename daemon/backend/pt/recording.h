/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the PT back end keeps of the machine and of a target. Owned by daemon/backend/pt/backend.c;
 * its neighbours read it.
 */
#pragma once

#include "daemon/backend/pt/attr.h"
#include "daemon/backend/pt/events.h"
#include "daemon/backend/pt/filter.h"
#include "daemon/backend/pt/pmu.h"
#include "daemon/backend/pt/stopper.h"
#include "daemon/control/quota.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

struct pt_machine {
	bool available;
	bool can_pause; /* an event of its group may stop the trace (kernel 6.13) */
	struct stopper *stopper; /* NULL: there is nothing to stop */
	struct newcomers *newcomers; /* alike */
	struct pt_pmu pmu;
	char why[200]; /* how, or why not */
	uint64_t read_format;
	uint64_t gone_blind_ns; /* of targets that are gone */
};

struct pt_recording {
	struct target *target; /* back pointer */
	struct pt_events *events; /* referenced; NULL: not armed yet */
	bool uses;	  /* it counts among the events' users */
	bool looks;	  /* it counts among those who hear of CPUs that come */
	bool misses;	  /* such a CPU is not traced, and the target says so */
	bool shares;	  /* another target has opened the events, and pays for them */
	bool is_part;	  /* they have more than this target */
	uint64_t cgroup;  /* whose processes were opened last; 0: those of none */
	size_t aux_bytes; /* of each CPU */
	bool ring_asked, timing_asked; /* by the client, not by the configuration */
	uint64_t left_out; /* how often what came later could not be traced, too */
	bool automatic;	  /* nobody asked for PT: without it samples are taken */
	bool waits_asked;
	enum stacks_mode stacks_asked;
	enum pt_timing timing;
	struct pt_filter *filter; /* referenced; NULL: all code is traced */
	struct quota_charge charge;
};

/* NULL if another back end has the target. */
static inline struct pt_recording *pt_recording_of(const struct target *target)
{
	return target->backend == &backend_pt ? target->recording : NULL;
}

static inline const char *pt_method_of(const struct target *target)
{
	return target->scope == TARGET_HOST ? "cpu" : "task";
}

static inline struct pt_machine *pt_machine_of(const struct targets *targets)
{
	return targets_machine(targets, &backend_pt);
}
