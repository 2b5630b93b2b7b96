// SPDX-License-Identifier: Apache-2.0
/*
 * The sampling back end of a target: what it records to and since when, and when another choice of rings is
 * better (daemon/backend/sample/choice.c chooses). What the copy does with the rings is in daemon/backend/sample/export.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/log.h"
#include "daemon/backend/backend.h"
#include "daemon/backend/sample/choice.h"
#include "daemon/backend/sample/export.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/base/clock.h"
#include "daemon/config.h"
#include "daemon/target/target_internal.h"

/* Rings from before a change are kept until the new ones explain a good while by themselves. */
#define OLD_SOURCE_SECONDS 30

/* What the set costs its owner: shared ones are the daemon's. */
static int charge_rings(struct target *target, const struct sample_set *set)
{
	struct quota_charge charge = {0};
	int r;

	if (set->spec.kind != SET_CPU) {
		r = quota_charge(target->targets->quota, target->owner, QUOTA_RING_BYTES,
				 set->events[SET_CLOCK].ring_bytes, &charge);
		if (r != 0)
			return r;
	}
	r = target_charge_fds(target, set->spec.kind != SET_CPU ? sample_set_fds(set) : 0);
	if (r != 0) {
		quota_release(&charge);
		return r;
	}
	quota_release(&target->charge_rings);
	target->charge_rings = charge;
	return 0;
}

/* ---- sources */

static void source_push(struct target *target, struct sample_set *set, uint64_t now)
{
	struct timeval keep = {.tv_sec = OLD_SOURCE_SECONDS};

	if (target->n_sources == TARGET_SOURCES_MAX)
		(void)sample_set_put(target->sources[--target->n_sources].set);
	if (target->n_sources)
		target->sources[0].to_ns = now;
	memmove(&target->sources[1], &target->sources[0], target->n_sources * sizeof(struct source));
	target->sources[0] = (struct source){
		/* Events of its own are new; those that are shared are few. */
		.set = set, .from_ns = now, .to_ns = UINT64_MAX, .lost_at = set->refs > 1 ? sample_set_lost(set) : 0};
	target->n_sources++;
	if (target->n_sources > 1)
		(void)event_add(target->settle_event, &keep);
}

static void sample_settle(struct target *target)
{
	while (target->n_sources > 1)
		(void)sample_set_put(target->sources[--target->n_sources].set);
	(void)!target_charge_fds(target, 0);
}

int sample_refused(int r, char *why, size_t why_size)
{
	if (r == -ESRCH) {
		(void)snprintf(why, why_size, "the process has ended");
		return TARGET_E_GONE;
	}
	if (r == -EACCES || r == -EPERM || r == -ENOSYS) {
		(void)snprintf(why, why_size, "the kernel does not permit perf events on it (%s): tracerd needs CAP_PERFMON",
			       strerror(-r));
		return TARGET_E_UNSUPPORTED;
	}
	if (r == -EMFILE || r == -ENFILE) {
		(void)snprintf(why, why_size, "tracerd is out of file descriptors");
		return TARGET_E_BUSY;
	}
	if (r == -ENOBUFS) {
		(void)snprintf(why, why_size, "no locked memory is left for its rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
		return TARGET_E_BUSY;
	}
	(void)snprintf(why, why_size, "perf events: %s", strerror(-r));
	return r;
}

int sample_take(struct target *target, struct sample_set *set, char *why, size_t why_size)
{
	struct sampler *sampler = target->targets->sampler;
	int r;

	if (target->n_sources && target->sources[0].set == set) {
		(void)sample_set_put(set); /* the limit of cgroups, for one: the old choice was the best */
		return 0;
	}
	r = charge_rings(target, set);
	if (r != 0) {
		(void)snprintf(why, why_size, "uid %u has no ring memory or descriptors left for it (%zu needed)",
			       (unsigned int)target->owner, sample_set_fds(set));
		(void)sample_set_put(set);
		return r > 0 ? TARGET_E_QUOTA : r;
	}
	if (set->events[SET_CLOCK].ring_bytes <
	    set->events[SET_CLOCK].n_cpus * set->spec.ring_bytes / 2)
		target_warn(target, "smaller rings than configured: the limit of locked memory (CAP_IPC_LOCK, LimitMEMLOCK=)");
	source_push(target, set, clock_raw_ns());
	r = sampler_programs(sampler, true);
	if (r < 0)
		log_debug("attaching BPF programs: %s", strerror(-r));
	r = members_filter_all(target);
	if (r < 0) {
		(void)snprintf(why, why_size, "BPF filter: %s", strerror(-r));
		return r == -E2BIG ? TARGET_E_BUSY : r;
	}
	sampler_wake(sampler);
	return 0;
}

/* Whether the present set still is the right one. */
static bool set_fits(struct target *target, bool members_added)
{
	const struct sample_set *set = target->sources[0].set;
	_cleanup_(cgroup_close) struct cgroup own = CGROUP_INIT;

	if (set->spec.stacks != sample_stacks(target))
		return false;
	/* Events on tasks follow forks, but not who is moved into a unit. */
	if (target->scope == TARGET_UNIT)
		return set->spec.kind == SET_CGROUP || !members_added;
	if (!sampler_can(target->targets->sampler)->cpu_wide)
		return true;
	if (sample_own_cgroup(target, &own) == 0)
		return set->spec.kind == SET_CGROUP && set->spec.cgroup_ino == own.ino;
	return set->spec.kind != SET_CGROUP;
}

static int sample_review(struct target *target, bool members_added)
{
	if (target->n_sources && !set_fits(target, members_added))
		target_work(target, WORK_RINGS);
	return 0;
}

static bool set_is_wanted(const struct targets *targets, const struct sample_set *set)
{
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (target->state == TARGET_ARMED && target->n_sources && target->sources[0].set == set)
			return true;
	return false;
}

static void sample_stop(struct target *target)
{
	struct source *now = &target->sources[0];

	if (target->n_sources && now->to_ns == UINT64_MAX)
		now->to_ns = clock_raw_ns();
	/*
	 * The shared clocks just pass nothing of it any more. Events of its own would go on over
	 * what was recorded, perhaps of a program that nobody was allowed to see.
	 */
	for (size_t i = 0; i < target->n_sources; i++) {
		struct sample_set *set = target->sources[i].set;

		if (set->spec.kind != SET_CPU && !set_is_wanted(target->targets, set))
			sampler_stop_set(set);
	}
}

static void sample_disarm(struct target *target)
{
	while (target->n_sources > 0)
		(void)sample_set_put(target->sources[--target->n_sources].set);
	quota_release(&target->charge_rings);
	if (target->targets->n_armed == target->targets->n_events)
		(void)!sampler_programs(target->targets->sampler, false);
}

static bool sample_probe(const struct targets *targets, const char **ret_method, char *why, size_t why_size)
{
	const struct sampler_can *can = sampler_can(targets->sampler);

	*ret_method = can->cpu_wide && can->filter ? "cpu" : can->any ? "task" : "none";
	if (!can->any) {
		(void)snprintf(why, why_size, "perf_event_open: %s", strerror(-can->any_error));
		return false;
	}
	if (!can->cpu_wide)
		(void)snprintf(why, why_size, "no events on cpus: %s", strerror(-can->cpu_wide_error));
	else if (!can->filter)
		(void)snprintf(why, why_size, "no BPF: %s", can->filter_why);
	else
		(void)snprintf(why, why_size, "a cgroup's events where one holds only the target, else the machine's with a filter");
	return true;
}

/* ---- numbers */

static void stats_add(struct target *target, const struct source *source, struct backend_stats *ret)
{
	const struct set_survey *survey = &source->set->survey;

	for (size_t i = 0; i < survey->n_tallies; i++) {
		const struct set_tally *t = &survey->tallies[i];

		if (target->scope == TARGET_THREAD && t->tid != (uint32_t)target->tid)
			continue;
		if (!member_known(target, (pid_t)t->pid))
			continue;
		ret->samples += t->samples;
		ret->switches += t->switches;
	}
}

/* Of the last survey: who wants the numbers of now asks for one before (targets_survey()). */
static void sample_stats(struct target *target, struct backend_stats *ret)
{
	struct backend_stats out = {.method = "none"};
	uint64_t end = target->state == TARGET_ARMED ? clock_raw_ns() : target->ended_ns;
	uint64_t oldest = target_oldest_ns(target);
	const struct sample_set *set;

	for (size_t i = 0; i < target->n_sources; i++)
		stats_add(target, &target->sources[i], &out);
	if (target->n_sources) {
		set = target->sources[0].set;
		out.method = set_kind_name(set->spec.kind);
		if (set->spec.kind != SET_CPU)
			out.ring_bytes = set->events[SET_CLOCK].ring_bytes;
		if (set->survey.lost > target->sources[0].lost_at)
			out.lost = set->survey.lost - target->sources[0].lost_at;
	}
	out.lookback_ns = end > oldest ? end - oldest : 0;
	*ret = out;
}

const struct backend backend_sample = {
	.name = "sample",
	.probe = sample_probe,
	.review = sample_review,
	.settle = sample_settle,
	.stop = sample_stop,
	.disarm = sample_disarm,
	.freeze = samplecopy_freeze,
	.copy = samplecopy_copy,
	.resume = samplecopy_resume,
	.stats = sample_stats,
};
