// SPDX-License-Identifier: Apache-2.0
/*
 * The back end for machines with Intel PT: the processor writes each branch of the target's threads
 * into a ring of memory, and nothing is read before a snapshot. How a target comes to its events is
 * daemon/backend/pt/arm.c's: what is opened daemon/backend/pt/choice.c finds out.
 * daemon/backend/pt/events.c has it, and daemon/backend/pt/export.c writes it to the bundle. Whose
 * events a target may share is daemon/backend/pt/sharing.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bundle/clocks.h"
#include "common/bundle/perfabi.h"
#include "common/control/json.h"
#include "daemon/backend/pt/arm.h"
#include "daemon/backend/pt/export.h"
#include "daemon/backend/pt/newcomers.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/backend/pt/resume.h"
#include "daemon/backend/pt/sharing.h"
#include "daemon/target/backend.h"

/* ---- the machine */

/* Whether an event of the PMU can be opened at all, on our own thread. */
static int try_open(const struct pt_machine *machine, char *lacks, size_t size)
{
	const struct pt_attr_spec spec = {.timing = PT_TIMING_LOW};
	struct perf_event_attr attr;
	int fd, r;

	r = pt_attr_fill(&machine->pmu, &spec, &attr, lacks, size);
	if (r < 0)
		return r;
	fd = perfabi_open(&attr, 0, -1, -1, 0);
	if (fd < 0)
		return -errno;
	(void)close_fd(fd);
	return 0;
}

static bool can_pause(const struct pt_machine *machine)
{
	const struct pt_attr_spec spec = {.timing = PT_TIMING_LOW};
	struct perf_event_attr trace, member;
	_cleanup_close_ int leader = -1, fd = -1;
	char lacks[200];

	if (pt_attr_fill(&machine->pmu, &spec, &trace, lacks, sizeof(lacks)) < 0)
		return false;
	leader = perfabi_open(&trace, 0, -1, -1, 0);
	if (leader < 0)
		return errno == EBUSY; /* it is found out when it is asked for */
	pt_attr_sideband(&spec, 0, &member);
	member.write_backward = member.context_switch = 0;
	perfabi_set_aux_action(&member, PERFABI_AUX_PAUSE);
	fd = perfabi_open(&member, 0, -1, leader, 0);
	return fd >= 0;
}

static bool counts_losses(void)
{
	const struct pt_attr_spec spec = {0};
	struct perf_event_attr attr;
	int fd;

	pt_attr_sideband(&spec, PERFABI_FORMAT_LOST, &attr);
	fd = perfabi_open(&attr, 0, -1, -1, 0);
	(void)close_fd(fd);
	return fd >= 0;
}

static void find_out(struct pt_machine *machine)
{
	char *why = machine->why;
	const size_t size = sizeof(machine->why);
	char lacks[200];
	int r;

	r = pt_pmu_read(PT_PMU_PATH, &machine->pmu, why, size);
	if (r == -ENOENT)
		(void)snprintf(why, size, "this machine has no " PT_PMU_NAME " PMU");
	if (r < 0)
		return;
	if (!clocks_tsc_is_source()) {
		(void)snprintf(why, size,
			       "the kernel does not trust the TSC, which the trace's times are of");
		return;
	}
	r = try_open(machine, lacks, sizeof(lacks));
	/* Somebody traces CPUs now, perhaps not later. */
	if (r < 0 && r != -EBUSY) {
		(void)snprintf(why, size, "its events cannot be opened: %s", strerror(-r));
		return;
	}
	machine->available = true;
	machine->can_pause = can_pause(machine);
	machine->read_format = counts_losses() ? PERFABI_FORMAT_LOST : 0;
	(void)snprintf(why, size, "the processor records each branch (Intel PT)");
}

/* The log of what processes map and start misses these CPUs, too. */
static void on_newcomers(void *arg, uint64_t since_ns)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link) {
		struct pt_recording *rec = pt_recording_of(target);

		if (!rec || !rec->events || rec->misses ||
		    newcomers_count(pt_machine_of(targets)->newcomers, rec->events) == 0)
			continue;
		rec->misses = true;
		target_warn(
			target,
			"a CPU has come online since it was armed, and what runs there is not traced: arm it again");
	}
	targets_cpus_changed(targets, since_ns);
}

static int pt_open(struct targets *targets, void **ret)
{
	struct pt_machine *machine = calloc(1, sizeof(*machine));
	int r;

	if (!machine)
		return -ENOMEM;
	find_out(machine);
	r = machine->available ? stopper_new(targets->base, &machine->stopper) : 0;
	if (r == 0 && machine->available)
		r = newcomers_new(targets->base, on_newcomers, targets, &machine->newcomers);
	if (r < 0) {
		(void)stopper_free(machine->stopper);
		free(machine);
		return r;
	}
	*ret = machine;
	return 0;
}

static void pt_close(void *data)
{
	struct pt_machine *machine = data;

	(void)newcomers_free(machine->newcomers);
	(void)stopper_free(machine->stopper);
	free(machine);
}

static bool pt_probe(const struct targets *targets, const char **ret_method, char *why,
		     size_t why_size)
{
	const struct pt_machine *machine = pt_machine_of(targets);

	*ret_method = machine->available ? "task" : "none";
	(void)snprintf(why, why_size, "%s", machine->why);
	return machine->available;
}

static void pt_losses(const struct targets *targets, struct json_object *losses)
{
	const struct pt_machine *machine = pt_machine_of(targets);
	uint64_t blind_ns = machine->gone_blind_ns, missed = 0;
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link) {
		const struct pt_recording *rec = pt_recording_of(target);

		if (!rec || !rec->events || rec->shares)
			continue;
		blind_ns += pt_events_blind_ns(rec->events);
		missed += newcomers_count(machine->newcomers, rec->events);
	}
	json_add_uint(losses, "pt_blind_ns", blind_ns);
	json_add_uint(losses, "pt_cpus_not_traced", missed);
}

/* ---- what changes */

static void pt_moved(struct target *target)
{
	pt_recording_of(target)->target = target;
	if (target->beside)
		backend_sample.moved(target);
}

/* Events follow forks, but not a process that is moved into a unit. */
static void pt_review(struct target *target, bool members_added)
{
	if (members_added && target->scope == TARGET_UNIT && pt_recording_of(target)->events)
		target_work(target, WORK_REARM);
	if (target->beside)
		backend_sample.review(target, members_added);
}

static void pt_frames_known(struct target *target, enum image_frames frames)
{
	if (target->beside)
		backend_sample.frames_known(target, frames);
}

static int pt_member_changed(struct target *target, pid_t pid)
{
	return target->beside ? backend_sample.member_changed(target, pid) : 0;
}

static struct pausable *pt_pausable(const struct target *target, const char **ret_why)
{
	const struct pt_machine *machine = pt_machine_of(target->targets);
	const struct pt_recording *rec = pt_recording_of(target);

	*ret_why = NULL;
	if (!machine->can_pause)
		*ret_why = "this kernel or PMU cannot pause Intel PT (Linux 6.13 can)";
	else if (target->scope != TARGET_PROCESS && target->scope != TARGET_THREAD)
		*ret_why = "only the trace of a process or a thread can be paused";
	else if (target->children)
		*ret_why = "children would inherit the breakpoint with the trace";
	else if (rec->events &&
		 (rec->events->attrs[PT_EVENT_TRACE].inherit != (target->scope == TARGET_PROCESS) ||
		  (target->scope == TARGET_PROCESS &&
		   !rec->events->attrs[PT_EVENT_TRACE].inherit_thread)))
		*ret_why =
			"it shares the trace of another target, whose threads would inherit the breakpoint";
	else if (rec->events &&
		 pt_resume_new(target->targets->base, machine->stopper, rec->events) < 0)
		*ret_why = "no memory";
	return *ret_why || !rec->events ? NULL : pt_resume_pausable(rec->events->resume);
}

/* ---- ending */

static void leave(struct pt_recording *rec)
{
	if (rec->uses && pt_events_leave(rec->events))
		(void)stopper_stop(pt_machine_of(rec->target->targets)->stopper, rec->events, NULL,
				   NULL);
	rec->uses = false;
}

static void pt_stop(struct target *target)
{
	struct pt_recording *rec = pt_recording_of(target);

	/* A program that nobody may see any more must not go on being traced. */
	leave(rec);
	if (target->beside)
		backend_sample.stop(target);
}

static void pt_disarm(struct target *target)
{
	struct pt_recording *rec = pt_recording_of(target);

	if (!rec)
		return;
	if (rec->events) {
		/* A snapshot in flight keeps the events, but nothing more is traced for it. */
		leave(rec);
		if (!rec->shares)
			pt_sharing_hand_over(target);
		if (!rec->shares)
			pt_machine_of(target->targets)->gone_blind_ns +=
				pt_events_blind_ns(rec->events);
	}
	(void)pt_events_put(rec->events);
	if (rec->looks)
		newcomers_leave(pt_machine_of(target->targets)->newcomers);
	if (target->beside)
		backend_sample.disarm(target);
	(void)pt_filter_put(rec->filter);
	quota_release(&rec->charge);
	free(rec);
	target->recording = NULL;
}

/* ---- reporting */

static size_t pt_fds(const struct target *target)
{
	const struct pt_recording *rec = pt_recording_of(target);

	return (rec && rec->events && !rec->shares ? pt_events_fds(rec->events) : 0) +
	       (target->beside ? backend_sample.fds(target) : 0);
}

static void pt_survey(struct target *target)
{
	if (target->beside)
		backend_sample.survey(target);
}

static bool pt_is_surveying(const struct target *target)
{
	return target->beside && backend_sample.is_surveying(target);
}

struct look_back {
	struct backend_job job; /* first */
	struct pt_events *events; /* referenced */
	uint64_t armed_ns;
};

static void look_back_run(struct backend_job *job)
{
	const struct look_back *l = (const struct look_back *)job;

	job->result = pt_events_look_back(l->events, l->armed_ns, &job->oldest_ns);
}

static void look_back_free(struct backend_job *job)
{
	(void)pt_events_put(((struct look_back *)job)->events);
	free(job);
}

static int pt_look_back(const struct target *target, struct backend_job **ret)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct look_back *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->job = (struct backend_job){.run = look_back_run, .free = look_back_free};
	l->events = pt_events_ref(rec->events);
	l->armed_ns = target->armed_ns;
	*ret = &l->job;
	return 0;
}

static void pt_stats(const struct target *target, struct backend_stats *ret)
{
	const struct pt_recording *rec = pt_recording_of(target);

	*ret = (struct backend_stats){0};
	if (target->beside)
		backend_sample.stats(target, ret);
	ret->method = pt_method_of(target);
	ret->ring_bytes += rec->events ? pt_events_bytes(rec->events) : 0;
}

static struct json_object *pt_describe(const struct target *target)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct json_object *o = json_object_new_object(), *list;

	json_add_string(o, "timing", pt_timing_name(rec->timing));
	json_add_uint(o, "ring_bytes", rec->aux_bytes);
	json_add_uint(o, "cpus", rec->events ? pt_events_cpus(rec->events) : 0);
	json_add_uint(o, "events", rec->events ? pt_events_fds(rec->events) : 0);
	json_add_bool(o, "shared", rec->events && rec->events->users > 1);
	json_add_uint(o, "blind_ns", rec->events ? pt_events_blind_ns(rec->events) : 0);
	json_add_uint(o, "cpus_not_traced",
		      rec->events ? newcomers_count(pt_machine_of(target->targets)->newcomers,
						    rec->events)
				  : 0);
	json_add_uint(o, "left_out", rec->left_out);
	list = json_add_new_array(o, "filters");
	for (size_t i = 0; rec->filter && i < rec->filter->n; i++)
		json_append_string(list, rec->filter->v[i].name);
	return o;
}

const struct backend backend_pt = {
	.name = "pt",
	.open = pt_open,
	.close = pt_close,
	.probe = pt_probe,
	.losses = pt_losses,
	.init = pt_arm_init,
	.arm = pt_arm,
	.moved = pt_moved,
	.review = pt_review,
	.frames_known = pt_frames_known,
	.member_changed = pt_member_changed,
	.pausable = pt_pausable,
	.stop = pt_stop,
	.disarm = pt_disarm,
	.fds = pt_fds,
	.survey = pt_survey,
	.is_surveying = pt_is_surveying,
	.look_back = pt_look_back,
	.stats = pt_stats,
	.describe = pt_describe,
	.freeze = pt_export_freeze,
	.set_aside = pt_export_set_aside,
	.take = pt_export_take,
	.copy = pt_export_copy,
	.resume = pt_export_resume,
	.free = pt_export_free,
	.meta = pt_export_meta,
};
