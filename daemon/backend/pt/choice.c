// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/choice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backend/pt/holders.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/target/threads.h"

static int list_threads(void *arg, pid_t **ret, size_t *ret_n)
{
	const struct pt_choice *choice = arg;
	int r;

	if (choice->tid) {
		char name[32];

		(void)snprintf(name, sizeof(name), "task/%d", (int)choice->tid);
		if (faccessat(choice->proc_dirfd, name, F_OK, 0) < 0)
			return -ESRCH;
		*ret = malloc(sizeof(**ret));
		if (!*ret)
			return -ENOMEM;
		(*ret)[0] = choice->tid;
		*ret_n = 1;
		return 0;
	}
	if (choice->proc_dirfd < 0)
		return threads_of(choice->pids, choice->n_pids, ret, ret_n);
	r = proc_tasks_read(choice->proc_dirfd, ret, ret_n);
	return r == -ENOENT ? -ESRCH : r;
}

/*
 * Of a recording that grows, those of processes that are new: what others have created since has
 * inherited its events. Only a unit grows.
 */
static int list_new_threads(struct pt_choice *choice, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ pid_t *pids = NULL;
	size_t n = choice->n_pids;
	int r;

	pids = malloc((n ? n : 1) * sizeof(*pids));
	if (!pids)
		return -ENOMEM;
	memcpy(pids, choice->pids, n * sizeof(*pids));
	n = pt_events_keep_new(choice->events, pids, n);
	*ret = NULL;
	*ret_n = 0;
	r = n ? threads_of(pids, n, ret, ret_n) : 0;
	return r == -ESRCH ? 0 : r;
}

static int count_threads(struct pt_choice *choice)
{
	_cleanup_free_ pid_t *tids = NULL;
	_cleanup_free_ int *online = NULL, *cpus = NULL;
	size_t n_tids = 1, n_cpus = 0;
	int r;

	if (choice->grows && choice->pids)
		r = list_new_threads(choice, &tids, &n_tids);
	else
		r = choice->host ? 0 : list_threads(choice, &tids, &n_tids);
	if (r == 0)
		r = cpus_online(&online, &choice->n_online);
	/* Those of a CPU are the kernel's as long as it is online. */
	if (r == 0)
		r = choice->host ? cpus_online(&cpus, &n_cpus) : cpus_to_come(&cpus, &n_cpus);
	if (r < 0)
		return r;
	choice->budget.threads = n_tids;
	/* The kernel locks so much memory for each that is online. */
	choice->budget.cpus = choice->n_online;
	pt_budget_limits(&choice->budget);
	choice->budget.cpus = choice->grows ? pt_events_cpus(choice->events) : n_cpus;
	choice->to_come = !choice->host;
	return 0;
}

static void open_events(struct pt_choice *choice)
{
	char text[PT_FILTER_KERNEL_MAX], *filter = NULL;
	const atomic_bool *cancel = choice->job.cancel;
	int r = 0;

	if (choice->filter) {
		r = pt_filter_find(choice->filter, choice->proc_dirfd, choice->why,
				   sizeof(choice->why));
		filter = text;
	}
	if (r == 0 && filter)
		pt_filter_kernel_text(choice->filter, text);
	if (r == 0 && choice->grows)
		r = pt_events_grow(choice->events, filter, list_threads, choice, cancel);
	else if (r == 0)
		r = pt_events_open(choice->attrs, filter, choice->to_come, choice->budget.aux_bytes,
				   choice->closer, choice->host ? NULL : list_threads, choice,
				   cancel, &choice->events);
	choice->job.result = r == -ENOENT ? -ESRCH : r;
}

static void choice_run(struct backend_job *job)
{
	struct pt_choice *choice = (struct pt_choice *)job;

	if (choice->phase == PT_PHASE_WAITS) {
		choice->waits->cancel = job->cancel;
		choice->waits->run(choice->waits);
		return;
	}
	if (choice->phase == PT_PHASE_COUNT) {
		if (choice->anew)
			pt_events_forget(choice->events);
		job->result = count_threads(choice);
	} else {
		open_events(choice);
	}
	if (job->result == -EBUSY)
		holders_find(choice->holders, sizeof(choice->holders));
}

static void choice_free(struct backend_job *job)
{
	struct pt_choice *choice = (struct pt_choice *)job;

	if (choice->waits)
		choice->waits->free(choice->waits);
	(void)pt_events_put(choice->events);
	(void)pt_filter_put(choice->filter);
	(void)close_fd(choice->proc_dirfd);
	free(choice->pids);
	free(choice);
}

int pt_choice_new(const struct target *target, struct pt_choice **ret)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct pt_choice *choice = calloc(1, sizeof(*choice));
	int r = 0;

	if (!choice)
		return -ENOMEM;
	choice->job = (struct backend_job){.run = choice_run, .free = choice_free};
	choice->proc_dirfd = -1;
	choice->closer = target->targets->closer;
	choice->host = target->scope == TARGET_HOST;
	choice->filter = pt_filter_ref(rec->filter);
	choice->cgroup = target->cgroup.ino;
	if (rec->events) {
		choice->events = pt_events_ref(rec->events);
		choice->grows = true;
		choice->anew = rec->cgroup != choice->cgroup && !rec->shares &&
			       rec->events->users == 1;
	}
	if (target->children) {
		r = members_pids(target, false, &choice->pids, &choice->n_pids);
	} else {
		choice->tid = target->scope == TARGET_THREAD ? target->tid : 0;
		choice->proc_dirfd = fcntl(target->proc.dirfd, F_DUPFD_CLOEXEC, 3);
		r = choice->proc_dirfd < 0 ? -errno : 0;
	}
	if (r < 0) {
		choice_free(&choice->job);
		return r;
	}
	*ret = choice;
	return 0;
}
