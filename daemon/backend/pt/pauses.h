/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose trace a trigger has paused: a breakpoint in the group of a tracing event stops it before
 * the very instruction (perf_event_open(2), aux_pause, kernel 6.13), for the thread and CPU that
 * came there. Enabling the trace does not let it go on; an event of the group that does
 * (aux_resume) reports it. What a paused thread executes is in no trace, and snapshots say so.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct json_object;

#define PT_PAUSES_MAX 1024

struct pt_pause {
	int cpu;
	uint32_t tid;
	uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC_RAW; to_ns 0: it is paused still */
};

/* {0}: none. Of the loop. */
struct pt_pauses {
	struct pt_pause v[PT_PAUSES_MAX];
	size_t n;
	/* since then threads may be paused that are not in the list; 0: none is */
	uint64_t unknown_ns;
};

/* Where it is paused there already, nothing changes. */
void pt_pauses_begin(struct pt_pauses *pauses, int cpu, uint32_t tid, uint64_t ns);
/* It is traced again there, whether it was known to be paused or not. */
void pt_pauses_end(struct pt_pauses *pauses, int cpu, uint32_t tid, uint64_t ns);
/* There was no room for reports of who was paused. */
void pt_pauses_lose(struct pt_pauses *pauses, uint64_t ns);
/* How many are paused; of threads that have ended it is over. */
size_t pt_pauses_count(struct pt_pauses *pauses);
/*
 * Adds them to "gaps" of meta.json, as of `now_ns`; where it is not known who is paused, those of
 * these CPUs.
 */
void pt_pauses_meta(const struct pt_pauses *pauses, const int *cpus, size_t n_cpus, uint64_t now_ns,
		    struct json_object *gaps);
