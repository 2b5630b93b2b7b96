/* SPDX-License-Identifier: Apache-2.0 */
/* What a sampler is made of, for sampler.c and clocks.c. */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/backend/sample/sampler.h"
#include "daemon/perf/cpuwatch.h"

struct sampler {
	struct event_base *base;
	const struct config *config; /* not owned */
	struct filter *filter;
	char filter_why[160];
	struct sampler_can can;
	uint64_t read_format;
	LIST_HEAD(, event_group) groups;
	uint64_t lost; /* by those that are no more */
	uint32_t used_indexes; /* bit for each index of the filter */
	size_t n_cgroup_groups;
	bool attached;
	/* Clocks of the machine-wide groups, by number of cpu. */
	int *cpus;
	size_t n_cpus;
	struct clock {
		bool resting;
		uint64_t since_ns; /* when it was last started */
	} *clocks;
	struct event *tick; /* pending while a clock runs */
	/* CPUs that come and go. */
	struct cpuwatch watch; /* while there are groups */
	uint64_t looked_ns;
	unsigned int epoch; /* of groups that are opened now */
	struct sampler_outage outages[SAMPLER_OUTAGES_MAX]; /* in order of time */
	size_t n_outages;
	struct event *outdated; /* pending: groups are */
	bool changed;
	void (*on_cpus)(void *arg, bool changed);
	void *on_cpus_arg;
	struct closer *closer;
	LIST_HEAD(, sampler_job) jobs;
	STAILQ_HEAD(asides, aside) asides; /* that wait for the job under way */
	bool asides_run;
	uint64_t aside_bytes;
	struct unwind *unwind; /* not owned */
	void (*on_survey)(void *arg);
	void *on_survey_arg;
};

/*
 * ---- clocks.c: the clocks of the machine-wide groups, which rest while no target runs on their
 * CPU
 */

void clocks_on_tick(evutil_socket_t fd, short what, void *arg);
void clocks_on_wake(void *arg, uint32_t cpu);
/* Stops all. */
void clocks_rest(struct sampler *sampler);
/* The clocks of the CPUs that are online now; all run. 0, -errno: they are as they were. */
int clocks_renew(struct sampler *sampler) _must_check_;
