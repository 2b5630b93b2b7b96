// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/sharing.h"

#include <stdio.h>
#include <string.h>

#include "daemon/backend/pt/recording.h"
#include "daemon/base/refusal.h"

#define KIB 1024ull

/* One that is suspended has its events still: they are what keeps its rings. */
static bool holds(const struct target *other, const struct member *member)
{
	return other->state == TARGET_ARMED ? member_find(other, member->pid) != NULL
					    : member_known(other, member->pid);
}

const struct target *pt_sharing_overlaps(const struct target *target)
{
	const struct target *other;
	const struct member *member;

	TAILQ_FOREACH(other, &target->targets->list, link)
	{
		const struct pt_recording *rec = other == target ? NULL : pt_recording_of(other);

		if (!rec || !rec->events || rec->events == pt_recording_of(target)->events ||
		    other->state == TARGET_EXITED)
			continue;
		if (other->scope == TARGET_THREAD && target->scope == TARGET_THREAD &&
		    other->tid != target->tid)
			continue;
		TAILQ_FOREACH(member, &target->members, link)
			if (member->to_ns == UINT64_MAX && holds(other, member))
				return other;
	}
	return NULL;
}

/*
 * Whoever reads a snapshot gets all bytes of the rings, and what is suspended for one must be for
 * the other: an ordinary user's targets end with the right to trace them.
 */
static bool same_authority(const struct target *a, const struct target *b)
{
	return a->owner_admin == b->owner_admin && (a->owner_admin || a->owner == b->owner);
}

static bool is_below(const struct cgroup *inner, const struct cgroup *outer)
{
	const size_t len = strlen(outer->path);

	return inner->ino == outer->ino ||
	       (strncmp(inner->path, outer->path, len) == 0 && inner->path[len] == '/');
}

/* Whether all that the target is, and will be, belongs to the other one. */
static bool is_within(const struct target *target, const struct target *other)
{
	const struct member *member;

	if (other->scope == TARGET_HOST)
		return true;
	if (other->scope == TARGET_THREAD)
		return target->scope == TARGET_THREAD && target->tid == other->tid;
	if (target_scope_is_group(target->scope))
		return target->scope == other->scope && is_below(&target->cgroup, &other->cgroup);
	if (target->children && !other->children)
		return false;
	TAILQ_FOREACH(member, &target->members, link)
		if (member->to_ns == UINT64_MAX && !member_find(other, member->pid))
			return false;
	return true;
}

struct pt_recording *pt_sharing_find(const struct target *target, char *why, size_t size)
{
	const struct pt_recording *own = pt_recording_of(target);
	const struct target *other;

	why[0] = '\0';
	TAILQ_FOREACH(other, &target->targets->list, link)
	{
		struct pt_recording *rec = other == target ? NULL : pt_recording_of(other);

		if (!rec || !rec->uses || other->state != TARGET_ARMED ||
		    !same_authority(target, other) || !is_within(target, other))
			continue;
		/* One would get what it did not ask for, the other one less. */
		if (own->filter || rec->filter) {
			(void)snprintf(
				why, size,
				"%s records it by PT already, and a recording with address filters is not shared: disarm "
				"that",
				other->name);
			continue;
		}
		if (other->kernel_stacks != target->kernel_stacks) {
			(void)snprintf(
				why, size,
				"%s records it by PT already, %s the kernel, and a thread has one PT recording: disarm that",
				other->name, other->kernel_stacks ? "with" : "without");
			continue;
		}
		if ((!own->ring_asked || own->aux_bytes == rec->aux_bytes) &&
		    (!own->timing_asked || own->timing == rec->timing))
			return rec;
		(void)snprintf(
			why, size,
			"%s records it by PT already, with rings of %llu KiB and timing %s, and a thread has one PT "
			"recording: arm it without settings of its own, or disarm that",
			other->name, (unsigned long long)(rec->aux_bytes / KIB),
			pt_timing_name(rec->timing));
	}
	return NULL;
}

static bool is_same_extent(const struct target *a, const struct target *b)
{
	return a->scope == b->scope && a->tid == b->tid && a->children == b->children &&
	       (target_scope_is_group(a->scope) ? a->cgroup.ino == b->cgroup.ino
						: a->proc.pid == b->proc.pid);
}

void pt_sharing_begin(struct target *target, const struct pt_recording *other)
{
	struct pt_recording *rec = pt_recording_of(target);

	rec->events = pt_events_ref(other->events);
	pt_events_use(rec->events);
	rec->uses = rec->shares = true;
	rec->is_part = other->is_part || !is_same_extent(target, other->target);
	rec->aux_bytes = other->aux_bytes;
	rec->timing = other->timing;
	target_say_why(target, "shares the PT recording of %s", other->target->name);
}

void pt_sharing_hand_over(struct target *target)
{
	struct pt_recording *rec = pt_recording_of(target);
	struct target *other;

	TAILQ_FOREACH(other, &target->targets->list, link)
	{
		struct pt_recording *heir = other == target ? NULL : pt_recording_of(other);

		if (!heir || !heir->shares || heir->events != rec->events)
			continue;
		heir->shares = false;
		quota_release(&rec->charge);
		(void)!quota_charge_forced(target->targets->quota, other->owner, QUOTA_RING_BYTES,
					   pt_events_bytes(rec->events), &heir->charge);
		(void)!target_charge_fds(other, 0);
		rec->shares = true;
		return;
	}
}

int pt_sharing_refuse(const struct target *target, const struct target *other, char *why,
		      size_t size)
{
	if (other->state == TARGET_SUSPENDED)
		return refusal(
			why, size, TARGET_E_BUSY,
			"%s is suspended and keeps what it recorded of it by PT: disarm that, or record this one by --backend "
			"sample",
			target_visible(other, target->owner, target->owner_admin)
				? other->name
				: "another target");
	if (target_visible(other, target->owner, target->owner_admin))
		return refusal(
			why, size, TARGET_E_BUSY,
			"%s records a thread of it by PT already, and a thread has one PT recording: disarm that and arm this one "
			"first, or record this one by --backend sample",
			other->name);
	return refusal(
		why, size, TARGET_E_BUSY,
		"another user's target records a thread of it by PT already, and a thread has one PT recording: record it "
		"by --backend sample");
}
