/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUs that recordings miss. Events of threads are opened on all CPUs that may come online
 * (cpus_to_come()), so what remains is one that nobody could know of, or that there was no memory
 * for; and events of a whole CPU, which end when it goes offline and are not there when one comes.
 * While there are recordings each second is looked for such changes, of all of them at once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct event_base;
struct newcomers;
struct pt_events;

/* Whoever runs on that CPU from then on is not traced, and nobody records that it runs there. */
struct pt_missed_cpu {
	int cpu;
	uint64_t from_ns; /* CLOCK_MONOTONIC_RAW, rather too early than too late */
};

/*
 * changed() hears of those that a look has found, soon after it, on the loop; events of other kinds
 * have ended, or miss these CPUs, from `since_ns` on.
 */
int newcomers_new(struct event_base *base, void (*changed)(void *arg, uint64_t since_ns), void *arg,
		  struct newcomers **ret) _must_check_;
struct newcomers *newcomers_free(struct newcomers *n);

/*
 * One more, or one less, recording: before its events are opened, and after they are closed. Its
 * events remember newcomers_epoch() of then.
 */
void newcomers_use(struct newcomers *n);
void newcomers_leave(struct newcomers *n);
unsigned int newcomers_epoch(const struct newcomers *n);

/* At once. */
void newcomers_look(struct newcomers *n);
/* What the events miss, by the last look. A new array. 0, -ENOMEM. */
int newcomers_missed(const struct newcomers *n, const struct pt_events *events,
		     struct pt_missed_cpu **ret, size_t *ret_n) _must_check_;
/* How many these are. */
size_t newcomers_count(const struct newcomers *n, const struct pt_events *events);
