// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/aside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/pids.h"
#include "common/base/raw_clock.h"
#include "daemon/backend/sample/sampler_internal.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/target/target_internal.h"

/* Twice what NTP may have made of the time since a record, and a second. */
#define CLOCKS_APART_NS 1000000000u
#define CLOCKS_APART_PART 1000u

/* One target's. */
struct aside {
	STAILQ_ENTRY(aside) link;
	struct targets *targets;   /* back pointer */
	uint64_t target;	   /* its id: it may go meanwhile */
	pid_t *pids;		   /* owned, sorted: its processes */
	size_t n_pids;
	struct source sources[SOURCES_MAX]; /* with references */
	struct event_group *copies[SOURCES_MAX]; /* owned; NULL: that source is its own */
	size_t n_sources;
	uint64_t ended_ns; /* CLOCK_MONOTONIC_RAW */
	uint64_t ahead_ns; /* MONOTONIC of it, then */
	bool all_kinds;	   /* not only of shared groups: others are written to, too */
	uint64_t bytes, max_bytes; /* of its copies */
	const atomic_bool *cancel; /* nobody waits for it any more; NULL: somebody does */
	int result;
};

/*
 * All that had ended when the job began: a thousand that end at once are found in one reading of
 * the rings.
 */
struct batch {
	struct sampler_job job; /* first */
	struct sampler *sampler;
	struct asides asides;
};

/* ---- the thread's */

static bool is_of(const struct aside *a, const struct source *source, uint32_t pid, uint64_t time)
{
	const uint64_t now = a->ended_ns + a->ahead_ns,
		       apart = CLOCKS_APART_NS +
			       (now > time ? (now - time) / CLOCKS_APART_PART : 0);

	/* Whoever copies it looks more closely. */
	if (time + apart < source->from_ns + a->ahead_ns ||
	    (source->end_ns != UINT64_MAX && time > source->end_ns + a->ahead_ns + apart))
		return false;
	return pids_have(a->pids, a->n_pids, (pid_t)pid);
}

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
	pid = event != GROUP_CLOCK && record_sched(&view, &ev) ? ev.pid : *view.pid;
	return is_of(a, source, pid, view.time);
}

static size_t size_of(const struct ring_copy *copy, const struct ring_records *records, size_t i)
{
	return ((const struct perf_event_header *)(const void *)(copy->data + records->offsets[i]))
		->size;
}

static bool has_room(struct aside *a, uint64_t bytes)
{
	if (bytes > a->max_bytes - a->bytes)
		return false;
	a->bytes += bytes;
	return true;
}

/*
 * Newest first, as they are in a ring. The oldest stays, whosever it is: it tells how far the ring
 * reaches.
 */
static int filter_ring(struct aside *a, const struct source *source, const struct ring_copy *copy,
		       const struct ring_records *records, struct ring *ret)
{
	/* What cannot be read any more is before all that can. */
	_cleanup_(ring_copy_fini) struct ring_copy own = {.wrapped = copy->wrapped ||
								     records->malformed,
							  .overwritten = copy->overwritten};
	_cleanup_free_ bool *wanted = calloc(records->n + 1, sizeof(*wanted));

	if (!wanted)
		return -ENOMEM;
	for (size_t i = 0; i < records->n; i++) {
		wanted[i] = i + 1 == records->n ||
			    is_wanted(a, source, copy->data + records->offsets[i]);
		own.len += wanted[i] ? size_of(copy, records, i) : 0;
	}
	if (!has_room(a, own.len))
		return -EDQUOT;
	own.data = malloc(own.len ? own.len : 1);
	if (!own.data)
		return -ENOMEM;
	own.len = 0;
	for (size_t i = 0; i < records->n; i++) {
		if (!wanted[i])
			continue;
		memcpy(own.data + own.len, copy->data + records->offsets[i],
		       size_of(copy, records, i));
		own.len += size_of(copy, records, i);
	}
	return ring_image(&own, ret);
}

/* Likewise: the oldest stays. */
static int filter_switches(struct aside *a, const struct source *source,
			   const struct switch_records *records, struct switch_ring *ret)
{
	_cleanup_(switch_records_fini) struct switch_records own = {.wrapped = records->wrapped,
								    .overwritten =
									    records->overwritten};
	size_t n = 0;

	for (size_t i = 0; i < records->n; i++)
		n += i == 0 || is_of(a, source, records->v[i].ev.pid, records->v[i].time);
	if (!has_room(a, n * sizeof(*own.v)))
		return -EDQUOT;
	own.v = calloc(n + 1, sizeof(*own.v));
	if (!own.v)
		return -ENOMEM;
	for (size_t i = 0; i < records->n; i++)
		if (i == 0 || is_of(a, source, records->v[i].ev.pid, records->v[i].time))
			own.v[own.n++] = records->v[i];
	switch_ring_image(&own, ret);
	return 0;
}

static void copy_close(struct event_group *copy)
{
	switch_rings_free(copy->switches, copy->events[GROUP_CLOCK].n_cpus);
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
	copy->switches = group->switches ? calloc(from->n_cpus, sizeof(*copy->switches)) : NULL;
	if ((group->switches && !copy->switches) || !copy->ids || !to->cpus || !to->rings) {
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
static int copy_ring(struct asides *asides, const struct event_group *group, size_t cpu)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	struct aside *a;
	int r;

	r = ring_read(&group->events[GROUP_CLOCK].rings[cpu], &copy, &records);
	STAILQ_FOREACH(a, asides, link)
		for (size_t i = 0; i < a->n_sources; i++) {
			struct eventset *to;

			if (a->sources[i].group != group || a->result < 0)
				continue;
			to = &a->copies[i]->events[GROUP_CLOCK];
			a->result = r < 0 ? r
					  : filter_ring(a, &a->sources[i], &copy, &records,
							&to->rings[cpu]);
			to->ring_bytes += to->rings[cpu].size;
		}
	return r;
}

static int copy_switches(struct asides *asides, const struct event_group *group, size_t cpu)
{
	_cleanup_(switch_records_fini) struct switch_records records = {.n = 0};
	struct aside *a;
	int r;

	r = switch_ring_copy(&group->switches[cpu], &records);
	STAILQ_FOREACH(a, asides, link)
		for (size_t i = 0; i < a->n_sources; i++) {
			if (a->sources[i].group != group || a->result < 0)
				continue;
			a->result = r < 0 ? r
					  : filter_switches(a, &a->sources[i], &records,
							    &a->copies[i]->switches[cpu]);
		}
	return r;
}

/* The next group that nobody of them has a copy of. */
static const struct event_group *next_group(const struct asides *asides)
{
	const struct aside *a;

	STAILQ_FOREACH(a, asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if ((a->all_kinds || a->sources[i].group->spec.kind == GROUP_CPU) &&
			    !a->sources[i].group->is_aside && !a->copies[i])
				return a->sources[i].group;
	return NULL;
}

/* Whether there is one for which it has not failed. */
static bool is_wanted_of(const struct asides *asides, const struct event_group *group)
{
	const struct aside *a;

	STAILQ_FOREACH(a, asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->sources[i].group == group)
				return true;
	return false;
}

static void see_cancelled(struct asides *asides)
{
	struct aside *a;

	STAILQ_FOREACH(a, asides, link)
		if (a->result == 0 && a->cancel && atomic_load(a->cancel))
			a->result = -ECANCELED;
}

static void copy_group(struct asides *asides, const struct event_group *group)
{
	const struct eventset *clock = &group->events[GROUP_CLOCK];
	struct aside *a;

	STAILQ_FOREACH(a, asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->sources[i].group == group)
				a->result = make_copy(group, &a->copies[i]);
	for (size_t cpu = 0; cpu < clock->n_cpus; cpu++) {
		see_cancelled(asides);
		if (!ring_is_there(&clock->rings[cpu]) || !is_wanted_of(asides, group))
			continue;
		if (copy_ring(asides, group, cpu) < 0 ||
		    (group->switches && copy_switches(asides, group, cpu) < 0))
			return;
	}
}

static void batch_run(struct copier_job *job)
{
	struct batch *batch = (struct batch *)job;
	const struct event_group *group;
	struct aside *a;

	while ((group = next_group(&batch->asides)) != NULL)
		copy_group(&batch->asides, group);
	STAILQ_FOREACH(a, &batch->asides, link)
		for (size_t i = 0; i < a->n_sources && a->result == 0; i++)
			if (a->copies[i])
				a->result = event_group_look(a->copies[i], &a->copies[i]->survey);
}

/* ---- the loop's */

static struct target *target_of(const struct aside *a)
{
	struct target *target = targets_next(a->targets, a->target - 1);

	return target && target->id == a->target && target->state != TARGET_ARMED &&
			       sampling_of(target)
		       ? target
		       : NULL;
}

static int charge(struct target *target, const struct aside *a)
{
	struct quota_charge *charge = &sampling_of(target)->charge;
	uint64_t bytes = 0, before = charge->amount;
	int r;

	for (size_t i = 0; i < a->n_sources; i++)
		bytes += a->copies[i] ? event_group_bytes(a->copies[i]) : 0;
	if (!sampler_may_set_aside(sampler_of(a->targets), bytes))
		return -EDQUOT;
	quota_release(charge);
	r = quota_charge(a->targets->quota, target->owner, QUOTA_RING_BYTES, bytes, charge);
	if (r != 0 && before)
		(void)!quota_charge_forced(a->targets->quota, target->owner, QUOTA_RING_BYTES,
					   before, charge);
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
		target_warn(
			target, "what it has left may be overwritten by others: %s",
			r == -EDQUOT
				? "there is no memory to set it aside (uid_ring_mib, keep_total_mib)"
				: strerror(-r));
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

static void drop_copies(struct aside *a)
{
	for (size_t i = 0; i < a->n_sources; i++) {
		if (a->copies[i])
			copy_close(a->copies[i]);
		a->copies[i] = NULL;
	}
}

struct aside *aside_free(struct aside *a)
{
	if (!a)
		return NULL;
	drop_copies(a);
	for (size_t i = 0; i < a->n_sources; i++)
		(void)event_group_put(a->sources[i].group);
	free(a->pids);
	free(a);
	return NULL;
}

static void list_free(struct asides *list)
{
	struct aside *a;

	while ((a = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		(void)aside_free(a);
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
	batch->job =
		(struct sampler_job){.job.run = batch_run, .done = batch_done, .free = batch_free};
	batch->sampler = sampler;
	STAILQ_INIT(&batch->asides);
	STAILQ_CONCAT(&batch->asides, &sampler->asides);
	sampler->asides_run = true;
	sampler_submit(sampler, &batch->job);
}

struct aside *aside_new(const struct source *sources, size_t n_sources, uint64_t now_ns)
{
	struct aside *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->ended_ns = now_ns;
	a->ahead_ns = io_now_ns() - clock_raw_ns();
	a->all_kinds = true;
	for (; a->n_sources < n_sources; a->n_sources++) {
		a->sources[a->n_sources] = sources[a->n_sources];
		(void)event_group_ref(a->sources[a->n_sources].group);
	}
	return a;
}

static void take_pids(struct aside *a, pid_t *pids, size_t n)
{
	a->pids = pids;
	a->n_pids = n;
	pids_sort(pids, n);
}

int aside_copy(struct aside *a, pid_t *pids, size_t n_pids, uint64_t max_bytes,
	       const atomic_bool *cancel, uint64_t *ret_bytes)
{
	struct asides one = STAILQ_HEAD_INITIALIZER(one);
	const struct event_group *group;

	take_pids(a, pids, n_pids);
	a->max_bytes = max_bytes;
	a->cancel = cancel;
	STAILQ_INSERT_TAIL(&one, a, link);
	if (max_bytes == 0 && next_group(&one))
		a->result = -EDQUOT; /* no ring need be read for that */
	while ((group = next_group(&one)) != NULL)
		copy_group(&one, group);
	if (a->result < 0) {
		drop_copies(a);
		a->bytes = 0;
	}
	*ret_bytes = a->bytes;
	return a->result;
}

struct event_group *aside_group(const struct aside *a, size_t source)
{
	return a->copies[source];
}

void aside_begin(struct target *target)
{
	const struct sampling *s = sampling_of(target);
	const struct member *member;
	pid_t *pids;
	struct aside *a;
	size_t n = 0;

	if (!s->n_sources)
		return;
	pids = calloc(target->n_members ? target->n_members : 1, sizeof(*pids));
	a = pids ? aside_new(s->sources, s->n_sources, clock_raw_ns()) : NULL;
	if (!a) {
		free(pids);
		target_warn(target, "what it has left may be overwritten by others: %s",
			    strerror(ENOMEM));
		return;
	}
	a->targets = target->targets;
	a->target = target->id;
	a->all_kinds = false;
	a->max_bytes = UINT64_MAX;
	TAILQ_FOREACH(member, &target->members, link)
		if (n < target->n_members)
			pids[n++] = member->pid;
	take_pids(a, pids, n);
	STAILQ_INSERT_TAIL(&sampler_of(target->targets)->asides, a, link);
	batch_begin(sampler_of(target->targets));
}
