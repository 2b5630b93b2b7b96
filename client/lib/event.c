// SPDX-License-Identifier: Apache-2.0
/*
 * The events: the inline functions of tracerd/event.h call these while the library is on. Each
 * finds the thread's ring, reads the clock and writes one record.
 *
 * It reads the clock before it takes the place in the ring. So a record that a signal handler
 * writes in between lies before this one, with a later stamp; the difference is at most the time
 * that the handler took.
 */
#include <string.h>

#include "client/lib/eventlib.h"
#include "client/lib/name.h"
#include "client/lib/payload.h"
#include "client/lib/record.h"
#include "client/lib/ringmem.h"
#include "client/lib/threshold.h"

/*
 * Writes an event with arguments, and needs more than a thousand bytes of stack. Returns `a`, or
 * with own_id the id.
 */
static __attribute__((noinline)) uint64_t record_args(const struct ring *ring, struct record record,
	const tracerd_arg *args, size_t n_args)
{
	struct payload p;

	p.used = 0;
	p.cut = false;
	payload_args(&p, args, n_args);
	payload_record(ring, &p, &record);
	return record.a;
}

static inline __attribute__((always_inline)) uint64_t record_event(const struct ring *ring,
	const struct record record, const tracerd_arg *args, size_t n_args)
{
	uint64_t index, a;

	if (n_args)
		return record_args(ring, record, args, n_args);
	index = record_reserve(ring->entry, 1);
	a = record.own_id ? record_id(ring, index) : record.a;
	record_fill(ring, index, record.stamp, record_word(record.name, record.kind), a, record.b);
	return a;
}

/*
 * An event of a thread with a ring, whose name found no room. Without a ring it is counted already.
 */
static __attribute__((noinline, cold)) void count_nameless(void)
{
	const struct ringmem *mem = state_mem();

	if (mem)
		mem_count(&mem_header(mem)->lost_events);
}

static inline bool is_named(tracerd_name name)
{
	if (__builtin_expect(name_in_range(name), 1))
		return true;
	count_nameless();
	return false;
}

/*
 * Returns the ring in the usual case. The caller then only reads the TSC and stores a few words,
 * without a stack frame and without a call. NULL: the caller takes the long way.
 */
static inline const struct ring *short_way(tracerd_name name, size_t n_args)
{
	if (__builtin_expect(name_in_range(name) && n_args == 0 && stamp_is_tsc, 1))
		return threadring_have();
	return NULL;
}

static __attribute__((noinline)) tracerd_region region_begin(
	tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	const struct ring *ring = threadring_get();
	tracerd_region region = {0};

	/*
	 * A thread without a ring has regions, too: they may be too slow, and the thread may have a
	 * ring when they end.
	 */
	if (ring ? !is_named(name) : !state_on() || !name_in_range(name))
		return region;
	region.begin = stamp_now();
	region.name = name;
	if (ring)
		record_event(ring,
			     (struct record){RING_REGION_BEGIN, name, region.begin, 0, task, false},
			     args, n_args);
	return region;
}

tracerd_region tracerd_region_begin_slow(tracerd_name name, uint64_t task, const tracerd_arg *args,
					 size_t n_args)
{
	const struct ring *ring = short_way(name, n_args);
	tracerd_region region = {0};

	if (!ring)
		return region_begin(name, task, args, n_args);
	region.begin = stamp_tsc();
	region.name = name;
	record_one(ring, RING_REGION_BEGIN, region.begin, name, 0, task);
	return region;
}

static inline void region_compare(tracerd_region region, uint64_t now)
{
	if (__builtin_expect(now - region.begin >= threshold_ticks(region.name), 0))
		threshold_crossed(region.name, region.begin, now);
}

static __attribute__((noinline)) void region_end(tracerd_region region, const tracerd_arg *args,
						 size_t n_args)
{
	const struct ring *ring = threadring_to_end();
	uint64_t now;

	/* Events may be off, as for a region of the parent that ends in a forked child. */
	if (ring ? !is_named(region.name) : !state_on() || !name_in_range(region.name))
		return;
	now = stamp_now();
	if (ring)
		record_event(ring,
			     (struct record){RING_REGION_END, region.name, now, region.begin, 0,
					     false},
			     args, n_args);
	region_compare(region, now);
}

void tracerd_region_end_slow(tracerd_region region, const tracerd_arg *args, size_t n_args)
{
	const struct ring *ring = short_way(region.name, n_args);
	uint64_t now;

	if (!ring) {
		region_end(region, args, n_args);
		return;
	}
	now = stamp_tsc();
	record_one(ring, RING_REGION_END, now, region.name, region.begin, 0);
	region_compare(region, now);
}

static __attribute__((noinline)) void instant(
	tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	const struct ring *ring = threadring_get();

	if (ring && is_named(name))
		record_event(ring, (struct record){RING_INSTANT, name, stamp_now(), 0, task, false},
			     args, n_args);
}

void tracerd_instant_slow(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	const struct ring *ring = short_way(name, n_args);

	if (ring)
		record_one(ring, RING_INSTANT, stamp_tsc(), name, 0, task);
	else
		instant(name, task, args, n_args);
}

static __attribute__((noinline)) void counter(uint32_t kind, tracerd_name name, uint64_t value)
{
	const struct ring *ring = threadring_get();

	if (ring && is_named(name))
		record_one(ring, kind, stamp_now(), name, value, 0);
}

void tracerd_counter_slow(tracerd_name name, int64_t value)
{
	const struct ring *ring = short_way(name, 0);

	if (ring)
		record_one(ring, RING_COUNTER, stamp_tsc(), name, (uint64_t)value, 0);
	else
		counter(RING_COUNTER, name, (uint64_t)value);
}

void tracerd_counter_f64_slow(tracerd_name name, double value)
{
	const struct ring *ring = short_way(name, 0);
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (ring)
		record_one(ring, RING_COUNTER | RING_FLAG_F64, stamp_tsc(), name, bits, 0);
	else
		counter(RING_COUNTER | RING_FLAG_F64, name, bits);
}

tracerd_task tracerd_task_begin_slow(tracerd_name name, uint64_t parent, const tracerd_arg *args,
				     size_t n_args)
{
	const struct ring *ring = threadring_get();
	tracerd_task task = {0};

	if (!ring || !is_named(name))
		return task;
	task.begin = stamp_now();
	task.name = name;
	task.id = record_event(ring,
			       (struct record){RING_TASK_BEGIN, name, task.begin, 0, parent, true},
			       args, n_args);
	return task;
}

void tracerd_task_end_slow(const tracerd_task *task, const tracerd_arg *args, size_t n_args)
{
	const struct ring *ring = threadring_to_end();

	if (ring && is_named(task->name))
		record_event(ring,
			     (struct record){RING_TASK_END, task->name, stamp_now(), task->id,
					     task->begin, false},
			     args, n_args);
}

uint64_t tracerd_flow_slow(tracerd_name name, uint64_t id, enum tracerd_flow_kind kind)
{
	const struct ring *ring = threadring_get();

	if (!ring || !is_named(name))
		return 0;
	return record_event(ring,
			    (struct record){RING_FLOW, name, stamp_now(), id, kind,
					    kind == TRACERD_FLOW_BEGIN},
			    NULL, 0);
}

void tracerd_thread_name_slow(tracerd_name name)
{
	const struct ring *ring = threadring_get();

	if (!ring || !is_named(name))
		return;
	ring->entry->name = name;
	record_one(ring, RING_THREAD_NAME, stamp_now(), name, 0, 0);
}

void tracerd_fiber_switch_slow(uint64_t id, tracerd_name name)
{
	const struct ring *ring = threadring_get();
	uint64_t before;

	/* The thread's own stack needs no name. */
	if (!ring || (name && !is_named(name)))
		return;
	before = ring->entry->fiber;
	ring->entry->fiber = id;
	record_one(ring, RING_FIBER, stamp_now(), name, id, before);
}

void record_trigger(tracerd_name name, uint64_t begin, uint64_t cause)
{
	const struct ring *ring = threadring_get();

	if (ring)
		record_one(ring, RING_TRIGGER, stamp_now(), name, begin, cause);
}

void events_count(struct event_counts *ret)
{
	const struct ringmem *mem = state_mem();

	*ret = (struct event_counts){.names = names_count(), .names_lost = names_lost()};
	if (!mem)
		return;
	ret->rings_used = __atomic_load_n(&mem->used, __ATOMIC_RELAXED);
	ret->events_lost = __atomic_load_n(&mem_header(mem)->lost_events, __ATOMIC_RELAXED);
	ret->texts_cut = __atomic_load_n(&mem_header(mem)->lost_long, __ATOMIC_RELAXED);
}
