// SPDX-License-Identifier: Apache-2.0
/*
 * Which processes of a family its owner may see. The right to record one process is the kernel's
 * answer to its client; a process that it forks is the same program with the same rights. But what
 * that executes, and what was there before, may be a set-user-ID program or refuse to be looked at.
 * Of each the kernel is asked again, by a worker of tracerd-open with the owner's rights
 * (daemon/target/opening.h), and until it says yes, nothing of that process is in a snapshot.
 *
 * The answer is of the program that runs when it comes. If that is another one, the kernel has
 * reported its exec before: it shows nobody a new memory map before that record.
 *
 * Administrators see all processes of their targets: all of these have their proof from the
 * beginning.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "daemon/target/backend.h"
#include "daemon/target/join.h"
#include "daemon/target/opening.h"
#include "daemon/target/target_internal.h"

/* More mappings of code a process has hardly before the answer. */
#define HELD_MAX 256
#define LOOKS_MAX 512 /* processes of a target, at a time */

static void held_free(struct member *member)
{
	for (size_t i = 0; i < member->n_held; i++)
		(void)image_put(member->held[i]);
	free(member->held);
	member->held = NULL;
	member->n_held = 0;
}

static void refuse(struct member *member)
{
	struct target *target = member->target;

	member->asking = opening_cancel(member->asking);
	held_free(member);
	member->proof = PROOF_REFUSED;
	if (!target_is_family(target) && !target->arming && member->to_ns == UINT64_MAX)
		target_suspend(
			target, clock_raw_ns(),
			"records of execs may be missing, and the kernel does not let its user look into it now");
	if (!target->refused++)
		target_warn(
			target,
			"processes that it started are left out, since its user may not look into them, or they ended before the "
			"kernel was asked: lost.refused counts them");
	joins_look(target);
}

static void give(struct member *member)
{
	struct target *target = member->target;
	const struct targets_callbacks *c = &target->targets->callbacks;

	member->proof = PROOF_GIVEN;
	for (size_t i = 0; i < member->n_held; i++)
		target->images_missing += sideband_add_image(target, member->held[i]) < 0;
	member->n_held = 0;
	held_free(member);
	if (member->pid == target->proc.pid)
		target_refresh(target);
	if (c->changed && !target->arming)
		c->changed(c->arg, target);
	joins_look(target);
}

static void on_answer(void *arg, const struct opener_reply *answer, int fd)
{
	struct member *member = arg;

	member->asking = NULL;
	(void)close_fd(fd);
	/* It is of another program if there has been an exec since. */
	sideband_events_drain(member->target->targets->sideband);
	if (member->proof != PROOF_ASKED)
		return;
	if (answer->may)
		give(member);
	else
		refuse(member);
}

void proof_ask(struct member *member)
{
	struct target *target = member->target;
	_cleanup_close_ int dirfd = -1, living = -1;
	char path[PROC_MEMORY_PATH];
	struct proc_stat stat;
	int r;

	if (target->owner_admin)
		return;
	member->proof = PROOF_ASKED;
	dirfd = proc_dir_open(member->pid);
	if (dirfd < 0 || !member->cred || !target->targets->openings ||
	    proc_stat_read(dirfd, &stat) < 0 || stat.start_time != member->start_time) {
		refuse(member);
		return;
	}
	/* The kernel is asked of a thread that lives. */
	if (proc_memory_path(dirfd, path) == 0 && path[0] &&
	    (living = openat(dirfd, path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
		refuse(member);
		return;
	}
	r = opening_ask(target->targets->openings, member->cred, living >= 0 ? living : dirfd,
			on_answer, member, &member->asking);
	if (r == 0)
		return;
	log_debug("%s: whether process %d may be seen: %s", target->name, (int)member->pid,
		  strerror(-r));
	refuse(member);
}

int proof_exec(struct member *member, uint64_t at_ns, struct member **ret)
{
	int r = member_replace(member, at_ns, ret);

	if (r == 0)
		proof_ask(*ret);
	return r;
}

void proof_end(struct member *member)
{
	if (member->proof == PROOF_ASKED)
		refuse(member);
}

static int hold(struct member *member, struct image *image)
{
	struct image **bigger;

	for (size_t i = 0; i < member->n_held; i++)
		if (member->held[i] == image)
			return -EEXIST;
	if (member->n_held == HELD_MAX)
		return -E2BIG;
	bigger = reallocarray(member->held, member->n_held + 1, sizeof(struct image *));
	if (!bigger)
		return -ENOMEM;
	member->held = bigger;
	member->held[member->n_held++] = image;
	return 0;
}

int proof_hold(struct member *member, struct image *image)
{
	const int r = hold(member, image);

	if (r < 0)
		(void)image_put(image);
	return r == -EEXIST ? 0 : r;
}

/* What the process is now can be asked, and not what it was. */
static int ask_again(struct member *member, uint64_t since_ns, uint64_t now_ns)
{
	struct member *unseen = member, *present;
	int r = member->from_ns < since_ns ? member_replace(member, since_ns, &unseen) : 0;

	if (r < 0)
		return r;
	unseen->unseen = true;
	unseen->proof = PROOF_ASKED; /* in vain: it ends unanswered */
	return proof_exec(unseen, now_ns, &present);
}

/*
 * It has ended, and may have been something else at its end. Where there is no room to say since
 * when, all of it may have.
 */
static void doubt_end(struct member *member, uint64_t since_ns)
{
	struct member *unseen = member;

	if (member->from_ns < since_ns && member_split(member, since_ns, &unseen) < 0)
		unseen = member;
	unseen->unseen = true;
	refuse(unseen);
}

void proof_again(struct target *target, uint64_t since_ns)
{
	const uint64_t now = clock_raw_ns();
	struct member *last = TAILQ_LAST(&target->members, member_list), *member, *next;

	if (target->owner_admin || target->backend != &backend_sample)
		return;
	for (member = TAILQ_FIRST(&target->members); member; member = next) {
		next = member == last ? NULL : TAILQ_NEXT(member, link);
		if (member->proof == PROOF_REFUSED || member->to_ns <= since_ns)
			continue;
		if (member->to_ns != UINT64_MAX)
			doubt_end(member, since_ns);
		else
			target->left_out += ask_again(member, since_ns, now) < 0;
	}
}

static bool is_given(const struct member *member)
{
	return member->to_ns == UINT64_MAX && member->proof == PROOF_GIVEN;
}

static void recheck(struct member *member)
{
	_cleanup_close_ int dirfd = proc_dir_open(member->pid);
	char path[PROC_MEMORY_PATH];
	struct proc_stat stat;
	uid_t strict;

	if (dirfd >= 0 && proc_strict_uid(dirfd, &strict) == 0 && strict != member->target->uid &&
	    proc_stat_read(dirfd, &stat) == 0 && stat.start_time == member->start_time &&
	    proc_memory_path(dirfd, path) == 0) /* else it has ended, as what it was proven to be */
		refuse(member);
}

void proof_recheck(struct target *target)
{
	struct member *member;

	TAILQ_FOREACH(member, &target->members, link)
		if (is_given(member))
			recheck(member);
}

bool proof_looks_closed(pid_t pid, uid_t uid)
{
	struct stat st;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return stat(path, &st) == 0 && st.st_uid != uid;
}

void proof_look(struct target *target)
{
	pid_t closed[LOOKS_MAX];
	size_t n = 0, n_closed = 0;
	struct member *member;

	TAILQ_FOREACH(member, &target->members, link)
	{
		if (!is_given(member) || n++ < target->n_looked)
			continue;
		if (n > target->n_looked + LOOKS_MAX)
			break;
		if (proof_looks_closed(member->pid, target->uid))
			closed[n_closed++] = member->pid;
	}
	target->n_looked = member ? target->n_looked + LOOKS_MAX : 0;
	if (!n_closed)
		return;
	/* It may be by an exec: then what it was before stays. */
	sideband_events_drain(target->targets->sideband);
	if (sideband_events_behind(target->targets->sideband))
		return;
	for (size_t i = 0; i < n_closed; i++) {
		member = member_find(target, closed[i]);
		if (member && is_given(member))
			recheck(member);
	}
}
