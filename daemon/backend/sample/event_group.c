// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/event_group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/base/closer.h"

#define SURVEY_TALLIES_MAX 65536
#define RING_MIN_BYTES (64u << 10)

const char *group_kind_name(enum group_kind kind)
{
	static const char *const names[] = {"cpu", "cgroup", "task"};

	return names[kind];
}

static void attr_common(const struct group_spec *spec, uint64_t read_format,
			struct perf_event_attr *attr)
{
	*attr = (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(*attr),
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP,
		.read_format = read_format,
		.sample_id_all = 1,
		.exclude_callchain_kernel = !spec->kernel_stacks,
		.exclude_kernel = !spec->kernel,
		.exclude_hv = 1,
		/* that which the switch programs read; see event_group_exported_attr() */
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.write_backward = 1,
		/* Nobody polls these rings. */
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX,
	};
}

static void attr_stacks(const struct group_spec *spec, struct perf_event_attr *attr)
{
	attr->sample_type |= PERF_SAMPLE_CALLCHAIN;
	if (spec->stacks != STACKS_DWARF)
		return;
	/*
	 * The frames are found by the decoder; a chain by frame pointers would only contradict it.
	 */
	attr->exclude_callchain_user = 1;
	attr->sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	attr->sample_regs_user = PERFABI_REGS_USER;
	attr->sample_stack_user = spec->stack_bytes;
}

static void attrs_fill(struct event_group *group, uint64_t read_format, bool python)
{
	const struct group_spec *spec = &group->spec;
	struct perf_event_attr *clock = &group->attrs[GROUP_CLOCK];

	for (int i = 0; i < GROUP_EVENTS; i++)
		attr_common(spec, read_format, &group->attrs[i]);
	clock->config = PERF_COUNT_SW_CPU_CLOCK;
	clock->sample_period = 1000000000u / spec->hz;
	if (group->index != FILTER_NO_GROUP)
		clock->sample_period = FILTER_CLOCK_PERIOD(1000000000u / spec->hz, group->index);
	clock->disabled = 1;
	clock->inherit = spec->inherit;
	clock->inherit_thread = spec->inherit && !spec->inherit_processes;
	clock->context_switch = spec->switch_records;
	attr_stacks(spec, clock);
	/*
	 * what a stack has of Python's functions is the payload of a sample that the program has
	 * unwound
	 */
	if (python)
		clock->sample_type |= PERF_SAMPLE_RAW;

	for (int i = GROUP_STACK; i <= GROUP_PLAIN; i++) {
		group->attrs[i].config = PERF_COUNT_SW_BPF_OUTPUT;
		group->attrs[i].sample_period = 1;
		group->attrs[i].sample_type |= PERF_SAMPLE_RAW;
	}
	attr_stacks(spec, &group->attrs[GROUP_STACK]);
	for (int i = 0; i < GROUP_EVENTS; i++)
		group->layouts[i] =
			(struct record_layout){.sample_type = group->attrs[i].sample_type,
					       .regs_user = group->attrs[i].sample_regs_user};
}

static int id_cmp(const void *a, const void *b)
{
	const struct group_id *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int ids_fill(struct event_group *group)
{
	size_t total = 0;

	for (int e = 0; e < GROUP_EVENTS; e++)
		total += group->events[e].n_fds;
	group->ids = calloc(total ? total : 1, sizeof(*group->ids));
	if (!group->ids)
		return -ENOMEM;
	for (int e = 0; e < GROUP_EVENTS; e++) {
		const struct eventset *events = &group->events[e];

		for (size_t i = 0; i < events->n_subjects * events->n_cpus; i++)
			if (events->fds[i] >= 0)
				group->ids[group->n_ids++] =
					(struct group_id){.id = events->ids[i],
							  .event = (enum group_event)e};
	}
	qsort(group->ids, group->n_ids, sizeof(*group->ids), id_cmp);
	return 0;
}

/* The events that the switch programs write to, one a cpu with a stack and one without. */
static int outputs_open(struct event_group *group, struct filter *filter)
{
	for (int e = GROUP_STACK; e <= GROUP_PLAIN; e++) {
		struct eventset_spec spec = {.attr = group->attrs[e],
					     .overwrite = true,
					     .join = &group->events[GROUP_CLOCK]};
		unsigned int kind = e == GROUP_STACK ? FILTER_OUTPUT_STACK : FILTER_OUTPUT_PLAIN;
		int r;

		r = eventset_open(&spec, &group->events[e]);
		if (r < 0)
			return r;
		for (size_t i = 0; i < group->events[e].n_cpus; i++) {
			if (group->events[e].fds[i] < 0)
				continue;
			r = filter_output(filter, group->index, kind, group->events[e].cpus[i],
					  group->events[e].fds[i]);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* Where there can be none they are not needed. */
static int switches_open(struct event_group *group, const struct filter *filter)
{
	const struct eventset *clock = &group->events[GROUP_CLOCK];
	int r;

	if (!group->spec.switch_bytes)
		return 0;
	r = filter_rings_open(filter, group->index, clock->cpus, clock->n_cpus,
			      group->spec.switch_bytes, &group->switch_map);
	if (r < 0)
		return r == -EOPNOTSUPP ? 0 : r;
	group->switches = calloc(clock->n_cpus, sizeof(*group->switches));
	if (!group->switches)
		return -ENOMEM;
	for (size_t i = 0; i < clock->n_cpus; i++) {
		group->switches[i].ring = &group->switch_map.base[clock->cpus[i]];
		group->switches[i].records =
			filter_ring_records(&group->switch_map, clock->cpus[i]);
		if (!group->switches[i].records)
			return -EINVAL;
	}
	return 0;
}

static void unmap_rings(void *data)
{
	const struct filter_rings *rings = data;

	(void)munmap((void *)(uintptr_t)rings->base, rings->bytes);
}

static void outputs_clear(struct event_group *group, struct filter *filter)
{
	for (int e = GROUP_PLAIN; e >= GROUP_STACK; e--) {
		unsigned int kind = e == GROUP_STACK ? FILTER_OUTPUT_STACK : FILTER_OUTPUT_PLAIN;

		for (size_t i = 0; i < group->events[e].n_cpus; i++)
			filter_output_clear(filter, group->index, kind, group->events[e].cpus[i]);
	}
}

struct group_cleanup {
	struct event_group *group;
	struct filter *filter;
};

static void group_cleanup(struct group_cleanup *c)
{
	struct event_group *group = c->group;

	if (!group)
		return;
	/* On the thread that opened it; what there is of it may be much. */
	outputs_clear(group, c->filter);
	switch_rings_free(group->switches, group->events[GROUP_CLOCK].n_cpus);
	if (group->switch_map.base) {
		filter_rings_close(c->filter, group->index);
		unmap_rings(&group->switch_map);
	}
	for (int e = GROUP_PLAIN; e >= GROUP_CLOCK; e--)
		eventset_close(&group->events[e]);
	free(group->ids);
	free(group);
}

int event_group_open(const struct group_spec *spec, struct filter *filter, unsigned int index,
		     uint64_t read_format, struct event_group **ret)
{
	_cleanup_(group_cleanup) struct group_cleanup c = {.filter = filter};
	struct eventset_spec clock;
	struct event_group *group;
	int r;

	group = c.group = calloc(1, sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->refs = 1;
	group->spec = *spec;
	group->spec.subjects = NULL;
	group->spec.cancel = NULL;
	group->index = index;
	attrs_fill(group, read_format, index != FILTER_NO_GROUP && filter_finds_python(filter));

	clock = (struct eventset_spec){
		.attr = group->attrs[GROUP_CLOCK],
		.subjects = spec->subjects,
		.n_subjects = spec->n_subjects,
		.cgroup = spec->kind == GROUP_CGROUP,
		.ring_bytes = spec->ring_bytes,
		.ring_bytes_min = RING_MIN_BYTES,
		.overwrite = true,
		.cancel = spec->cancel,
	};
	r = eventset_open(&clock, &group->events[GROUP_CLOCK]);
	if (r < 0)
		return r;
	if (spec->kind == GROUP_CPU || (index != FILTER_NO_GROUP && filter_unwinds(filter))) {
		r = eventset_filter(&group->events[GROUP_CLOCK],
				    filter_clock_fd(filter, spec->kind != GROUP_CPU));
		if (r < 0)
			return r;
	}
	if (index != FILTER_NO_GROUP) {
		r = outputs_open(group, filter);
		if (r == 0)
			r = switches_open(group, filter);
		if (r < 0)
			return r;
	}
	r = ids_fill(group);
	if (r < 0)
		return r;
	group->created_ns = clock_raw_ns();
	eventset_ioctl(&group->events[GROUP_CLOCK], PERF_EVENT_IOC_ENABLE);
	*ret = take_ptr(c.group);
	return 0;
}

struct event_group *event_group_close(struct event_group *group, struct filter *filter,
				      struct closer *closer)
{
	struct eventset events[GROUP_EVENTS];

	if (!group)
		return NULL;
	outputs_clear(group, filter);
	switch_rings_free(group->switches, group->events[GROUP_CLOCK].n_cpus);
	if (group->switch_map.base)
		closer_call(closer, unmap_rings, &group->switch_map, sizeof(group->switch_map), 0);
	/* What writes to the rings of the clock goes before it. */
	for (int e = 0; e < GROUP_EVENTS; e++)
		events[e] = group->events[GROUP_EVENTS - 1 - e];
	_Static_assert(GROUP_CLOCK == 0 && GROUP_EVENTS <= EVENTSETS_TOGETHER,
		       "the clock is the last to be closed");
	eventset_close_all(events, GROUP_EVENTS, closer);
	group_survey_fini(&group->survey);
	free(group->ids);
	free(group);
	return NULL;
}

enum group_event event_group_event(const struct event_group *group, uint64_t id)
{
	struct group_id key = {.id = id};
	const struct group_id *found =
		bsearch(&key, group->ids, group->n_ids, sizeof(*group->ids), id_cmp);

	return found ? found->event : GROUP_EVENTS;
}

uint64_t event_group_bytes(const struct event_group *group)
{
	uint64_t bytes = group->events[GROUP_CLOCK].ring_bytes + group->switch_map.bytes;

	for (size_t i = 0; group->switches && i < group->events[GROUP_CLOCK].n_cpus; i++)
		bytes += group->switches[i].image.n * sizeof(struct filter_record);
	return bytes;
}

uint64_t event_group_lost(const struct event_group *group)
{
	uint64_t lost = group->lost_before;

	for (int e = 0; e < GROUP_EVENTS; e++)
		lost += eventset_lost(&group->events[e], group->attrs[e].read_format);
	return lost;
}

struct perf_event_attr event_group_exported_attr(const struct event_group *group,
						 enum group_event event)
{
	struct perf_event_attr attr = group->attrs[event];

	attr.clockid = CLOCK_MONOTONIC_RAW;
	return attr;
}

size_t event_group_fds(const struct event_group *group)
{
	size_t n = 0;

	for (int e = 0; e < GROUP_EVENTS; e++)
		n += group->events[e].n_fds;
	return n;
}

/* ---- survey */

static int tally_cmp(const void *a, const void *b)
{
	const struct group_tally *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Joins equal threads, so that the array stays small over many records. */
static void tallies_merge(struct group_survey *survey)
{
	size_t n = 0;

	if (survey->n_tallies)
		qsort(survey->tallies, survey->n_tallies, sizeof(*survey->tallies), tally_cmp);
	for (size_t i = 0; i < survey->n_tallies; i++) {
		struct group_tally *last = n ? &survey->tallies[n - 1] : NULL;

		if (last && tally_cmp(last, &survey->tallies[i]) == 0) {
			last->samples += survey->tallies[i].samples;
			last->switches += survey->tallies[i].switches;
		} else {
			survey->tallies[n++] = survey->tallies[i];
		}
	}
	survey->n_tallies = n;
}

/* 0, 1 at the limit, -ENOMEM. */
static int tallies_room(struct group_survey *survey)
{
	size_t room = survey->room ? survey->room * 2 : 256;
	struct group_tally *bigger;

	tallies_merge(survey);
	if (survey->room && survey->n_tallies <= survey->room / 2)
		return 0;
	if (room > SURVEY_TALLIES_MAX)
		return survey->n_tallies < survey->room ? 0 : 1;
	bigger = reallocarray(survey->tallies, room, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	survey->tallies = bigger;
	survey->room = room;
	return 0;
}

static int tally_add(struct group_survey *survey, uint32_t pid, uint32_t tid, bool is_switch)
{
	struct group_tally *t;
	int r;

	/* Records of one thread come in runs: the last few are nearly always the ones. */
	for (size_t i = survey->n_tallies; i > 0 && survey->n_tallies - i < 8; i--) {
		t = &survey->tallies[i - 1];
		if (t->tid == tid && t->pid == pid)
			goto found;
	}
	if (survey->n_tallies == survey->room) {
		r = tallies_room(survey);
		if (r != 0)
			return r < 0 ? r : 0; /* more threads than anybody will ask for */
	}
	t = &survey->tallies[survey->n_tallies++];
	*t = (struct group_tally){.pid = pid, .tid = tid};
found:
	if (is_switch)
		t->switches++;
	else
		t->samples++;
	return 0;
}

static int survey_record(const struct event_group *group, struct group_survey *survey,
			 uint8_t *record, uint64_t *ret_time)
{
	const struct perf_event_header *h = (const void *)record;
	struct tracerd_sched_event ev;
	struct record_view view;
	enum group_event event;
	uint64_t id;

	if (record_id(record, &id) < 0)
		return 0;
	event = event_group_event(group, id);
	if (event == GROUP_EVENTS || record_parse(record, &group->layouts[event], &view) < 0)
		return 0;
	*ret_time = view.time;
	if (h->type == PERF_RECORD_SWITCH || h->type == PERF_RECORD_SWITCH_CPU_WIDE)
		return tally_add(survey, *view.pid, *view.tid, true);
	if (h->type != PERF_RECORD_SAMPLE)
		return 0;
	if (event == GROUP_CLOCK)
		return tally_add(survey, *view.pid, *view.tid, false);
	return record_sched(&view, &ev)
		       ? tally_add(survey, ev.pid, ev.tid, ev.kind != SCHEDEV_SAMPLE)
		       : 0;
}

/* What a ring has lost begins before its oldest record; the shortest one says what all have. */
static void survey_oldest(struct group_survey *survey, enum group_ring kind, uint64_t oldest)
{
	if (oldest > survey->oldest_of[kind])
		survey->oldest_of[kind] = oldest;
}

static int survey_switches(const struct switch_ring *ring, struct group_survey *survey)
{
	_cleanup_(switch_records_fini) struct switch_records records = {.n = 0};
	int r;

	r = switch_ring_copy(ring, &records);
	for (size_t i = records.n; r == 0 && i > 0; i--)
		r = tally_add(survey, records.v[i - 1].ev.pid, records.v[i - 1].ev.tid, true);
	if (r == 0 && records.wrapped && records.n)
		survey_oldest(survey, GROUP_RING_SWITCHES, records.v[0].time);
	return r;
}

static int survey_ring(const struct event_group *group, const struct ring *ring,
		       struct group_survey *survey)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	uint64_t oldest = 0;
	int r;

	r = ring_read(ring, &copy, &records);
	if (r < 0)
		return r;
	for (size_t i = 0; i < records.n; i++) {
		r = survey_record(group, survey, copy.data + records.offsets[i], &oldest);
		if (r < 0)
			return r;
	}
	if (copy.wrapped || records.malformed)
		survey_oldest(survey, GROUP_RING_EVENTS, oldest);
	return 0;
}

void group_survey_fini(struct group_survey *survey)
{
	free(survey->tallies);
	*survey = (struct group_survey){0};
}

int event_group_look(const struct event_group *group, struct group_survey *ret)
{
	_cleanup_(group_survey_fini) struct group_survey survey = {.at_ns = clock_raw_ns()};
	const uint64_t ahead_ns = io_now_ns() - survey.at_ns;
	const struct eventset *clock = &group->events[GROUP_CLOCK];
	int r;

	for (size_t i = 0; i < clock->n_cpus; i++) {
		if (!ring_is_there(&clock->rings[i]))
			continue;
		r = survey_ring(group, &clock->rings[i], &survey);
		if (r == 0 && group->switches)
			r = survey_switches(&group->switches[i], &survey);
		if (r < 0)
			return r;
	}
	tallies_merge(&survey);
	/* What NTP makes of so short a time does not matter here. */
	for (int kind = 0; kind < GROUP_RINGS; kind++) {
		uint64_t *oldest = &survey.oldest_of[kind];

		*oldest = *oldest > ahead_ns + group->created_ns ? *oldest - ahead_ns
								 : group->created_ns;
		if (*oldest > survey.oldest_ns)
			survey.oldest_ns = *oldest;
	}
	survey.lost = event_group_lost(group);
	*ret = survey;
	survey = (struct group_survey){0};
	return 0;
}
