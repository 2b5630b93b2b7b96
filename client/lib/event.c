// SPDX-License-Identifier: Apache-2.0
/*
 * The events: what the inline functions of tracerd/event.h call while the library is on. Each finds the
 * thread's ring, reads the clock and writes one record.
 *
 * The clock is read before the place in the ring is taken: what a signal handler writes in between comes
 * before this record and is not later than it by more than the handler took.
 */
#include <string.h>

#include "client/lib/eventlib.h"
#include "client/lib/name.h"
#include "client/lib/payload.h"
#include "client/lib/record.h"
#include "client/lib/ringmem.h"
#include "client/lib/threshold.h"

/*
 * Kept out of the functions below, which need no stack: this takes more than a thousand bytes. Returns `a`, or
 * with own_id what it became.
 */
static __attribute__((noinline, cold)) uint64_t record_args(const struct threadring *t, struct record record,
	const tracerd_arg *args, size_t n_args)
{
	struct payload p;

	p.used = 0;
	p.cut = false;
	payload_args(&p, args, n_args);
	payload_record(t, &p, &record);
	return record.a;
}

static inline __attribute__((always_inline)) uint64_t record_event(const struct threadring *t,
	const struct record record, const tracerd_arg *args, size_t n_args)
{
	uint64_t index, a;

	if (__builtin_expect(n_args != 0, 0))
		return record_args(t, record, args, n_args);
	index = record_reserve(t->entry, 1);
	a = record.own_id ? record_id(t, index) : record.a;
	record_fill(t, index, record.stamp, record_word(record.name, record.kind), a, record.b);
	return a;
}

tracerd_region tracerd_region_begin_slow(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	const struct threadring *t = threadring_get();
	tracerd_region region = {0};

	/* A thread without a ring has regions, too: they may be too slow, and it may have a ring when they end. */
	if ((!t && !state_on()) || !name_in_range(name))
		return region;
	region.begin = stamp_now();
	region.name = name;
	if (__builtin_expect(t != NULL, 1))
		record_event(
			t, (struct record){RING_REGION_BEGIN, name, region.begin, 0, task, false}, args, n_args);
	return region;
}

void tracerd_region_end_slow(tracerd_region region, const tracerd_arg *args, size_t n_args)
{
	const struct threadring *t = threadring_get();
	uint64_t now;

	/* Off: a region of the parent that ends in a forked child, for one. */
	if ((!t && !state_on()) || !name_in_range(region.name))
		return;
	now = stamp_now();
	if (__builtin_expect(t != NULL, 1))
		record_event(t, (struct record){RING_REGION_END, region.name, now, region.begin, 0, false}, args,
			n_args);
	if (__builtin_expect(now - region.begin >= threshold_ticks(region.name), 0))
		threshold_crossed(region.name, region.begin, now);
}

void tracerd_instant_slow(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	const struct threadring *t = threadring_get();

	if (t && name_in_range(name))
		record_event(t, (struct record){RING_INSTANT, name, stamp_now(), 0, task, false}, args, n_args);
}

void tracerd_counter_slow(tracerd_name name, int64_t value)
{
	const struct threadring *t = threadring_get();

	if (t && name_in_range(name))
		record_one(t, RING_COUNTER, stamp_now(), name, (uint64_t)value, 0);
}

void tracerd_counter_f64_slow(tracerd_name name, double value)
{
	const struct threadring *t = threadring_get();
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (t && name_in_range(name))
		record_one(t, RING_COUNTER | RING_FLAG_F64, stamp_now(), name, bits, 0);
}

tracerd_task tracerd_task_begin_slow(tracerd_name name, uint64_t parent, const tracerd_arg *args, size_t n_args)
{
	const struct threadring *t = threadring_get();
	tracerd_task task = {0};

	if (!t || !name_in_range(name))
		return task;
	task.begin = stamp_now();
	task.name = name;
	task.id = record_event(t, (struct record){RING_TASK_BEGIN, name, task.begin, 0, parent, true}, args, n_args);
	return task;
}

void tracerd_task_end_slow(const tracerd_task *task, const tracerd_arg *args, size_t n_args)
{
	const struct threadring *t = threadring_get();

	if (t && name_in_range(task->name))
		record_event(t, (struct record){RING_TASK_END, task->name, stamp_now(), task->id, task->begin, false},
			args, n_args);
}

uint64_t tracerd_flow_slow(tracerd_name name, uint64_t id, enum tracerd_flow_kind kind)
{
	const struct threadring *t = threadring_get();

	if (!t || !name_in_range(name))
		return 0;
	return record_event(t, (struct record){RING_FLOW, name, stamp_now(), id, kind, kind == TRACERD_FLOW_BEGIN},
		NULL, 0);
}

void tracerd_thread_name_slow(tracerd_name name)
{
	const struct threadring *t = threadring_get();

	if (!t || !name_in_range(name))
		return;
	t->entry->name = name;
	record_one(t, RING_THREAD_NAME, stamp_now(), name, 0, 0);
}

void tracerd_fiber_switch_slow(uint64_t id, tracerd_name name)
{
	const struct threadring *t = threadring_get();
	uint64_t before;

	/* The thread's own stack needs no name. */
	if (!t || (name && !name_in_range(name)))
		return;
	before = t->entry->fiber;
	t->entry->fiber = id;
	record_one(t, RING_FIBER, stamp_now(), name, id, before);
}

void record_trigger(tracerd_name name, uint64_t begin, uint64_t cause)
{
	const struct threadring *t = threadring_get();

	if (t)
		record_one(t, RING_TRIGGER, stamp_now(), name, begin, cause);
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
