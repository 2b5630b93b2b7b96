// SPDX-License-Identifier: Apache-2.0
/*
 * Snapshots of one recording that overlap or wait: what holds its CPUs, what each one says was not
 * traced, and what is overwritten meanwhile. Its events are those of a clock.
 */
#include "daemon/backend/pt/export.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/pt/newcomers.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/base/closer.h"

#define ROOM (1u << 30) /* bytes */

struct fixture {
	struct event_base *base;
	struct pt_machine machine;
	struct targets targets;
	struct pt_recording rec;
	struct target target;
};

static int list_self(void *arg, pid_t **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(**ret));
	assert_non_null(*ret);
	(*ret)[0] = getpid();
	*ret_n = 1;
	return 0;
}

static void on_newcomers(void *arg, uint64_t since_ns)
{
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->base = event_base_new();
	assert_int_equal(closer_new(f->base, &f->targets.closer), 0);
	assert_int_equal(stopper_new(f->base, &f->machine.stopper), 0);
	assert_int_equal(newcomers_new(f->base, on_newcomers, NULL, &f->machine.newcomers), 0);
	for (size_t i = 0; i < BACKENDS; i++)
		if (backends[i] == &backend_pt)
			f->targets.machines[i] = &f->machine;
	TAILQ_INIT(&f->targets.list);
	f->target = (struct target){.targets = &f->targets,
				    .scope = TARGET_PROCESS,
				    .state = TARGET_ARMED,
				    .backend = &backend_pt,
				    .recording = &f->rec};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)pt_events_put(f->rec.events);
	closer_stop(f->targets.closer);
	(void)stopper_free(f->machine.stopper);
	(void)newcomers_free(f->machine.newcomers);
	(void)closer_free(f->targets.closer);
	event_base_free(f->base);
	free(f);
	return 0;
}

static void open_events(struct fixture *f)
{
	const struct pt_attr_spec spec = {0};
	struct perf_event_attr attrs[PT_EVENT_KINDS];
	struct eventset *trace;
	int r;

	pt_attr_sideband(&spec, 0, &attrs[PT_EVENT_SIDE]);
	attrs[PT_EVENT_TRACE] = (struct perf_event_attr){.type = PERF_TYPE_SOFTWARE,
							 .size = sizeof(attrs[0]),
							 .config = PERF_COUNT_SW_TASK_CLOCK,
							 .sample_type = PERF_SAMPLE_IDENTIFIER,
							 .sample_id_all = 1,
							 .disabled = 1,
							 .exclude_kernel = 1};
	r = pt_events_open(attrs, NULL, false, 0, f->targets.closer, list_self, NULL, NULL,
			   &f->rec.events);
	if (r == -EACCES || r == -EPERM || r == -ENOBUFS)
		skip();
	assert_int_equal(r, 0);
	pt_events_use(f->rec.events);
	/* None of its own has an area. */
	trace = (struct eventset *)(uintptr_t)&f->rec.events->first->sets[PT_EVENT_TRACE];
	trace->auxes = calloc(trace->n_cpus, sizeof(*trace->auxes));
	assert_non_null(trace->auxes);
}

static void freeze(struct fixture *f, struct frozen *ret)
{
	*ret = (struct frozen){.backend = &backend_pt,
			       .targets = &f->targets,
			       .target_id = 1,
			       .scope = TARGET_HOST,
			       .raw_ns = clock_raw_ns()};
	assert_int_equal(pt_export_freeze(&f->target, ret), 0);
}

static void end(struct frozen *frozen)
{
	pt_export_resume(frozen);
	pt_export_free(frozen);
}

static size_t stopped(const struct fixture *f)
{
	size_t n = 0;

	for (size_t cpu = 0; cpu < pt_events_cpus(f->rec.events); cpu++)
		n += f->rec.events->stopped_ns[cpu] != 0;
	return n;
}

/* How many gaps a snapshot has that are of this time at least. */
static size_t gaps_of(const struct frozen *frozen, uint64_t from_ns, uint64_t to_ns)
{
	struct json_object *events = json_object_new_object(), *losses = json_object_new_object(),
			   *gaps = json_object_new_array();
	size_t n = 0;

	pt_export_meta(frozen, events, losses, gaps);
	for (size_t i = 0; i < json_object_array_length(gaps); i++) {
		struct json_object *gap = json_object_array_get_idx(gaps, i);
		uint64_t from, to;

		assert_true(json_get_uint(gap, "from_ns", &from) &&
			    json_get_uint(gap, "to_ns", &to));
		n += from <= from_ns && to >= to_ns;
	}
	json_object_put(events);
	json_object_put(losses);
	json_object_put(gaps);
	return n;
}

/* The first one waits for its copy, and with it so do all that it needs to be still. */
static void test_overlap(void **state)
{
	struct fixture *f = *state;
	struct frozen a, b, c;
	size_t cpus;

	open_events(f);
	cpus = pt_events_cpus(f->rec.events);
	freeze(f, &a);
	assert_int_equal(stopped(f), cpus);
	(void)pt_export_set_aside(&a, ROOM);
	assert_int_equal(stopped(f), 0);
	freeze(f, &b);
	assert_int_equal(stopped(f), cpus);
	(void)pt_export_set_aside(&b, ROOM);
	assert_int_equal(stopped(f), 0);
	assert_int_equal(pt_export_take(&b), 0);
	end(&a);
	assert_int_equal(stopped(f), 0);
	freeze(f, &c);
	assert_int_equal(stopped(f), cpus);
	assert_int_equal(gaps_of(&c, a.raw_ns, a.raw_ns), cpus);
	assert_int_equal(gaps_of(&c, b.raw_ns, b.raw_ns), cpus);
	/* Given up, it lets them go, too. */
	end(&c);
	assert_int_equal(stopped(f), 0);
	end(&b);
	assert_int_equal(stopped(f), 0);
	assert_int_equal(f->rec.events->frozen, 0);
}

/* Two that are frozen before either is taken. */
static void test_together(void **state)
{
	struct fixture *f = *state;
	struct frozen a, b, c;
	size_t cpus;

	open_events(f);
	cpus = pt_events_cpus(f->rec.events);
	freeze(f, &a);
	assert_int_equal(gaps_of(&a, a.raw_ns, a.raw_ns), 0);
	freeze(f, &b);
	/* What the first one stopped the second has not, and no stop has ended so far. */
	assert_int_equal(gaps_of(&b, a.raw_ns, b.raw_ns), cpus);
	(void)pt_export_set_aside(&a, ROOM);
	assert_int_equal(stopped(f), cpus);
	freeze(f, &c);
	assert_int_equal(gaps_of(&c, a.raw_ns, c.raw_ns), cpus);
	(void)pt_export_set_aside(&b, ROOM);
	assert_int_equal(stopped(f), cpus);
	(void)pt_export_set_aside(&c, ROOM);
	assert_int_equal(stopped(f), 0);
	assert_int_equal(f->rec.events->n_gaps, cpus);
	end(&a);
	end(&b);
	end(&c);
	/* Of one that has ended no copy is to be waited for. */
	assert_true(pt_events_leave(f->rec.events));
	pt_events_stop(f->rec.events);
	f->target.state = TARGET_EXITED;
	freeze(f, &a);
	assert_int_equal(gaps_of(&a, UINT64_MAX, 0), cpus);
	end(&a);
}

static void on_ready(void *arg)
{
	++*(unsigned int *)arg;
}

/* The CPUs are stopped, however long the records are read again that the kernel lost. */
static void test_ready(void **state)
{
	struct fixture *f = *state;
	unsigned int told = 0;
	struct frozen a;

	open_events(f);
	f->rec.events->n_fds += STOPPER_AT_ONCE_FDS; /* a thread stops them */
	freeze(f, &a);
	f->rec.events->n_fds -= STOPPER_AT_ONCE_FDS;
	assert_true(a.pending);
	a.resync.waits = true;
	frozen_when_ready(&a, on_ready, &told);
	frozen_go_on(&a);
	assert_int_equal(told, 0);
	while (a.pending)
		assert_true(event_base_loop(f->base, EVLOOP_ONCE) >= 0);
	assert_int_equal(told, 1);
	assert_true(frozen_waits(&a));
	assert_int_equal(stopped(f), pt_events_cpus(f->rec.events));
	a.resync.waits = false;
	frozen_go_on(&a);
	assert_int_equal(told, 2);
	end(&a);
}

/* As the kernel does: the newest one is first. */
static void write_switches(const struct ring *ring, size_t n)
{
	struct perf_event_mmap_page *page = ring->base;
	struct {
		struct perf_event_header header;
		struct perfabi_sample_id id;
	} record = {.header = {.type = PERF_RECORD_SWITCH, .size = sizeof(record)},
		    .id = {.time = 1}};

	for (size_t i = 0; i < n; i++) {
		page->data_head -= sizeof(record);
		for (size_t at = 0; at < sizeof(record); at++)
			((uint8_t *)(uintptr_t)ring->data)[(page->data_head + at) % ring->size] =
				((const uint8_t *)&record)[at];
	}
}

static void copy(struct frozen *frozen, struct frozen_stats *stats)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *writer = NULL;
	_cleanup_close_ int fd = io_memfd("perf.data");

	assert_true(fd >= 0);
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &writer), 0);
	assert_int_equal(pt_export_take(frozen), 0);
	assert_int_equal(pt_export_copy(frozen, writer, stats), 0);
}

/* A ring that takes the place of those that say who ran. */
static void test_switches(void **state)
{
	struct fixture *f = *state;
	struct frozen_stats stats[2] = {{0}};
	struct frozen a, b;
	struct ring *own, *rings;
	size_t cpus, size;

	open_events(f);
	cpus = pt_events_cpus(f->rec.events);
	rings = f->rec.events->first->sets[PT_EVENT_SIDE].rings;
	own = calloc(cpus, sizeof(*own));
	assert_non_null(own);
	memcpy(own, rings, cpus * sizeof(*own));
	memset(rings, 0, cpus * sizeof(*own));
	size = own[0].size;
	rings[0] = (struct ring){.base = calloc(1, sizeof(struct perf_event_mmap_page)),
				 .data = calloc(1, size),
				 .size = size};
	assert_true(rings[0].base && rings[0].data);
	write_switches(&rings[0], 3);
	freeze(f, &a);
	freeze(f, &b);
	/* As much memory as the ring takes, and less. */
	assert_int_equal(pt_export_set_aside(&a, size), size);
	assert_int_equal(pt_export_set_aside(&b, size - 1), 0);
	write_switches(&rings[0], 2);
	copy(&a, &stats[0]);
	copy(&b, &stats[1]);
	free(rings[0].base);
	free((void *)(uintptr_t)rings[0].data);
	memcpy(rings, own, cpus * sizeof(*own));
	free(own);
	end(&a);
	end(&b);
	assert_int_equal(stats[0].switches, 3);
	assert_int_equal(stats[1].switches, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_overlap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ready, setup, teardown),
		cmocka_unit_test_setup_teardown(test_switches, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
