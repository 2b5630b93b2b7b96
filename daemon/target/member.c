// SPDX-License-Identifier: Apache-2.0
/* The processes of targets, found by pid when a record comes. */
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/pids.h"
#include "daemon/base/loop.h"

static size_t bucket_of(pid_t pid)
{
	return ((uint32_t)pid * 0x9e3779b1u >> 16) % MEMBER_BUCKETS;
}

struct member *member_next(const struct targets *targets, pid_t pid, const struct member *after)
{
	struct member *member = after ? LIST_NEXT(after, by_pid)
				      : LIST_FIRST(&targets->by_pid[bucket_of(pid)]);

	while (member && member->pid != pid)
		member = LIST_NEXT(member, by_pid);
	return member;
}

struct member *member_find(const struct target *target, pid_t pid)
{
	struct member *member = NULL;

	while ((member = member_next(target->targets, pid, member)) != NULL)
		if (member->target == target && member->to_ns == UINT64_MAX)
			break;
	return member;
}

bool member_known(const struct target *target, pid_t pid)
{
	const struct member *member = NULL;

	while ((member = member_next(target->targets, pid, member)) != NULL)
		if (member->target == target)
			return true;
	return false;
}

/* The first entry of this process. */
static const struct member *first_of(const struct target *target, pid_t pid, uint64_t start_time)
{
	const struct member *member = NULL;

	while ((member = member_next(target->targets, pid, member)) != NULL)
		if (member->start_time == start_time && member->target == target)
			break;
	/* The newest is the first: what the process is now decides. */
	return member && member->proof == PROOF_GIVEN ? member : NULL;
}

bool target_has(const struct target *target, pid_t pid, uint64_t start_time)
{
	return first_of(target, pid, start_time) != NULL;
}

bool member_is_first(const struct member *member)
{
	return first_of(member->target, member->pid, member->start_time) == member;
}

size_t target_processes(const struct target *target, struct target_process *ret, size_t room)
{
	const struct member *member;
	size_t n = 0;

	TAILQ_FOREACH(member, &target->members, link) {
		if (member->to_ns != UINT64_MAX || member->proof != PROOF_GIVEN)
			continue;
		if (n < room)
			ret[n] = (struct target_process){.pid = member->pid,
							 .start_time = member->start_time};
		n++;
	}
	return n;
}

size_t targets_having(const struct targets *targets, pid_t pid, uint64_t start_time,
		      struct target **ret, size_t room)
{
	const struct member *member = NULL;
	size_t n = 0;

	while ((member = member_next(targets, pid, member)) != NULL && n < room)
		if (member->start_time == start_time && !member->target->arming &&
		    member_is_first(member))
			ret[n++] = member->target;
	return n;
}

size_t members_of(const struct targets *targets, pid_t pid, struct member **ret, size_t room)
{
	struct member *member = NULL;
	size_t n = 0;

	while ((member = member_next(targets, pid, member)) != NULL && n < room)
		if (member->to_ns == UINT64_MAX)
			ret[n++] = member;
	return n;
}

int target_member_changed(struct target *target, pid_t pid)
{
	const struct backend *backend = target->backend;

	return backend && backend->member_changed ? backend->member_changed(target, pid) : 0;
}

static int member_new(struct target *target, pid_t pid, uint64_t from_ns, struct member **ret)
{
	struct member *member;

	/* In time: forgetting the ended ones needs a look at the rings. */
	if (target->n_members >= TARGET_MEMBERS_MAX - TARGET_MEMBERS_MAX / 8)
		target_work(target, WORK_FORGET);
	if (target->n_members >= TARGET_MEMBERS_MAX)
		return -E2BIG;
	member = calloc(1, sizeof(*member));
	if (!member)
		return -ENOMEM;
	member->target = target;
	member->pid = member->nspid = pid;
	member->from_ns = from_ns;
	member->to_ns = UINT64_MAX;
	LIST_INSERT_HEAD(&target->targets->by_pid[bucket_of(pid)], member, by_pid);
	TAILQ_INSERT_TAIL(&target->members, member, link);
	target->n_members++;
	target->n_living++;
	*ret = member;
	return 0;
}

/*
 * Targets of root may have processes of any user, since only administrators get their snapshots. A
 * user's target may not: of a process that has become another user's (a set-user-ID program) no
 * file may be opened for the user who started it.
 */
bool cred_is_of(const struct cred *cred, uid_t uid)
{
	return uid == 0 || cred->uid == uid;
}

void member_read_cred(struct member *member, int proc_dirfd)
{
	const struct target *target = member->target;
	const bool of_user = target->uid != 0 && !target->admin_only;
	struct cred *cred;

	/*
	 * An exec whose record has not come yet may have given the process the rights of a
	 * set-group-ID program. For a user's target the old ones stay.
	 */
	if ((of_user ? cred_read_plain(proc_dirfd, target->uid, &cred)
		     : cred_read(proc_dirfd, &cred)) < 0)
		return;
	if (member->cred)
		(void)cred_unref(member->cred);
	member->cred = cred;
}

static void member_read(struct member *member, int proc_dirfd)
{
	struct proc_status status;
	struct proc_stat stat;
	struct root *root;

	if (proc_status_read(proc_dirfd, &status) == 0)
		member->nspid = status.nspid;
	if (proc_stat_read(proc_dirfd, &stat) == 0)
		member->start_time = stat.start_time;
	(void)!proc_comm_read(proc_dirfd, member->comm, sizeof(member->comm));
	member_read_cred(member, proc_dirfd);
	if (root_get(member->target->targets->images, proc_dirfd, &root) == 0) {
		if (member->root)
			(void)root_put(member->root);
		member->root = root;
	}
}

static void joined(struct member *member)
{
	struct targets *targets = member->target->targets;

	if (targets->callbacks.changed && !member->target->arming)
		targets->callbacks.changed(targets->callbacks.arg, member->target);
}

int proc_dir_open(pid_t pid)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int member_add(struct target *target, pid_t pid, int proc_dirfd, uint64_t from_ns,
	       struct member **ret)
{
	_cleanup_close_ int own = -1;
	struct member *member;
	int r;

	if (proc_dirfd < 0) {
		own = proc_dirfd = proc_dir_open(pid);
		if (own < 0)
			return own == -ENOENT ? PROC_E_GONE : own;
	}
	r = member_new(target, pid, from_ns, &member);
	if (r < 0)
		return r;
	member_read(member, proc_dirfd);
	joined(member);
	*ret = member;
	return 0;
}

static void inherit(struct member *member, const struct member *from)
{
	member->root = from->root ? root_ref(from->root) : NULL;
	member->cred = from->cred ? cred_ref(from->cred) : NULL;
	memcpy(member->comm, from->comm, sizeof(member->comm));
}

/* What is known of one process, for another one or for another entry of the same. */
static int member_copy(struct member *from, pid_t pid, uint64_t at_ns, struct member **ret)
{
	_cleanup_close_ int own = proc_dir_open(pid);
	struct member *member;
	int r;

	r = member_new(from->target, pid, at_ns, &member);
	if (r < 0)
		return r;
	member->threads = 1;
	inherit(member, from);
	if (own >= 0) {
		member_read(member, own);
		joined(member);
	}
	*ret = member;
	return 0;
}

int member_fork(struct member *parent, pid_t pid, uint64_t at_ns)
{
	struct member *member;
	int r = member_copy(parent, pid, at_ns, &member);

	/*
	 * It is what its parent is, with the same rights. One that hides now may have done so
	 * before.
	 */
	if (r == 0 && (parent->proof != PROOF_GIVEN ||
		       (!parent->target->owner_admin &&
			proof_looks_closed(parent->pid, parent->target->uid))))
		proof_ask(member);
	return r;
}

int member_replace(struct member *member, uint64_t at_ns, struct member **ret)
{
	int r = member_copy(member, member->pid, at_ns, ret);

	if (r == 0) {
		(*ret)->threads = member->threads;
		(*ret)->follow = take_ptr(member->follow);
	}
	/* Where the new one is there the filter does not let go of the process in between. */
	member_end(member, at_ns - 1);
	proof_end(member);
	return r;
}

/* Of one that has ended: nothing is read, its number may be another process's. */
int member_split(struct member *member, uint64_t at_ns, struct member **ret)
{
	struct target *target = member->target;
	struct member *last;

	if (target->n_members >= TARGET_MEMBERS_MAX)
		return -E2BIG;
	last = calloc(1, sizeof(*last));
	if (!last)
		return -ENOMEM;
	last->target = target;
	last->pid = member->pid;
	last->nspid = member->nspid;
	last->start_time = member->start_time;
	last->from_ns = at_ns;
	last->to_ns = member->to_ns;
	last->threads = member->threads;
	last->proof = member->proof;
	inherit(last, member);
	/* The newest are the first of their number, and the last of their target. */
	LIST_INSERT_BEFORE(member, last, by_pid);
	TAILQ_INSERT_AFTER(&target->members, member, last, link);
	target->n_members++;
	member->to_ns = at_ns - 1;
	*ret = last;
	return 0;
}

void member_end(struct member *member, uint64_t at_ns)
{
	if (member->to_ns != UINT64_MAX)
		return;
	/* Who has read a clock may have done so before the process was there. */
	member->to_ns = at_ns < member->from_ns ? member->from_ns : at_ns;
	member->target->n_living--;
	if (member->ends)
		TAILQ_REMOVE(&member->target->targets->ending, member, ending);
	member->ends = 0;
	member->follow = sideband_follow_free(member->follow, member->target->targets->closer);
	(void)target_member_changed(member->target, member->pid);
}

struct member *member_free(struct member *member)
{
	member_end(member, 0);
	proof_end(member);
	LIST_REMOVE(member, by_pid);
	TAILQ_REMOVE(&member->target->members, member, link);
	member->target->n_members--;
	(void)root_put(member->root);
	(void)cred_unref(member->cred);
	free(member);
	return NULL;
}

void members_end(struct target *target, uint64_t at_ns)
{
	struct member *member;

	TAILQ_FOREACH(member, &target->members, link)
		member_end(member, at_ns);
}

void members_prune(struct target *target, uint64_t oldest_ns)
{
	struct member *member, *next;

	for (member = TAILQ_FIRST(&target->members); member; member = next) {
		next = TAILQ_NEXT(member, link);
		if (member->to_ns < oldest_ns)
			(void)member_free(member);
	}
}

/* ---- units */

int members_pids(const struct target *target, bool visible, pid_t **ret, size_t *ret_n)
{
	pid_t *pids = calloc(target->n_members ? target->n_members : 1, sizeof(*pids));
	const struct member *member;
	size_t n = 0;

	if (!pids)
		return -ENOMEM;
	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX && (!visible || member->proof == PROOF_GIVEN))
			pids[n++] = member->pid;
	*ret = pids;
	*ret_n = n;
	return 0;
}

bool members_leave(struct target *target, const pid_t *pids, size_t n, uint64_t listed_ns,
		   uint64_t at_ns, uint64_t deadline)
{
	struct member *member;

	/* The next call begins at the front again, and passes ended ones quickly. */
	TAILQ_FOREACH(member, &target->members, link)
	{
		/* Of one that was forked while the list was read it says nothing. */
		if (member->to_ns != UINT64_MAX || member->from_ns >= listed_ns ||
		    pids_have(pids, n, member->pid))
			continue;
		member_end(member, at_ns);
		if (loop_is_over(deadline))
			return false;
	}
	return true;
}
