// SPDX-License-Identifier: Apache-2.0
// Names: one number for equal bytes whoever asks and when, their copies in the memory, room that
// ends, thresholds.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/eventlib.h"
#include "client/lib/threshold.h"
#include "tests/unit/client/lib/ring-read.h"
#include "tests/unit/cmocka_names.h"

static void memory(uint32_t rings, uint32_t names)
{
	process_enter();
	events_enable(false);
	assert_int_equal(ringmem_create(rings, 64, names, RING_CLOCK_MONOTONIC_RAW), 0);
	events_enable(true);
}

/* First of all: there is no memory yet. */
static void test_names_before_the_memory(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	tracerd_name a = tracerd_intern("early"), b = tracerd_intern("earlier"), c;
	static char longest[RING_MAX_NAME + 100];

	assert_null(ringmem_header());
	assert_int_not_equal(a, 0);
	assert_int_not_equal(a, b);
	assert_int_equal(tracerd_intern("early"), a);
	assert_int_equal(tracerd_intern_bytes("early bird", 5), a);
	assert_int_equal(tracerd_intern(""), 0);
	assert_int_equal(tracerd_intern(NULL), 0);
	assert_int_equal(tracerd_intern_bytes(NULL, 3), 0);
	/* any bytes */
	c = tracerd_intern_bytes("early\0bird", 10);
	assert_int_not_equal(c, a);
	/* more than 1024 do not count */
	memset(longest, 'l', sizeof(longest) - 1);
	assert_int_equal(tracerd_intern(longest), tracerd_intern_bytes(longest, RING_MAX_NAME));
	assert_int_equal(tracerd_intern(longest), tracerd_intern_bytes(longest, SIZE_MAX));
	assert_int_not_equal(tracerd_intern(longest),
			     tracerd_intern_bytes(longest, RING_MAX_NAME - 1));

	memory(2, 128);
	r = ringread_new(ringmem_fd());
	assert_string_equal(ringread_name(r, a), "early");
	assert_string_equal(ringread_name(r, b), "earlier");
	assert_memory_equal(ringread_name(r, c), "early\0bird", 11);
	assert_memory_equal(ringread_name(r, tracerd_intern(longest)), longest, RING_MAX_NAME);
	assert_uint_in_range(r->header.n_names, 5, 128);
}

/* ---- many threads */

enum { THREADS = 8, WORDS = 3000 };

struct worker {
	pthread_barrier_t *start;
	uint32_t first; /* everybody begins somewhere else */
	tracerd_name got[WORDS];
};

static void word(uint32_t i, char *ret, size_t n)
{
	(void)snprintf(ret, n, "word %u of many", i);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	char text[64];

	(void)pthread_barrier_wait(w->start);
	for (uint32_t k = 0; k < WORDS; k++) {
		uint32_t i = (k / 4 * 4 + (k + w->first) % 4) % WORDS;

		word(i, text, sizeof(text));
		w->got[i] = tracerd_intern(text);
	}
	return NULL;
}

static void test_threads_agree(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	static struct worker workers[THREADS];
	pthread_t threads[THREADS];
	pthread_barrier_t start;
	uint32_t before;
	char text[64];

	memory(3, 16384);
	before = ringmem_header()->n_names;
	assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i].start = &start;
		workers[i].first = i;
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	(void)pthread_barrier_destroy(&start);
	r = ringread_new(ringmem_fd());
	for (uint32_t i = 0; i < WORDS; i++) {
		word(i, text, sizeof(text));
		assert_int_not_equal(workers[0].got[i], 0);
		for (int k = 1; k < THREADS; k++)
			assert_int_equal(workers[k].got[i], workers[0].got[i]);
		assert_string_equal(ringread_name(r, workers[0].got[i]), text);
		for (uint32_t k = 0; k < i; k += 97)
			assert_int_not_equal(workers[0].got[k], workers[0].got[i]);
	}
	/* who lost a race wasted a number, but that is rare */
	assert_uint_in_range(r->header.n_names - before, WORDS, 2 * WORDS);
	assert_int_equal(r->header.lost_names, 0);
}

/* ---- no room */

static void test_room_ends(void **state)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	struct event_counts before, counts;
	uint32_t given, n = 0;
	tracerd_name name;
	char text[64];

	memory(4, 16384);
	/* numbers were perhaps wasted behind the last name that there is */
	given = tracerd_intern("the last for now");
	events_count(&before);
	/* so that few are left */
	memory(5, given + 10);
	for (uint32_t i = 0; i < 100; i++) {
		(void)snprintf(text, sizeof(text), "late %u", i);
		name = tracerd_intern(text);
		if (name == 0)
			continue;
		n++;
		assert_uint_in_range(name, 1, given + 10);
		assert_int_equal(tracerd_intern(text), name);
	}
	assert_int_equal(n, 10);
	/* asked for again it is lost once only */
	assert_int_equal(tracerd_intern("late 99"), 0);
	events_count(&counts);
	assert_int_equal(counts.names_lost - before.names_lost, 90);
	assert_int_equal(counts.names - before.names, 10);
	r = ringread_new(ringmem_fd());
	assert_int_equal(r->header.lost_names, 90);
	/* an event without a name is lost */
	tracerd_instant(TRACERD_NAME("too late"));
	assert_int_equal(ringmem_header()->lost_events, 1);
	/* with more room it gets a number */
	memory(6, 16384);
	assert_int_not_equal(tracerd_intern("late 99"), 0);
}

/* ---- thresholds */

static struct ring_control page;

static void threshold(uint32_t slot, uint32_t id, const char *name, uint64_t ns)
{
	struct ring_threshold *t = &page.thresholds[slot];

	*t = (struct ring_threshold){.hash = ring_hash(name, strlen(name)),
		.threshold_ns = ns,
		.cooldown_ns = 2 * ns,
		.id = id,
		.length = (uint32_t)strlen(name)};
	memcpy(t->name, name, t->length);
}

static void test_thresholds_follow_the_page(void **state)
{
	tracerd_name early = tracerd_intern("watched early"), late,
		     other = tracerd_intern("not watched");
	struct threshold t;

	memory(7, 16384);
	assert_int_equal(threshold_ticks(early), UINT64_MAX);
	threshold(0, 11, "watched early", 1000);
	threshold(63, 12, "watched late", 2000);
	thresholds_bind(&page);
	assert_int_equal(threshold_ticks(early), 1000);
	assert_int_equal(threshold_ticks(other), UINT64_MAX);
	late = tracerd_intern("watched late");
	assert_int_equal(threshold_ticks(late), 2000);
	assert_true(threshold_get(63, &t));
	assert_int_equal(t.id, 12);
	assert_int_equal(t.over, 2000);
	assert_int_equal(t.cooldown, 4000);
	assert_memory_equal(t.name, "watched late", 12);
	assert_false(threshold_get(1, &t));
	assert_false(threshold_get(64, &t));
	assert_false(threshold_get(UINT32_MAX, &t));

	/* moved, changed, gone; entries that make no sense are nobody's */
	memset(page.thresholds, 0, sizeof(page.thresholds));
	threshold(5, 13, "watched late", 3000);
	threshold(6, 14, "not watched", 1);
	page.thresholds[6].length = RING_CONTROL_NAME + 1;
	thresholds_bind(&page);
	assert_int_equal(threshold_ticks(early), UINT64_MAX);
	assert_int_equal(threshold_ticks(late), 3000);
	assert_int_equal(threshold_ticks(other), UINT64_MAX);
	assert_false(threshold_get(63, &t));

	thresholds_bind(NULL);
	assert_int_equal(threshold_ticks(late), UINT64_MAX);
	assert_false(threshold_get(5, &t));
}

static uint64_t suppressed(uint32_t slot)
{
	return __atomic_load_n(&ringmem_header()->suppressed[slot], __ATOMIC_RELAXED);
}

/* The end of a region asks only if it took as long as the threshold of its own name. */
static void test_region_end_compares(void **state)
{
	tracerd_name name = tracerd_intern("slow region");
	uint64_t heads, before;

	memory(8, 16384);
	memset(page.thresholds, 0, sizeof(page.thresholds));
	threshold(3, 20, "slow region", 1000000000ULL);
	threshold(4, 21, "some other region", 1);
	thresholds_bind(&page);
	heads = ringmem_header()->cause_head;
	tracerd_region_end(tracerd_region_begin(name));
	assert_int_equal(ringmem_header()->cause_head, heads);
	assert_int_equal(suppressed(3), 0);
	/* a region that began long ago */
	before = events_now() - 1000000000ULL;
	tracerd_region_end((tracerd_region){before, name, 0});
	assert_int_equal(ringmem_header()->cause_head + suppressed(3), heads + 1);
	/* one that began in the future took no time at all */
	tracerd_region_end((tracerd_region){events_now() + 1000000000ULL, name, 0});
	assert_int_equal(ringmem_header()->cause_head + suppressed(3), heads + 1);
	/* the other one's threshold is not this one's */
	thresholds_bind(NULL);
	tracerd_region_end((tracerd_region){before, name, 0});
	assert_int_equal(ringmem_header()->cause_head + suppressed(3), heads + 1);
}

/* Names are made while the thresholds change: in the end each name has what the page says. */
static volatile bool stop_binding;

static void *bind_on_and_on(void *arg)
{
	static struct ring_control mine;
	mine = page;
	for (uint32_t i = 0; i < 2 || !stop_binding || i % 2; i++) {
		for (uint32_t k = 0; k < 8; k++)
			mine.thresholds[k].threshold_ns = page.thresholds[k].threshold_ns + i % 2;
		thresholds_bind(&mine);
	}
	/* the last one was with i % 2 == 1 */
	return arg;
}

static void test_binding_while_names_are_made(void **state)
{
	pthread_t binder;
	char text[64];

	memory(9, 16384);
	memset(page.thresholds, 0, sizeof(page.thresholds));
	for (uint32_t round = 0; round < 20; round++) {
		stop_binding = false;
		for (uint32_t k = 0; k < 8; k++) {
			(void)snprintf(text, sizeof(text), "bound %u %u", round, k);
			threshold(k, 100 + round * 8 + k, text, 1000 * (k + 1));
		}
		assert_int_equal(pthread_create(&binder, NULL, bind_on_and_on, NULL), 0);
		for (uint32_t k = 0; k < 8; k++) {
			(void)snprintf(text, sizeof(text), "bound %u %u", round, k);
			(void)tracerd_intern(text);
		}
		stop_binding = true;
		assert_int_equal(pthread_join(binder, NULL), 0);
		for (uint32_t k = 0; k < 8; k++) {
			(void)snprintf(text, sizeof(text), "bound %u %u", round, k);
			assert_int_equal(threshold_ticks(tracerd_intern(text)), 1000 * (k + 1) + 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_before_the_memory),
		cmocka_unit_test(test_threads_agree),
		cmocka_unit_test(test_room_ends),
		cmocka_unit_test(test_thresholds_follow_the_page),
		cmocka_unit_test(test_region_end_compares),
		cmocka_unit_test(test_binding_while_names_are_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
