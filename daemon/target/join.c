// SPDX-License-Identifier: Apache-2.0
/*
 *	request ─► the descriptor is looked at, on a thread ─► the scan makes it a member and reads it ─► its proof ─► answer
 *
 * A requester who is no administrator passes /proc/PID/maps as he opened it: that is his own right.
 * The proof of a member is asked of the kernel as of all that come to a user's target later
 * (daemon/target/proof.c), since it is of the program that runs then.
 */
#include "daemon/target/join.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/raw_clock.h"
#include "daemon/base/readers.h"
#include "daemon/base/refusal.h"
#include "daemon/target/arming.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

#define JOIN_SECONDS 60
#define JOINS_MAX 256 /* of a target, at a time */

struct join {
	struct reader_job job; /* first */
	TAILQ_ENTRY(join) link;
	/* NULL: it is answered, and out of the list; its thread is not back */
	struct target *target;
	struct proc proc;
	uid_t uid;
	int maps_fd; /* -1: an administrator's */
	enum { JOIN_CHECKED, JOIN_WAITS, JOIN_IS_READ, JOIN_WAS_READ } step;
	int result;
	struct event *limit;
	targets_joined_fn fn; /* NULL: nobody waits for it any more */
	void *arg;
};

static void join_free(struct join *join)
{
	if (join->limit)
		event_free(join->limit);
	(void)close_fd(join->maps_fd);
	proc_close(&join->proc);
	free(join);
}

static void answer(struct join *join, int result, const char *why)
{
	struct target *target = join->target;
	targets_joined_fn fn = join->fn;
	void *arg = join->arg;

	TAILQ_REMOVE(&target->joins, join, link);
	target->n_joins--;
	join->target = NULL;
	join->fn = NULL;
	(void)event_del(join->limit);
	/* The thread has it still. */
	if (join->step != JOIN_CHECKED || join->maps_fd < 0)
		join_free(join);
	if (fn)
		fn(arg, result, target, why);
}

/* ---- the descriptor */

static void run(struct reader_job *job)
{
	struct join *join = (struct join *)job;

	join->result = proc_maps_fd_check(&join->proc, join->maps_fd);
}

static void begin(struct join *join)
{
	join->step = JOIN_WAITS;
	target_work(join->target, WORK_SCAN);
}

static void done(struct reader_job *job)
{
	struct join *join = (struct join *)job;

	close_fdp(&join->maps_fd);
	if (!join->target) {
		join_free(join);
		return;
	}
	if (join->result == 0)
		begin(join);
	else if (!proc_alive(&join->proc))
		answer(join, TARGET_E_GONE, "no such process: it has just ended");
	else
		answer(join, TARGET_E_NOT_PERMITTED,
		       "the descriptor is not of its /proc/PID/maps, or it has executed another program");
}

/* ---- what the scan does */

bool joins_next(struct target *target, pid_t *ret_pid, int *ret_dirfd)
{
	struct join *join;

	TAILQ_FOREACH(join, &target->joins, link)
	{
		if (join->step != JOIN_WAITS)
			continue;
		join->step = JOIN_IS_READ;
		target->several = true;
		/* Processes of several users are an administrator's to see. */
		if (join->uid != target->uid) {
			target->uid = 0;
			target->admin_only = true;
		}
		*ret_pid = join->proc.pid;
		*ret_dirfd = join->proc.dirfd;
		return true;
	}
	return false;
}

void joins_were_read(struct target *target)
{
	struct join *join;

	TAILQ_FOREACH(join, &target->joins, link)
		if (join->step == JOIN_IS_READ)
			join->step = JOIN_WAS_READ;
	joins_look(target);
}

/* Answers it, unless what it is to say is not known yet. */
static void look(struct join *join)
{
	struct target *target = join->target;
	struct member *member = member_find(target, join->proc.pid);

	if (!member || !proc_alive(&join->proc)) {
		answer(join, TARGET_E_GONE, "no such process: it has just ended");
	} else if (member->proof == PROOF_REFUSED) {
		member_end(member, clock_raw_ns());
		answer(join, TARGET_E_NOT_PERMITTED,
		       "the kernel does not let the target's owner look into it");
	} else if (member->proof == PROOF_GIVEN) {
		answer(join, 0, NULL);
	}
}

void joins_look(struct target *target)
{
	struct join *join, *next;

	for (join = TAILQ_FIRST(&target->joins); join; join = next) {
		next = TAILQ_NEXT(join, link);
		if (join->step == JOIN_WAS_READ)
			look(join);
	}
}

void joins_refuse(struct target *target, const char *why)
{
	struct join *join;

	while ((join = TAILQ_FIRST(&target->joins)) != NULL)
		answer(join, TARGET_E_GONE, why);
}

/* ---- the request */

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	answer(arg, TARGET_E_BUSY, "reading it took too long");
}

static int check_target(const struct target *target, char *why, size_t size)
{
	if (target->targets->stopping)
		return refusal(why, size, TARGET_E_STOPPING, "tracerd is stopping");
	if (target->scope != TARGET_PROCESS || target_is_implicit(target) ||
	    target->state != TARGET_ARMED)
		return refusal(why, size, TARGET_E_BAD, "%s is no armed target of processes",
			       target->name);
	if (target->backend != &backend_sample)
		return refusal(
			why, size, TARGET_E_UNSUPPORTED,
			"several processes are one target by samples only, and %s is recorded by %s",
			target->name, target->backend->name);
	if (target->n_joins >= JOINS_MAX)
		return refusal(why, size, TARGET_E_BUSY, "too many processes are about to join %s",
			       target->name);
	return 0;
}

static int check_process(struct join *join, const struct target_request *req, char *why,
			 size_t size)
{
	struct target *target = join->target;
	int r = proc_open(req->pid, req->pidfd, &join->proc);

	if (r != 0)
		return arming_open_failed(r, why, size);
	r = arming_may(req, &join->proc, &join->uid, &join->maps_fd, why, size);
	if (r != 0)
		return r;
	if (!target->owner_admin && join->uid != target->uid)
		return refusal(why, size, TARGET_E_NOT_PERMITTED,
			       "owned by uid %u%s: not of the user of %s", (unsigned int)join->uid,
			       join->uid ? "" : ", or not dumpable", target->name);
	if (target_has(target, join->proc.pid, join->proc.start_time) &&
	    member_find(target, join->proc.pid))
		return refusal(why, size, TARGET_E_EXISTS, "a process of %s already", target->name);
	return 0;
}

static int start(struct join *join, char *why, size_t size)
{
	const struct timeval limit = {.tv_sec = JOIN_SECONDS};
	struct target *target = join->target;

	join->limit = evtimer_new(target->targets->base, on_limit, join);
	if (!join->limit || event_add(join->limit, &limit) < 0)
		return refusal(why, size, -ENOMEM, "out of memory");
	if (join->maps_fd < 0)
		return 0;
	join->job = (struct reader_job){.run = run, .done = done};
	if (!work_queue_read(target, &join->job))
		return refusal(
			why, size, TARGET_E_BUSY,
			"all threads that may read processes of its user hang in other ones");
	return 0;
}

int targets_join(struct target *target, const struct target_request *req, targets_joined_fn fn,
		 void *arg, struct join **ret, char *why, size_t why_size)
{
	struct join *join;
	int r = check_target(target, why, why_size);

	if (r != 0)
		return r;
	join = calloc(1, sizeof(*join));
	if (!join)
		return refusal(why, why_size, -ENOMEM, "out of memory");
	*join = (struct join){
		.target = target, .proc = PROC_INIT, .maps_fd = -1, .fn = fn, .arg = arg};
	r = check_process(join, req, why, why_size);
	if (r == 0)
		r = start(join, why, why_size);
	if (r != 0) {
		join_free(join);
		return r;
	}
	TAILQ_INSERT_TAIL(&target->joins, join, link);
	target->n_joins++;
	if (join->maps_fd < 0)
		begin(join);
	*ret = join;
	return 0;
}

void targets_join_cancel(struct join *join)
{
	join->fn = NULL;
}
