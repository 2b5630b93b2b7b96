// SPDX-License-Identifier: Apache-2.0
/*
 * Copies a target's records from rings to a bundle: those that daemon/backend/sample/mask.c lets
 * through.
 *
 * Event ids are replaced by fixed ones, so that the file's event table does not depend on the
 * number of open descriptors.
 */
#include "daemon/backend/sample/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/raw_clock.h"
#include "common/bundle/clocks.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"
#include "daemon/backend/sample/aside.h"
#include "daemon/backend/sample/blocked.h"
#include "daemon/backend/sample/export_internal.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/mask.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwound.h"
#include "daemon/base/clockseries.h"
#include "daemon/perf/ring.h"

#define OUT_BYTES (256u << 10)
#define PERF_PAGE 4096u

static void **export_slot(struct frozen *frozen)
{
	return frozen->backend == &backend_sample ? &frozen->recording : &frozen->beside;
}

static void out_fini(struct export_out *out)
{
	free(out->buf);
}

int export_flush(struct export_out *out)
{
	size_t used = out->used;

	out->used = 0;
	return used ? perfdata_write(out->writer, out->buf, used) : 0;
}

int export_record(struct export_out *out, const void *record, size_t size)
{
	int r;

	if (out->used + size > OUT_BYTES) {
		r = export_flush(out);
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
	uint8_t *at = h->type == PERF_RECORD_SAMPLE ? (uint8_t *)(h + 1)
						    : (uint8_t *)h + h->size - sizeof(id);

	memcpy(at, &id, sizeof(id));
}

static void count_kept(const struct record_view *view, enum group_event event,
		       struct frozen_stats *stats)
{
	struct tracerd_sched_event ev = {.kind = 0};

	if (event != GROUP_CLOCK)
		(void)record_sched(view, &ev);
	stats->bytes += view->header->size;
	/* What a thread waits in at the freeze is nothing that happened then. */
	if (ev.kind == SCHEDEV_BLOCKED)
		return;
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

/*
 * Who is on record is not only known to be blocked. Without memory for that it is drawn by what is
 * on record all the same.
 */
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

/* One of the group's event, with the time that it has in a ring. */
static int copy_event(struct frozen *frozen, size_t index, uint8_t *record, enum group_event event,
		      struct export_out *out, struct frozen_stats *stats, uint64_t *oldest_ns)
{
	struct export *samples = export_of(frozen);
	const struct source *source = &samples->sources[index];
	_Alignas(8) uint8_t expanded[UNWOUND_RECORD_MAX];
	struct perf_event_header *h;
	struct record_view view;
	bool doubted;
	int r;

	r = record_parse(record, &source->group->layouts[event], &view);
	if (r == 0)
		record_set_time(&view, clocks_monotonic_to_raw(samples->clocks, view.time,
							       &samples->clocks_segment));
	if (r == 0)
		r = unwound_expand(source->group, &view, &event, expanded);
	if (r < 0) {
		stats->malformed++;
		return 0;
	}
	h = view.header;
	doubted = r == 1 && !unwind_doubts_believes(&samples->doubts, *view.pid,
						    mask_stack_ns(&view), view.chain, view.n_chain);
	if (doubted)
		record_drop_stack(&view);
	if (r == 1)
		export_still_waits(frozen, &view);
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
	if (export_hold_goroutine(out, &view, event))
		return 0;
	count_kept(&view, event, stats);
	if (r == 1)
		exported_functions_see(&samples->functions, &view);
	samples->n_doubted += doubted;
	r = export_see_kernel(frozen, &view);
	if (r == 0)
		r = export_goroutine(out, &source->group->layouts[GROUP_PLAIN], &view, event);
	return r < 0 ? r : export_record(out, h, h->size);
}

static int copy_record(struct frozen *frozen, size_t index, uint8_t *record, struct export_out *out,
		       struct frozen_stats *stats, uint64_t *oldest_ns)
{
	enum group_event event = GROUP_EVENTS;
	uint64_t id;

	if (count_loss((const struct perf_event_header *)(const void *)record, stats))
		return 0;
	/* An inherited event has its parent's id; any other id is not of this group. */
	if (record_id(record, &id) == 0)
		event = event_group_event(export_of(frozen)->sources[index].group, id);
	if (event == GROUP_EVENTS) {
		stats->malformed++;
		return 0;
	}
	return copy_event(frozen, index, record, event, out, stats, oldest_ns);
}

static int copy_ring(struct frozen *frozen, size_t index, const struct ring *ring,
		     struct export_out *out, struct frozen_stats *stats, struct ring_state *ret)
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
	out->held_size = 0;
	stats->torn += records.torn;
	stats->malformed += records.malformed;
	stats->overwritten_bytes += copy.overwritten;
	ret->wrapped = copy.wrapped || records.malformed;
	/* The newest is first in the ring, the oldest first in the file. */
	for (size_t i = records.n; i > 0; i--) {
		r = copy_record(frozen, index, copy.data + records.offsets[i - 1], out, stats,
				&ret->oldest_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_switches(struct frozen *frozen, size_t index, const struct switch_ring *ring,
			 struct export_out *out, struct frozen_stats *stats, struct ring_state *ret)
{
	_cleanup_(switch_records_fini) struct switch_records records = {.n = 0};
	_Alignas(8) uint8_t record[UNWOUND_RECORD_MAX];
	const uint64_t began = clock_raw_ns();
	int r;

	r = switch_ring_copy(ring, &records);
	if (r < 0)
		return r;
	stats->copy_ns += clock_raw_ns() - began;
	out->held_size = 0;
	stats->overwritten_bytes += records.overwritten * sizeof(*records.v);
	ret->wrapped = records.wrapped;
	for (size_t i = 0; i < records.n && r == 0; i++)
		r = unwound_plain(export_of(frozen)->sources[index].group, &records.v[i],
				  record) < 0
			    ? -EBADMSG
			    : copy_event(frozen, index, record, GROUP_PLAIN, out, stats,
					 &ret->oldest_ns);
	return r;
}

/* ---- all */

static int add_events(const struct frozen *frozen, size_t index, struct perfdata_writer *writer)
{
	static const char *const names[GROUP_EVENTS] = {"cpu-clock:u-stacks", "sched", "sched"};
	const struct event_group *group = export_of(frozen)->sources[index].group;

	for (unsigned int e = 0; e < GROUP_EVENTS; e++) {
		const struct perf_event_attr attr = event_group_exported_attr(group, e);
		const uint64_t id = EVENT_ID(index, e);
		int r;

		if (e != GROUP_CLOCK && group->index == FILTER_NO_GROUP)
			continue;
		r = perfdata_add_event(writer, names[e], &attr, &id, 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * 0: it has lost nothing. A ring from which nothing could be read is complete from the freeze only.
 */
static uint64_t complete_since(const struct frozen *frozen, const struct ring_state *ring)
{
	if (!ring->wrapped)
		return 0;
	return ring->oldest_ns ? ring->oldest_ns : frozen->raw_ns;
}

/* *ret_oldest_ns: all its rings have everything since then. */
static int copy_source(struct frozen *frozen, size_t index, struct export_out *out,
		       struct frozen_stats *stats, uint64_t *ret_oldest_ns)
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
	if (r < 0)
		return r;
	stats->lost += source_lost(source, lost);
	for (size_t cpu = 0; cpu < clock->n_cpus; cpu++) {
		struct ring_state *ring = &samples->rings[samples->n_rings],
				  switches = {.cpu = clock->cpus[cpu]};

		if (!ring_is_there(&clock->rings[cpu]))
			continue;
		*ring = (struct ring_state){.cpu = clock->cpus[cpu]};
		samples->n_rings++;
		r = copy_ring(frozen, index, &clock->rings[cpu], out, stats, ring);
		if (r == 0 && source->group->switches)
			r = copy_switches(frozen, index, &source->group->switches[cpu], out, stats,
					  &switches);
		if (r < 0)
			return r;
		ring->complete_ns = complete_since(frozen, ring);
		if (complete_since(frozen, &switches) > ring->complete_ns)
			ring->complete_ns = complete_since(frozen, &switches);
		if (switches.oldest_ns &&
		    (!ring->oldest_ns || switches.oldest_ns < ring->oldest_ns))
			ring->oldest_ns = switches.oldest_ns;
		if (!ring->complete_ns)
			continue;
		if (ring->complete_ns > *ret_oldest_ns)
			*ret_oldest_ns = ring->complete_ns;
		ring->complete_ns = source_complete_ns(source, ring->complete_ns);
		if (ring->complete_ns == source->from_ns)
			ring->complete_ns = 0;
	}
	return export_flush(out);
}

/* The functions of the stacks, as older than these. */
static int copy_functions(struct frozen *frozen, struct export_out *out)
{
	struct exported_functions *functions = &export_of(frozen)->functions;
	const uint64_t from = frozen_recorded_from(frozen);
	_Alignas(8) uint8_t record[UNWOUND_RECORD_MAX];
	uint32_t pos = 0;
	size_t size;
	int r = 0;

	while (r == 0 && (size = exported_functions_next(functions, &pos, EVENT_ID(0, GROUP_PLAIN),
							 from ? from - 1 : 0, record)) != 0)
		r = export_record(out, record, size);
	return r < 0 ? r : export_flush(out);
}

static int take_kept(struct frozen *frozen)
{
	struct export *samples = export_of(frozen);

	if (samples->kept_taken)
		return 0;
	samples->kept_taken = true;
	return kept_take(&samples->kept, frozen);
}

uint64_t export_set_aside(struct frozen *frozen, uint64_t max_bytes)
{
	struct export *samples = export_of(frozen);
	pid_t *pids = calloc(frozen->n_members + 1, sizeof(*pids));
	uint64_t bytes = 0;
	int r;

	if (!pids || !samples->n_sources) {
		frozen->not_aside |= samples->n_sources > 0;
		free(pids);
		return 0;
	}
	for (size_t i = 0; i < frozen->n_members; i++)
		pids[i] = frozen->members[i].pid;
	/* Before the rings: a wait that ends meanwhile is here or there. */
	r = take_kept(frozen);
	if (r == 0)
		r = aside_copy(samples->aside, pids, frozen->n_members, max_bytes, frozen->cancel,
			       &bytes);
	else
		free(pids);
	if (r < 0)
		frozen->not_aside = true;
	for (size_t i = 0; r == 0 && i < samples->n_sources; i++)
		if (aside_group(samples->aside, i))
			samples->sources[i].group = aside_group(samples->aside, i);
	return bytes;
}

int export_copy(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *stats)
{
	struct export *samples = export_of(frozen);
	_cleanup_(out_fini) struct export_out out = {.writer = writer};
	uint64_t oldest[SOURCES_MAX] = {0};
	size_t copied = 0, used;
	int r;

	out.buf = malloc(OUT_BYTES);
	if (!out.buf)
		return -ENOMEM;
	r = take_kept(frozen);
	if (r < 0)
		return r;
	/*
	 * The present rings first. Those from before a change join on only if these still have it
	 * all.
	 */
	do {
		if (copied == samples->n_sources)
			break;
		r = copy_source(frozen, copied, &out, stats, &oldest[copied]);
		if (r < 0)
			return r;
		copied++;
		samples->complete_ns =
			sources_complete_ns(samples->sources, oldest, samples->n_sources, &used);
	} while (used > copied);
	stats->complete_from_ns = samples->complete_ns;
	r = copied ? export_waits(frozen, &out) : 0;
	return r < 0 ? r : copy_functions(frozen, &out);
}

/* ---- life */

/* Until the target got rings that were opened later, or to the end. */
static void take_outages(struct target *target, struct export *samples, uint64_t frozen_ns)
{
	const struct sampler_outage *all;
	size_t n;

	all = sampler_outages(sampler_of(target->targets), &n);
	for (size_t i = 0; i < n; i++) {
		struct outage o = {.cpu = all[i].cpu,
				   .from_ns = all[i].from_ns,
				   .to_ns = frozen_ns};
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

static int freeze_clocks(const struct target *target, struct export *samples)
{
	struct clocks *clocks = malloc(sizeof(*clocks));

	if (!clocks)
		return -ENOMEM;
	*clocks = *clockseries_get(target->targets->clocks);
	clocks_take(clocks);
	samples->clocks = clocks;
	return 0;
}

int export_freeze(struct target *target, struct frozen *frozen)
{
	const struct sampling *s = sampling_of(target);
	struct export *samples = calloc(1, sizeof(*samples));
	const struct group_spec *spec;
	int r;

	if (!samples)
		return -ENOMEM;
	samples->kept = (struct kept)KEPT_INIT;
	*export_slot(frozen) = samples;
	sampler_look_at_cpus(sampler_of(target->targets), true);
	samples->aside = aside_new(s->sources, s->n_sources, frozen->raw_ns);
	if (!samples->aside)
		return -ENOMEM;
	for (; samples->n_sources < s->n_sources; samples->n_sources++)
		samples->sources[samples->n_sources] = s->sources[samples->n_sources];
	if (!samples->n_sources)
		return 0;
	r = freeze_clocks(target, samples);
	if (r < 0)
		return r;
	take_outages(target, samples, frozen->raw_ns);
	/*
	 * Only the copy finds out what is missing at the beginning; until then assume that the
	 * rings have everything since they are the target's.
	 */
	if (samples->sources[samples->n_sources - 1].from_ns > frozen->oldest_ns)
		frozen->oldest_ns = samples->sources[samples->n_sources - 1].from_ns;
	spec = &samples->sources[0].group->spec;
	frozen->method = group_kind_name(spec->kind);
	frozen->hz = spec->hz;
	/* Others may have been asked for meanwhile. */
	frozen->stacks = target->stacks == STACKS_BPF ? STACKS_BPF : spec->stacks;
	frozen->kernel_stacks = spec->kernel_stacks && frozen->admin;
	frozen->kernel_waits = sampling_kernel_waits(target) && frozen->admin;
	frozen->wait_min_ns = sampling_wait_min(target);
	if (frozen->wait_min_ns && target->state == TARGET_ARMED &&
	    sampler_filter(sampler_of(target->targets)))
		kept_freeze(sampler_filter(sampler_of(target->targets)), frozen, &samples->kept);
	if (sampler_unwind(sampler_of(target->targets))) {
		r = unwind_copy_doubts(sampler_unwind(sampler_of(target->targets)),
				       &samples->doubts);

		if (r < 0)
			return r;
		samples->functions.from =
			unwind_python(sampler_unwind(sampler_of(target->targets)));
	}
	/* What is in the rings was written down before it. */
	if (samples->functions.from)
		python_consume(samples->functions.from);
	if (frozen->backend != &backend_sample || !frozen->waits)
		return 0;
	samples->since = blocked_ref(s->since);
	if (target->state == TARGET_ARMED)
		samples->blocked_asked = blocked_at_freeze(target, frozen, spec->stack_bytes,
							   &samples->blocked) != -EOPNOTSUPP;
	return 0;
}

void export_resume(struct frozen *frozen)
{
	struct export *samples = export_of(frozen);

	/* The copy knows since when all rings have everything. */
	if (samples->complete_ns > frozen->oldest_ns)
		frozen->oldest_ns = samples->complete_ns;
	samples->n_sources = 0;
	samples->aside = aside_free(samples->aside);
}

void export_free(struct frozen *frozen)
{
	kept_fini(&export_of(frozen)->kept);
	(void)blocked_put(export_of(frozen)->blocked);
	(void)blocked_put(export_of(frozen)->since);
	hashmap_fini(&export_of(frozen)->seen);
	exported_functions_fini(&export_of(frozen)->functions);
	unwind_doubts_fini(&export_of(frozen)->doubts);
	free(export_of(frozen)->rings);
	free(export_of(frozen)->clocks);
	free(export_of(frozen));
}

/* Without a CPU, -1, it is a loss, and of that time not all is known. */
static void add_gap(struct json_object *gaps, const char *kind, int cpu, uint64_t from_ns,
		    uint64_t to_ns)
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

	(void)snprintf(kind, sizeof(kind), "CPU %d went or came, and was not recorded",
		       outage->cpu);
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
		add_gap(gaps, "records were lost, by which its user's right to see it is known", -1,
			from, to);
	}
}

/*
 * Where the ring of one CPU reaches back less far than another's, what ran there is missing in
 * between. There is no gap before the oldest data of all, nor before the target was armed.
 */
void export_meta(const struct frozen *frozen, struct json_object *events,
		 struct json_object *losses, struct json_object *gaps)
{
	const uint64_t from = frozen_recorded_from(frozen);
	const struct export *samples = export_of(frozen);
	uint64_t begin = UINT64_MAX;
	char kind[48];

	if (!gaps)
		return;
	if (samples->n_doubted)
		json_add_uint(losses, "stacks_in_doubt", samples->n_doubted);
	if (frozen->wait_min_ns)
		json_add_uint(events, "stacks_of_open_waits", samples->n_kept);
	if (samples->functions.missing)
		json_add_uint(losses, "python_functions_missing", samples->functions.missing);
	if (samples->blocked_asked) {
		json_add_uint(events, "stacks_since_before", samples->n_blocked);
		/* one: those of the target, which came too late, or not at all */
		json_add_uint(losses, "blocked_stacks_missing",
			      samples->blocked_came ? blocked_missing(samples->blocked) : 1);
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
