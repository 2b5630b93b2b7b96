// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/event_group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "common/bundle/perfabi.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/base/clock.h"

#define SURVEY_TALLIES_MAX 65536
#define RING_MIN_BYTES (64u << 10)

const char *set_kind_name(enum set_kind kind)
{
	static const char *const names[] = {"cpu", "cgroup", "task"};

	return names[kind];
}

static void attr_common(const struct set_spec *spec, uint64_t read_format, struct perf_event_attr *attr)
{
	*attr = (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(*attr),
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP,
		.read_format = read_format,
		.sample_id_all = 1,
		.exclude_callchain_kernel = 1,
		.exclude_kernel = !spec->kernel,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC_RAW,
		.write_backward = 1,
		/* Nobody polls these rings. */
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX,
	};
}

static void attr_stacks(const struct set_spec *spec, struct perf_event_attr *attr)
{
	attr->sample_type |= PERF_SAMPLE_CALLCHAIN;
	if (spec->stacks != STACKS_DWARF)
		return;
	/* The frames are found by the decoder; a chain by frame pointers would only contradict it. */
	attr->exclude_callchain_user = 1;
	attr->sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	attr->sample_regs_user = PERFABI_REGS_USER;
	attr->sample_stack_user = spec->stack_bytes;
}

static void attrs_fill(struct sample_set *set, uint64_t read_format)
{
	const struct set_spec *spec = &set->spec;
	struct perf_event_attr *clock = &set->attrs[SET_CLOCK];

	for (int i = 0; i < SET_EVENTS; i++)
		attr_common(spec, read_format, &set->attrs[i]);
	clock->config = PERF_COUNT_SW_CPU_CLOCK;
	clock->sample_period = 1000000000u / spec->hz;
	clock->disabled = 1;
	clock->inherit = spec->inherit;
	clock->inherit_thread = spec->inherit && !spec->inherit_processes;
	clock->context_switch = spec->switch_records;
	attr_stacks(spec, clock);

	for (int i = SET_STACK; i <= SET_PLAIN; i++) {
		set->attrs[i].config = PERF_COUNT_SW_BPF_OUTPUT;
		set->attrs[i].sample_period = 1;
		set->attrs[i].sample_type |= PERF_SAMPLE_RAW;
	}
	attr_stacks(spec, &set->attrs[SET_STACK]);
	for (int i = 0; i < SET_EVENTS; i++)
		set->layouts[i] = (struct record_layout){.sample_type = set->attrs[i].sample_type,
							 .regs_user = set->attrs[i].sample_regs_user};
}

static int id_cmp(const void *a, const void *b)
{
	const struct set_id *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int ids_fill(struct sample_set *set)
{
	size_t total = 0;

	for (int e = 0; e < SET_EVENTS; e++)
		total += set->events[e].n_fds;
	set->ids = calloc(total ? total : 1, sizeof(*set->ids));
	if (!set->ids)
		return -ENOMEM;
	for (int e = 0; e < SET_EVENTS; e++) {
		const struct eventset *events = &set->events[e];

		for (size_t i = 0; i < events->n_subjects * events->n_cpus; i++)
			if (events->fds[i] >= 0)
				set->ids[set->n_ids++] = (struct set_id){.id = events->ids[i], .event = (enum set_event)e};
	}
	qsort(set->ids, set->n_ids, sizeof(*set->ids), id_cmp);
	return 0;
}

/* The events that the switch programs write to, one a cpu with a stack and one without. */
static int outputs_open(struct sample_set *set, struct filter *filter)
{
	for (int e = SET_STACK; e <= SET_PLAIN; e++) {
		struct eventset_spec spec = {.attr = set->attrs[e], .overwrite = true, .join = &set->events[SET_CLOCK]};
		unsigned int kind = e == SET_STACK ? FILTER_OUTPUT_STACK : FILTER_OUTPUT_PLAIN;
		int r;

		r = eventset_open(&spec, &set->events[e]);
		if (r < 0)
			return r;
		for (size_t i = 0; i < set->events[e].n_cpus; i++) {
			if (set->events[e].fds[i] < 0)
				continue;
			r = filter_output(filter, set->index, kind, set->events[e].cpus[i], set->events[e].fds[i]);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void outputs_clear(struct sample_set *set, struct filter *filter)
{
	for (int e = SET_PLAIN; e >= SET_STACK; e--) {
		unsigned int kind = e == SET_STACK ? FILTER_OUTPUT_STACK : FILTER_OUTPUT_PLAIN;

		for (size_t i = 0; i < set->events[e].n_cpus; i++)
			filter_output_clear(filter, set->index, kind, set->events[e].cpus[i]);
	}
}

struct set_cleanup {
	struct sample_set *set;
	struct filter *filter;
};

static void set_cleanup(struct set_cleanup *c)
{
	struct sample_set *set = c->set;

	if (!set)
		return;
	/* On the thread that opened it; what there is of it may be much. */
	outputs_clear(set, c->filter);
	for (int e = SET_PLAIN; e >= SET_CLOCK; e--)
		eventset_close(&set->events[e]);
	free(set->ids);
	free(set);
}

int sample_set_open(const struct set_spec *spec, struct filter *filter, unsigned int index, uint64_t read_format,
		    struct sample_set **ret)
{
	_cleanup_(set_cleanup) struct set_cleanup c = {.filter = filter};
	struct eventset_spec clock;
	struct sample_set *set;
	int r;

	set = c.set = calloc(1, sizeof(*set));
	if (!set)
		return -ENOMEM;
	set->refs = 1;
	set->spec = *spec;
	set->spec.subjects = NULL;
	set->spec.cancel = NULL;
	set->index = index;
	attrs_fill(set, read_format);

	clock = (struct eventset_spec){
		.attr = set->attrs[SET_CLOCK],
		.subjects = spec->subjects,
		.n_subjects = spec->n_subjects,
		.cgroup = spec->kind == SET_CGROUP,
		.ring_bytes = spec->ring_bytes,
		.ring_bytes_min = RING_MIN_BYTES,
		.overwrite = true,
		.cancel = spec->cancel,
	};
	r = eventset_open(&clock, &set->events[SET_CLOCK]);
	if (r < 0)
		return r;
	if (spec->kind == SET_CPU) {
		r = eventset_filter(&set->events[SET_CLOCK],
				    filter_clock_fd(filter, spec->stacks == STACKS_DWARF ? FILTER_CLOCK_DWARF
											  : FILTER_CLOCK_FP));
		if (r < 0)
			return r;
	}
	if (index != FILTER_NO_SET) {
		r = outputs_open(set, filter);
		if (r < 0)
			return r;
	}
	r = ids_fill(set);
	if (r < 0)
		return r;
	set->created_ns = clock_raw_ns();
	eventset_ioctl(&set->events[SET_CLOCK], PERF_EVENT_IOC_ENABLE);
	*ret = take_ptr(c.set);
	return 0;
}

struct sample_set *sample_set_close(struct sample_set *set, struct filter *filter, struct closer *closer)
{
	struct eventset sets[SET_EVENTS];

	if (!set)
		return NULL;
	outputs_clear(set, filter);
	/* What writes to the rings of the clock goes before it. */
	for (int e = 0; e < SET_EVENTS; e++)
		sets[e] = set->events[SET_EVENTS - 1 - e];
	_Static_assert(SET_CLOCK == 0 && SET_EVENTS <= EVENTSETS_TOGETHER, "the clock is the last to be closed");
	eventset_close_all(sets, SET_EVENTS, closer);
	set_survey_fini(&set->survey);
	free(set->ids);
	free(set);
	return NULL;
}

enum set_event sample_set_event(const struct sample_set *set, uint64_t id)
{
	struct set_id key = {.id = id};
	const struct set_id *found = bsearch(&key, set->ids, set->n_ids, sizeof(*set->ids), id_cmp);

	return found ? found->event : SET_EVENTS;
}

uint64_t sample_set_lost(const struct sample_set *set)
{
	uint64_t lost = 0;

	for (int e = 0; e < SET_EVENTS; e++)
		lost += eventset_lost(&set->events[e], set->attrs[e].read_format);
	return lost;
}

size_t sample_set_fds(const struct sample_set *set)
{
	size_t n = 0;

	for (int e = 0; e < SET_EVENTS; e++)
		n += set->events[e].n_fds;
	return n;
}

/* ---- survey */

static int tally_cmp(const void *a, const void *b)
{
	const struct set_tally *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Joins equal threads, so that the array stays small over many records. */
static void tallies_merge(struct set_survey *survey)
{
	size_t n = 0;

	if (survey->n_tallies)
		qsort(survey->tallies, survey->n_tallies, sizeof(*survey->tallies), tally_cmp);
	for (size_t i = 0; i < survey->n_tallies; i++) {
		struct set_tally *last = n ? &survey->tallies[n - 1] : NULL;

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
static int tallies_room(struct set_survey *survey)
{
	size_t room = survey->room ? survey->room * 2 : 256;
	struct set_tally *bigger;

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

static int tally_add(struct set_survey *survey, uint32_t pid, uint32_t tid, bool is_switch)
{
	struct set_tally *t;
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
	*t = (struct set_tally){.pid = pid, .tid = tid};
found:
	if (is_switch)
		t->switches++;
	else
		t->samples++;
	return 0;
}

static int survey_record(const struct sample_set *set, struct set_survey *survey, uint8_t *record, uint64_t *ret_time)
{
	const struct perf_event_header *h = (const void *)record;
	struct tracerd_sched_event ev;
	struct record_view view;
	enum set_event event;
	uint64_t id;

	if (record_id(record, &id) < 0)
		return 0;
	event = sample_set_event(set, id);
	if (event == SET_EVENTS || record_parse(record, &set->layouts[event], &view) < 0)
		return 0;
	*ret_time = view.time;
	if (h->type == PERF_RECORD_SWITCH || h->type == PERF_RECORD_SWITCH_CPU_WIDE)
		return tally_add(survey, *view.pid, *view.tid, true);
	if (h->type != PERF_RECORD_SAMPLE)
		return 0;
	if (event == SET_CLOCK)
		return tally_add(survey, *view.pid, *view.tid, false);
	return record_sched(&view, &ev) ? tally_add(survey, ev.pid, ev.tid, true) : 0;
}

static int survey_ring(const struct sample_set *set, const struct ring *ring, struct set_survey *survey)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	uint64_t oldest = 0;
	int r;

	r = ring_copy(ring, &copy);
	if (r < 0)
		return r;
	r = ring_walk(&copy, &records);
	if (r < 0)
		return r;
	for (size_t i = 0; i < records.n; i++) {
		r = survey_record(set, survey, copy.data + records.offsets[i], &oldest);
		if (r < 0)
			return r;
	}
	/* What this ring has lost begins before its oldest record; the shortest ring says what all have. */
	if ((copy.wrapped || records.malformed) && oldest > survey->oldest_ns)
		survey->oldest_ns = oldest;
	return 0;
}

void set_survey_fini(struct set_survey *survey)
{
	free(survey->tallies);
	*survey = (struct set_survey){0};
}

int sample_set_look(const struct sample_set *set, struct set_survey *ret)
{
	_cleanup_(set_survey_fini) struct set_survey survey = {.at_ns = clock_raw_ns(), .oldest_ns = set->created_ns};
	const struct eventset *clock = &set->events[SET_CLOCK];
	int r;

	for (size_t i = 0; i < clock->n_cpus; i++) {
		if (!clock->rings[i].base)
			continue;
		r = survey_ring(set, &clock->rings[i], &survey);
		if (r < 0)
			return r;
	}
	tallies_merge(&survey);
	survey.lost = sample_set_lost(set);
	*ret = survey;
	survey = (struct set_survey){0};
	return 0;
}
