/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out when events on CPUs have ended: a CPU that goes offline, as all but one do when the
 * machine is suspended, takes its events with it, and they stay as they are, and record nothing,
 * when it comes back. And a CPU that came later has none. An event of its own on each CPU tells:
 * its time goes on as long as it lives. It goes slower than any clock, since it stands still while
 * the kernel takes events off the CPU and puts them back, as at each switch between cgroups that
 * have events of their own. So what counts is whether it goes on at all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/* For how long an event has lived, and whether another reading at once said more. */
struct cpuwatch_reading {
	uint64_t at_ns; /* CLOCK_MONOTONIC_RAW, before it was read */
	uint64_t lived_ns;
	bool goes_on;
};

struct cpuwatch {
	int *cpus;	  /* owned: that were online */
	int *fds;	  /* owned */
	struct cpuwatch_reading *last; /* owned: that went on */
	uint64_t *away_ns; /* owned: the last look that found it offline; 0: none did */
	size_t n;
	uint64_t seen_ns; /* the last look that found all of them as they were */
};
#define CPUWATCH_INIT {.cpus = NULL}

/*
 * From then on events on CPUs record nothing of this one, if they were opened before: it is online,
 * and theirs have ended, or there are none. While it is offline nothing runs there that could be
 * missed.
 */
struct cpuwatch_change {
	int cpu;
	uint64_t since_ns; /* CLOCK_MONOTONIC_RAW, rather too early than too late */
};

/* On the CPUs that are online. 0, -errno. */
int cpuwatch_open(struct cpuwatch *ret) _must_check_;
void cpuwatch_close(struct cpuwatch *watch);
static inline bool cpuwatch_is_open(const struct cpuwatch *watch)
{
	return watch->n > 0;
}
/* The changes since it was opened: how many, at most `room`. After any, open another one. */
size_t cpuwatch_look(struct cpuwatch *watch, struct cpuwatch_change *ret, size_t room);
/*
 * For tests: the same at a time, by what the events and the kernel say. now[i]: of the event on
 * cpus[i].
 */
size_t cpuwatch_compare(struct cpuwatch *watch, uint64_t now_ns, const struct cpuwatch_reading *now,
			const int *online, size_t n_online, struct cpuwatch_change *ret,
			size_t room);
