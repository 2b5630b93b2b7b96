// SPDX-License-Identifier: Apache-2.0
// Rings and their threads: claims and takeovers, more threads than rings, signal handlers that come
// at any moment, a
// reader that looks while others write.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/eventlib.h"
#include "common/base/io.h"
#include "tests/unit/client/lib/ring-read.h"
#include "tests/unit/cmocka_names.h"

#define NAMES 256u

static void fresh(uint32_t rings, uint32_t slots)
{
	process_enter();
	events_enable(false);
	assert_int_equal(ringmem_create(rings, slots, NAMES, RING_CLOCK_TSC), 0);
	events_enable(true);
}

static uint32_t own_tid(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

static pthread_t thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

/* Joins it and waits until the kernel has forgotten it, which comes a moment later. */
static void join(pthread_t t, const uint32_t *tid)
{
	assert_int_equal(pthread_join(t, NULL), 0);
	for (int i = 0; syscall(SYS_tgkill, getpid(), *tid, 0) == 0; i++) {
		assert_true(i < 10000000);
		(void)sched_yield();
	}
}

/* ---- claims */

static void *one_event(void *arg)
{
	(void)prctl(PR_SET_NAME, "claimant");
	tracerd_counter(tracerd_intern("claim"), 5);
	*(uint32_t *)arg = own_tid();
	return NULL;
}

static void test_ring_of_an_ended_thread_is_taken_over(void **state)
{
	enum { RINGS = 3, THREADS = 8 };
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	uint32_t tids[THREADS];
	struct event_counts counts;
	uint64_t claims = 0;

	fresh(RINGS, 64);
	for (int i = 0; i < THREADS; i++)
		join(thread(one_event, &tids[i]), &tids[i]);
	r = ringread_new(ringmem_fd());
	for (uint32_t ring = 0; ring < RINGS; ring++) {
		const struct ring_entry *e = ringread_entry(r, ring);
		uint32_t previous = 0;
		uint64_t i = 0;

		/* two records of each thread, in the order of threads: ring 0 had 0, 3, 6 */
		for (uint32_t k = ring; k < THREADS; k += RINGS) {
			struct ringread_record record;

			assert_true(ringread_record(r, ring, i, &record, &i));
			assert_int_equal(record.kind, RING_THREAD);
			assert_int_equal(record.a, tids[k]);
			assert_int_equal(record.b, previous);
			assert_string_equal(ringread_name(r, record.name), "claimant");
			assert_true(ringread_record(r, ring, i, &record, &i));
			assert_int_equal(record.kind, RING_COUNTER);
			previous = tids[k];
		}
		assert_int_equal(e->head, i);
		assert_int_equal(e->tid, previous);
		claims += e->claims;
	}
	assert_int_equal(claims, THREADS);
	events_count(&counts);
	assert_int_equal(counts.rings_used, RINGS);
	assert_int_equal(counts.events_lost, 0);
}

struct crowd {
	pthread_barrier_t all;
	uint32_t events;
};

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	tracerd_name name = tracerd_intern("crowd");

	/* nobody ends before all had their turn */
	(void)pthread_barrier_wait(&c->all);
	for (uint32_t i = 0; i < c->events; i++)
		tracerd_counter(name, i);
	(void)pthread_barrier_wait(&c->all);
	return NULL;
}

static void test_more_threads_than_rings(void **state)
{
	enum { RINGS = 4, THREADS = 10 };
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	struct crowd crowd = {.events = 5000};
	pthread_t threads[THREADS];
	struct event_counts counts;
	uint64_t written = 0;

	fresh(RINGS, 8192);
	assert_int_equal(pthread_barrier_init(&crowd.all, NULL, THREADS), 0);
	for (int i = 0; i < THREADS; i++)
		threads[i] = thread(crowd_member, &crowd);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	(void)pthread_barrier_destroy(&crowd.all);
	r = ringread_new(ringmem_fd());
	for (uint32_t ring = 0; ring < RINGS; ring++) {
		/* one thread each, all of its events in order */
		struct ringread_record record;
		uint64_t i = 0;

		assert_int_equal(ringread_entry(r, ring)->claims, 1);
		assert_true(ringread_record(r, ring, i, &record, &i));
		assert_int_equal(record.kind, RING_THREAD);
		for (uint64_t k = 0; k < crowd.events; k++) {
			assert_true(ringread_record(r, ring, i, &record, &i));
			assert_int_equal(record.a, k);
		}
		written += i - 1;
	}
	events_count(&counts);
	assert_int_equal(written, (uint64_t)RINGS * crowd.events);
	assert_int_equal(counts.events_lost, (uint64_t)(THREADS - RINGS) * crowd.events);
	assert_int_equal(r->header.lost_events, counts.events_lost);
}

/* A thread that found no ring gets one, a while after there is one. */
struct patient {
	pthread_barrier_t met;
	uint32_t tid;
};

static void *holder(void *arg)
{
	struct patient *p = arg;

	p->tid = own_tid();
	tracerd_counter(tracerd_intern("holder"), 1);
	(void)pthread_barrier_wait(&p->met);
	(void)pthread_barrier_wait(&p->met);
	return NULL;
}

static void test_ring_that_gets_free_is_found(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	struct patient p;
	tracerd_name name = tracerd_intern("patient");
	struct event_counts counts;
	pthread_t t;
	uint64_t head;

	fresh(1, 64);
	assert_int_equal(pthread_barrier_init(&p.met, NULL, 2), 0);
	t = thread(holder, &p);
	(void)pthread_barrier_wait(&p.met);
	errno = 4711;
	for (int i = 0; i < 10; i++)
		tracerd_counter(name, i);
	assert_int_equal(errno, 4711);
	events_count(&counts);
	assert_int_equal(counts.events_lost, 10);
	(void)pthread_barrier_wait(&p.met);
	join(t, &p.tid);
	(void)pthread_barrier_destroy(&p.met);
	errno = 4711;
	for (int i = 0; i < 3000; i++)
		tracerd_counter(name, i);
	assert_int_equal(errno, 4711);
	events_count(&counts);
	r = ringread_new(ringmem_fd());
	head = ringread_entry(r, 0)->head;
	assert_int_equal(ringread_entry(r, 0)->tid, own_tid());
	/* the holder's two records, this thread's first, and what was not lost */
	assert_int_equal(head, 3 + 3010 - counts.events_lost);
	assert_uint_in_range(counts.events_lost, 10, 10 + 2048);
}

/* ---- signal handlers */

static tracerd_name storm_name, handler_name;
static volatile uint64_t handled;
static timer_t storm_timer;

/* Its own text each time, so that it interrupts the making of names with making names. */
static void on_storm(int sig)
{
	static uint32_t n;
	char text[32];
	tracerd_arg arg;
	int saved = errno;

	(void)sig;
	(void)snprintf(text, sizeof(text), "handler %u", n++ % 64);
	arg = tracerd_text(tracerd_intern(text), text, strlen(text));
	errno = 1234;
	tracerd_counter(handler_name, (int64_t)handled);
	tracerd_instant_with(handler_name, 0, &arg, 1);
	handled++;
	if (errno != 1234)
		abort();
	errno = saved;
}

static void storm_begin(void)
{
	struct sigaction action = {.sa_handler = on_storm, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	struct itimerspec often = {.it_value = {.tv_nsec = 20000},
				   .it_interval = {.tv_nsec = 20000}};

	event._sigev_un._tid = (pid_t)own_tid();
	assert_int_equal(sigaction(SIGRTMIN, &action, NULL), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &storm_timer), 0);
	assert_int_equal(timer_settime(storm_timer, 0, &often, NULL), 0);
}

static void storm_end(void)
{
	assert_int_equal(timer_delete(storm_timer), 0);
}

static void test_handlers_write_in_the_middle_of_events(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	enum { SLOTS = 1 << 20 };
	uint64_t mine = 0, counters = 0, instants = 0, i = 0, head;
	char text[40] = {0};

	fresh(2, SLOTS);
	storm_name = tracerd_intern("storm");
	handler_name = tracerd_intern("storm handler");
	handled = 0;
	storm_begin();
	while (handled < 2000 && mine < 100000) {
		tracerd_arg arg = tracerd_text(storm_name, text, sizeof(text));

		memcpy(text, &mine, sizeof(mine));
		memcpy(text + 32, &mine, sizeof(mine));
		tracerd_instant_with(storm_name, mine, &arg, 1);
		mine++;
	}
	storm_end();
	r = ringread_new(ringmem_fd());
	head = ringread_entry(r, 0)->head;
	assert_true(head < SLOTS);
	/* nobody interrupts a claim here that leads to a second ring */
	assert_int_equal(ringread_entry(r, 1)->tid, 0);
	for (uint64_t m = 0; i < head;) {
		struct ringread_record e;
		struct ring_field f;
		const uint8_t *at;

		assert_true(ringread_record(r, 0, i, &e, &i));
		if (e.kind == RING_COUNTER) {
			assert_int_equal(e.name, handler_name);
			assert_int_equal(e.a, counters++);
		} else if (e.kind == RING_INSTANT && e.name == handler_name) {
			instants++;
			assert_true(ringread_field(&e, &f, &at));
			assert_memory_equal(at, "handler ", 8);
			assert_memory_equal(ringread_name(r, f.name), at, f.bytes);
		} else if (e.kind == RING_INSTANT) {
			assert_int_equal(e.b, m);
			assert_true(ringread_field(&e, &f, &at));
			assert_memory_equal(at, &m, sizeof(m));
			assert_memory_equal(at + 32, &m, sizeof(m));
			m++;
		} else {
			assert_int_equal(e.kind, RING_THREAD);
		}
	}
	assert_int_equal(counters, handled);
	assert_int_equal(instants, handled);
	assert_int_equal(r->header.lost_events, 0);
}

/* Claims that are interrupted: each thread's first event happens while handlers of it write. */
static void *claim_in_a_storm(void *arg)
{
	tracerd_name name = tracerd_intern("first in a storm");
	uint64_t before;

	storm_begin();
	before = handled;
	for (int i = 0; i < 200 || handled < before + 3; i++)
		tracerd_counter(name, i);
	storm_end();
	return arg;
}

static void test_handlers_write_in_the_middle_of_claims(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	enum { THREADS = 300 };
	uint64_t claims = 0;

	fresh(3, 1 << 14);
	handler_name = tracerd_intern("storm handler");
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread(claim_in_a_storm, NULL), NULL), 0);
	r = ringread_new(ringmem_fd());
	for (uint32_t ring = 0; ring < 3; ring++) {
		uint64_t head = ringread_entry(r, ring)->head, whole = 0, i;

		claims += ringread_entry(r, ring)->claims;
		/* from the first record that is there, wherever it begins, all are whole */
		i = head > r->geometry.slots ? head - r->geometry.slots : 0;
		while (i < head) {
			struct ringread_record e;

			if (ringread_record(r, ring, i, &e, &i)) {
				whole++;
				continue;
			}
			assert_int_equal(whole, 0);
			i++;
		}
		assert_true(whole > 0);
	}
	assert_true(claims >= THREADS);
	assert_int_equal(r->header.lost_events, 0);
}

/* ---- a reader */

static volatile bool writers_stop;

static void *writer(void *arg)
{
	tracerd_name name = tracerd_intern("writer"), key = tracerd_intern("key");
	uint8_t text[200];

	for (uint64_t i = 0; !writers_stop; i++) {
		tracerd_arg a = tracerd_text(key, (const char *)text, i % sizeof(text));

		memset(text, (int)(i % 251), sizeof(text));
		if (i % 3 == 0)
			tracerd_region_end(tracerd_region_begin(name));
		else
			tracerd_instant_with(name, i, &a, 1);
	}
	return arg;
}

/* All that the writer says of an event must fit together. */
static void check_writers_record(struct ringread_record *e)
{
	uint64_t i = e->b;
	struct ring_field f;
	const uint8_t *at;

	if (e->kind == RING_REGION_END)
		assert_true(e->a <= e->stamp);
	if (e->kind != RING_INSTANT)
		return;
	assert_true(ringread_field(e, &f, &at));
	assert_int_equal(f.bytes, i % 200);
	for (uint32_t k = 0; k < f.bytes; k++)
		assert_int_equal(at[k], i % 251);
}

/* Copies ring by ring as the ABI says, head before and after, and believes what is left. */
static uint64_t copy_and_check(struct ringread *r, int fd, uint32_t ring)
{
	const off_t entry = (off_t)(r->geometry.dir_offset + ring * sizeof(struct ring_entry));
	const uint64_t bytes = (uint64_t)r->geometry.slots * RING_SLOT_BYTES;
	const uint64_t at = r->geometry.data_offset + ring * bytes;
	uint64_t before, after, i, n = 0;

	assert_int_equal(io_pread_full(fd, &before, sizeof(before), entry), sizeof(before));
	assert_int_equal(io_pread_full(fd, r->bytes + at, bytes, (off_t)at), bytes);
	assert_int_equal(io_pread_full(fd, &after, sizeof(after), entry), sizeof(after));
	i = before > r->geometry.slots ? before - r->geometry.slots : 0;
	if (after > r->geometry.slots && i < after - r->geometry.slots + RING_SPAN_MAX)
		i = after - r->geometry.slots + RING_SPAN_MAX;
	while (i < before) {
		struct ringread_record e;

		/* half-written when it was copied, or the rest of a record that was overwritten */
		if (!ringread_record(r, ring, i, &e, &i)) {
			i++;
			continue;
		}
		if (i > before)
			break;
		check_writers_record(&e);
		n++;
	}
	return n;
}

static void test_reader_sees_only_whole_records(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	uint64_t n[2] = {0, 0};
	pthread_t threads[2];

	fresh(2, 4096);
	r = ringread_new(ringmem_fd());
	writers_stop = false;
	for (int i = 0; i < 2; i++)
		threads[i] = thread(writer, NULL);
	/* while they run */
	for (int round = 0; round < 3000 || !n[0] || !n[1]; round++)
		n[round % 2] += copy_and_check(r, ringmem_fd(), (uint32_t)round % 2);
	writers_stop = true;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	/* and when they have ended, everything but the oldest is there */
	assert_true(copy_and_check(r, ringmem_fd(), 0) > 400);
	assert_true(copy_and_check(r, ringmem_fd(), 1) > 400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring_of_an_ended_thread_is_taken_over),
		cmocka_unit_test(test_more_threads_than_rings),
		cmocka_unit_test(test_ring_that_gets_free_is_found),
		cmocka_unit_test(test_handlers_write_in_the_middle_of_events),
		cmocka_unit_test(test_handlers_write_in_the_middle_of_claims),
		cmocka_unit_test(test_reader_sees_only_whole_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
