// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "common/base/raw_clock.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/sampler_internal.h"

#define REST_AFTER_NS 2000000000u

static size_t cpu_index(const struct sampler *sampler, uint32_t cpu)
{
	for (size_t i = 0; i < sampler->n_cpus; i++)
		if (sampler->cpus[i] == (int)cpu)
			return i;
	return sampler->n_cpus;
}

static void clock_set(struct sampler *sampler, size_t index, bool rest)
{
	struct event_group *group;

	sampler->clocks[index].resting = rest;
	if (!rest)
		sampler->clocks[index].since_ns = clock_raw_ns();
	LIST_FOREACH(group, &sampler->groups, link)
		if (group->spec.kind == GROUP_CPU)
			eventset_ioctl_on_cpu(&group->events[GROUP_CLOCK], sampler->cpus[index],
					   rest ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE);
}

static bool have_cpu_groups(const struct sampler *sampler)
{
	struct event_group *group;

	LIST_FOREACH(group, &sampler->groups, link)
		if (group->spec.kind == GROUP_CPU)
			return true;
	return false;
}

static void tick_start(struct sampler *sampler)
{
	struct timeval second = {.tv_sec = 1};

	if (!event_pending(sampler->tick, EV_TIMEOUT, NULL))
		(void)event_add(sampler->tick, &second);
}

void clocks_on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct sampler *sampler = arg;
	uint64_t now = clock_raw_ns();
	bool running = false;

	sampler_look_at_cpus(sampler, false);
	if (!sampler->filter || !sampler->attached || !have_cpu_groups(sampler))
		return;
	for (size_t i = 0; i < sampler->n_cpus; i++) {
		uint32_t cpu = (uint32_t)sampler->cpus[i];

		if (sampler->clocks[i].resting)
			continue;
		if (now - sampler->clocks[i].since_ns < REST_AFTER_NS ||
		    filter_cpu_idle(sampler->filter, cpu) < REST_AFTER_NS ||
		    !filter_cpu_rest(sampler->filter, cpu))
			running = true;
		else
			clock_set(sampler, i, true);
	}
	if (running)
		tick_start(sampler);
}

void clocks_on_wake(void *arg, uint32_t cpu)
{
	struct sampler *sampler = arg;
	size_t index;

	sampler_look_at_cpus(sampler, false);
	index = cpu_index(sampler, cpu);
	if (index == sampler->n_cpus || !sampler->clocks[index].resting)
		return;
	clock_set(sampler, index, false);
	tick_start(sampler);
}

void sampler_wake(struct sampler *sampler)
{
	if (!have_cpu_groups(sampler))
		return;
	for (size_t i = 0; i < sampler->n_cpus; i++) {
		if (sampler->clocks[i].resting)
			clock_set(sampler, i, false);
		else
			sampler->clocks[i].since_ns = clock_raw_ns();
	}
	tick_start(sampler);
}

void sampler_resting(const struct sampler *sampler, size_t *ret_resting, size_t *ret_cpus)
{
	size_t n = 0;

	for (size_t i = 0; i < sampler->n_cpus; i++)
		n += sampler->clocks[i].resting;
	*ret_resting = n;
	*ret_cpus = sampler->n_cpus;
}

int clocks_renew(struct sampler *sampler)
{
	_cleanup_free_ int *cpus = NULL;
	struct clock *clocks;
	size_t n;
	int r;

	r = cpus_online(&cpus, &n);
	if (r < 0)
		return r;
	clocks = calloc(n, sizeof(*clocks));
	if (!clocks)
		return -ENOMEM;
	free(sampler->cpus);
	free(sampler->clocks);
	sampler->cpus = take_ptr(cpus);
	sampler->clocks = clocks;
	sampler->n_cpus = n;
	for (size_t i = 0; i < n; i++)
		clock_set(sampler, i, false);
	return 0;
}

void clocks_rest(struct sampler *sampler)
{
	for (size_t i = 0; i < sampler->n_cpus; i++)
		if (!sampler->clocks[i].resting)
			clock_set(sampler, i, true);
}
