/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of the rings that a target is sampled to, by cost: a cgroup of its own, the machine's shared events, its
 * tasks. What is there already is taken at once, what is to be opened is opened on another thread, one attempt after another.
 */
#pragma once

#include <stdatomic.h>

#include "daemon/backend/sample/sampler.h"
#include "daemon/target/cgroup.h"
#include "daemon/target/target.h"

enum sample_attempt { ATTEMPT_CGROUP, ATTEMPT_CPU, ATTEMPT_TASKS, ATTEMPTS };

struct sample_choice {
	enum sample_attempt attempt;
	struct sampler_opening opening;
	int result; /* of the opening */
	/* what the thread needs; nothing of it is the target's */
	struct cgroup cgroup; /* owned; also what is told of it */
	int proc_dirfd;	      /* owned */
	pid_t tid;
	pid_t *pids; /* owned: of a unit, instead of a directory */
	size_t n_pids, n_tids;
};
#define SAMPLE_CHOICE_INIT                                                                         \
	{                                                                                          \
		.cgroup = CGROUP_INIT, .proc_dirfd = -1                                            \
	}

void sample_choice_fini(struct sample_choice *choice);

/* 0: *ret, with a reference; SAMPLER_OPEN: call sample_choice_open() on a thread, then this again; -errno. */
int sample_choose(struct sample_choice *choice, struct target *target, const atomic_bool *cancel, struct sample_set **ret)
	_must_check_;
void sample_choice_open(struct sample_choice *choice);

/* The stacks that the target's rings should have; the cgroup that holds nothing but the target: 0, or 1 for none. */
enum stacks_mode sample_stacks(const struct target *target);
int sample_own_cgroup(struct target *target, struct cgroup *ret) _must_check_;

/* Records to the set that was chosen, whose reference it takes over: 0, TARGET_E_*, -errno; nothing has changed then. */
int sample_take(struct target *target, struct sample_set *set, char *why, size_t why_size) _must_check_;
/* The same in words for a choice that failed. */
int sample_refused(int error, char *why, size_t why_size);
