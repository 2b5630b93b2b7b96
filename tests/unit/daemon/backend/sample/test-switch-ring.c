// SPDX-License-Identifier: Apache-2.0
/*
 * What is copied of a ring that is written meanwhile: records that are whole, the oldest first, and
 * what is said of the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "daemon/backend/sample/switch_ring.h"

#define SIZE 8u

static struct filter_ring head;
static struct filter_record records[SIZE];
static struct switch_ring ring = {.ring = &head, .records = records};

static int setup(void **state)
{
	head = (struct filter_ring){.first = 1, .size = SIZE};
	memset(records, 0, sizeof(records));
	return 0;
}

/* As the program does it. */
static void put(void)
{
	struct filter_record *r = &records[head.next];

	__atomic_store_n(&r->time, head.written + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&r->ev.tid, (uint32_t)head.written + 1, __ATOMIC_RELAXED);
	head.next = head.next + 1 < head.size ? head.next + 1 : 0;
	__atomic_store_n(&head.written, head.written + 1, __ATOMIC_RELEASE);
}

static void holds(uint64_t first, size_t n, bool wrapped)
{
	_cleanup_(switch_records_fini) struct switch_records got = {.n = 0};

	assert_int_equal(switch_ring_copy(&ring, &got), 0);
	assert_int_equal(got.n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got.v[i].time, first + i);
	assert_int_equal(got.wrapped, wrapped);
	assert_int_equal(got.overwritten, 0);
}

static void test_turns(void **state)
{
	holds(0, 0, false);
	for (unsigned int i = 0; i < SIZE - 1; i++)
		put();
	holds(1, SIZE - 1, false);
	/* Of a full ring the oldest may be being overwritten. */
	put();
	holds(2, SIZE - 1, true);
	for (unsigned int i = 0; i < 100; i++) {
		put();
		holds(i + 3, SIZE - 1, true);
	}
}

static void test_image(void **state)
{
	_cleanup_(switch_records_fini) struct switch_records got = {.n = 0};
	struct switch_ring *image = calloc(1, sizeof(*image));

	for (unsigned int i = 0; i < 3 * SIZE; i++)
		put();
	assert_int_equal(switch_ring_copy(&ring, &got), 0);
	assert_non_null(image);
	assert_false(image->is_image);
	switch_ring_image(&got, image);
	assert_true(image->is_image);
	assert_int_equal(switch_ring_copy(image, &got), 0);
	assert_int_equal(got.n, SIZE - 1);
	assert_int_equal(got.v[0].time, 2 * SIZE + 2);
	assert_true(got.wrapped);
	switch_rings_free(image, 1);
}

static atomic_bool stop;

static void *writes(void *arg)
{
	while (!atomic_load(&stop)) {
		put();
		/* Now and then it is not overtaken. */
		for (volatile int i = 0; i < 200; i++)
			;
	}
	return NULL;
}

static void test_written_meanwhile(void **state)
{
	pthread_t writer;
	size_t n = 0;

	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&writer, NULL, writes, NULL), 0);
	while (__atomic_load_n(&head.written, __ATOMIC_ACQUIRE) < SIZE)
		(void)sched_yield();
	for (unsigned int i = 0; i < 20000; i++) {
		_cleanup_(switch_records_fini) struct switch_records got = {.n = 0};

		assert_int_equal(switch_ring_copy(&ring, &got), 0);
		n += got.n;
		for (size_t k = 0; k < got.n; k++) {
			assert_int_equal(got.v[k].time, got.v[0].time + k);
			assert_int_equal(got.v[k].ev.tid, (uint32_t)got.v[k].time);
		}
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_true(n > 0);
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void)
{
	const struct CMUnitTest tests[] = {T(test_turns), T(test_image), T(test_written_meanwhile)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
