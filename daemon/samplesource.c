// SPDX-License-Identifier: Apache-2.0
/*
 * The sampling back end of a target: which rings it records to, by cost, and when another choice is
 * better. What the copy does with the rings is in daemon/samplecopy.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/log.h"
#include "daemon/backend.h"
#include "daemon/config.h"
#include "daemon/filter.h"
#include "daemon/samplecopy.h"
#include "daemon/targetstate.h"

/* Rings from before a change are kept until the new ones explain a good while by themselves. */
#define OLD_SOURCE_SECONDS 30

static enum stacks_mode stacks_now(const struct target *target)
{
	return target->stacks == STACKS_DWARF ? STACKS_DWARF : STACKS_FP;
}

/* ---- the choice */

/* The cgroup that holds nothing but the target, if there is one: 0 or 1 for none. */
static int own_cgroup(struct target *target, struct cgroup *ret)
{
	_cleanup_(cgroup_close) struct cgroup cgroup = CGROUP_INIT;
	char path[CGROUP_NAME_MAX];
	int r;

	if (target->scope == TARGET_THREAD || target->targets->cgroup_fd < 0)
		return 1;
	if (proc_cgroup_read(target->proc.dirfd, path, sizeof(path)) < 0 || strcmp(path, "/") == 0)
		return 1;
	r = cgroup_open(target->targets->cgroup_fd, path, &cgroup);
	if (r != 0 || !cgroup_holds_only(&cgroup, target->proc.pid))
		return 1;
	*ret = cgroup;
	cgroup.dirfd = -1;
	return 0;
}

static void warn_plain_waits(struct target *target)
{
	target_warn(target, "waits have no stacks and no wake-ups: these need BPF");
}

static int take_cgroup(struct target *target, struct sample_set **ret)
{
	_cleanup_(cgroup_close) struct cgroup own = CGROUP_INIT;
	const struct cgroup *cgroup = &target->cgroup;
	int r;

	if (target->scope != TARGET_UNIT) {
		if (own_cgroup(target, &own) != 0)
			return -ENOENT;
		cgroup = &own;
	}
	r = sampler_cgroup_set(target->targets->sampler, cgroup, stacks_now(target), ret);
	if (r < 0)
		return r;
	target_say_why(target, "method cgroup: %s holds only this target", cgroup->path);
	if (target->waits && !sampler_filter(target->targets->sampler))
		warn_plain_waits(target);
	return 0;
}

static int task_tids(struct target *target, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ pid_t *all = NULL;
	struct member *member;
	size_t n = 0;
	int r;

	if (target->scope == TARGET_PROCESS)
		return proc_tasks_read(target->proc.dirfd, ret, ret_n);
	if (target->scope == TARGET_THREAD) {
		all = malloc(sizeof(*all));
		if (!all)
			return -ENOMEM;
		all[0] = target->tid;
		*ret = take_ptr(all);
		*ret_n = 1;
		return 0;
	}
	TAILQ_FOREACH(member, &target->members, link)
	{
		_cleanup_free_ pid_t *tids = NULL;
		_cleanup_(proc_close) struct proc proc = PROC_INIT;
		pid_t *bigger;
		size_t m;

		if (member->to_ns != UINT64_MAX || proc_open(member->pid, -1, &proc) != 0)
			continue;
		r = proc_tasks_read(proc.dirfd, &tids, &m);
		if (r < 0)
			continue; /* it ended meanwhile */
		if (n + m > PROC_TASKS_MAX)
			return -E2BIG;
		bigger = reallocarray(all, n + m, sizeof(*all));
		if (!bigger)
			return -ENOMEM;
		all = bigger;
		memcpy(all + n, tids, m * sizeof(*tids));
		n += m;
	}
	if (n == 0)
		return -ESRCH;
	*ret = take_ptr(all);
	*ret_n = n;
	return 0;
}

static int take_tasks(struct target *target, struct sample_set **ret)
{
	const struct sampler_can *can = sampler_can(target->targets->sampler);
	_cleanup_free_ pid_t *tids = NULL;
	size_t n;
	int r;

	r = task_tids(target, &tids, &n);
	if (r < 0)
		return r;
	r = sampler_task_set(target->targets->sampler, tids, n, target->scope != TARGET_THREAD,
			     target->scope == TARGET_UNIT, target->waits, stacks_now(target), ret);
	if (r < 0)
		return r;
	target_say_why(target, "method task: events on %zu threads", n);
	if (!can->cpu_wide)
		target_warn(target, "no events on cpus (%s): each context switch of the target costs several "
				    "microseconds more, ticks inside the kernel are missing",
			    strerror(-can->cpu_wide_error));
	else if (!can->filter)
		target_warn(target, "no BPF filter (%s): each context switch of the target costs several microseconds more",
			    can->filter_why);
	if (target->waits)
		warn_plain_waits(target);
	return 0;
}

/* By cost: a cgroup of its own, the machine's shared set, its tasks. */
static int take_set(struct target *target, struct sample_set **ret)
{
	struct sampler *sampler = target->targets->sampler;
	int r;

	r = take_cgroup(target, ret);
	if (r == 0)
		return 0;
	if (r != -ENOENT)
		log_debug("%s: no cgroup events: %s", target->name, strerror(-r));
	if (target->scope != TARGET_UNIT) {
		r = sampler_cpu_set(sampler, stacks_now(target), ret);
		if (r == 0) {
			target_say_why(target, "method cpu: the machine's shared events, filtered to this target");
			return 0;
		}
		log_debug("%s: no events on cpus: %s", target->name, strerror(-r));
	}
	return take_tasks(target, ret);
}

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
		.set = set, .from_ns = now, .to_ns = UINT64_MAX, .lost_at = sample_set_lost(set)};
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

static int begin(struct target *target, char *why, size_t why_size)
{
	struct sample_set *set;
	int r;

	target_clear_notes(target);
	r = take_set(target, &set);
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
	if (r < 0) {
		(void)snprintf(why, why_size, "perf events: %s", strerror(-r));
		return r;
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
	source_push(target, set, raw_now_ns());
	return 0;
}

static int sample_arm(struct target *target, char *why, size_t why_size)
{
	struct sampler *sampler = target->targets->sampler;
	int r;

	if (target->stacks_asked == STACKS_DWARF && !sampler_can(sampler)->dwarf) {
		(void)snprintf(why, why_size, "no dwarf stacks on this architecture");
		return TARGET_E_UNSUPPORTED;
	}
	r = begin(target, why, why_size);
	if (r != 0)
		return r;
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

	if (set->spec.stacks != stacks_now(target))
		return false;
	/* Events on tasks follow forks, but not who is moved into a unit. */
	if (target->scope == TARGET_UNIT)
		return set->spec.kind == SET_CGROUP || !members_added;
	if (!sampler_can(target->targets->sampler)->cpu_wide)
		return true;
	if (own_cgroup(target, &own) == 0)
		return set->spec.kind == SET_CGROUP && set->spec.cgroup_ino == own.ino;
	return set->spec.kind != SET_CGROUP;
}

static int sample_review(struct target *target, bool members_added)
{
	const struct sample_set *before;
	struct sample_set *set;
	int r;

	if (target->n_sources == 0 || set_fits(target, members_added))
		return 0;
	before = target->sources[0].set;
	target_clear_notes(target);
	r = take_set(target, &set);
	if (r < 0)
		return r;
	if (set == before) {
		(void)sample_set_put(set); /* the limit of cgroups, for one: the old choice was the best */
		return 0;
	}
	r = charge_rings(target, set);
	if (r != 0) {
		(void)sample_set_put(set);
		return r > 0 ? -EDQUOT : r;
	}
	source_push(target, set, raw_now_ns());
	r = members_filter_all(target);
	sampler_wake(target->targets->sampler);
	target_emit(target, NULL);
	return r;
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
		now->to_ns = raw_now_ns();
	/*
	 * The shared clocks just pass nothing of it any more. Events of its own would go on over
	 * what was recorded, perhaps of a program that nobody was allowed to see.
	 */
	for (size_t i = 0; i < target->n_sources; i++) {
		const struct sample_set *set = target->sources[i].set;

		if (set->spec.kind != SET_CPU && !set_is_wanted(target->targets, set))
			eventset_ioctl(&set->events[SET_CLOCK], PERF_EVENT_IOC_DISABLE);
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
	const struct set_survey *survey = sample_set_survey(source->set);

	if (!survey)
		return;
	for (size_t i = 0; i < survey->n_tallies; i++) {
		const struct set_tally *t = &survey->tallies[i];

		if (target->scope == TARGET_THREAD && t->tid != (uint32_t)target->tid)
			continue;
		if (!member_known(target, (pid_t)t->pid))
			continue;
		ret->samples += t->samples;
		ret->switches += target->waits ? t->switches : 0;
	}
}

static void sample_stats(struct target *target, struct backend_stats *ret)
{
	struct backend_stats out = {.method = "none"};
	uint64_t end = target->state == TARGET_ARMED ? raw_now_ns() : target->ended_ns;
	uint64_t oldest = target_oldest_ns(target);
	const struct sample_set *set;

	for (size_t i = 0; i < target->n_sources; i++)
		stats_add(target, &target->sources[i], &out);
	if (target->n_sources) {
		set = target->sources[0].set;
		out.method = set_kind_name(set->spec.kind);
		if (set->spec.kind != SET_CPU)
			out.ring_bytes = set->events[SET_CLOCK].ring_bytes;
		out.lost = sample_set_lost(set) - target->sources[0].lost_at;
	}
	out.lookback_ns = end > oldest ? end - oldest : 0;
	*ret = out;
}

const struct backend backend_sample = {
	.name = "sample",
	.probe = sample_probe,
	.arm = sample_arm,
	.review = sample_review,
	.settle = sample_settle,
	.stop = sample_stop,
	.disarm = sample_disarm,
	.freeze = samplecopy_freeze,
	.copy = samplecopy_copy,
	.resume = samplecopy_resume,
	.stats = sample_stats,
};
