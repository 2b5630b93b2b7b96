// SPDX-License-Identifier: Apache-2.0
/*
 * What side-band records do to targets: each goes to the log of the targets that it is about; a
 * mapping opens its file, a fork into a unit adds a member, an exec may end an authority, an exit
 * ends a thread.
 */
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/log.h"
#include "common/bundle/perfabi.h"
#include "daemon/config.h"
#include "daemon/target/stack_probe.h"

/* ---- images */

/* One that is open, or about to be. */
static bool has_file(const struct target *target, const struct perfabi_mmap2 *map)
{
	for (size_t i = 0; i < target->n_images; i++) {
		const struct image_key *k = image_key(target->images[i]);

		if (k->ino == map->ino && k->maj == map->maj && k->min == map->min &&
		    !image_missing(target->images[i]))
			return true;
	}
	return false;
}

static bool has_image(const struct target *target, const struct image *image)
{
	for (size_t i = 0; i < target->n_images; i++)
		if (target->images[i] == image)
			return true;
	return false;
}

static int image_keep(struct target *target, struct image *image)
{
	if (target->n_images == target->images_room) {
		size_t room = target->images_room ? target->images_room * 2 : 8;
		struct image **bigger = reallocarray(target->images, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		target->images = bigger;
		target->images_room = room;
	}
	if (target_charge_fds(target, 1) != 0)
		return -EDQUOT;
	target->images[target->n_images++] = image;
	return 0;
}

int sideband_add_image(struct target *target, struct image *image)
{
	const int r = has_image(target, image) ? -EEXIST : image_keep(target, image);

	if (r < 0)
		(void)image_put(image);
	return r == -EEXIST ? 0 : r;
}

void sideband_free_images(struct target *target)
{
	for (size_t i = 0; i < target->n_images; i++)
		(void)image_put(target->images[i]);
	free(target->images);
	target->images = NULL;
	target->n_images = target->images_room = 0;
}

uint64_t target_images_missing(const struct target *target)
{
	uint64_t n = target->images_missing;

	for (size_t i = 0; i < target->n_images; i++)
		n += image_missing(target->images[i]) != NULL;
	return n;
}

/* Asks for the image of a mapping; it is opened later. */
static int image_ask(struct target *target, pid_t pid, int dirfd, const struct perfabi_mmap2 *map)
{
	struct member *member = member_find(target, pid);
	struct image_request request = {
		.proc_dirfd = dirfd,
		.pid = pid,
		.start = map->addr,
		.end = map->addr + map->len,
		.path = map->filename,
		.key = {.maj = map->maj, .min = map->min, .ino = map->ino},
	};
	struct proc_stat stat;
	struct image *image;
	int r;

	if (!member)
		return -ESRCH;
	/* The pid may be another process's by now, with other rights. */
	if (dirfd >= 0 &&
	    (proc_stat_read(dirfd, &stat) < 0 || stat.start_time != member->start_time))
		request.proc_dirfd = dirfd = -1;
	if (dirfd >= 0)
		member_read_cred(member, dirfd);
	/* Nobody will see its addresses. */
	if (member->proof == PROOF_REFUSED)
		return 0;
	if (!member->cred || !cred_is_of(member->cred, target->uid))
		return -EACCES;
	request.cred = member->cred;
	request.root = member->root;
	r = image_get(target->targets->images, &request, &image);
	if (r < 0)
		return r;
	return member->proof == PROOF_GIVEN ? sideband_add_image(target, image)
					    : proof_hold(member, image);
}

static void image_open(struct target *target, pid_t pid, const struct perfabi_mmap2 *map)
{
	size_t room = map->header.size - sizeof(*map) - sizeof(struct perfabi_sample_id);
	_cleanup_close_ int own = -1;
	char path[32];
	int dirfd, r;

	/* It maps no file: vDSO, anonymous. */
	if (!map->ino || strnlen(map->filename, room) == room || has_file(target, map))
		return;
	if (target->n_images >= TARGET_IMAGES_MAX) {
		target->images_missing++;
		return;
	}
	if (target->proc.pid == pid) {
		dirfd = target->proc.dirfd;
	} else {
		(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
		dirfd = own = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	r = image_ask(target, pid, dirfd, map);
	if (r < 0) {
		target->images_missing++;
		log_debug("%s: image of pid %d not kept: %s", target->name, (int)pid, strerror(-r));
	}
}

/* ---- the log */

static int keep(struct target *target, const struct perf_event_header *h)
{
	if (sideband_log_is_full(&target->log))
		target_work(target, WORK_FORGET);
	if (target->backend->record)
		target->backend->record(target, h);
	return sideband_log_append(&target->log, h);
}

void sideband_keep(struct target *target, const struct perf_event_header *h)
{
	/* pid is the first field of it. */
	if (h->type == PERF_RECORD_MMAP2)
		image_open(target, (pid_t)((const struct perfabi_mmap2 *)(const void *)h)->pid,
			   (const void *)h);
	if (keep(target, h) < 0)
		target->log.dropped++;
}

/* ---- records */

static bool is_exec(const struct perf_event_header *h)
{
	return h->type == PERF_RECORD_COMM && (h->misc & PERF_RECORD_MISC_COMM_EXEC);
}

/* Whether the record is about a thread that is not in the target's scope. */
static bool out_of_scope(const struct target *target, const struct perf_event_header *h)
{
	const struct perfabi_task *task = (const void *)h;
	const struct perfabi_comm *comm = (const void *)h;
	uint32_t tid;

	if (target->scope != TARGET_THREAD)
		return false;
	if (h->type == PERF_RECORD_FORK || h->type == PERF_RECORD_EXIT)
		tid = task->tid;
	else if (h->type == PERF_RECORD_COMM)
		tid = comm->tid;
	else
		return false;
	return tid != (uint32_t)target->tid && tid != (uint32_t)target->proc.pid;
}

static void on_comm(struct member *member, const struct perf_event_header *h)
{
	const struct perfabi_comm *comm = (const void *)h;
	size_t room = h->size - sizeof(*comm) - sizeof(struct perfabi_sample_id);

	if (h->size <= sizeof(*comm) + sizeof(struct perfabi_sample_id) || comm->tid != comm->pid)
		return;
	if (room >= sizeof(member->comm))
		room = sizeof(member->comm) - 1;
	room = strnlen(comm->comm, room);
	memcpy(member->comm, comm->comm, room);
	member->comm[room] = '\0';
}

/* NULL: it is not recorded any more. */
static struct member *on_exec(struct target *target, struct member *member, uint64_t time)
{
	/* Where events were opened anew it comes twice. */
	if (!target->owner_admin && time == member->from_ns)
		return member;
	/* The kernel has waited for the ends of all its other threads, and has reported them. */
	member->threads = 1;
	/* Had another thread executed it, the end of this one would have been the target's. */
	if (target->scope == TARGET_THREAD && target->tid != member->pid) {
		target_suspend(
			target, time,
			"its thread executed another program, and has the number of its process now: arm that");
		return NULL;
	}
	if (target->owner_admin) {
		target_refresh(target);
		if (!target->arming)
			stackprobe_target(target->targets->probe, target);
		return member;
	}
	if (!target_is_family(target)) {
		target_suspend(target, time, "it executed another program: arm it again");
		return NULL;
	}
	if (proof_exec(member, time, &member) < 0) {
		target->left_out++;
		return NULL;
	}
	return member;
}

static void say_mapped(const struct member *member, const struct perfabi_mmap2 *m)
{
	struct target *target = member->target;
	const struct targets_callbacks *c = &target->targets->callbacks;

	const struct target_mapping mapping = {.pid = member->pid,
					       .maj = m->maj,
					       .min = m->min,
					       .ino = m->ino,
					       .start = m->addr,
					       .end = m->addr + m->len};

	if (c->mapped && !target->arming && member->proof == PROOF_GIVEN)
		c->mapped(c->arg, target, &mapping);
}

static void on_member_record(struct target *target, struct member *member,
			     const struct sideband_record *record)
{
	const struct perf_event_header *h = record->header;
	const struct perfabi_task *task = (const void *)h;

	/* A target that nobody armed has no log. */
	if (target->state != TARGET_ARMED || target_is_implicit(target) ||
	    record->time < member->from_ns || out_of_scope(target, h))
		return;
	if (is_exec(h)) {
		member = on_exec(target, member, record->time);
		if (!member)
			return;
	}
	if (h->type == PERF_RECORD_MMAP2) {
		/*
		 * Without exec permission it is data: such records come with the flag of a later
		 * option.
		 */
		if (!(((const struct perfabi_mmap2 *)(const void *)h)->prot & PROT_EXEC))
			return;
		image_open(target, member->pid, (const void *)h);
		say_mapped(member, (const void *)h);
	}
	if (h->type == PERF_RECORD_COMM)
		on_comm(member, h);
	if (keep(target, h) < 0)
		target->log.dropped++;
	if (h->type == PERF_RECORD_FORK && task->pid == task->ppid)
		family_thread_began(member);
	if (h->type == PERF_RECORD_EXIT)
		family_thread_ended(member);
	if (h->type == PERF_RECORD_EXIT && target->scope == TARGET_THREAD &&
	    task->tid == (uint32_t)target->tid)
		target_exited(target, record->time);
}

/*
 * Whether the member is what has the number now: a scan finds processes whose forks are still to be
 * heard of.
 */
static bool is_still(const struct member *member)
{
	_cleanup_close_ int dirfd = proc_dir_open(member->pid);
	struct proc_stat stat;

	return dirfd >= 0 && proc_stat_read(dirfd, &stat) == 0 &&
	       stat.start_time == member->start_time;
}

/* A process that a member of a unit forked belongs to it, as the kernel put it into the cgroup. */
static void on_fork(struct targets *targets, const struct sideband_record *record)
{
	const struct perfabi_task *task = (const void *)record->header;
	pid_t pid = (pid_t)task->pid, ppid = (pid_t)task->ppid;
	struct member *parents[MEMBER_UNITS_MAX];
	size_t n;

	if (pid == ppid)
		return;
	n = members_of(targets, ppid, parents, ARRAY_SIZE(parents));
	for (size_t i = 0; i < n; i++) {
		struct target *target = parents[i]->target;

		if (!target->children || target->state != TARGET_ARMED)
			continue;
		/* Before it was armed: its scan finds and reads it. */
		if (record->time < parents[i]->from_ns)
			continue;
		if (member_find(target, pid))
			continue; /* the scan found it first */
		/*
		 * It has its parent's maps, and the record says so: nothing is to be read from
		 * /proc.
		 */
		if (member_fork(parents[i], pid, record->time) == 0)
			(void)target_member_changed(target, pid);
		else
			target->left_out++;
	}
}

/*
 * A number that another process gets is free: who had it has ended before, though nobody has looked
 * yet.
 */
static void end_former(struct targets *targets, pid_t pid, uint64_t time)
{
	struct member *members[MEMBER_UNITS_MAX];
	const size_t n = members_of(targets, pid, members, ARRAY_SIZE(members));

	for (size_t i = 0; i < n; i++) {
		struct target *target = members[i]->target;

		/*
		 * One that a scan found before the record of its own fork came is another matter.
		 */
		if (members[i]->from_ns >= time || is_still(members[i]))
			continue;
		member_end(members[i], time);
		if (target_is_family(target) && target->n_living == 0 && !target->arming)
			target_exited(target, time);
	}
}

void sideband_on_record(void *arg, const struct sideband_record *record)
{
	struct member *members[MEMBER_UNITS_MAX];
	struct targets *targets = arg;
	size_t n;

	if (record->header->type == PERF_RECORD_LOST) {
		/* A mapping may be among them. */
		targets_resync(targets, sideband_events_whole_ns(targets->sideband));
		return;
	}
	if (record->header->type == PERF_RECORD_FORK) {
		const struct perfabi_task *task = (const void *)record->header;

		if (task->pid != task->ppid)
			end_former(targets, (pid_t)task->pid, record->time);
		on_fork(targets, record);
	}
	n = members_of(targets, (pid_t)record->pid, members, ARRAY_SIZE(members));
	for (size_t i = 0; i < n; i++)
		on_member_record(members[i]->target, members[i], record);
}
