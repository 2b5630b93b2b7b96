// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/aside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/target/target_internal.h"

struct aside {
	struct sampler_job job;	   /* first */
	struct targets *targets;   /* back pointer */
	uint64_t target;	   /* its id: it may go meanwhile */
	uint32_t *pids;		   /* owned, sorted: its processes */
	size_t n_pids;
	struct source sources[SOURCES_MAX]; /* with references */
	struct event_group *copies[SOURCES_MAX]; /* owned; NULL: that source is its own, or has none */
	size_t n_sources;
	int result;
};

static int pid_cmp(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* ---- the thread's */

static bool is_wanted(const struct aside *a, const struct source *source, uint8_t *record)
{
	struct tracerd_sched_event ev;
	struct record_view view;
	enum group_event event;
	uint32_t pid;
	uint64_t id;

	/* Those of losses have no subject, and what cannot be read is counted when it is copied. */
	if (record_id(record, &id) < 0)
		return true;
	event = event_group_event(source->group, id);
	if (event == GROUP_EVENTS)
		return true;
	if (record_parse(record, &source->group->layouts[event], &view) < 0)
		return true;
	if (view.time < source->from_ns || view.time > source->end_ns)
		return false;
	pid = event != GROUP_CLOCK && record_sched(&view, &ev) ? ev.pid : *view.pid;
	return bsearch(&pid, a->pids, a->n_pids, sizeof(*a->pids), pid_cmp) != NULL;
}

/* Newest first, as they are in a ring. The oldest stays, whosever it is: it tells how far the ring reaches. */
static int filter_ring(const struct aside *a, const struct source *source, const struct ring *ring, struct ring *ret)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	uint8_t *smaller;
	size_t len = 0;
	int r;

	r = ring_read(ring, &copy, &records);
	if (r < 0)
		return r;
	for (size_t i = 0; i < records.n; i++) {
		uint8_t *record = copy.data + records.offsets[i];
		const size_t size = ((const struct perf_event_header *)(const void *)record)->size;

		if (i + 1 < records.n && !is_wanted(a, source, record))
			continue;
		memmove(copy.data + len, record, size);
		len += size;
	}
	/* What cannot be read any more is before all that can. */
	copy.wrapped = copy.wrapped || records.malformed;
	copy.len = len;
	smaller = realloc(copy.data, len ? len : 1);
	if (smaller)
		copy.data = smaller;
	return ring_image(&copy, ret);
}

static void copy_close(struct event_group *copy)
{
	eventset_close(&copy->events[GROUP_CLOCK]);
	group_survey_fini(&copy->survey);
	free(copy->ids);
	free(copy);
}

static int copy_rings(const struct aside *a, const struct source *source, struct event_group *copy)
{
	const struct eventset *from = &source->group->events[GROUP_CLOCK];
	struct eventset *to = &copy->events[GROUP_CLOCK];
	int r;

	to->cpus = calloc(from->n_cpus, sizeof(*to->cpus));
	to->rings = calloc(from->n_cpus, sizeof(*to->rings));
	if (!to->cpus || !to->rings)
		return -ENOMEM;
	memcpy(to->cpus, from->cpus, from->n_cpus * sizeof(*to->cpus));
	to->n_cpus = from->n_cpus;
	for (size_t i = 0; i < from->n_cpus; i++) {
		if (!ring_is_there(&from->rings[i]))
			continue;
		r = filter_ring(a, source, &from->rings[i], &to->rings[i]);
		if (r < 0)
			return r;
		to->ring_bytes += to->rings[i].size;
	}
	return 0;
}

static int copy_group(const struct aside *a, const struct source *source, struct event_group **ret)
{
	const struct event_group *group = source->group;
	struct event_group *copy = calloc(1, sizeof(*copy));
	int r;

	if (!copy)
		return -ENOMEM;
	copy->refs = 1;
	copy->is_aside = true;
	copy->sampler = group->sampler;
	copy->spec = group->spec;
	copy->index = group->index;
	copy->created_ns = group->created_ns;
	memcpy(copy->attrs, group->attrs, sizeof(copy->attrs));
	memcpy(copy->layouts, group->layouts, sizeof(copy->layouts));
	copy->lost_before = event_group_lost(group);
	copy->ids = calloc(group->n_ids, sizeof(*copy->ids));
	r = copy->ids ? copy_rings(a, source, copy) : -ENOMEM;
	if (r == 0) {
		memcpy(copy->ids, group->ids, group->n_ids * sizeof(*copy->ids));
		copy->n_ids = group->n_ids;
		r = event_group_look(copy, &copy->survey);
	}
	if (r < 0) {
		copy_close(copy);
		return r;
	}
	*ret = copy;
	return 0;
}

static void aside_run(struct copier_job *job)
{
	struct aside *a = (struct aside *)job;

	for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
		if (a->sources[i].group->spec.kind == GROUP_CPU)
			a->result = copy_group(a, &a->sources[i], &a->copies[i]);
}

/* ---- the loop's */

static struct target *target_of(const struct aside *a)
{
	struct target *target = targets_next(a->targets, a->target - 1);

	return target && target->id == a->target && target->state != TARGET_ARMED && sampling_of(target) ? target : NULL;
}

static int charge(struct target *target, const struct aside *a)
{
	struct quota_charge *charge = &sampling_of(target)->charge;
	uint64_t bytes = 0, before = charge->amount;
	int r;

	for (size_t i = 0; i < a->n_sources; i++)
		bytes += a->copies[i] ? a->copies[i]->events[GROUP_CLOCK].ring_bytes : 0;
	if (!sampler_may_set_aside(sampler_of(a->targets), bytes))
		return -EDQUOT;
	quota_release(charge);
	r = quota_charge(a->targets->quota, target->owner, QUOTA_RING_BYTES, bytes, charge);
	if (r != 0 && before)
		(void)!quota_charge_forced(a->targets->quota, target->owner, QUOTA_RING_BYTES, before, charge);
	return r > 0 ? -EDQUOT : r;
}

static void aside_done(struct sampler_job *job)
{
	struct aside *a = (struct aside *)job;
	struct target *target = target_of(a);
	struct sampling *s;
	int r;

	if (!target)
		return;
	r = a->result < 0 ? a->result : charge(target, a);
	if (r < 0) {
		target_warn(target, "what it has left may be overwritten by others: %s",
			    r == -EDQUOT ? "there is no memory to set it aside (uid_ring_mib, keep_total_mib)" : strerror(-r));
		return;
	}
	s = sampling_of(target);
	for (size_t i = 0; i < s->n_sources; i++)
		for (size_t k = 0; k < a->n_sources; k++) {
			if (s->sources[i].group != a->sources[k].group || !a->copies[k])
				continue;
			(void)event_group_put(s->sources[i].group);
			s->sources[i].group = a->copies[k];
			sampler_set_aside(a->copies[k]);
			a->copies[k] = NULL;
			break;
		}
	(void)!target_charge_fds(target, 0);
}

static void aside_free(struct sampler_job *job)
{
	struct aside *a = (struct aside *)job;

	for (size_t i = 0; i < a->n_sources; i++) {
		if (a->copies[i])
			copy_close(a->copies[i]);
		(void)event_group_put(a->sources[i].group);
	}
	free(a->pids);
	free(a);
}

void aside_begin(struct target *target)
{
	const struct sampling *s = sampling_of(target);
	const struct member *member;
	struct aside *a;

	if (!s->n_sources)
		return;
	a = calloc(1, sizeof(*a));
	if (!a || !(a->pids = calloc(target->n_members ? target->n_members : 1, sizeof(*a->pids)))) {
		free(a);
		target_warn(target, "what it has left may be overwritten by others: %s", strerror(ENOMEM));
		return;
	}
	a->job = (struct sampler_job){.job.run = aside_run, .done = aside_done, .free = aside_free};
	a->targets = target->targets;
	a->target = target->id;
	TAILQ_FOREACH(member, &target->members, link)
		if (a->n_pids < target->n_members)
			a->pids[a->n_pids++] = (uint32_t)member->pid;
	qsort(a->pids, a->n_pids, sizeof(*a->pids), pid_cmp);
	for (; a->n_sources < s->n_sources; a->n_sources++) {
		a->sources[a->n_sources] = s->sources[a->n_sources];
		(void)event_group_ref(a->sources[a->n_sources].group);
	}
	sampler_submit(sampler_of(target->targets), &a->job);
}
