// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/filter_entries.h"

#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"

/* There is no room for it: that must not pass unseen. */
static void crowded(struct target *target, pid_t pid)
{
	struct sampling *s = sampling_of(target);

	if (!s->crowded)
		target_warn(
			target,
			"process %d has targets with %d other kinds of rings: of it this one gets no switches, and no samples by the machine's clock",
			(int)pid, FILTER_ENTRY_GROUPS);
	s->crowded = true;
}

/* Its stacks are unwound in the kernel. */
static bool unwinds(const struct target *target)
{
	return target->stacks == STACKS_BPF && !sampling_is_beside(target);
}

/* What is wanted of the process's tables: by any target that has it. */
static void follow(const struct targets *targets, pid_t pid)
{
	struct unwind *unwind = sampler_unwind(sampler_of(targets));
	const struct member *member = NULL;
	bool wanted = false, followed = false, goroutines = false;

	if (!unwind)
		return;
	while ((member = member_next(targets, pid, member)) != NULL) {
		if (member->to_ns != UINT64_MAX || member->target->state != TARGET_ARMED)
			continue;
		goroutines |= sampling_reads_goroutines(member->target);
		followed |= sampling_follows(member->target);
		wanted |= unwinds(member->target);
	}
	unwind_want(unwind, pid, wanted);
	unwind_want_goroutines(unwind, pid, goroutines);
	if (!followed)
		unwind_forget(unwind, pid);
}

/*
 * All targets of the group have to want the stacks of long waits only, and then the least of what
 * is long.
 */
static void entry_add_later(struct filter_entry *entry, const struct target *target, uint16_t bit,
			    bool is_new)
{
	const uint64_t wait_min_us = sampling_wait_min(target) / 1000;

	if (!wait_min_us)
		entry->later &= (uint16_t)~bit;
	if (!wait_min_us || !(is_new || (entry->later & bit)))
		return;
	if (!entry->later || wait_min_us < entry->wait_min_us)
		entry->wait_min_us = (uint32_t)wait_min_us;
	entry->later |= bit;
	/* One of the group is enough: the copies for the others drop it. */
	if (sampling_kernel_waits(target))
		entry->kernel |= bit;
}

static void entry_add(struct filter_entry *entry, struct target *target, pid_t pid)
{
	const struct event_group *group = sampling_group(target);

	if (!group || group->index == FILTER_NO_GROUP)
		return;
	if (sampling_is_beside(target) && target->waits)
		entry->flags |= FILTER_STACKS;
	if (target->children)
		entry->flags |= FILTER_INHERIT;
	for (size_t i = 0; i < FILTER_ENTRY_GROUPS; i++) {
		const uint16_t bit = (uint16_t)(1u << i);
		const bool is_new = entry->waits[i] == FILTER_NO_GROUP;

		if (is_new) {
			entry->waits[i] = (uint16_t)group->index;
			entry->no_stacks |= bit;
		} else if (entry->waits[i] != group->index) {
			continue;
		}
		/*
		 * One target of the group that wants stacks is enough: the copies for the others
		 * drop them.
		 */
		if (target->waits)
			entry->no_stacks &= (uint16_t)~bit;
		/* One that wants copies is enough, too. */
		if (unwinds(target) && (is_new || (entry->unwind & bit)))
			entry->unwind |= bit;
		else
			entry->unwind &= (uint16_t)~bit;
		entry_add_later(entry, target, bit, is_new);
		if (group->spec.stacks == STACKS_DWARF)
			entry->copies |= bit;
		if (group->spec.kind == GROUP_CPU && !sampling_is_beside(target))
			entry->clocks |= bit;
		return;
	}
	crowded(target, pid);
}

/* One that is being armed has no id yet. */
static uint64_t age_of(const struct target *target)
{
	return target->arming ? UINT64_MAX : target->id;
}

/*
 * The targets that want something of the process, the oldest first: where there is no room for all,
 * they go before.
 */
static size_t wanted_by(const struct targets *targets, pid_t pid, pid_t tid,
			struct target *ret[MEMBER_UNITS_MAX])
{
	const struct member *member = NULL;
	size_t n = 0, at;

	while (n < MEMBER_UNITS_MAX && (member = member_next(targets, pid, member)) != NULL) {
		struct target *target = member->target;

		if (member->to_ns != UINT64_MAX || target->state != TARGET_ARMED ||
		    (target->scope == TARGET_THREAD && (!tid || target->tid != tid)))
			continue;
		for (at = n++; at > 0 && age_of(ret[at - 1]) > age_of(target); at--)
			ret[at] = ret[at - 1];
		ret[at] = target;
	}
	return n;
}

/* All targets that want something of the process; with `tid`, also those of that thread. */
static struct filter_entry entry_of(const struct targets *targets, pid_t pid, pid_t tid)
{
	struct filter_entry entry = filter_entry_none();
	struct target *wanted[MEMBER_UNITS_MAX];
	const size_t n = wanted_by(targets, pid, tid, wanted);

	for (size_t i = 0; i < n; i++)
		entry_add(&entry, wanted[i], pid);
	return entry;
}

int filter_entries_update(const struct targets *targets, pid_t pid)
{
	struct filter *filter = sampler_filter(sampler_of(targets));
	struct filter_entry entry;
	const struct member *member = NULL;
	int r;

	if (!filter)
		return 0;
	follow(targets, pid);
	entry = entry_of(targets, pid, 0);
	r = filter_process(filter, pid, &entry);
	/* A thread's own entry hides its process's: it holds what both want. */
	while ((member = member_next(targets, pid, member)) != NULL) {
		const struct target *target = member->target;
		int r2;

		if (target->scope != TARGET_THREAD)
			continue;
		entry = target->state == TARGET_ARMED && member->to_ns == UINT64_MAX
				? entry_of(targets, pid, target->tid)
				: filter_entry_none();
		r2 = filter_thread(filter, target->tid, &entry);
		r = r ? r : r2;
	}
	return r;
}

int filter_entries_update_all(const struct target *target)
{
	const struct member *member;
	int r;

	TAILQ_FOREACH(member, &target->members, link)
	{
		if (member->to_ns != UINT64_MAX)
			continue;
		r = filter_entries_update(target->targets, member->pid);
		if (r < 0)
			return r;
	}
	return 0;
}
