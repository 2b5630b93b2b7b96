// SPDX-License-Identifier: Apache-2.0
/*
 * What a frozen PT recording becomes. First each CPU's area is copied to private memory and the CPU
 * goes on; then come the records, on the clock of all others of tracerd: TIME_CONV converts the
 * trace's TSC to CLOCK_MONOTONIC_RAW.
 *
 * Event ids are replaced by fixed ones, so that the file's event table does not depend on the
 * number of open descriptors.
 */
#include "daemon/backend/pt/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/pt/newcomers.h"
#include "daemon/backend/pt/pauses.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/backend/pt/resume.h"
#include "daemon/perf/record.h"

/* No ids of the kernel's, of the side-band log, or of samples. */
#define PT_ID(event) (0x4000000000000100ULL + (uint64_t)(event))
/*
 * Beyond that the two readings of the clocks are of before and after a suspend, or too close to
 * each other.
 */
#define PACE_PPM 10
#define PPM 1000000
#define COPIES_MAX 3 /* of one area in one snapshot */
#define PAD8(n) (((n) + 7) & ~(size_t)7)

/* A CPU's part. Written by the copy, read after it. */
struct pt_area {
	int cpu;
	struct aux_copy aux; /* until resume */
	/*
	 * since when it was not traced for a copy before this one that was not done at the freeze;
	 * 0: it was
	 */
	uint64_t stopped_ns;
	uint64_t bytes, copy_ns, blind_ns;
	bool wrapped;
	struct ring_copy switches; /* set aside: until they are written, or resume */
	bool has_switches;
	uint64_t oldest_switch_ns; /* 0: there is none */
	bool switches_wrapped;
};

/* frozen->recording */
struct pt_frozen {
	struct pt_events *events; /* referenced */
	struct pt_machine *machine;
	bool is_part; /* the events have more than this target */
	struct pt_filter *filter; /* referenced; NULL: none */
	/* the events are frozen for it; the loop's and, while its areas are taken, the thread's */
	bool held;
	bool taken; /* the areas are copied */
	bool recorded; /* until the freeze */
	struct stopping *stopping; /* NULL: all CPUs were stopped */
	uint64_t began_ns;
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct timeconv conv;
	uint64_t reference; /* a TSC near the trace's */
	struct pt_area *areas;
	size_t n_areas;
	struct pt_gap gaps[PT_GAPS_MAX]; /* of copies before this one */
	size_t n_gaps;
	struct pt_pauses pauses;
	uint64_t freeze_ns; /* how long it took to stop all CPUs */
	struct pt_missed_cpu *missed; /* owned */
	size_t n_missed;
	uint64_t bytes, torn, left_out;
	struct pt_losses losses; /* since it was armed */
};

static struct pt_frozen *pt_of(const struct frozen *frozen)
{
	return frozen->recording;
}

/* ---- freezing, on the loop */

/*
 * By the readings at the begin and now. The kernel's own pace of the TSC is a check on it: after a
 * suspend the TSC may have counted on or begun anew.
 */
static struct timeconv convert(const struct pt_events *events, const struct timeconv_moment *now)
{
	const struct eventset *set = &events->first->sets[PT_EVENT_TRACE];
	const struct perf_event_mmap_page *page = NULL;
	struct timeconv conv = timeconv_fit(&events->begin, now, now);
	unsigned __int128 pace, own, apart;

	for (size_t i = 0; i < set->n_cpus && !page; i++)
		page = set->rings[i].base;
	if (!page || !page->cap_user_time || !page->time_mult || page->time_shift > 32)
		return conv;
	pace = (unsigned __int128)page->time_mult << 64 >> page->time_shift;
	own = (unsigned __int128)conv.mult << 64 >> conv.shift;
	apart = pace > own ? pace - own : own - pace;
	if (apart > pace / PPM * PACE_PPM)
		conv = timeconv_anchor(page->time_shift, page->time_mult, now);
	return conv;
}

/*
 * When it is frozen for this one: what is stopped by then stays so. What has ended is stopped for
 * no copy.
 */
static void keep_gaps(struct pt_frozen *pt)
{
	(void)pthread_mutex_lock(&pt->events->lock);
	pt->n_gaps = pt->events->n_gaps < PT_GAPS_MAX ? (size_t)pt->events->n_gaps : PT_GAPS_MAX;
	for (size_t i = 0; i < pt->n_gaps; i++)
		pt->gaps[i] = pt->events->gaps[(pt->events->n_gaps - pt->n_gaps + i) % PT_GAPS_MAX];
	for (size_t i = 0; i < pt->n_areas && !pt->events->ended; i++)
		pt->areas[i].stopped_ns = pt->events->stopped_ns[i];
	(void)pthread_mutex_unlock(&pt->events->lock);
}

/* What sampling says of a recording is of samples. */
static int freeze_waits(struct target *target, struct frozen *frozen)
{
	const char *method = frozen->method;
	int r = backend_sample.freeze(target, frozen);

	frozen->method = method;
	frozen->hz = 0;
	return r;
}

/* The trace went on until all were stopped, and so did what explains it. */
static void stopped(struct frozen *frozen)
{
	struct pt_frozen *pt = pt_of(frozen);
	struct timeconv_moment now;
	uint64_t width;

	now = timeconv_now(&width);
	pt->freeze_ns = now.ns - pt->began_ns;
	if (pt->recorded)
		frozen->raw_ns = now.ns;
	frozen->stopped_ns = now.ns;
	pt->conv = convert(pt->events, &now);
	pt->reference = now.ticks;
}

static void on_stopped(void *arg)
{
	struct frozen *frozen = arg;

	pt_of(frozen)->stopping = NULL;
	frozen->pending = false;
	stopped(frozen);
	frozen_renew(frozen);
	frozen_go_on(frozen);
}

int pt_export_freeze(struct target *target, struct frozen *frozen)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct pt_frozen *pt = calloc(1, sizeof(*pt));
	int r;

	if (!pt)
		return -ENOMEM;
	frozen->recording = pt;
	frozen->method = rec->events->of_cpus ? "cpu" : "task";
	pt->is_part = rec->is_part;
	pt->left_out = rec->left_out;
	pt->machine = pt_machine_of(target->targets);
	frozen->aux_pmu = PT_PMU_NAME;
	frozen->aux_pmu_type = pt->machine->pmu.type;
	newcomers_look(pt->machine->newcomers);
	r = newcomers_missed(pt->machine->newcomers, rec->events, &pt->missed, &pt->n_missed);
	if (r < 0)
		return r;
	pt->areas = calloc(pt_events_cpus(rec->events), sizeof(*pt->areas));
	if (!pt->areas)
		return -ENOMEM;
	pt->n_areas = pt_events_cpus(rec->events);
	memcpy(pt->attrs, rec->events->attrs, sizeof(pt->attrs));
	pt->events = pt_events_ref(rec->events);
	pt->filter = pt_filter_ref(rec->filter);
	pt->recorded = target->state == TARGET_ARMED;
	/* While they are traced: an interrupt stops a thread's trace where its stack is taken. */
	if (target->beside && pt->recorded)
		backend_sample.stacks(target);
	pt->began_ns = clock_raw_ns();
	pt_events_freeze(pt->events);
	pt->held = true;
	keep_gaps(pt);
	pt->stopping = stopper_stop(pt->machine->stopper, pt->events, on_stopped, frozen);
	frozen->pending = pt->stopping != NULL;
	if (!pt->stopping)
		stopped(frozen);
	r = target->beside ? freeze_waits(target, frozen) : 0;
	/* Also where no waits are recorded. */
	frozen->kernel_stacks = target->kernel_stacks && frozen->admin;
	if (r == 0 && !pt->stopping)
		frozen_renew(frozen);
	return r;
}

/* ---- taking, on the copier thread */

/*
 * A thread that was born while all were stopped may have written meanwhile: then it is copied
 * again.
 */
static int take_area(struct pt_frozen *pt, size_t i, struct pt_area *area)
{
	const struct eventset *trace = &pt->events->first->sets[PT_EVENT_TRACE];
	uint64_t head;

	if (!trace->auxes[i].base)
		return 0;
	for (unsigned int n = 0;; n++) {
		int r;

		head = aux_head(&trace->auxes[i], &trace->rings[i]);
		r = aux_copy(&trace->auxes[i], head, &area->aux);
		if (r < 0)
			return r;
		pt_events_stop_again(pt->events, i);
		if (head == aux_head(&trace->auxes[i], &trace->rings[i]))
			return 0;
		if (n == COPIES_MAX - 1) {
			pt->torn++;
			return 0;
		}
		aux_copy_fini(&area->aux);
	}
}

static int take(struct pt_frozen *pt)
{
	const struct eventset *trace = &pt->events->first->sets[PT_EVENT_TRACE];

	for (size_t i = 0; i < pt->n_areas; i++) {
		struct pt_area *area = &pt->areas[i];
		uint64_t began = clock_raw_ns();
		int r;

		area->cpu = trace->cpus[i];
		r = take_area(pt, i, area);
		if (r < 0)
			return r;
		area->copy_ns = clock_raw_ns() - began;
		area->bytes = area->aux.len;
		area->wrapped = area->aux.wrapped;
		area->blind_ns = pt_events_resume_cpu(pt->events, i);
	}
	pt->taken = true;
	/*
	 * Its copy may have to wait for long, and needs them no more. Whoever else has frozen them
	 * lets each CPU go on in its turn.
	 */
	pt->held = false;
	pt_events_thaw(pt->events);
	pt_events_go_on(pt->events);
	return 0;
}

static void drop_areas(struct pt_frozen *pt)
{
	for (size_t i = 0; i < pt->n_areas; i++) {
		aux_copy_fini(&pt->areas[i].aux);
		ring_copy_fini(&pt->areas[i].switches);
	}
}

/* Nobody stops them: who ran would be overwritten by who runs until it is copied. */
static uint64_t take_switches(struct pt_frozen *pt, uint64_t max_bytes)
{
	const struct eventset *side = &pt->events->first->sets[PT_EVENT_SIDE];
	uint64_t bytes = 0;

	for (size_t i = 0; i < pt->n_areas; i++) {
		struct pt_area *area = &pt->areas[i];

		if (!side->rings[i].base || side->rings[i].size > max_bytes - bytes ||
		    ring_copy(&side->rings[i], &area->switches) < 0)
			continue;
		area->has_switches = true;
		bytes += side->rings[i].size;
	}
	return bytes;
}

uint64_t pt_export_set_aside(struct frozen *frozen, uint64_t max_bytes)
{
	struct pt_frozen *pt = pt_of(frozen);
	const struct eventset *trace = &pt->events->first->sets[PT_EVENT_TRACE];
	uint64_t bytes = 0;

	for (size_t i = 0; i < pt->n_areas; i++)
		bytes += trace->auxes[i].size;
	if (bytes > max_bytes) {
		bytes = 0;
		frozen->not_aside = true;
	} else if (take(pt) < 0) {
		drop_areas(pt);
		bytes = 0;
		frozen->not_aside = true;
	}
	bytes += take_switches(pt, max_bytes - bytes);
	return bytes + (frozen->beside ? backend_sample.set_aside(frozen, max_bytes - bytes) : 0);
}

int pt_export_take(struct frozen *frozen)
{
	struct pt_frozen *pt = pt_of(frozen);

	return pt->taken ? 0 : take(pt);
}

/* ---- perf.data */

static int write_info(const struct frozen *frozen, struct perfdata_writer *w)
{
	const struct pt_frozen *pt = pt_of(frozen);
	const struct pt_pmu *pmu = &pt->machine->pmu;
	_cleanup_free_ char *filter = pt->filter ? pt_filter_perf_text(pt->filter) : NULL;
	const size_t filter_len = filter ? strlen(filter) + 1 : 0;
	struct perfabi_auxtrace_info_pt info = {
		.header = {.type = PERFABI_RECORD_AUXTRACE_INFO,
			   .size = (uint16_t)(sizeof(info) + PAD8(filter_len))},
		.type = PERFABI_AUXTRACE_INTEL_PT,
		.words =
			{
				[PERFABI_PT_PMU_TYPE] = pmu->type,
				[PERFABI_PT_TIME_SHIFT] = pt->conv.shift,
				[PERFABI_PT_TIME_MULT] = pt->conv.mult,
				[PERFABI_PT_TIME_ZERO] = pt->conv.zero,
				[PERFABI_PT_CAP_USER_TIME_ZERO] = 1,
				[PERFABI_PT_TSC_BIT] = pt_pmu_bits(pmu, PT_TERM_TSC),
				[PERFABI_PT_NORETCOMP_BIT] = pt_pmu_bits(pmu, PT_TERM_NORETCOMP),
				[PERFABI_PT_HAVE_SCHED_SWITCH] =
					pt->events->of_cpus ? PERFABI_PT_SWITCHES_OF_CPUS
							    : PERFABI_PT_SWITCHES_OF_TASKS,
				[PERFABI_PT_SNAPSHOT_MODE] = 1,
				[PERFABI_PT_PER_CPU_MMAPS] = 1,
				[PERFABI_PT_MTC_BIT] = pt_pmu_bits(pmu, PT_TERM_MTC),
				[PERFABI_PT_MTC_FREQ_BITS] = pt_pmu_bits(pmu, PT_TERM_MTC_PERIOD),
				[PERFABI_PT_TSC_CTC_N] = pmu->tsc_ctc_n,
				[PERFABI_PT_TSC_CTC_D] = pmu->tsc_ctc_d,
				[PERFABI_PT_CYC_BIT] = pt_pmu_bits(pmu, PT_TERM_CYC),
				[PERFABI_PT_MAX_NONTURBO_RATIO] = pmu->max_nonturbo_ratio,
				[PERFABI_PT_FILTER_STR_LEN] = filter_len,
			},
	};
	const struct perfabi_time_conv conv = {
		.header = {.type = PERFABI_RECORD_TIME_CONV, .size = sizeof(conv)},
		.shift = pt->conv.shift,
		.mult = pt->conv.mult,
		.zero = pt->conv.zero,
	};
	_cleanup_free_ uint8_t *record = calloc(1, info.header.size);
	int r;

	if (!record)
		return -ENOMEM;
	memcpy(record, &info, sizeof(info));
	if (filter)
		memcpy(record + sizeof(info), filter, filter_len);
	r = perfdata_write(w, record, info.header.size);
	return r < 0 ? r : perfdata_write(w, &conv, sizeof(conv));
}

static int add_events(const struct pt_frozen *pt, struct perfdata_writer *w)
{
	static const char *const names[PT_EVENT_KINDS] = {PT_PMU_NAME "//u", "dummy:u"};
	int r = 0;

	for (int k = 0; r == 0 && k < PT_EVENT_KINDS; k++) {
		const uint64_t id = PT_ID(k);

		r = perfdata_add_event(w, names[k], &pt->attrs[k], &id, 1);
	}
	return r;
}

/* The trailer of a record that is no sample: all that is looked at. */
static bool trailer(uint8_t *record, struct perfabi_sample_id **ret)
{
	const struct perf_event_header *h = (const void *)record;

	if (h->size < sizeof(*h) + sizeof(**ret))
		return false;
	*ret = (void *)(record + h->size - sizeof(**ret));
	return true;
}

static bool is_subject(const struct frozen *frozen, uint32_t pid, uint32_t tid, uint64_t time_ns)
{
	if (frozen->scope == TARGET_HOST)
		return true;
	return (frozen->scope != TARGET_THREAD || tid == (uint32_t)frozen->tid) &&
	       frozen_has(frozen, pid, time_ns);
}

/*
 * The trace has the bytes of all threads of the recording, one after the other, and who is none of
 * this target's is nobody for a reader: what it executes is not to be taken for the target's.
 * False: the record says nothing of the target.
 */
static bool mask_others(const struct frozen *frozen, uint8_t *record, struct perfabi_sample_id *id)
{
	struct perf_event_header *h = (void *)record;
	struct perfabi_itrace_start *start = (void *)record;
	struct perfabi_switch_cpu_wide *sw = (void *)record;
	const bool whole = pt_of(frozen)->events->of_cpus;

	if (h->type == PERF_RECORD_SWITCH_CPU_WIDE && h->size >= sizeof(*sw) + sizeof(*id) &&
	    sw->next_prev_tid && frozen->scope != TARGET_HOST &&
	    !is_subject(frozen, sw->next_prev_pid, sw->next_prev_tid, id->time))
		sw->next_prev_pid = sw->next_prev_tid = PERFABI_NOBODY;
	if (is_subject(frozen, id->pid, id->tid, id->time))
		return true;
	if (whole && id->tid == 0)
		return true; /* idle */
	/* That one of the others leaves, its successor says, too. */
	if (!pt_of(frozen)->is_part || h->misc & PERF_RECORD_MISC_SWITCH_OUT)
		return false;
	id->pid = id->tid = PERFABI_NOBODY;
	if (h->type == PERF_RECORD_ITRACE_START && h->size >= sizeof(*start) + sizeof(*id))
		start->pid = start->tid = PERFABI_NOBODY;
	return true;
}

static int write_record(struct frozen *frozen, uint8_t *record, enum pt_event event,
			struct perfdata_writer *w, struct frozen_stats *stats)
{
	const struct perf_event_header *h = (const void *)record;
	struct perfabi_sample_id *id;

	if (!trailer(record, &id)) {
		stats->malformed++;
		return 0;
	}
	if (id->time > frozen->raw_ns || !mask_others(frozen, record, id))
		return 0;
	id->id = PT_ID(event);
	stats->bytes += h->size;
	if (event == PT_EVENT_SIDE && !frozen->beside)
		stats->switches++;
	return perfdata_write(w, record, h->size);
}

/*
 * Who ran when the recording began (ITRACE_START), and where the trace stopped (AUX): a reader says
 * what it means.
 */
static int write_kept(struct frozen *frozen, struct perfdata_writer *w, struct frozen_stats *stats)
{
	const struct pt_events *events = pt_of(frozen)->events;
	_cleanup_free_ uint8_t *copy = malloc(events->n_records ? events->n_records : 1);
	size_t size;
	int r = 0;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, events->records, events->n_records);
	for (size_t at = 0; r == 0 && at < events->n_records; at += size) {
		size = ((const struct perf_event_header *)(copy + at))->size;
		r = write_record(frozen, copy + at, PT_EVENT_TRACE, w, stats);
	}
	return r;
}

static int write_switches(struct frozen *frozen, const struct ring *ring, struct pt_area *area,
			  struct perfdata_writer *w, struct frozen_stats *stats)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = area->switches;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	struct perfabi_sample_id *id;
	int r;

	area->switches = (struct ring_copy)RING_COPY_INIT;
	r = area->has_switches ? 0 : ring_copy(ring, &copy);
	if (r == 0)
		r = ring_walk(&copy, &records);
	if (r < 0)
		return r;
	stats->torn += records.torn;
	stats->malformed += records.malformed;
	stats->overwritten_bytes += copy.overwritten;
	area->switches_wrapped = copy.wrapped || records.malformed;
	for (size_t i = records.n; r == 0 && i > 0; i--) {
		uint8_t *record = copy.data + records.offsets[i - 1];
		const struct perf_event_header *h = (const void *)record;

		if (h->type == PERF_RECORD_LOST) {
			stats->lost += h->size >= sizeof(struct perfabi_lost)
					       ? ((const struct perfabi_lost *)h)->lost
					       : 0;
			continue;
		}
		if (h->type != PERF_RECORD_SWITCH && h->type != PERF_RECORD_SWITCH_CPU_WIDE)
			continue;
		if (!area->oldest_switch_ns && trailer(record, &id))
			area->oldest_switch_ns = id->time;
		r = write_record(frozen, record, PT_EVENT_SIDE, w, stats);
	}
	return r;
}

static int write_area(struct pt_frozen *pt, uint32_t idx, struct perfdata_writer *w)
{
	const struct pt_area *area = &pt->areas[idx];
	const struct perfabi_auxtrace record = {.reference = pt->reference,
						.idx = idx,
						.tid = UINT32_MAX,
						.cpu = (uint32_t)area->cpu};
	int r;

	if (area->aux.len == 0)
		return 0;
	r = perfdata_aux_begin(w, &record, area->aux.len);
	if (r == 0)
		r = perfdata_aux_add(w, area->aux.data, area->aux.len);
	if (r == 0)
		pt->bytes += area->aux.len;
	return r;
}

/* From then on every switch is there. */
static uint64_t complete_from(const struct frozen *frozen)
{
	const struct pt_frozen *pt = pt_of(frozen);
	uint64_t from = 0;

	for (size_t i = 0; i < pt->n_areas; i++) {
		const struct pt_area *area = &pt->areas[i];
		const uint64_t oldest = area->oldest_switch_ns ? area->oldest_switch_ns
							       : frozen->raw_ns;

		if (area->switches_wrapped && oldest > from)
			from = oldest;
	}
	return from;
}

int pt_export_copy(struct frozen *frozen, struct perfdata_writer *w, struct frozen_stats *stats)
{
	struct pt_frozen *pt = pt_of(frozen);
	const struct eventset *sets = pt->events->first->sets;
	int r;

	r = add_events(pt, w);
	if (r == 0)
		r = write_info(frozen, w);
	pt_events_drain(pt->events);
	pt->losses = pt->events->losses;
	if (r == 0)
		r = write_kept(frozen, w, stats);
	for (size_t i = 0; r == 0 && i < pt->n_areas; i++) {
		if (sets[PT_EVENT_SIDE].rings[i].base)
			r = write_switches(frozen, &sets[PT_EVENT_SIDE].rings[i], &pt->areas[i], w,
					   stats);
		stats->copy_ns += pt->areas[i].copy_ns;
	}
	for (size_t i = 0; r == 0 && i < pt->n_areas; i++)
		r = write_area(pt, (uint32_t)i, w);
	stats->complete_from_ns = complete_from(frozen);
	return r == 0 && frozen->beside ? backend_sample.copy(frozen, w, stats) : r;
}

/* ---- life */

void pt_export_resume(struct frozen *frozen)
{
	struct pt_frozen *pt = pt_of(frozen);

	drop_areas(pt);
	if (frozen->beside)
		backend_sample.resume(frozen);
	stopping_forget(pt->stopping);
	pt->stopping = NULL;
	if (!pt->events)
		return;
	/* Not before: of some nobody had heard when it was frozen. */
	pt->pauses = *pt_resume_pauses(pt->events);
	if (pt->held) {
		pt->held = false;
		pt_events_thaw(pt->events);
		stopper_go_on(pt->machine->stopper, pt->events);
	}
	pt->events = pt_events_put(pt->events);
}

void pt_export_free(struct frozen *frozen)
{
	if (frozen->beside)
		backend_sample.free(frozen);
	free(pt_of(frozen)->areas);
	free(pt_of(frozen)->missed);
	(void)pt_filter_put(pt_of(frozen)->filter);
	free(frozen->recording);
}

/* ---- meta.json */

static void add_gap(const struct pt_gap *gap, struct json_object *gaps)
{
	struct json_object *o = json_object_new_object();
	char kind[64];

	(void)snprintf(kind, sizeof(kind), "cpu %d not traced while it was copied", gap->cpu);
	json_add_string(o, "kind", kind);
	json_add_int(o, "blind_cpu", gap->cpu);
	json_add_uint(o, "from_ns", gap->from_ns);
	json_add_uint(o, "to_ns", gap->to_ns);
	json_append(gaps, o);
}

static void add_missed(const struct frozen *frozen, const struct pt_missed_cpu *missed,
		       struct json_object *gaps)
{
	struct json_object *o = json_object_new_object();
	char kind[96];

	(void)snprintf(kind, sizeof(kind), "cpu %d not traced: it came online later", missed->cpu);
	json_add_string(o, "kind", kind);
	json_add_int(o, "blind_cpu", missed->cpu);
	json_add_bool(o, "blind_late", true);
	json_add_bool(o, "blind_unseen", !frozen->beside);
	json_add_uint(o, "from_ns", missed->from_ns);
	json_add_uint(o, "to_ns", frozen->raw_ns);
	json_append(gaps, o);
	if (frozen->beside)
		return;
	/* Who waits, and for how long, is not known either. */
	o = json_object_new_object();
	(void)snprintf(kind, sizeof(kind),
		       "cpu %d came online later, its switches are not recorded", missed->cpu);
	json_add_string(o, "kind", kind);
	json_add_uint(o, "from_ns", missed->from_ns);
	json_add_uint(o, "to_ns", frozen->raw_ns);
	json_append(gaps, o);
}

static void add_areas(const struct pt_frozen *pt, struct json_object *list)
{
	for (size_t i = 0; i < pt->n_areas; i++) {
		const struct pt_area *area = &pt->areas[i];
		struct json_object *o = json_object_new_object();

		json_add_int(o, "cpu", area->cpu);
		json_add_uint(o, "bytes", area->bytes);
		json_add_bool(o, "wrapped", area->wrapped);
		json_add_uint(o, "copy_ns", area->copy_ns);
		json_add_uint(o, "blind_ns", area->blind_ns);
		json_append(list, o);
	}
}

static void add_pauses(const struct frozen *frozen, struct json_object *gaps)
{
	const struct pt_frozen *pt = pt_of(frozen);
	_cleanup_free_ int *cpus = calloc(pt->n_areas, sizeof(*cpus));

	for (size_t i = 0; cpus && i < pt->n_areas; i++)
		cpus[i] = pt->areas[i].cpu;
	pt_pauses_meta(&pt->pauses, cpus, cpus ? pt->n_areas : 0, frozen->raw_ns, gaps);
}

static void add_filter(const struct pt_filter *filter, struct json_object *list)
{
	for (size_t i = 0; i < filter->n; i++) {
		const struct pt_range *range = &filter->v[i];
		struct json_object *o = json_object_new_object();

		json_add_string(o, "name", range->name);
		json_add_text(o, "path", range->path, strlen(range->path));
		json_add_uint(o, "offset", range->offset);
		json_add_uint(o, "size", range->size);
		json_append(list, o);
	}
}

void pt_export_meta(const struct frozen *frozen, struct json_object *events,
		    struct json_object *losses, struct json_object *gaps)
{
	const struct pt_frozen *pt = pt_of(frozen);
	struct json_object *o = json_add_new_object(events, "pt");

	json_add_uint(o, "config", pt->attrs[PT_EVENT_TRACE].config);
	json_add_uint(o, "freeze_ns", pt->freeze_ns);
	if (pt->filter)
		add_filter(pt->filter, json_add_new_array(o, "filters"));
	if (frozen->beside)
		backend_sample.meta(frozen, events, losses, gaps);
	if (!losses)
		return;
	json_add_uint(o, "bytes", pt->bytes);
	add_areas(pt, json_add_new_array(o, "cpus"));
	json_add_uint(losses, "pt_truncated", pt->losses.truncated);
	json_add_uint(losses, "pt_partial", pt->losses.partial);
	json_add_uint(losses, "pt_records_lost", pt->losses.records);
	json_add_uint(losses, "pt_cpus_not_traced", pt->n_missed);
	json_add_uint(losses, "pt_copies_torn", pt->torn);
	json_add_uint(losses, "pt_left_out", pt->left_out);
	for (size_t i = 0; i < pt->n_gaps; i++)
		add_gap(&pt->gaps[i], gaps);
	for (size_t i = 0; i < pt->n_areas; i++)
		if (pt->areas[i].stopped_ns && pt->areas[i].stopped_ns < frozen->raw_ns)
			add_gap(&(struct pt_gap){pt->areas[i].cpu, pt->areas[i].stopped_ns,
						 frozen->raw_ns},
				gaps);
	add_pauses(frozen, gaps);
	for (size_t i = 0; i < pt->n_missed; i++)
		if (pt->missed[i].from_ns < frozen->raw_ns)
			add_missed(frozen, &pt->missed[i], gaps);
}
