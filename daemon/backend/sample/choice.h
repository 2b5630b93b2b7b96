/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the rings for a target, by cost: those of a cgroup of its own, the machine's shared ones,
 * those of its tasks. Takes a group that exists at once; another one is opened on a thread, one
 * attempt after the other.
 */
#pragma once

#include "daemon/backend/sample/sampler.h"
#include "daemon/target/backend.h"
#include "daemon/target/cgroup.h"
#include "daemon/target/target.h"

enum sample_attempt { ATTEMPT_CGROUP, ATTEMPT_CPU, ATTEMPT_TASKS, ATTEMPTS };

struct sample_choice {
	struct backend_job job; /* first: opens */
	enum sample_attempt attempt;
	bool beside; /* another back end records the target: the machine's rings, or none */
	struct sampler_opening opening;
	/* what the thread needs; nothing of it is the target's */
	struct cgroup cgroup; /* owned; also for the words about it */
	int proc_dirfd;	      /* owned */
	pid_t tid;
	pid_t *pids; /* owned: of a unit, instead of a directory */
	size_t n_pids, n_tids;
};

/* job.free() frees it. 0, -ENOMEM. */
int sample_choice_new(const struct target *target, struct sample_choice **ret) _must_check_;

/* 0: *ret, with a reference; BACKEND_RUN: run the job on a thread, then call this again; -errno. */
int sample_choose(struct sample_choice *choice, struct target *target,
		  struct event_group **ret) _must_check_;

/*
 * The stacks and the size that the target's rings should have; the cgroup that holds nothing but
 * the target: 0, or 1 for none.
 */
enum stacks_mode sample_stacks(const struct target *target);
size_t sample_ring_bytes(const struct target *target);
size_t sample_switch_bytes(const struct target *target);
int sample_own_cgroup(struct target *target, struct cgroup *ret) _must_check_;
/* These are the events of a control group that the unit had: they never see anything again. */
bool sample_is_of_the_past(const struct target *target, const struct event_group *group);
