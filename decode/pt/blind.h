/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a CPU was not traced although threads of the recording ran on it: while an earlier snapshot
 * was copied, since a trigger has paused the trace of a thread, or since it came online. The trace
 * itself does not say so: it stops as if the kernel had been entered, and goes on wherever the
 * thread is by then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct who_ran;

/* Of meta.json. */
struct pt_blind {
	int32_t cpu;
	uint32_t tid; /* 0: of any thread */
	/*
	 * it is not known of which thread: not of one that has its own there, which begins no
	 * earlier
	 */
	bool unknown;
	bool late;    /* the CPU came online when the recording had begun, and has no events */
	bool unseen;  /* nor does anything else say who runs there */
	uint64_t from, to; /* perf clock */
	uint64_t latest;   /* end of those up to this one, see pt_blind_sort() */
};

/* By their begin, with `latest` for pt_blind_find(). */
void pt_blind_sort(struct pt_blind *v, size_t n);

/*
 * The first of them, sorted, in which the thread ran, or may have run, between the two times: its
 * trace stopped at `from` and goes on at `to`. NULL: there is none.
 */
const struct pt_blind *pt_blind_find(const struct pt_blind *v, size_t n, const struct who_ran *who,
				     uint32_t tid, uint64_t from, uint64_t to);
