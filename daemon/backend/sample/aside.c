// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/aside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/sample/sampler_internal.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/target/target_internal.h"

/* One target's. */
struct aside {
	STAILQ_ENTRY(aside) link;
	struct targets *targets;   /* back pointer */
	uint64_t target;	   /* its id: it may go meanwhile */
	uint32_t *pids;		   /* owned, sorted: its processes */
	size_t n_pids;
	struct source sources[SOURCES_MAX]; /* with references */
	struct event_group *copies[SOURCES_MAX]; /* owned; NULL: that source is its own */
	size_t n_sources;
	int result;
};

/* All that had ended when the job began: a thousand that end at once are found in one reading of the rings. */
struct batch {
	struct sampler_job job; /* first */
	struct sampler *sampler;
	struct asides asides;
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

static size_t size_of(const struct ring_copy *copy, const struct ring_records *records, size_t i)
{
	return ((const struct perf_event_header *)(const void *)(copy->data + records->offsets[i]))->size;
}

/* Newest first, as they are in a ring. The oldest stays, whosever it is: it tells how far the ring reaches. */
static int filter_ring(const struct aside *a, const struct source *source, const struct ring_copy *copy,
		       const struct ring_records *records, struct ring *ret)
{
	/* What cannot be read any more is before all that can. */
	_cleanup_(ring_copy_fini) struct ring_copy own = {.wrapped = copy->wrapped || records->malformed, .overwritten = copy->overwritten};
	_cleanup_free_ bool *wanted = calloc(records->n + 1, sizeof(*wanted));

	if (!wanted)
		return -ENOMEM;
	for (size_t i = 0; i < records->n; i++) {
		wanted[i] = i + 1 == records->n || is_wanted(a, source, copy->data + records->offsets[i]);
		own.len += wanted[i] ? size_of(copy, records, i) : 0;
	}
	own.data = malloc(own.len ? own.len : 1);
	if (!own.data)
		return -ENOMEM;
	own.len = 0;
	for (size_t i = 0; i < records->n; i++) {
		if (!wanted[i])
			continue;
		memcpy(own.data + own.len, copy->data + records->offsets[i], size_of(copy, records, i));
		own.len += size_of(copy, records, i);
	}
	return ring_image(&own, ret);
}

static void copy_close(struct event_group *copy)
{
	eventset_close(&copy->events[GROUP_CLOCK]);
	group_survey_fini(&copy->survey);
	free(copy->ids);
	free(copy);
}

static int make_copy(const struct event_group *group, struct event_group **ret)
{
	const struct eventset *from = &group->events[GROUP_CLOCK];
	struct event_group *copy = calloc(1, sizeof(*copy));
	struct eventset *to;

	if (!copy)
		return -ENOMEM;
	to = &copy->events[GROUP_CLOCK];
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
	to->cpus = calloc(from->n_cpus, sizeof(*to->cpus));
	to->rings = calloc(from->n_cpus, sizeof(*to->rings));
	if (!copy->ids || !to->cpus || !to->rings) {
		copy_close(copy);
		return -ENOMEM;
	}
	memcpy(copy->ids, group->ids, group->n_ids * sizeof(*copy->ids));
	copy->n_ids = group->n_ids;
	memcpy(to->cpus, from->cpus, from->n_cpus * sizeof(*to->cpus));
	to->n_cpus = from->n_cpus;
	*ret = copy;
	return 0;
}

/* One ring of a group, for all that want something of it. */
static int copy_ring(struct batch *batch, const struct event_group *group, size_t cpu)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	struct aside *a;
	int r;

	r = ring_read(&group->events[GROUP_CLOCK].rings[cpu], &copy, &records);
	STAILQ_FOREACH(a, &batch->asides, link)
		for (size_t i = 0; i < a->n_sources; i++) {
			struct eventset *to;

			if (a->sources[i].group != group || a->result < 0)
				continue;
			to = &a->copies[i]->events[GROUP_CLOCK];
			a->result = r < 0 ? r : filter_ring(a, &a->sources[i], &copy, &records, &to->rings[cpu]);
			to->ring_bytes += to->rings[cpu].size;
		}
	return r;
}

/* The next group that nobody of the batch has a copy of. */
static const struct event_group *next_group(const struct batch *batch)
{
	const struct aside *a;

	STAILQ_FOREACH(a, &batch->asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->sources[i].group->spec.kind == GROUP_CPU && !a->sources[i].group->is_aside && !a->copies[i])
				return a->sources[i].group;
	return NULL;
}

static void copy_group(struct batch *batch, const struct event_group *group)
{
	const struct eventset *clock = &group->events[GROUP_CLOCK];
	struct aside *a;

	STAILQ_FOREACH(a, &batch->asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->sources[i].group == group)
				a->result = make_copy(group, &a->copies[i]);
	for (size_t cpu = 0; cpu < clock->n_cpus; cpu++)
		if (ring_is_there(&clock->rings[cpu]) && copy_ring(batch, group, cpu) < 0)
			return;
}

static void batch_run(struct copier_job *job)
{
	struct batch *batch = (struct batch *)job;
	const struct event_group *group;
	struct aside *a;

	while ((group = next_group(batch)) != NULL)
		copy_group(batch, group);
	STAILQ_FOREACH(a, &batch->asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->copies[i])
				a->result = event_group_look(a->copies[i], &a->copies[i]->survey);
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

static void aside_done(struct aside *a)
{
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

static void aside_free(struct aside *a)
{
	for (size_t i = 0; i < a->n_sources; i++) {
		if (a->copies[i])
			copy_close(a->copies[i]);
		(void)event_group_put(a->sources[i].group);
	}
	free(a->pids);
	free(a);
}

static void list_free(struct asides *list)
{
	struct aside *a;

	while ((a = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		aside_free(a);
	}
}

void asides_free(struct sampler *sampler)
{
	list_free(&sampler->asides);
}

static void batch_begin(struct sampler *sampler);

static void batch_done(struct sampler_job *job)
{
	struct batch *batch = (struct batch *)job;
	struct aside *a;

	STAILQ_FOREACH(a, &batch->asides, link)
		aside_done(a);
	batch->sampler->asides_run = false;
	batch_begin(batch->sampler);
}

static void batch_free(struct sampler_job *job)
{
	list_free(&((struct batch *)job)->asides);
	free(job);
}

/* Those that end while one is under way are the next one. */
static void batch_begin(struct sampler *sampler)
{
	struct batch *batch;

	if (sampler->asides_run || STAILQ_EMPTY(&sampler->asides))
		return;
	batch = calloc(1, sizeof(*batch));
	if (!batch) {
		asides_free(sampler);
		return;
	}
	batch->job = (struct sampler_job){.job.run = batch_run, .done = batch_done, .free = batch_free};
	batch->sampler = sampler;
	STAILQ_INIT(&batch->asides);
	STAILQ_CONCAT(&batch->asides, &sampler->asides);
	sampler->asides_run = true;
	sampler_submit(sampler, &batch->job);
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
	STAILQ_INSERT_TAIL(&sampler_of(target->targets)->asides, a, link);
	batch_begin(sampler_of(target->targets));
}
