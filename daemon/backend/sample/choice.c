// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/choice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/sample/keep.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/target/threads.h"

enum stacks_mode sample_stacks(const struct target *target)
{
	return target->stacks == STACKS_DWARF || target->stacks == STACKS_BPF ? STACKS_DWARF
									      : STACKS_FP;
}

size_t sample_ring_bytes(const struct target *target)
{
	const enum stacks_mode stacks = sample_stacks(target);
	const size_t configured = sampler_ring_bytes(sampler_of(target->targets), stacks);
	const size_t kept = keep_ring_bytes(sampling_of(target)->keep, stacks);

	return kept > configured ? kept : configured;
}

size_t sample_switch_bytes(const struct target *target)
{
	const enum stacks_mode stacks = sample_stacks(target);
	const size_t configured = sampler_switch_bytes(sampler_of(target->targets), stacks);
	const size_t kept = keep_switch_bytes(sampling_of(target)->keep, stacks);

	return kept > configured ? kept : configured;
}

/* The cgroup that holds nothing but the target, if there is one: 0 or 1 for none. */
int sample_own_cgroup(struct target *target, struct cgroup *ret)
{
	_cleanup_(cgroup_close) struct cgroup cgroup = CGROUP_INIT;
	char path[CGROUP_NAME_MAX];
	int r;

	/* What a family starts may move to another one. */
	if (target->scope == TARGET_THREAD || target_is_family(target) ||
	    target->targets->cgroup_fd < 0)
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

bool sample_is_of_the_past(const struct target *target, const struct event_group *group)
{
	return target_scope_is_group(target->scope) && group->spec.kind == GROUP_CGROUP &&
	       group->spec.cgroup_ino != target->cgroup.ino;
}

/* ---- the choice in words */

static void warn_plain_waits(struct target *target)
{
	target_warn(target, "waits have no stacks and no wake-ups: these need BPF");
}

static void explain_tasks(const struct sample_choice *choice, struct target *target)
{
	const struct sampler_can *can = sampler_can(sampler_of(target->targets));

	target_say_why(target, "method task: events on %zu threads", choice->n_tids);
	if (!can->cpu_wide)
		target_warn(
			target,
			"no events on cpus (%s): each context switch of the target costs several "
			"microseconds more, ticks inside the kernel are missing",
			strerror(-can->cpu_wide_error));
	else if (!can->filter)
		target_warn(
			target,
			"no BPF filter (%s): each context switch of the target costs several microseconds more",
			can->filter_why);
	if (target->waits)
		warn_plain_waits(target);
}

static void explain(const struct sample_choice *choice, struct target *target)
{
	switch (choice->attempt) {
	case ATTEMPT_CGROUP:
		target_say_why(target, "method cgroup: %s holds only this target",
			       choice->cgroup.path);
		if (target->waits && !sampler_filter(sampler_of(target->targets)))
			warn_plain_waits(target);
		break;
	case ATTEMPT_CPU:
		if (choice->beside)
			target_say_why(target,
				       "waits: the machine's switches, filtered to this target");
		else
			target_say_why(
				target,
				"method cpu: the machine's shared events, filtered to this target");
		break;
	default:
		explain_tasks(choice, target);
	}
}

static struct group_wish wish_of(const struct target *target)
{
	return (struct group_wish){.stacks = sample_stacks(target),
				   .kernel = target->kernel_stacks,
				   .ring_bytes = sample_ring_bytes(target),
				   .switch_bytes = sample_switch_bytes(target)};
}

/* ---- attempts, on the loop */

static int prepare_cgroup(struct sample_choice *choice, struct target *target,
			  struct event_group **ret)
{
	if (!target_scope_is_group(target->scope)) {
		if (sample_own_cgroup(target, &choice->cgroup) != 0)
			return -ENOENT;
	} else {
		choice->cgroup = target->cgroup;
		choice->cgroup.dirfd = fcntl(target->cgroup.dirfd, F_DUPFD_CLOEXEC, 3);
		if (choice->cgroup.dirfd < 0)
			return -errno;
	}
	return sampler_cgroup_group(sampler_of(target->targets), &choice->cgroup, wish_of(target),
				    &choice->opening, ret);
}

static int prepare_tasks(struct sample_choice *choice, struct target *target)
{
	int r;

	choice->tid = target->scope == TARGET_THREAD ? target->tid : 0;
	if (target_has_many(target)) {
		r = members_pids(target, false, &choice->pids, &choice->n_pids);
		if (r < 0)
			return r;
	} else {
		choice->proc_dirfd = fcntl(target->proc.dirfd, F_DUPFD_CLOEXEC, 3);
		if (choice->proc_dirfd < 0)
			return -errno;
	}
	return sampler_task_group(sampler_of(target->targets), target->scope != TARGET_THREAD,
				  target->children, wish_of(target), &choice->opening);
}

static int prepare(struct sample_choice *choice, struct target *target, struct event_group **ret)
{
	switch (choice->attempt) {
	case ATTEMPT_CGROUP:
		return prepare_cgroup(choice, target, ret);
	case ATTEMPT_CPU:
		if (target_scope_is_group(target->scope) && !choice->beside)
			return -ENOENT;
		return sampler_cpu_group(sampler_of(target->targets), wish_of(target),
					 &choice->opening, ret);
	default:
		return prepare_tasks(choice, target);
	}
}

int sample_choose(struct sample_choice *choice, struct target *target, struct event_group **ret)
{
	int r;

	for (;;) {
		if (choice->opening.sampler) {
			r = choice->job.result;
			if (r == 0)
				*ret = sampler_adopt(&choice->opening);
			else
				sampler_drop(&choice->opening);
		} else {
			r = prepare(choice, target, ret);
		}
		if (r == SAMPLER_OPEN) {
			choice->job.patient = choice->attempt != ATTEMPT_TASKS;
			return BACKEND_RUN;
		}
		if (r == 0) {
			explain(choice, target);
			return 0;
		}
		if (choice->attempt == ATTEMPT_TASKS || choice->beside || r == -ECANCELED ||
		    r == -EDQUOT)
			return r;
		/* Events on tasks cost it more than what it would gain by other rings. */
		if (choice->attempt == ATTEMPT_CPU && sampling_group(target) &&
		    sampling_group(target)->spec.kind != GROUP_TASK &&
		    !sample_is_of_the_past(target, sampling_group(target)))
			return r;
		if (r != -ENOENT)
			log_debug("%s: no events on %s: %s", target->name,
				  choice->attempt == ATTEMPT_CGROUP ? "a cgroup" : "cpus",
				  strerror(-r));
		choice->attempt++;
	}
}

/* ---- the thread's */

static int open_tasks(struct sample_choice *choice)
{
	_cleanup_free_ pid_t *tids = NULL;
	struct group_spec *spec = &choice->opening.spec;
	int r;

	if (choice->tid) {
		spec->subjects = &choice->tid;
		spec->n_subjects = 1;
	} else {
		r = choice->proc_dirfd < 0
			    ? threads_of(choice->pids, choice->n_pids, &tids, &spec->n_subjects)
			    : proc_tasks_read(choice->proc_dirfd, &tids, &spec->n_subjects);
		if (r < 0)
			return r == -ENOENT ? -ESRCH : r;
		spec->subjects = tids;
	}
	choice->n_tids = spec->n_subjects;
	return sampler_open(&choice->opening);
}

static void choice_run(struct backend_job *job)
{
	struct sample_choice *choice = (struct sample_choice *)job;
	struct group_spec *spec = &choice->opening.spec;
	pid_t dirfd = choice->cgroup.dirfd;

	spec->cancel = job->cancel;
	if (choice->attempt == ATTEMPT_TASKS) {
		job->result = open_tasks(choice);
		return;
	}
	if (choice->attempt == ATTEMPT_CGROUP) {
		spec->subjects = &dirfd;
		spec->n_subjects = 1;
	}
	job->result = sampler_open(&choice->opening);
}

/* ---- life */

static void choice_free(struct backend_job *job)
{
	struct sample_choice *choice = (struct sample_choice *)job;

	sampler_drop(&choice->opening);
	cgroup_close(&choice->cgroup);
	(void)close_fd(choice->proc_dirfd);
	free(choice->pids);
	free(choice);
}

int sample_choice_new(const struct target *target, struct sample_choice **ret)
{
	struct sample_choice *choice = calloc(1, sizeof(*choice));

	if (!choice)
		return -ENOMEM;
	choice->job = (struct backend_job){.run = choice_run, .free = choice_free};
	choice->cgroup = (struct cgroup)CGROUP_INIT;
	choice->proc_dirfd = -1;
	choice->beside = sampling_is_beside(target);
	/* A cgroup's clock cannot be kept from ticking, nor those of tasks; the machine's can. */
	choice->attempt = choice->beside ? ATTEMPT_CPU : ATTEMPT_CGROUP;
	*ret = choice;
	return 0;
}
