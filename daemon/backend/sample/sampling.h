/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sampling back end keeps of a target: the rings that hold its samples, the present ones
 * and those from before a change. Owned by daemon/backend/sample/backend.c; its neighbours read it.
 */
#pragma once

#include "daemon/backend/sample/sampler.h"
#include "daemon/backend/sample/source.h"
#include "daemon/control/quota.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

struct blocked;
struct event;
struct keep;

struct sampling {
	struct target *target; /* back pointer */
	struct source sources[SOURCES_MAX]; /* the present one first */
	size_t n_sources;
	struct event *settle; /* those from before a change have been kept long enough */
	struct quota_charge charge;
	struct keep *keep; /* NULL: nobody asked how far back it is to reach */
	/* a process of it is recorded in so many other ways that there is no room for this one */
	bool crowded;
	struct blocked *since; /* who slept when it was armed; NULL: that is not known */
};

/* Another back end records the target: sampling adds its waits, and no samples. */
static inline bool sampling_is_beside(const struct target *target)
{
	return target->backend != &backend_sample;
}

static inline void **sampling_slot(struct target *target)
{
	return sampling_is_beside(target) ? &target->beside : &target->recording;
}

/* NULL if another back end has the target, and sampling is not beside it. */
static inline struct sampling *sampling_of(const struct target *target)
{
	return sampling_is_beside(target) ? target->beside : target->recording;
}

/* Its stacks are, or may come to be, unwound in the kernel. */
static inline bool sampling_unwinds(const struct target *target)
{
	return !sampling_is_beside(target) && !target->kernel_stacks &&
	       (target->stacks_asked == STACKS_BPF || target->stacks_asked == STACKS_AUTO);
}

/* What goroutine a thread of a Go program runs is read with each sample and wait. */
static inline bool sampling_reads_goroutines(const struct target *target)
{
	return !sampling_is_beside(target);
}

/* What its processes map is to be known. */
static inline bool sampling_follows(const struct target *target)
{
	return sampling_unwinds(target) || sampling_reads_goroutines(target);
}

/*
 * Waits shorter than this have no stacks, ns; 0: all have. Copies of the stack are made where the
 * wait begins, or never.
 */
static inline uint64_t sampling_wait_min(const struct target *target)
{
	const bool copied = target->stacks == STACKS_DWARF || target->kernel_stacks;

	return target->waits && !copied && !sampling_is_beside(target) ? target->wait_min_ns : 0;
}

static inline struct sampler *sampler_of(const struct targets *targets)
{
	return targets_machine(targets, &backend_sample);
}

/*
 * With the stack of a wait, where it is taken at its end, what in the kernel it waited in. Unasked,
 * where it has names: an admin who may see the addresses of the kernel has armed it.
 */
static inline bool sampling_kernel_waits(const struct target *target)
{
	return target->owner_admin && target->kallsyms_fd >= 0 && sampling_wait_min(target) &&
	       sampler_unwind(sampler_of(target->targets));
}

/* The group that it records to; NULL: none. */
static inline struct event_group *sampling_group(const struct target *target)
{
	const struct sampling *s = sampling_of(target);

	return s && s->n_sources ? s->sources[0].group : NULL;
}
