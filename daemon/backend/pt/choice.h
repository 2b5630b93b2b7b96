/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the events of a PT recording: sampling begins to record the waits, then the threads are
 * counted on a thread, the budget is checked on the loop, and events are opened on a thread. Of a
 * recording that exists, only those of threads that it has not.
 */
#pragma once

#include "daemon/backend/pt/budget.h"
#include "daemon/backend/pt/events.h"
#include "daemon/target/backend.h"
#include "daemon/target/target.h"

enum pt_phase { PT_PHASE_WAITS, PT_PHASE_COUNT, PT_PHASE_OPEN };

struct pt_choice {
	struct backend_job job; /* first */
	enum pt_phase phase;
	struct backend_job *waits; /* owned: of sampling, beside it; NULL: none runs */
	struct pt_budget budget; /* of what is to be opened */
	size_t n_online; /* CPUs, of all that the budget is of */
	bool to_come; /* with those that are offline */
	unsigned int epoch; /* of CPUs that have come, before they are opened */
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct closer *closer; /* not owned */
	struct pt_events *events; /* opened; or referenced, to be grown */
	struct pt_filter *filter; /* referenced; NULL: none */
	bool grows;
	/* its unit was started again: nobody is there any more of those that the events are of */
	bool anew;
	uint64_t cgroup; /* the unit's */
	char why[160]; /* of TARGET_E_* as the result */
	char holders[200]; /* who may hold the PMU, where it is busy */
	/* what the thread needs; nothing of it is the target's */
	bool host;	/* no threads: the CPUs */
	int proc_dirfd; /* owned; -1: of a unit */
	pid_t tid;
	pid_t *pids; /* owned: of a unit */
	size_t n_pids;
};

/* job.free() frees it. 0, -ENOMEM, -errno. */
int pt_choice_new(const struct target *target, struct pt_choice **ret) _must_check_;
