/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target on its way to be armed: checked, charged, in no list, not seen by anybody. It ends by exactly one answer, as a
 * target that records or refused. For daemon/target/arm.c and those that find out on the way that it cannot be.
 */
#pragma once

#include <sys/queue.h>

#include "daemon/target/target.h"

struct cgroup;
struct event;

struct arming {
	TAILQ_ENTRY(arming) link;
	struct target *target; /* owned */
	struct event *limit;   /* the answer comes then at the latest */
	targets_armed_fn fn; /* NULL: who asked has gone */
	void *arg;
	int maps_fd; /* what proves the requester's right, until it is looked at; -1: none is needed */
	int answer; /* not 0: refused, and freed at the loop's next turn */
	char why[200];
};

/* Its recording cannot begin, or has ended already. The first reason counts. Safe anywhere: what is freed is freed later. */
void arming_refuse(struct target *target, int answer, const char *why);
/* Answers and frees those that are refused. */
void armings_reap(struct targets *targets);

/* Steps of daemon/target/work.c, in this order; the last one makes it a target, or refuses. */
bool arming_proved(struct target *target, int result);
bool arming_found(struct target *target, int result, struct cgroup *cgroup);
void arming_begin(struct target *target);
void arming_read_failed(struct target *target, int error);
void arming_finish(struct target *target);
