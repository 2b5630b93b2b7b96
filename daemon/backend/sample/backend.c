// SPDX-License-Identifier: Apache-2.0
/*
 * The sampling back end: what each target records to and since when, and when other rings would be
 * better. The choice of rings is daemon/backend/sample/choice.c, what a copy does with them
 * daemon/backend/sample/export.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/control/json.h"
#include "daemon/backend/sample/aside.h"
#include "daemon/backend/sample/blocked.h"
#include "daemon/backend/sample/choice.h"
#include "daemon/backend/sample/describe.h"
#include "daemon/backend/sample/export.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/filter_entries.h"
#include "daemon/backend/sample/keep.h"
#include "daemon/backend/sample/look_back.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"

/* So long the rings from before a change are kept, until the new ones reach back far enough. */
#define OLD_SOURCE_SECONDS 30
/* A switch program that read its entry before it was updated has written its record after this. */
#define IN_FLIGHT_NS 1000000
/* That a CPU went or came is noticed within this, on a busy machine too. */
#define CPUS_NOTICED_NS 10000000000u

/* Shared rings are the daemon's, unless they are larger than configured. */
static bool is_charged(const struct event_group *group)
{
	return group->spec.kind != GROUP_CPU || sampler_is_larger(group->sampler, &group->spec);
}

/* Charges the owner for a group of its own, in place of the one before. */
static int charge_rings(struct target *target, const struct event_group *group)
{
	struct quota *quota = target->targets->quota;
	struct quota_charge *charge = &sampling_of(target)->charge;
	const uint64_t before = charge->amount;
	int r = 0;

	quota_release(charge);
	if (is_charged(group))
		r = quota_charge(quota, target->owner, QUOTA_RING_BYTES, event_group_bytes(group),
				 charge);
	if (r == 0)
		r = target_charge_fds(target,
				      group->spec.kind != GROUP_CPU ? event_group_fds(group) : 0);
	if (r == 0)
		return 0;
	quota_release(charge);
	if (before)
		(void)!quota_charge_forced(quota, target->owner, QUOTA_RING_BYTES, before, charge);
	return r;
}

/* ---- sources */

/*
 * How long the rings from before a change are kept. What a unit has left that was started again is
 * kept as what a target leaves.
 */
static time_t old_seconds(const struct sampling *s)
{
	const time_t keep = (time_t)s->target->targets->config->exited_keep_s;
	time_t seconds = OLD_SOURCE_SECONDS + (time_t)(s->target->keep_ns / 1000000000u);

	for (size_t i = 1; i < s->n_sources; i++)
		if (sample_is_of_the_past(s->target, s->sources[i].group) && keep > seconds)
			seconds = keep;
	return seconds;
}

static void source_push(struct sampling *s, struct event_group *group, uint64_t now)
{
	struct timeval settled = {0};

	if (s->n_sources == SOURCES_MAX)
		(void)event_group_put(s->sources[--s->n_sources].group);
	if (s->n_sources)
		s->sources[0].to_ns = now;
	memmove(&s->sources[1], &s->sources[0], s->n_sources * sizeof(struct source));
	s->sources[0] =
		(struct source){/* Events of its own are new; those that are shared are few. */
				.group = group,
				.from_ns = now,
				.to_ns = UINT64_MAX,
				.end_ns = UINT64_MAX,
				.lost_at = group->refs > 1 ? event_group_lost(group) : 0,
				.lost_end = UINT64_MAX};
	s->n_sources++;
	settled.tv_sec = old_seconds(s);
	if (s->n_sources > 1)
		(void)event_add(s->settle, &settled);
}

/* Nothing of the target goes to its former rings any more. */
static void source_left(struct sampling *s, uint64_t now)
{
	for (size_t i = 1; i < s->n_sources; i++)
		if (s->sources[i].end_ns == UINT64_MAX)
			s->sources[i].end_ns = now + IN_FLIGHT_NS;
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	struct sampling *s = arg;

	while (s->n_sources > 1)
		(void)event_group_put(s->sources[--s->n_sources].group);
	(void)!target_charge_fds(s->target, 0);
}

/* ---- arming */

static int sample_init(struct target *target, const struct target_request *req, char *why,
		       size_t why_size)
{
	const bool dwarf = sampler_can(sampler_of(target->targets))->dwarf;
	struct sampling *s;

	if (req->step_fd >= 0) {
		(void)snprintf(why, why_size, "the descriptor \"step\" is for the back end step");
		return TARGET_E_BAD;
	}
	if (req->scope == TARGET_HOST && !sampler_can(sampler_of(target->targets))->cpu_wide) {
		(void)snprintf(why, why_size, "a whole host needs events on its CPUs: %s",
			       strerror(-sampler_can(sampler_of(target->targets))->cpu_wide_error));
		return TARGET_E_UNSUPPORTED;
	}
	if (req->stacks == STACKS_BPF &&
	    (!sampler_unwind(sampler_of(target->targets)) || req->kernel_stacks)) {
		(void)snprintf(why, why_size,
			       req->kernel_stacks
				       ? "stacks=bpf are the program's alone: without --kernel"
				       : "stacks cannot be unwound in this kernel");
		return TARGET_E_UNSUPPORTED;
	}
	if (req->stacks == STACKS_DWARF && !dwarf) {
		(void)snprintf(why, why_size, "no dwarf stacks on this architecture");
		return TARGET_E_UNSUPPORTED;
	}
	/*
	 * auto begins with the stacks that are right for any code; see daemon/target/stack_probe.h.
	 */
	if (req->stacks == STACKS_AUTO && dwarf)
		target->stacks = STACKS_DWARF;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*sampling_slot(target) = s;
	s->target = target;
	s->settle = evtimer_new(target->targets->base, on_settle, s);
	return s->settle ? keep_new(target, &s->keep) : -ENOMEM;
}

static void sample_moved(struct target *target)
{
	sampling_of(target)->target = target;
	keep_moved(sampling_of(target)->keep, target);
}

static int refused(int r, char *why, size_t why_size)
{
	if (r == -ESRCH) {
		(void)snprintf(why, why_size, "the process has ended");
		return TARGET_E_GONE;
	}
	if (r == -EACCES || r == -EPERM || r == -ENOSYS) {
		(void)snprintf(
			why, why_size,
			"the kernel does not permit perf events on it (%s): tracerd needs CAP_PERFMON",
			strerror(-r));
		return TARGET_E_UNSUPPORTED;
	}
	if (r == -EMFILE || r == -ENFILE) {
		(void)snprintf(why, why_size, "tracerd is out of file descriptors");
		return TARGET_E_BUSY;
	}
	if (r == -ENOBUFS) {
		(void)snprintf(
			why, why_size,
			"no locked memory is left for its rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
		return TARGET_E_BUSY;
	}
	if (r == -ENOSPC) {
		(void)snprintf(why, why_size, "tracerd has as many kinds of rings as it may");
		return TARGET_E_BUSY;
	}
	if (r == -EDQUOT) {
		(void)snprintf(
			why, why_size,
			"all rings that have grown would be larger than keep_total_mib together");
		return TARGET_E_BUSY;
	}
	(void)snprintf(why, why_size, "perf events: %s", strerror(-r));
	return r;
}

/* Events on tasks are on all CPUs. */
static bool is_outdated(const struct event_group *group)
{
	return group->spec.kind != GROUP_TASK && group->spec.epoch != sampler_epoch(group->sampler);
}

static bool is_larger(const struct event_group *group, const struct event_group *present)
{
	return present && present->spec.stacks == group->spec.stacks &&
	       group->spec.ring_bytes > present->spec.ring_bytes;
}

/*
 * Records to the chosen group, and takes over its reference. 0; TARGET_E_*, -errno: nothing has
 * changed.
 */
static int take(struct target *target, struct event_group *group, char *why, size_t why_size)
{
	struct sampler *sampler = sampler_of(target->targets);
	int r;

	if (sampling_group(target) == group) {
		/* e.g. at the limit of cgroups: the old choice was the best */
		(void)event_group_put(group);
		return 0;
	}
	/*
	 * The kernel gives smaller ones than were asked for where there is too little locked
	 * memory.
	 */
	if (is_larger(group, sampling_group(target)) &&
	    group->events[GROUP_CLOCK].ring_bytes <=
		    sampling_group(target)->events[GROUP_CLOCK].ring_bytes) {
		(void)snprintf(
			why, why_size,
			"no locked memory is left for larger rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
		(void)event_group_put(group);
		return TARGET_E_BUSY;
	}
	r = charge_rings(target, group);
	if (r != 0) {
		(void)snprintf(
			why, why_size,
			"uid %u has too little ring memory (uid_ring_mib) or descriptors (uid_fds) left: it needs %zu MiB and %zu",
			(unsigned int)target->owner, (size_t)(event_group_bytes(group) >> 20),
			group->spec.kind != GROUP_CPU ? event_group_fds(group) : 0);
		(void)event_group_put(group);
		return r > 0 ? TARGET_E_QUOTA : r;
	}
	if (group->events[GROUP_CLOCK].ring_bytes <
	    group->events[GROUP_CLOCK].n_cpus * group->spec.ring_bytes / 2)
		target_warn(
			target,
			"smaller rings than configured: the limit of locked memory (CAP_IPC_LOCK, LimitMEMLOCK=)");
	source_push(sampling_of(target), group, clock_raw_ns());
	keep_restart(sampling_of(target)->keep);
	r = sampler_programs(sampler, true);
	if (r < 0)
		log_debug("attaching BPF programs: %s", strerror(-r));
	r = filter_entries_update_all(target);
	if (r < 0) {
		(void)snprintf(why, why_size, "BPF filter: %s", strerror(-r));
		return r == -E2BIG ? TARGET_E_BUSY : r;
	}
	if (sampling_of(target)->crowded && target->arming) {
		(void)snprintf(why, why_size,
			       "its processes have targets with too many other kinds of rings");
		return TARGET_E_BUSY;
	}
	source_left(sampling_of(target), clock_raw_ns());
	if (is_outdated(group))
		target_work(target, WORK_REARM);
	sampler_wake(sampler);
	if (!sampling_of(target)->since && sampling_of(target)->n_sources == 1 &&
	    !sampling_is_beside(target) && target->waits &&
	    blocked_at_arming(target, group->spec.stack_bytes, &sampling_of(target)->since) ==
		    -EBUSY)
		log_debug(
			"%s: who is blocked is not known: a thread hangs in a process of its user",
			target_name(target));
	return 0;
}

/* Another choice of rings failed: the present ones go on, with the stacks that they have. */
static void keep_stacks(struct target *target, const char *why)
{
	const enum stacks_mode stacks = sampling_group(target)->spec.stacks;

	if (stacks == sample_stacks(target))
		return;
	target_warn(target, "stacks=%s could not be had: %s", stacks_mode_name(target->stacks),
		    why);
	target->stacks = stacks;
}

static int sample_arm(struct target *target, struct backend_job **job, char *why, size_t why_size)
{
	struct sample_choice *choice = (struct sample_choice *)*job;
	struct event_group *group;
	int r;

	if (!choice) {
		if (!sampling_is_beside(target))
			target_clear_notes(target);
		r = sample_choice_new(target, &choice);
		if (r < 0)
			return r;
		*job = &choice->job;
	}
	r = sample_choose(choice, target, &group);
	if (r == BACKEND_RUN)
		return r;
	r = r < 0 ? refused(r, why, why_size) : take(target, group, why, why_size);
	if (r != 0 && sampling_group(target)) {
		if (sample_is_of_the_past(target, sampling_group(target)))
			target_warn(target, "since the unit was restarted it is not recorded: %s",
				    why[0] ? why : strerror(r < 0 ? -r : EIO));
		keep_stacks(target, why);
		keep_refused(sampling_of(target)->keep, why);
	}
	return r;
}

/* Whether the present group still is the right one. */
static bool group_fits(struct target *target, bool members_added)
{
	const struct event_group *group = sampling_group(target);
	_cleanup_(cgroup_close) struct cgroup own = CGROUP_INIT;

	if (group->spec.stacks != sample_stacks(target) ||
	    group->spec.ring_bytes != sample_ring_bytes(target) ||
	    (group->spec.switch_bytes && group->spec.switch_bytes != sample_switch_bytes(target)) ||
	    is_outdated(group))
		return false;
	if (sampling_is_beside(target))
		return true;
	/* Events on tasks follow forks, but not a process that is moved into a unit. */
	if (target_scope_is_group(target->scope))
		return group->spec.kind == GROUP_CGROUP ? !sample_is_of_the_past(target, group)
							: !members_added;
	if (!sampler_can(sampler_of(target->targets))->cpu_wide)
		return !target->several || !members_added;
	if (sample_own_cgroup(target, &own) == 0)
		return group->spec.kind == GROUP_CGROUP && group->spec.cgroup_ino == own.ino;
	return group->spec.kind != GROUP_CGROUP;
}

static void sample_review(struct target *target, bool members_added)
{
	sampler_look_at_cpus(sampler_of(target->targets), false);
	if (sampling_group(target) && !group_fits(target, members_added))
		target_work(target, WORK_REARM);
}

/* Others may move into a cgroup that was its own. */
static bool sample_is_watched(const struct target *target)
{
	const struct event_group *group = sampling_group(target);

	return group && group->spec.kind == GROUP_CGROUP;
}

static void sample_frames_known(struct target *target, enum image_frames frames)
{
	const bool dwarf = sampler_can(sampler_of(target->targets))->dwarf;
	const bool unwinds = sampler_unwind(sampler_of(target->targets)) &&
			     sampling_unwinds(target);
	const bool kept = frames == IMAGE_FRAMES_KEPT || frames == IMAGE_FRAMES_MOSTLY;
	const enum stacks_mode stacks = frames == IMAGE_FRAMES_KEPT || !dwarf ? STACKS_FP
					: unwinds			      ? STACKS_BPF
					: kept				      ? STACKS_FP
									      : STACKS_DWARF;

	if (!dwarf && !kept)
		target_warn(
			target,
			frames == IMAGE_FRAMES_NOT_KEPT
				? "its code keeps no frame pointers: call chains leave frames out"
				: "whether its code keeps frame pointers is not known: call chains may leave frames out");
	if (stacks == target->stacks)
		return;
	target->stacks = stacks;
	/* It may be in the same rings as before, with other contents. */
	if (filter_entries_update_all(target) < 0)
		log_debug("%s: its filter was not updated", target_name(target));
	sample_review(target, false);
}

static void sample_record(struct target *target, const struct perf_event_header *h)
{
	struct unwind *unwind = sampler_unwind(sampler_of(target->targets));

	if (unwind && sampling_follows(target))
		unwind_record(unwind, target, h);
}

static void sample_records_lost(struct targets *targets, uint64_t whole_ns)
{
	if (sampler_unwind(sampler_of(targets)))
		unwind_lost(sampler_unwind(sampler_of(targets)), whole_ns);
}

static void sample_records_whole(struct target *target)
{
	struct unwind *unwind = sampler_unwind(sampler_of(target->targets));
	const struct member *member;

	if (!unwind)
		return;
	TAILQ_FOREACH(member, &target->members, link)
	{
		if (member->to_ns == UINT64_MAX)
			unwind_whole(unwind, member->pid);
	}
}

static void sample_images_settled(struct targets *targets)
{
	if (sampler_unwind(sampler_of(targets)))
		unwind_images_settled(sampler_unwind(sampler_of(targets)));
}

static int sample_member_changed(struct target *target, pid_t pid)
{
	const int r = filter_entries_update(target->targets, pid);

	if (r == -E2BIG && !sampling_of(target)->crowded) {
		target_warn(
			target,
			"more processes are recorded at a time than the filter has room for: those that came last are missing");
		sampling_of(target)->crowded = true;
	}
	return r;
}

/* ---- ending */

static bool group_is_wanted(const struct targets *targets, const struct event_group *group)
{
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (target->state == TARGET_ARMED && sampling_group(target) == group)
			return true;
	return false;
}

static void sample_stop(struct target *target)
{
	struct sampling *s = sampling_of(target);
	const uint64_t now = clock_raw_ns();

	keep_stop(s->keep);
	(void)event_del(s->settle);
	for (size_t i = 0; i < s->n_sources; i++) {
		if (s->sources[i].to_ns > now)
			s->sources[i].to_ns = now;
		if (s->sources[i].end_ns > now)
			s->sources[i].end_ns = now;
		s->sources[i].lost_end = event_group_lost(s->sources[i].group);
	}
	/* What has not come yet may be of a program that nobody may see. */
	if (s->since && !blocked_is_done(s->since))
		s->since = blocked_put(s->since);
	/*
	 * The shared clocks no longer pass its records. Events of its own must stop, or they would
	 * overwrite what was recorded, perhaps with records of a program that nobody may see.
	 */
	for (size_t i = 0; i < s->n_sources; i++) {
		struct event_group *group = s->sources[i].group;

		if (group->spec.kind != GROUP_CPU && !group_is_wanted(target->targets, group))
			sampler_stop_group(group);
	}
	aside_begin(target);
}

static void sample_disarm(struct target *target)
{
	struct sampling *s = sampling_of(target);

	if (!s)
		return;
	while (s->n_sources > 0)
		(void)event_group_put(s->sources[--s->n_sources].group);
	quota_release(&s->charge);
	(void)blocked_put(s->since);
	(void)keep_free(s->keep);
	if (s->settle)
		event_free(s->settle);
	free(s);
	*sampling_slot(target) = NULL;
	if (target->targets->n_armed == target->targets->n_events)
		(void)!sampler_programs(sampler_of(target->targets), false);
}

/* ---- the machine */

static void on_survey(void *arg)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (sampling_of(target))
			keep_surveyed(sampling_of(target)->keep);
	targets_surveyed(targets);
}

/* Their events miss what a CPU does that went or came meanwhile. */
static void on_cpus(void *arg, bool changed)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link)
		if (target->state == TARGET_ARMED && sampling_of(target))
			sample_review(target, false);
	if (changed)
		targets_cpus_changed(targets, clock_raw_ns() - CPUS_NOTICED_NS);
}

static int sample_open(struct targets *targets, void **ret)
{
	struct sampler *sampler;
	int r;

	r = sampler_new(targets->base, targets->config, targets->closer, &sampler);
	if (r < 0)
		return r;
	sampler_on_survey(sampler, on_survey, targets);
	sampler_on_cpus(sampler, on_cpus, targets);
	if (sampler_filter(sampler) && filter_unwinds(sampler_filter(sampler)) &&
	    sampler_can(sampler)->dwarf) {
		struct unwind *unwind;

		r = unwind_new(targets, sampler_filter(sampler), &unwind);
		if (r < 0) {
			(void)sampler_free(sampler);
			return r;
		}
		sampler_set_unwind(sampler, unwind);
	}
	*ret = sampler;
	return 0;
}

static void sample_close(void *machine)
{
	(void)unwind_free(sampler_unwind(machine));
	(void)sampler_free(machine);
}

static bool sample_probe(const struct targets *targets, const char **ret_method, char *why,
			 size_t why_size)
{
	const struct sampler_can *can = sampler_can(sampler_of(targets));

	*ret_method = can->cpu_wide && can->filter ? "cpu" : can->any ? "task" : "none";
	if (!can->any) {
		(void)snprintf(why, why_size, "perf_event_open: %s", strerror(-can->any_error));
		return false;
	}
	if (!can->cpu_wide)
		(void)snprintf(why, why_size, "no events on cpus: %s",
			       strerror(-can->cpu_wide_error));
	else if (!can->filter)
		(void)snprintf(why, why_size, "no BPF: %s", can->filter_why);
	else
		(void)snprintf(
			why, why_size,
			"a cgroup's events where one holds only the target, else the machine's with a filter");
	return true;
}

static void add_lacks(const struct sampler_can *can, struct json_object *list)
{
	char cost[320];

	if (!can->any)
		lack_append(list, "perf_events",
			    "perf_event_open is refused: nothing can be recorded");
	else if (!can->cpu_wide)
		lack_append(
			list, "cpu_events",
			"no events on cpus or cgroups: targets get events on each thread, which slow "
			"their context switches, and only those of tracerd's own user can be recorded");
	if (!can->filter) {
		(void)snprintf(cost, sizeof(cost),
			       "%s: no stacks of waits, no wake-ups, no machine-wide sampling",
			       can->filter_why);
		lack_append(list, "bpf_programs", cost);
	}
	if (!can->dwarf)
		lack_append(
			list, "dwarf_stacks",
			"this architecture's registers are not known: call chains need frame pointers");
}

static void sample_status(const struct targets *targets, struct json_object *capture,
			  struct json_object *lack)
{
	const struct sampler *sampler = sampler_of(targets);
	size_t groups, resting, cpus;
	uint64_t bytes, fds;

	sampler_usage(sampler, &groups, &bytes, &fds);
	sampler_resting(sampler, &resting, &cpus);
	json_add_bool(capture, "bpf", sampler_can(sampler)->filter);
	json_add_uint(capture, "sets", groups);
	json_add_uint(capture, "ring_bytes", bytes);
	json_add_uint(capture, "aside_bytes", sampler_aside_bytes(sampler));
	json_add_uint(capture, "event_fds", fds);
	json_add_uint(capture, "cpus", cpus);
	json_add_bool(capture, "unwinds", sampler_unwind(sampler) != NULL);
	if (sampler_unwind(sampler))
		unwind_status(sampler_unwind(sampler), capture);
	json_add_uint(capture, "cpus_resting", resting);
	add_lacks(sampler_can(sampler), lack);
}

static void sample_losses(const struct targets *targets, struct json_object *losses)
{
	const struct filter *filter = sampler_filter(sampler_of(targets));

	json_add_uint(losses, "samples_lost", sampler_lost(sampler_of(targets)));
	json_add_uint(losses, "switches_lost", filter ? filter_drops(filter) : 0);
}

static size_t sample_fds(const struct target *target)
{
	const struct sampling *s = sampling_of(target);
	size_t n = 0;

	for (size_t i = 0; s && i < s->n_sources; i++)
		if (s->sources[i].group->spec.kind != GROUP_CPU)
			n += event_group_fds(s->sources[i].group);
	return n;
}

/* Without them some callers have no names. */
static void sample_take_stacks(const struct target *target)
{
	const struct filter *filter = sampler_filter(sampler_of(target->targets));
	int r = filter && target->waits ? filter_stacks(filter) : 0;

	if (r < 0)
		log_debug("stacks of threads that run: %s", strerror(-r));
}

const struct backend backend_sample = {
	.name = "sample",
	.open = sample_open,
	.close = sample_close,
	.probe = sample_probe,
	.status = sample_status,
	.losses = sample_losses,
	.init = sample_init,
	.arm = sample_arm,
	.moved = sample_moved,
	.is_watched = sample_is_watched,
	.review = sample_review,
	.frames_known = sample_frames_known,
	.member_changed = sample_member_changed,
	.record = sample_record,
	.records_lost = sample_records_lost,
	.records_whole = sample_records_whole,
	.images_settled = sample_images_settled,
	.stop = sample_stop,
	.disarm = sample_disarm,
	.fds = sample_fds,
	.survey = look_back_survey,
	.is_surveying = look_back_is_surveying,
	.look_back = look_back_job,
	.stats = look_back_stats,
	.describe = describe_target,
	.stacks = sample_take_stacks,
	.freeze = export_freeze,
	.set_aside = export_set_aside,
	.copy = export_copy,
	.resume = export_resume,
	.free = export_free,
	.meta = export_meta,
};
