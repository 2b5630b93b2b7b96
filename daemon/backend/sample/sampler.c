// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/sampler_internal.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/backend/sample/aside.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/base/closer.h"
#include "daemon/base/copier.h"
#include "daemon/config.h"
#include "daemon/target/cgroup.h"

/*
 * Each costs every switch of its tasks a little, and rings: past this, targets share the machine's.
 */
#define CGROUP_GROUPS_MAX 16
#define SURVEY_AGE_NS 1000000000u
#define STOP_AT_ONCE_FDS 64
#define LOOK_NS 200000000u

/* Work on a group on the closer's thread, with a reference of its own. */
struct survey_job {
	struct copier_job job; /* first */
	struct event_group *group;
	struct group_survey survey;
	int result;
};

struct stopping {
	struct sampler_job job; /* first */
	struct event_group *group;
};

/* ---- what is permitted */

static int try_open(pid_t pid, int cpu, uint64_t read_format)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.sample_type = PERFABI_SAMPLE_ID_TYPE,
		.read_format = read_format,
		.disabled = 1,
		.exclude_kernel = cpu < 0,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
	};
	int fd = perfabi_open(&attr, pid, cpu, -1, 0);

	if (fd < 0)
		return -errno;
	(void)close_fd(fd);
	return 0;
}

static void find_out(struct sampler *sampler)
{
	struct sampler_can *can = &sampler->can;

	can->any_error = try_open(0, -1, 0);
	can->cpu_wide_error = try_open(-1, sampler->cpus[0], 0);
	can->any = can->any_error == 0;
	can->cpu_wide = can->cpu_wide_error == 0;
	can->dwarf = PERFABI_REGS_USER != 0;
	/* Linux 6.0 counts what it lost for each event. */
	if (try_open(0, -1, PERFABI_FORMAT_LOST) == 0)
		sampler->read_format = PERFABI_FORMAT_LOST;
}

/* ---- surveys and stops, on the closer's thread */

static void survey_run(struct copier_job *job)
{
	struct survey_job *s = (struct survey_job *)job;

	s->result = event_group_look(s->group, &s->survey);
}

static void survey_end(struct survey_job *s)
{
	s->group->surveying = NULL;
	group_survey_fini(&s->survey);
	(void)event_group_put(s->group);
	free(s);
}

static void survey_done(struct copier_job *job)
{
	struct survey_job *s = (struct survey_job *)job;
	struct sampler *sampler = s->group->sampler;

	if (s->result == 0) {
		group_survey_fini(&s->group->survey);
		s->group->survey = s->survey;
		s->survey = (struct group_survey){0};
	}
	survey_end(s);
	if (sampler->on_survey)
		sampler->on_survey(sampler->on_survey_arg);
}

void sampler_survey(struct event_group *group)
{
	struct survey_job *s;

	if (group->surveying || group->is_aside ||
	    (group->survey.at_ns && clock_raw_ns() - group->survey.at_ns < SURVEY_AGE_NS))
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		return; /* the last survey has to do */
	s->job = (struct copier_job){.run = survey_run, .done = survey_done};
	s->group = event_group_ref(group);
	group->surveying = s;
	copier_submit(closer_thread(group->sampler->closer), &s->job);
}

void sampler_on_survey(struct sampler *sampler, void (*fn)(void *arg), void *arg)
{
	sampler->on_survey = fn;
	sampler->on_survey_arg = arg;
}

static void job_done(struct copier_job *job)
{
	struct sampler_job *j = (struct sampler_job *)job;

	LIST_REMOVE(j, link);
	if (j->done)
		j->done(j);
	j->free(j);
}

void sampler_submit(struct sampler *sampler, struct sampler_job *job)
{
	job->job.done = job_done;
	LIST_INSERT_HEAD(&sampler->jobs, job, link);
	copier_submit(closer_thread(sampler->closer), &job->job);
}

/*
 * A group's rings are taken from the programs, which takes until none of them runs; and then its
 * number may be another one's.
 */
struct leaving {
	struct sampler_job job; /* first */
	struct sampler *sampler;
	unsigned int index;
};

static void leaving_run(struct copier_job *job)
{
	const struct leaving *l = (struct leaving *)job;

	filter_rings_close(l->sampler->filter, l->index);
}

static void leaving_free(struct sampler_job *job)
{
	struct leaving *l = (struct leaving *)job;

	l->sampler->used_indexes &= ~(1u << l->index);
	free(l);
}

static void release_index(struct sampler *sampler, const struct event_group *group)
{
	const bool waits = group->switch_map.base && closer_thread(sampler->closer);
	struct leaving *l = waits ? calloc(1, sizeof(*l)) : NULL;

	if (!l) {
		/* At the daemon's end the programs do not run any more. */
		if (waits)
			filter_rings_close(sampler->filter, group->index);
		sampler->used_indexes &= ~(1u << group->index);
		return;
	}
	l->job = (struct sampler_job){.job.run = leaving_run, .free = leaving_free};
	l->sampler = sampler;
	l->index = group->index;
	sampler_submit(sampler, &l->job);
}

static void stopping_run(struct copier_job *job)
{
	struct stopping *s = (struct stopping *)job;

	eventset_ioctl(&s->group->events[GROUP_CLOCK], PERF_EVENT_IOC_DISABLE);
}

static void stopping_free(struct sampler_job *job)
{
	struct stopping *s = (struct stopping *)job;

	(void)event_group_put(s->group);
	free(s);
}

void sampler_stop_group(struct event_group *group)
{
	struct stopping *s =
		group->events[GROUP_CLOCK].n_fds > STOP_AT_ONCE_FDS ? calloc(1, sizeof(*s)) : NULL;

	if (!s) {
		eventset_ioctl(&group->events[GROUP_CLOCK], PERF_EVENT_IOC_DISABLE);
		return;
	}
	s->job = (struct sampler_job){.job.run = stopping_run, .free = stopping_free};
	s->group = event_group_ref(group);
	sampler_submit(group->sampler, &s->job);
}

bool sampler_may_set_aside(const struct sampler *sampler, uint64_t bytes)
{
	return bytes <= ((uint64_t)sampler->config->keep_total_mib << 20) - sampler->aside_bytes;
}

uint64_t sampler_aside_bytes(const struct sampler *sampler)
{
	return sampler->aside_bytes;
}

void sampler_set_aside(struct event_group *group)
{
	group->sampler->aside_bytes += event_group_bytes(group);
}

/* ---- CPUs that come and go */

static void outage_add(struct sampler *sampler, const struct cpuwatch_change *change)
{
	struct sampler_outage *all = sampler->outages;

	if (sampler->n_outages == SAMPLER_OUTAGES_MAX) {
		/* Rather too much is not known than too little. */
		all[1].from_ns = all[0].from_ns;
		memmove(all, all + 1, --sampler->n_outages * sizeof(*all));
	}
	all[sampler->n_outages++] = (struct sampler_outage){.cpu = change->cpu,
							    .epoch = sampler->epoch,
							    .from_ns = change->since_ns};
	log_info("CPU %d came or went: what was opened on it before is opened again", change->cpu);
}

void sampler_look_at_cpus(struct sampler *sampler, bool at_once)
{
	struct cpuwatch_change changes[SAMPLER_OUTAGES_MAX];
	const uint64_t now = clock_raw_ns();
	size_t n;
	int r;

	if ((!at_once && now - sampler->looked_ns < LOOK_NS) || !cpuwatch_is_open(&sampler->watch))
		return;
	sampler->looked_ns = now;
	n = cpuwatch_look(&sampler->watch, changes, ARRAY_SIZE(changes));
	if (!n)
		return;
	for (size_t i = 0; i < n; i++)
		outage_add(sampler, &changes[i]);
	sampler->epoch++;
	cpuwatch_close(&sampler->watch);
	r = cpuwatch_open(&sampler->watch);
	if (r == 0)
		r = clocks_renew(sampler);
	if (r < 0)
		log_warning("the CPUs that are online: %s", strerror(-r));
	sampler->changed = true;
	(void)event_add(sampler->outdated, &(struct timeval){0});
}

static void on_outdated(evutil_socket_t fd, short what, void *arg)
{
	struct sampler *sampler = arg;
	const bool changed = sampler->changed;
	const struct timeval second = {.tv_sec = 1};
	struct event_group *group;

	sampler->changed = false;
	if (sampler->on_cpus)
		sampler->on_cpus(sampler->on_cpus_arg, changed);
	/* One whose targets could not change over is tried again; old rings of others go soon. */
	LIST_FOREACH(group, &sampler->groups, link)
		if (group->spec.kind != GROUP_TASK && group->spec.epoch != sampler->epoch) {
			(void)event_add(sampler->outdated, &second);
			return;
		}
}

void sampler_on_cpus(struct sampler *sampler, void (*fn)(void *arg, bool changed), void *arg)
{
	sampler->on_cpus = fn;
	sampler->on_cpus_arg = arg;
}

unsigned int sampler_epoch(const struct sampler *sampler)
{
	return sampler->epoch;
}

const struct sampler_outage *sampler_outages(const struct sampler *sampler, size_t *ret_n)
{
	*ret_n = sampler->n_outages;
	return sampler->outages;
}

/* ---- life */

DEFINE_CLEANUP(struct sampler *, sampler_free)

int sampler_new(struct event_base *base, const struct config *config, struct closer *closer,
		struct sampler **ret)
{
	_cleanup_(sampler_freep) struct sampler *sampler = NULL;
	int r;

	sampler = calloc(1, sizeof(*sampler));
	if (!sampler)
		return -ENOMEM;
	sampler->base = base;
	sampler->config = config;
	sampler->closer = closer;
	STAILQ_INIT(&sampler->asides);
	r = clocks_renew(sampler);
	if (r < 0)
		return r;
	sampler->tick = evtimer_new(base, clocks_on_tick, sampler);
	sampler->outdated = evtimer_new(base, on_outdated, sampler);
	if (!sampler->tick || !sampler->outdated)
		return -ENOMEM;
	find_out(sampler);
	r = filter_new(base, strcmp(config->python_frames, "yes") == 0, clocks_on_wake, sampler,
		       &sampler->filter, sampler->filter_why, sizeof(sampler->filter_why));
	if (r == -ENOMEM)
		return r;
	sampler->can.filter = r == 0;
	sampler->can.filter_why = sampler->filter_why;
	*ret = take_ptr(sampler);
	return 0;
}

struct sampler *sampler_free(struct sampler *sampler)
{
	struct sampler_job *job;
	struct event_group *group, *next;

	if (!sampler)
		return NULL;
	asides_free(sampler);
	/* Jobs whose thread has ended. */
	while ((job = LIST_FIRST(&sampler->jobs)) != NULL) {
		LIST_REMOVE(job, link);
		job->free(job);
	}
	for (group = LIST_FIRST(&sampler->groups); group; group = next) {
		next = LIST_NEXT(group, link);
		if (group->surveying)
			survey_end(group->surveying);
	}
	if (sampler->tick)
		event_free(sampler->tick);
	(void)filter_free(sampler->filter);
	if (sampler->outdated)
		event_free(sampler->outdated);
	cpuwatch_close(&sampler->watch);
	free(sampler->clocks);
	free(sampler->cpus);
	free(sampler);
	return NULL;
}

const struct sampler_can *sampler_can(const struct sampler *sampler)
{
	return &sampler->can;
}

struct unwind *sampler_unwind(const struct sampler *sampler)
{
	return sampler->unwind;
}

void sampler_set_unwind(struct sampler *sampler, struct unwind *unwind)
{
	sampler->unwind = unwind;
}

struct filter *sampler_filter(const struct sampler *sampler)
{
	return sampler->filter;
}

int sampler_programs(struct sampler *sampler, bool wanted)
{
	int r;

	if (!sampler->filter || wanted == sampler->attached)
		return 0;
	if (!wanted) {
		/* Groups that are still held, of targets that have ended, record no more. */
		clocks_rest(sampler);
		filter_stop(sampler->filter);
		sampler->attached = false;
		return 0;
	}
	r = filter_start(sampler->filter);
	if (r < 0)
		return r;
	sampler->attached = true;
	return 0;
}

/* ---- groups */

/*
 * A record with a copy of the stack is fifty times one with a chain of addresses, so those rings
 * are larger; on machines with many cpus each ring is smaller, as each sees less of a program.
 */
size_t sampler_ring_bytes(const struct sampler *sampler, enum stacks_mode stacks)
{
	const struct config *config = sampler->config;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = page, most;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want = (size_t)(stacks == STACKS_DWARF ? config->dwarf_ring_kib : config->ring_kib)
		      << 10;

	most = ((size_t)config->ring_total_mib << 20) / (size_t)(cpus > 0 ? cpus : 1);
	if (want > most)
		want = most;
	/*
	 * The kernel wants a power of two of pages; the 64 KiB that a reader gives up must not be
	 * all of it.
	 */
	while (bytes * 2 <= want)
		bytes *= 2;
	return bytes < 4 * RING_IN_FLIGHT ? 4 * RING_IN_FLIGHT : bytes;
}

size_t sampler_switch_bytes(const struct sampler *sampler, enum stacks_mode stacks)
{
	return sampler_ring_bytes(sampler, stacks) / 2;
}

bool sampler_is_larger(const struct sampler *sampler, const struct group_spec *spec)
{
	return spec->ring_bytes > sampler_ring_bytes(sampler, spec->stacks) ||
	       spec->switch_bytes > sampler_switch_bytes(sampler, spec->stacks);
}

static void spec_common(const struct sampler *sampler, struct group_wish wish,
			struct group_spec *spec)
{
	spec->stacks = wish.stacks;
	spec->kernel_stacks = wish.kernel;
	spec->kernel = sampler->can.cpu_wide;
	spec->hz = sampler->config->sample_hz;
	spec->ring_bytes = wish.ring_bytes;
	spec->switch_bytes = sampler->filter ? wish.switch_bytes : 0;
	spec->epoch = sampler->epoch;
	/* A sample has at most 64 KiB, its stack a multiple of 8. */
	spec->stack_bytes = sampler->config->dwarf_stack_bytes & ~7u;
}

/* Whether there is room for rings that are larger than configured, beside those that are. */
static bool may_be_larger(const struct sampler *sampler, const struct group_spec *spec)
{
	uint64_t bytes = (uint64_t)(spec->ring_bytes + spec->switch_bytes) * sampler->n_cpus;
	const struct event_group *group;

	if (!sampler_is_larger(sampler, spec))
		return true;
	LIST_FOREACH(group, &sampler->groups, link)
		if (sampler_is_larger(sampler, &group->spec))
			bytes += event_group_bytes(group);
	return bytes <= (uint64_t)sampler->config->keep_total_mib << 20;
}

static int prepare(struct sampler *sampler, const struct group_spec *spec, bool outputs,
		   struct sampler_opening *opening)
{
	if (!may_be_larger(sampler, spec))
		return -EDQUOT;
	/* Before the group's events, so that it misses nothing. Events on tasks are on all CPUs. */
	if (spec->kind != GROUP_TASK && !cpuwatch_is_open(&sampler->watch) &&
	    cpuwatch_open(&sampler->watch) < 0)
		log_debug("CPUs that come and go are not watched");
	*opening = (struct sampler_opening){.sampler = sampler,
					    .spec = *spec,
					    .index = FILTER_NO_GROUP};
	if (!outputs)
		return SAMPLER_OPEN;
	if (!~sampler->used_indexes) {
		opening->sampler = NULL;
		return -ENOSPC;
	}
	opening->index = (unsigned int)__builtin_ctz(~sampler->used_indexes);
	sampler->used_indexes |= 1u << opening->index;
	return SAMPLER_OPEN;
}

int sampler_open(struct sampler_opening *opening)
{
	struct sampler *sampler = opening->sampler;

	return event_group_open(&opening->spec, sampler->filter, opening->index,
				sampler->read_format, &opening->group);
}

struct event_group *sampler_adopt(struct sampler_opening *opening)
{
	struct sampler *sampler = opening->sampler;
	struct event_group *group = opening->group;

	group->sampler = sampler;
	if (group->spec.kind == GROUP_CGROUP)
		sampler->n_cgroup_groups++;
	LIST_INSERT_HEAD(&sampler->groups, group, link);
	*opening = (struct sampler_opening){0};
	/* Its clocks run. Start those of the other group, too, so that each CPU has one state. */
	if (group->spec.kind == GROUP_CPU)
		sampler_wake(sampler);
	return group;
}

void sampler_drop(struct sampler_opening *opening)
{
	if (!opening->sampler)
		return;
	if (opening->group)
		(void)event_group_put(sampler_adopt(opening));
	else if (opening->index != FILTER_NO_GROUP)
		opening->sampler->used_indexes &= ~(1u << opening->index);
	*opening = (struct sampler_opening){0};
}

/*
 * The stacks of the kernel are part of the key. A ring is shared by the targets of all users: what
 * none of them asked for, or none of them may see, must never have been in it.
 */
static struct event_group *group_find(const struct sampler *sampler, enum group_kind kind,
				      struct group_wish wish, uint64_t cgroup_ino)
{
	struct event_group *group;

	LIST_FOREACH(group, &sampler->groups, link)
		if (group->spec.kind == kind && group->spec.stacks == wish.stacks &&
		    group->spec.kernel_stacks == wish.kernel &&
		    group->spec.ring_bytes == wish.ring_bytes &&
		    group->spec.switch_bytes == wish.switch_bytes &&
		    group->spec.cgroup_ino == cgroup_ino && group->spec.epoch == sampler->epoch)
			return group;
	return NULL;
}

int sampler_cpu_group(struct sampler *sampler, struct group_wish wish,
		      struct sampler_opening *opening, struct event_group **ret)
{
	struct group_spec spec = {.kind = GROUP_CPU};
	struct event_group *group;

	if (!sampler->can.cpu_wide)
		return sampler->can.cpu_wide_error;
	if (!sampler->filter)
		return -EOPNOTSUPP;
	group = group_find(sampler, GROUP_CPU, wish, 0);
	if (group) {
		*ret = event_group_ref(group);
		return 0;
	}
	spec_common(sampler, wish, &spec);
	return prepare(sampler, &spec, true, opening);
}

int sampler_cgroup_group(struct sampler *sampler, const struct cgroup *cgroup,
			 struct group_wish wish, struct sampler_opening *opening,
			 struct event_group **ret)
{
	struct group_spec spec = {.kind = GROUP_CGROUP, .cgroup_ino = cgroup->ino};
	struct event_group *group;

	if (!sampler->can.cpu_wide)
		return sampler->can.cpu_wide_error;
	group = group_find(sampler, GROUP_CGROUP, wish, cgroup->ino);
	if (group) {
		/* It may have been stopped when its last target was. */
		eventset_ioctl(&group->events[GROUP_CLOCK], PERF_EVENT_IOC_ENABLE);
		*ret = event_group_ref(group);
		return 0;
	}
	if (sampler->n_cgroup_groups >= CGROUP_GROUPS_MAX)
		return -ENOSPC;
	spec_common(sampler, wish, &spec);
	spec.switch_records = !sampler->filter;
	return prepare(sampler, &spec, sampler->filter != NULL, opening);
}

int sampler_task_group(struct sampler *sampler, bool inherit, bool processes,
		       struct group_wish wish, struct sampler_opening *opening)
{
	struct group_spec spec = {.kind = GROUP_TASK,
				.inherit = inherit,
				.inherit_processes = processes,
				.switch_records = true};

	spec_common(sampler, wish, &spec);
	return prepare(sampler, &spec, false, opening);
}

struct event_group *event_group_ref(struct event_group *group)
{
	group->refs++;
	return group;
}

struct event_group *event_group_put(struct event_group *group)
{
	struct sampler *sampler;

	if (!group || --group->refs > 0)
		return NULL;
	sampler = group->sampler;
	if (group->is_aside) {
		sampler->aside_bytes -= event_group_bytes(group);
		return event_group_close(group, NULL, sampler->closer);
	}
	LIST_REMOVE(group, link);
	sampler->lost += group->survey.lost;
	if (group->index != FILTER_NO_GROUP)
		release_index(sampler, group);
	if (group->spec.kind == GROUP_CGROUP)
		sampler->n_cgroup_groups--;
	if (LIST_EMPTY(&sampler->groups))
		cpuwatch_close(&sampler->watch);
	return event_group_close(group, sampler->filter, sampler->closer);
}

uint64_t sampler_lost(const struct sampler *sampler)
{
	const struct event_group *group;
	uint64_t lost = sampler->lost;

	LIST_FOREACH(group, &sampler->groups, link)
		lost += group->survey.lost;
	return lost;
}

void sampler_usage(const struct sampler *sampler, size_t *ret_groups, uint64_t *ret_bytes,
		   uint64_t *ret_fds)
{
	uint64_t bytes = 0, fds = 0;
	struct event_group *group;
	size_t groups = 0;

	LIST_FOREACH(group, &sampler->groups, link)
	{
		groups++;
		bytes += event_group_bytes(group);
		fds += event_group_fds(group);
	}
	*ret_groups = groups;
	*ret_bytes = bytes;
	*ret_fds = fds;
}
