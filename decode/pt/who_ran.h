/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose instructions a buffer holds at a time: the switches of each CPU, from SWITCH_CPU_WIDE,
 * SWITCH, ITRACE_START and sched events, before anything is decoded. Owns nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct budget;
struct perfevent;
struct who_ran;

struct who_ran_span {
	uint64_t from, to; /* perf clock */
	uint32_t pid, tid; /* tid 0: idle */
};

int who_ran_new(struct budget *budget, struct who_ran **ret) _must_check_;
/* Each record, in the order of time, before anybody asks. 0 or -ENOMEM. */
int who_ran_record(struct who_ran *o, const struct perfevent *ev) _must_check_;
/*
 * From then on it is `nobody`, on each CPU of which there is a record, if none is later. 0 or
 * -ENOMEM.
 */
int who_ran_end(struct who_ran *o, uint64_t time, uint32_t nobody) _must_check_;
struct who_ran *who_ran_free(struct who_ran *o);
DEFINE_CLEANUP(struct who_ran *, who_ran_free)

/*
 * Who may run on `cpu` between the two times (a stamp without MTC and CYC is only a lower bound:
 * `to` is the next one): the spans that touch them, in order, at most `room`. Returns how many; 0:
 * nothing is known.
 */
unsigned int who_ran_find(const struct who_ran *o, int32_t cpu, uint64_t from, uint64_t to,
			  struct who_ran_span *ret, unsigned int room);

/*
 * Whether there is a record of that CPU up to `to`: then who is in no span of it did not run there.
 */
bool who_ran_knows(const struct who_ran *o, int32_t cpu, uint64_t to);

/* Whether the thread was on one other CPU than this from the one time to the other. */
bool who_ran_stayed(const struct who_ran *o, int32_t other_than, uint32_t tid, uint64_t from,
		    uint64_t to);

/* The process of a thread, by the last record of it; 0: there is none. */
uint32_t who_ran_process(const struct who_ran *o, uint32_t tid);
