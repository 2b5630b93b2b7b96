// SPDX-License-Identifier: Apache-2.0
/*
 * Processes that come and go with their target: one that a member forked is a member at once
 * (daemon/target/sideband.c); this finds out when one has ended. The kernel reports the end of each
 * thread, and of a forked process it is known how many it has: when the last one has ended, or any
 * of a process that was there before, /proc says whether the process still is.
 */
#include <errno.h>

#include "common/base/raw_clock.h"
#include "daemon/target/target_internal.h"

/* A thread's last switch comes after the record of its end. */
#define ENDING_US 100000
#define ENDING_LOOKS 20

bool target_has_many(const struct target *target)
{
	return target->children || target->several;
}

bool target_is_family(const struct target *target)
{
	return target_has_many(target) && !target_scope_is_group(target->scope);
}

void family_thread_began(struct member *member)
{
	if (member->threads)
		member->threads++;
}

void family_look(struct member *member)
{
	const struct timeval soon = {.tv_usec = ENDING_US};
	struct targets *targets = member->target->targets;

	if (!member->ends)
		TAILQ_INSERT_TAIL(&targets->ending, member, ending);
	member->ends = ENDING_LOOKS;
	if (!event_pending(targets->ending_event, EV_TIMEOUT, NULL))
		(void)event_add(targets->ending_event, &soon);
}

void family_thread_ended(struct member *member)
{
	if (member->threads > 1)
		member->threads--;
	else if (target_has_many(member->target))
		family_look(member);
}

static bool has_ended(const struct member *member)
{
	_cleanup_close_ int dirfd = -1;
	struct proc_stat stat;

	/*
	 * Also of the last thread that is known of: a thread that executed something has ended as
	 * the one that it was.
	 */
	dirfd = proc_dir_open(member->pid);
	if (dirfd < 0)
		return dirfd == -ENOENT;
	if (proc_stat_read(dirfd, &stat) < 0)
		return true;
	return stat.start_time != member->start_time || proc_stat_ended(&stat);
}

void family_on_ending(int fd, short what, void *arg)
{
	const struct timeval soon = {.tv_usec = ENDING_US};
	const uint64_t now = clock_raw_ns();
	struct targets *targets = arg;
	struct member *member, *next;

	for (member = TAILQ_FIRST(&targets->ending); member; member = next) {
		struct target *target = member->target;

		next = TAILQ_NEXT(member, ending);
		if (has_ended(member)) {
			member_end(member, now);
			/* None of the rest is of this target then. */
			if (target_is_family(target) && target->n_living == 0 && !target->arming)
				target_exited(target, now);
		} else if (--member->ends == 0) {
			TAILQ_REMOVE(&targets->ending, member, ending);
		}
	}
	if (!TAILQ_EMPTY(&targets->ending))
		(void)event_add(targets->ending_event, &soon);
}
