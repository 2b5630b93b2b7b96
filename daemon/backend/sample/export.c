// SPDX-License-Identifier: Apache-2.0
/*
 * Copies a target's records from rings to a bundle: those that daemon/backend/sample/mask.c lets through.
 *
 * Event ids are replaced by fixed ones, so that the file's event table does not depend on the number of open descriptors.
 */
#include "daemon/backend/sample/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/hashmap.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/blocked.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/mask.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"
#include "daemon/backend/sample/unwound.h"
#include "daemon/perf/ring.h"

#define OUT_BYTES (256u << 10)
#define PERF_PAGE 4096u
#define BLOCKED_WAIT_MS 500 /* the copier waits for them no longer: others wait for it */
/* No id of the kernel's, and none of the side-band log's. */
#define EVENT_ID(source, event) (0x4000000000000010ULL + (uint64_t)(source) * 16 + (uint64_t)(event))

/* frozen->recording, or frozen->beside. */
struct export {
	struct source sources[SOURCES_MAX]; /* referenced until resume */
	size_t n_sources;
	struct ring_state { /* written by the copy, read after it */
		int cpu;
		uint64_t oldest_ns; /* of what was in it; 0: nothing */
		bool wrapped;       /* there had been more */
		uint64_t complete_ns; /* since then it has all of the target's; 0: it has lost nothing */
	} *rings;
	size_t n_rings;
	struct outage {
		int cpu;
		uint64_t from_ns, to_ns;
	} outages[SAMPLER_OUTAGES_MAX]; /* when what ran on a CPU was not recorded */
	size_t n_outages;
	uint64_t complete_ns; /* since then nothing of the target is missing */
	struct blocked *blocked; /* at the freeze; NULL: there are none */
	bool blocked_asked;	 /* there might be */
	bool blocked_came;	 /* in time */
	struct blocked *since;	 /* when it was armed; NULL: there are none */
	struct hashmap seen;	 /* the newest record of each thread */
	uint64_t n_blocked;	 /* written, of both */
	struct unwind_doubts doubts;
	uint64_t n_doubted; /* stacks that are not believed */
};

static void **export_slot(struct frozen *frozen)
{
	return frozen->backend == &backend_sample ? &frozen->recording : &frozen->beside;
}

static struct export *export_of(const struct frozen *frozen)
{
	return frozen->backend == &backend_sample ? frozen->recording : frozen->beside;
}

struct out {
	struct perfdata_writer *writer;
	uint8_t *buf; /* owned */
	size_t used;
};

static void out_fini(struct out *out)
{
	free(out->buf);
}

static int out_flush(struct out *out)
{
	size_t used = out->used;

	out->used = 0;
	return used ? perfdata_write(out->writer, out->buf, used) : 0;
}

static int out_record(struct out *out, const void *record, size_t size)
{
	int r;

	if (out->used + size > OUT_BYTES) {
		r = out_flush(out);
		if (r < 0)
			return r;
	}
	memcpy(out->buf + out->used, record, size);
	out->used += size;
	return 0;
}

/* ---- one record */

static void group_id(struct perf_event_header *h, uint64_t id)
{
	uint8_t *at = h->type == PERF_RECORD_SAMPLE ? (uint8_t *)(h + 1) : (uint8_t *)h + h->size - sizeof(id);

	memcpy(at, &id, sizeof(id));
}

static void count_kept(const struct record_view *view, enum group_event event, struct frozen_stats *stats)
{
	struct tracerd_sched_event ev = {.kind = 0};

	if (event != GROUP_CLOCK)
		(void)record_sched(view, &ev);
	if (view->header->type == PERF_RECORD_SAMPLE && event == GROUP_CLOCK)
		stats->samples++;
	else if (ev.kind != SCHEDEV_STACK)
		stats->switches++;
	if (ev.kind == SCHEDEV_WAKEUP)
		stats->wakeups++;
	if (!stats->first_ns || view->time < stats->first_ns)
		stats->first_ns = view->time;
	if (view->time > stats->last_ns)
		stats->last_ns = view->time;
	stats->bytes += view->header->size;
}

/* ---- one ring */

/* Records that only report losses. */
static bool count_loss(const struct perf_event_header *h, struct frozen_stats *stats)
{
	const struct perfabi_lost *lost = (const void *)h;
	uint64_t n;

	switch (h->type) {
	case PERF_RECORD_LOST:
		if (h->size >= sizeof(*lost))
			stats->lost += lost->lost;
		return true;
	case PERF_RECORD_LOST_SAMPLES:
		if (h->size >= sizeof(*h) + sizeof(n)) {
			memcpy(&n, h + 1, sizeof(n));
			stats->lost += n;
		}
		return true;
	case PERF_RECORD_THROTTLE:
		stats->throttled++;
		return true;
	default:
		return false;
	}
}

/* Who is on record is not only known to be blocked. Without memory for that it is drawn by what is on record all the same. */
static void see_thread(struct export *samples, const struct record_view *view)
{
	struct tracerd_sched_event ev;
	uint32_t tid;

	if (!samples->blocked)
		return;
	tid = record_sched(view, &ev) ? ev.tid : *view->tid;
	if (view->time > hashmap_get(&samples->seen, 0, tid))
		(void)!hashmap_put(&samples->seen, 0, tid, view->time);
}

static int copy_record(const struct frozen *frozen, size_t index, uint8_t *record, struct out *out,
		       struct frozen_stats *stats, uint64_t *oldest_ns)
{
	struct export *samples = export_of(frozen);
	const struct source *source = &samples->sources[index];
	struct perf_event_header *h = (void *)record;
	_Alignas(8) uint8_t expanded[UNWOUND_RECORD_MAX];
	struct record_view view;
	enum group_event event;
	bool doubted;
	uint64_t id;
	int r;

	if (count_loss(h, stats))
		return 0;
	if (record_id(record, &id) < 0) {
		stats->malformed++;
		return 0;
	}
	event = event_group_event(source->group, id);
	if (event == GROUP_EVENTS) {
		/* An inherited event has its parent's id; any other id is not of this group. */
		stats->malformed++;
		return 0;
	}
	r = record_parse(record, &source->group->layouts[event], &view);
	if (r == 0)
		r = unwound_expand(source->group, &view, &event, expanded);
	if (r < 0) {
		stats->malformed++;
		return 0;
	}
	h = view.header;
	doubted = r == 1 && !unwind_doubts_believes(&samples->doubts, *view.pid, view.time, view.chain, view.n_chain);
	if (doubted)
		record_drop_stack(&view);
	if (!*oldest_ns)
		*oldest_ns = view.time;
	see_thread(samples, &view);
	switch (mask_record(frozen, source, event, &view)) {
	case MASK_FOREIGN:
		stats->foreign++;
		return 0;
	case MASK_MALFORMED:
		stats->malformed++;
		return 0;
	case MASK_OUTSIDE:
		return 0;
	case MASK_KEEP:
		break;
	}
	group_id(h, EVENT_ID(index, event));
	count_kept(&view, event, stats);
	samples->n_doubted += doubted;
	return out_record(out, h, h->size);
}

static int copy_ring(const struct frozen *frozen, size_t index, const struct ring *ring, struct out *out,
		     struct frozen_stats *stats, struct ring_state *ret)
{
	_cleanup_(ring_copy_fini) struct ring_copy copy = RING_COPY_INIT;
	_cleanup_(ring_records_fini) struct ring_records records = {0};
	uint64_t began = clock_raw_ns();
	int r;

	r = ring_copy(ring, &copy);
	if (r < 0)
		return r;
	stats->copy_ns += clock_raw_ns() - began;
	r = ring_walk(&copy, &records);
	if (r < 0)
		return r;
	stats->torn += records.torn;
	stats->malformed += records.malformed;
	stats->overwritten_bytes += copy.overwritten;
	ret->wrapped = copy.wrapped || records.malformed;
	/* The newest is first in the ring, the oldest first in the file. */
	for (size_t i = records.n; i > 0; i--) {
		r = copy_record(frozen, index, copy.data + records.offsets[i - 1], out, stats, &ret->oldest_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- all */

static int add_events(const struct frozen *frozen, size_t index, struct perfdata_writer *writer)
{
	static const char *const names[GROUP_EVENTS] = {"cpu-clock:u-stacks", "sched", "sched"};
	const struct event_group *group = export_of(frozen)->sources[index].group;

	for (unsigned int e = 0; e < GROUP_EVENTS; e++) {
		uint64_t id = EVENT_ID(index, e);
		int r;

		if (e != GROUP_CLOCK && group->index == FILTER_NO_GROUP)
			continue;
		r = perfdata_add_event(writer, names[e], &group->attrs[e], &id, 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * perf names an address by what is mapped there, and the kernel's are mapped by this record alone: the upper half of all addresses,
 * of which /proc/kallsyms, or the bundle's, has the symbols. It is older than all samples.
 */
static int add_kernel_map(const struct frozen *frozen, struct perfdata_writer *writer)
{
	struct {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, len, pgoff;
		char name[24];
		struct perfabi_sample_id id;
	} map = {
		.header = {.type = PERF_RECORD_MMAP, .misc = PERF_RECORD_MISC_KERNEL, .size = sizeof(map)},
		.pid = UINT32_MAX,
		.addr = KERNEL_HALF,
		.len = KERNEL_HALF - PERF_PAGE,
		.name = "[kernel.kallsyms]_text",
		.id = {.pid = UINT32_MAX, .time = frozen_recorded_from(frozen), .id = EVENT_ID(0, GROUP_CLOCK)},
	};

	return frozen->kernel_stacks ? perfdata_write(writer, &map, sizeof(map)) : 0;
}

/* *ret_oldest_ns: all its rings have everything since then. */
static int copy_source(struct frozen *frozen, size_t index, struct out *out, struct frozen_stats *stats, uint64_t *ret_oldest_ns)
{
	struct export *samples = export_of(frozen);
	const struct source *source = &samples->sources[index];
	const struct eventset *clock = &source->group->events[GROUP_CLOCK];
	uint64_t lost = event_group_lost(source->group);
	struct ring_state *rings;
	int r;

	rings = reallocarray(samples->rings, samples->n_rings + clock->n_cpus, sizeof(*rings));
	if (!rings)
		return -ENOMEM;
	samples->rings = rings;
	r = add_events(frozen, index, out->writer);
	if (r == 0 && index == 0)
		r = add_kernel_map(frozen, out->writer);
	if (r < 0)
		return r;
	stats->lost += lost > source->lost_at ? lost - source->lost_at : 0;
	for (size_t cpu = 0; cpu < clock->n_cpus; cpu++) {
		struct ring_state *ring = &samples->rings[samples->n_rings];

		if (!ring_is_there(&clock->rings[cpu]))
			continue;
		*ring = (struct ring_state){.cpu = clock->cpus[cpu]};
		samples->n_rings++;
		r = copy_ring(frozen, index, &clock->rings[cpu], out, stats, ring);
		if (r < 0)
			return r;
		if (!ring->wrapped)
			continue;
		/* A ring from which nothing could be read is complete from the freeze only. */
		ring->complete_ns = ring->oldest_ns ? ring->oldest_ns : frozen->raw_ns;
		if (ring->complete_ns > *ret_oldest_ns)
			*ret_oldest_ns = ring->complete_ns;
		ring->complete_ns = source_complete_ns(source, ring->complete_ns);
		if (ring->complete_ns == source->from_ns)
			ring->complete_ns = 0;
	}
	return out_flush(out);
}

static int copy_blocked(struct frozen *frozen, const struct blocked *blocked, unsigned int event, const struct hashmap *seen,
			uint64_t complete_ns, uint64_t time_ns, struct out *out)
{
	const uint64_t id = EVENT_ID(0, event);
	struct perf_event_attr attr = export_of(frozen)->sources[0].group->attrs[GROUP_PLAIN];
	_cleanup_free_ uint8_t *record = malloc(BLOCKED_RECORD_MAX);
	const struct blocked_stack *s;
	size_t pos = 0;
	int r;

	if (!record)
		return -ENOMEM;
	blocked_attr(blocked, &attr);
	r = perfdata_add_event(out->writer, "sched", &attr, &id, 1);
	while (r == 0 && (s = blocked_next(blocked, seen, complete_ns, &pos)) != NULL) {
		/* Its owner could see it then, and cannot any more. */
		if (frozen->n_hidden && !frozen_member(frozen, (pid_t)s->task.pid))
			continue;
		r = out_record(out, record, blocked_record(blocked, s, id, time_ns, record));
		export_of(frozen)->n_blocked++;
	}
	return r < 0 ? r : out_flush(out);
}

/*
 * At the freeze those of which the rings have nothing where they are complete; from when the target was armed all, if the rings
 * reach back to that: the decoder knows who did something else before.
 */
static int copy_all_blocked(struct frozen *frozen, struct out *out)
{
	struct export *samples = export_of(frozen);
	const uint64_t from = samples->complete_ns;
	uint64_t asleep = 0;
	int r = 0;

	if (samples->since && blocked_await(samples->since, 0))
		asleep = blocked_asleep_ns(samples->since);
	if (asleep > from && asleep < frozen->raw_ns)
		r = copy_blocked(frozen, samples->since, GROUP_EVENTS + 1, NULL, UINT64_MAX, asleep, out);
	samples->blocked_came = samples->blocked && blocked_await(samples->blocked, BLOCKED_WAIT_MS);
	if (r == 0 && samples->blocked_came)
		r = copy_blocked(frozen, samples->blocked, GROUP_EVENTS, &samples->seen, from, frozen->raw_ns, out);
	return r;
}

int export_copy(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *stats)
{
	struct export *samples = export_of(frozen);
	_cleanup_(out_fini) struct out out = {.writer = writer};
	uint64_t oldest[SOURCES_MAX] = {0};
	size_t copied = 0, used;
	int r;

	out.buf = malloc(OUT_BYTES);
	if (!out.buf)
		return -ENOMEM;
	/* The present rings first. Those from before a change join on only if these still have it all. */
	do {
		if (copied == samples->n_sources)
			break;
		r = copy_source(frozen, copied, &out, stats, &oldest[copied]);
		if (r < 0)
			return r;
		copied++;
		samples->complete_ns = sources_complete_ns(samples->sources, oldest, samples->n_sources, &used);
	} while (used > copied);
	stats->complete_from_ns = samples->complete_ns;
	return copy_all_blocked(frozen, &out);
}

/* ---- life */

/* Until the target got rings that were opened later, or to the end. */
static void take_outages(struct target *target, struct export *samples, uint64_t frozen_ns)
{
	const struct sampler_outage *all;
	size_t n;

	all = sampler_outages(sampler_of(target->targets), &n);
	for (size_t i = 0; i < n; i++) {
		struct outage o = {.cpu = all[i].cpu, .from_ns = all[i].from_ns, .to_ns = frozen_ns};
		bool missed = false;

		for (size_t k = 0; k < samples->n_sources; k++) {
			const struct source *source = &samples->sources[k];

			if (source->group->spec.kind == GROUP_TASK)
				continue;
			if (source->group->spec.epoch > all[i].epoch)
				o.to_ns = source->from_ns;
			else if (source->end_ns > o.from_ns)
				missed = true;
		}
		if (missed && o.to_ns > o.from_ns)
			samples->outages[samples->n_outages++] = o;
	}
}

int export_freeze(struct target *target, struct frozen *frozen)
{
	const struct sampling *s = sampling_of(target);
	struct export *samples = calloc(1, sizeof(*samples));
	const struct group_spec *spec;

	if (!samples)
		return -ENOMEM;
	*export_slot(frozen) = samples;
	sampler_look_at_cpus(sampler_of(target->targets), true);
	for (; samples->n_sources < s->n_sources; samples->n_sources++) {
		samples->sources[samples->n_sources] = s->sources[samples->n_sources];
		(void)event_group_ref(samples->sources[samples->n_sources].group);
	}
	if (!samples->n_sources)
		return 0;
	take_outages(target, samples, frozen->raw_ns);
	/*
	 * Only the copy finds out what is missing at the beginning; until then assume that the rings have everything since
	 * they are the target's.
	 */
	if (samples->sources[samples->n_sources - 1].from_ns > frozen->oldest_ns)
		frozen->oldest_ns = samples->sources[samples->n_sources - 1].from_ns;
	spec = &samples->sources[0].group->spec;
	frozen->method = group_kind_name(spec->kind);
	frozen->hz = spec->hz;
	/* Others may have been asked for meanwhile. */
	frozen->stacks = target->stacks == STACKS_BPF ? STACKS_BPF : spec->stacks;
	frozen->kernel_stacks = spec->kernel_stacks && frozen->admin;
	if (sampler_unwind(sampler_of(target->targets))) {
		int r = unwind_copy_doubts(sampler_unwind(sampler_of(target->targets)), &samples->doubts);

		if (r < 0)
			return r;
	}
	if (frozen->backend != &backend_sample || !frozen->waits)
		return 0;
	samples->since = blocked_ref(s->since);
	if (target->state == TARGET_ARMED)
		samples->blocked_asked = blocked_at_freeze(target, frozen, spec->stack_bytes, &samples->blocked) != -EOPNOTSUPP;
	return 0;
}

void export_resume(struct frozen *frozen)
{
	struct export *samples = export_of(frozen);

	/* The copy knows since when all rings have everything. */
	if (samples->complete_ns > frozen->oldest_ns)
		frozen->oldest_ns = samples->complete_ns;
	while (samples->n_sources > 0)
		(void)event_group_put(samples->sources[--samples->n_sources].group);
}

void export_free(struct frozen *frozen)
{
	(void)blocked_put(export_of(frozen)->blocked);
	(void)blocked_put(export_of(frozen)->since);
	hashmap_fini(&export_of(frozen)->seen);
	unwind_doubts_fini(&export_of(frozen)->doubts);
	free(export_of(frozen)->rings);
	free(export_of(frozen));
}

/* Without a CPU, -1, it is a loss, and of that time not all is known. */
static void add_gap(struct json_object *gaps, const char *kind, int cpu, uint64_t from_ns, uint64_t to_ns)
{
	struct json_object *o = json_object_new_object();

	json_add_string(o, "kind", kind);
	if (cpu >= 0)
		json_add_int(o, "cpu", cpu);
	json_add_uint(o, "from_ns", from_ns);
	json_add_uint(o, "to_ns", to_ns);
	json_append(gaps, o);
}

static void add_outage(struct json_object *gaps, const struct outage *outage)
{
	char kind[64];

	(void)snprintf(kind, sizeof(kind), "CPU %d went or came, and was not recorded", outage->cpu);
	add_gap(gaps, kind, -1, outage->from_ns, outage->to_ns);
}

/* One loss is of all processes. */
static void add_unseen(struct json_object *gaps, const struct frozen *frozen)
{
	uint64_t from = 0, to = 0;

	for (size_t i = 0; i < frozen->n_members; i++) {
		const struct frozen_member *m = &frozen->members[i];

		if (!m->unseen || (m->from_ns == from && m->to_ns == to))
			continue;
		from = m->from_ns;
		to = m->to_ns;
		add_gap(gaps, "records were lost, by which its user's right to see it is known", -1, from, to);
	}
}

/*
 * Where the ring of one CPU reaches back less far than another's, what ran there is missing in between. There is no gap before
 * the oldest data of all, nor before the target was armed.
 */
void export_meta(const struct frozen *frozen, struct json_object *events, struct json_object *losses,
		     struct json_object *gaps)
{
	const uint64_t from = frozen_recorded_from(frozen);
	const struct export *samples = export_of(frozen);
	uint64_t begin = UINT64_MAX;
	char kind[48];

	if (!gaps)
		return;
	if (samples->n_doubted)
		json_add_uint(losses, "stacks_in_doubt", samples->n_doubted);
	if (samples->blocked_asked) {
		json_add_uint(events, "stacks_since_before", samples->n_blocked);
		/* one: those of the target, which came too late, or not at all */
		json_add_uint(losses, "blocked_stacks_missing", samples->blocked_came ? blocked_missing(samples->blocked) : 1);
	}
	if (samples->n_outages)
		json_add_uint(losses, "cpu_outages", samples->n_outages);
	for (size_t i = 0; i < samples->n_outages; i++)
		add_outage(gaps, &samples->outages[i]);
	add_unseen(gaps, frozen);
	for (size_t i = 0; i < samples->n_rings; i++)
		if (samples->rings[i].oldest_ns && samples->rings[i].oldest_ns < begin)
			begin = samples->rings[i].oldest_ns;
	if (begin < from)
		begin = from;
	for (size_t i = 0; i < samples->n_rings; i++) {
		const struct ring_state *ring = &samples->rings[i];

		if (ring->complete_ns <= begin)
			continue;
		(void)snprintf(kind, sizeof(kind), "ring of cpu %d overwritten", ring->cpu);
		add_gap(gaps, kind, ring->cpu, begin, ring->complete_ns);
	}
}
