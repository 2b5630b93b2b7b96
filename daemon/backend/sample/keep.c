// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/keep.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/backend/sample/choice.h"
#include "daemon/backend/sample/sampling.h"

/*
 * Rings are measured soon after they were taken, then ever less often: a measurement reads all of
 * them.
 */
#define INTERVAL_MAX_S 32
/* What was measured in a quiet moment is no reason to ask for all memory that there is. */
#define GROWTH_MAX 16
#define RING_BYTES_MAX ((size_t)1 << 30)

struct keep {
	struct target *target;	   /* back pointer */
	struct event *timer;
	unsigned int interval_s;   /* to the next measurement */
	bool asked;		   /* for a survey */
	size_t ring_bytes;	   /* 0: as configured */
	size_t switch_bytes;	   /* likewise */
	enum stacks_mode stacks;   /* that both are for */
	char why[200];
};

size_t keep_size(size_t bytes, uint64_t have_ns, uint64_t want_ns)
{
	size_t size = bytes;

	/* A half more, as programs are not always equally busy. */
	want_ns += want_ns / 2;
	while (have_ns < want_ns && size < bytes * GROWTH_MAX && size * 2 <= RING_BYTES_MAX) {
		size *= 2;
		have_ns *= 2;
	}
	return size;
}

static void wait_for_next(struct keep *keep)
{
	const struct timeval interval = {.tv_sec = keep->interval_s};

	(void)event_add(keep->timer, &interval);
	if (keep->interval_s < INTERVAL_MAX_S)
		keep->interval_s *= 2;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct keep *keep = arg;
	struct event_group *group = sampling_group(keep->target);

	wait_for_next(keep);
	if (!group)
		return;
	keep->asked = true;
	sampler_survey(group);
	/* The last one will do. */
	if (!group->surveying)
		keep_surveyed(keep);
}

void keep_restart(struct keep *keep)
{
	if (!keep)
		return;
	keep->asked = false;
	keep->interval_s = 1;
	wait_for_next(keep);
}

void keep_stop(struct keep *keep)
{
	if (keep)
		(void)event_del(keep->timer);
}

/* Of each CPU, as the kernel granted it. */
static size_t ring_bytes_of(const struct event_group *group)
{
	const struct eventset *clock = &group->events[GROUP_CLOCK];

	for (size_t i = 0; i < clock->n_cpus; i++)
		if (ring_is_there(&clock->rings[i]))
			return clock->rings[i].size;
	return 0;
}

/* The size that rings of one kind need, which are of `bytes` now; these, if they do. */
static size_t size_for(const struct keep *keep, enum group_ring kind, size_t bytes)
{
	const struct source *source = &sampling_of(keep->target)->sources[0];
	const struct group_survey *survey = &source->group->survey;
	const uint64_t complete = source_complete_ns(source, survey->oldest_of[kind]);

	if (!bytes || complete == source->from_ns ||
	    survey->at_ns - complete >= keep->target->keep_ns)
		return bytes;
	return keep_size(bytes, survey->at_ns - complete, keep->target->keep_ns);
}

void keep_surveyed(struct keep *keep)
{
	const struct event_group *group = keep ? sampling_group(keep->target) : NULL;
	const struct source *source;
	uint64_t complete;
	size_t size, switches;

	if (!group || !keep->asked || group->surveying || keep->target->state != TARGET_ARMED)
		return;
	keep->asked = false;
	source = &sampling_of(keep->target)->sources[0];
	complete = source_complete_ns(source, group->survey.oldest_ns);
	if (group->survey.at_ns < complete)
		return;
	if (complete == source->from_ns ||
	    group->survey.at_ns - complete >= keep->target->keep_ns) {
		keep->why[0] = '\0';
		return;
	}
	size = size_for(keep, GROUP_RING_EVENTS, ring_bytes_of(group));
	switches =
		size_for(keep, GROUP_RING_SWITCHES, group->switches ? group->spec.switch_bytes : 0);
	if (size < group->spec.ring_bytes)
		size = group->spec.ring_bytes;
	if (size == group->spec.ring_bytes && switches <= group->spec.switch_bytes) {
		(void)snprintf(
			keep->why, sizeof(keep->why),
			"no locked memory was left for larger rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
		if (size * 2 > RING_BYTES_MAX || switches * 2 > RING_BYTES_MAX)
			(void)snprintf(keep->why, sizeof(keep->why),
				       "its rings are as large as rings can be");
		return;
	}
	keep->ring_bytes = size;
	keep->switch_bytes = switches;
	keep->stacks = sample_stacks(keep->target);
	target_work(keep->target, WORK_REARM);
}

void keep_refused(struct keep *keep, const char *why)
{
	const struct event_group *group = keep ? sampling_group(keep->target) : NULL;
	const enum stacks_mode stacks = keep ? sample_stacks(keep->target) : STACKS_FP;
	bool larger = false;

	if (!group || (keep_ring_bytes(keep, stacks) <= group->spec.ring_bytes &&
		       keep_switch_bytes(keep, stacks) <= group->spec.switch_bytes))
		return;
	if (keep_ring_bytes(keep, stacks) > group->spec.ring_bytes) {
		keep->ring_bytes /= 2;
		larger |= keep->ring_bytes > group->spec.ring_bytes;
	}
	if (keep_switch_bytes(keep, stacks) > group->spec.switch_bytes) {
		keep->switch_bytes /= 2;
		larger |= keep->switch_bytes > group->spec.switch_bytes;
	}
	if (larger)
		target_work(keep->target, WORK_REARM);
	else
		(void)snprintf(keep->why, sizeof(keep->why), "%s", why);
}

size_t keep_ring_bytes(const struct keep *keep, enum stacks_mode stacks)
{
	return keep && keep->stacks == stacks ? keep->ring_bytes : 0;
}

size_t keep_switch_bytes(const struct keep *keep, enum stacks_mode stacks)
{
	return keep && keep->stacks == stacks ? keep->switch_bytes : 0;
}

const char *keep_short(const struct keep *keep)
{
	return keep && keep->why[0] ? keep->why : NULL;
}

void keep_moved(struct keep *keep, struct target *target)
{
	if (keep)
		keep->target = target;
}

int keep_new(struct target *target, struct keep **ret)
{
	struct keep *keep;

	*ret = NULL;
	if (!target->keep_ns)
		return 0;
	keep = calloc(1, sizeof(*keep));
	if (!keep)
		return -ENOMEM;
	keep->target = target;
	keep->timer = evtimer_new(target->targets->base, on_timer, keep);
	if (!keep->timer) {
		free(keep);
		return -ENOMEM;
	}
	*ret = keep;
	return 0;
}

struct keep *keep_free(struct keep *keep)
{
	if (!keep)
		return NULL;
	event_free(keep->timer);
	free(keep);
	return NULL;
}
