/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target on its way to be armed: checked and charged, but in no list, so nobody sees it. It ends
 * with one answer: it records, or it is refused. For daemon/target/arm.c and the steps that can
 * find a reason to refuse.
 */
#pragma once

#include <sys/queue.h>

#include "daemon/target/target.h"

struct cgroup;
struct event;
struct proc;

struct arming {
	TAILQ_ENTRY(arming) link;
	struct target *target; /* owned */
	struct event *limit;   /* the latest time of the answer */
	targets_armed_fn fn; /* NULL: who asked has gone */
	void *arg;
	/* to a part of the code, or the stepper has it already: no other recording is the same */
	bool filtered;
	bool wait_min;	   /* it was said which waits are to have stacks */
	uint64_t existing; /* the target that records it already; 0 */
	/* what proves the requester's right, until it is looked at; -1: none is needed */
	int maps_fd;
	int answer; /* not 0: refused, freed at the loop's next turn */
	char why[200];
};

/* Refuses it. The first reason counts. Safe anywhere: the target is freed later. */
void arming_refuse(struct target *target, int answer, const char *why);
/* Answers and frees the refused ones. */
void armings_reap(struct targets *targets);

/*
 * Of a request that names a process, also of one that joins a target. Why proc_open() failed, as a
 * refusal: TARGET_E_*, -errno.
 */
int arming_open_failed(int error, char *why, size_t size);
/*
 * Whether the requester may have it recorded, as far as that can be told at once; *ret_maps_fd,
 * which is to be looked at on a thread, is the caller's, and stays as it is for an administrator.
 * 0, TARGET_E_*, -errno.
 */
int arming_may(const struct target_request *req, const struct proc *proc, uid_t *ret_uid,
	       int *ret_maps_fd, char *why, size_t size) _must_check_;

/* Called by the work on it, in this order; the last one makes it a target, or refuses. */
bool arming_proved(struct target *target, int result);
bool arming_found(struct target *target, int result, struct cgroup *cgroup);
void arming_begin(struct target *target);
void arming_read_failed(struct target *target, int error);
void arming_finish(struct target *target);
