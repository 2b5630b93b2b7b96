// SPDX-License-Identifier: Apache-2.0
/*
 * The control page: only the daemon writes it, whatever a program tries, and a reader never takes
 * half an entry.
 */
#include "daemon/producer/control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	struct controlpage *page;
	const struct ring_control *map; /* as the program has it */
	int fd;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	void *map;

	assert_int_equal(controlpage_new(2500000000, 1000000000, &f->page, &f->fd), 0);
	map = mmap(NULL, RING_CONTROL_BYTES, PROT_READ, MAP_SHARED, f->fd, 0);
	assert_true(map != MAP_FAILED);
	f->map = map;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)munmap((void *)(uintptr_t)f->map, RING_CONTROL_BYTES);
	(void)close(f->fd);
	(void)controlpage_free(f->page);
	free(f);
	return 0;
}

static struct ring_threshold threshold(uint32_t id, const char *name)
{
	struct ring_threshold t = {.id = id,
				   .threshold_ns = 5000000,
				   .cooldown_ns = 10,
				   .length = (uint32_t)strlen(name)};

	memcpy(t.name, name, strlen(name));
	return t;
}

static void test_begin(void **state)
{
	struct fixture *f = *state;

	assert_memory_equal(f->map->magic, RING_CONTROL_MAGIC, 8);
	assert_int_equal(f->map->version, RING_VERSION);
	assert_int_equal(f->map->generation, 0);
	assert_int_equal(f->map->ticks_per_second, 2500000000);
	assert_int_equal(f->map->request_interval_ns, 1000000000);
}

static void test_set_and_clear(void **state)
{
	struct fixture *f = *state;
	struct ring_threshold t = threshold(7, "request");
	size_t i, again;

	assert_int_equal(controlpage_set(f->page, &t, &i), 0);
	assert_int_equal(f->map->generation, 2);
	assert_int_equal(f->map->thresholds[i].id, 7);
	assert_int_equal(f->map->thresholds[i].hash, ring_hash("request", 7));
	assert_int_equal(f->map->thresholds[i].threshold_ns, 5000000);
	assert_memory_equal(f->map->thresholds[i].name, "request", 7);
	assert_int_equal(controlpage_find(f->page, 7), i);

	/* the same id: the same place */
	t.threshold_ns = 9;
	assert_int_equal(controlpage_set(f->page, &t, &again), 0);
	assert_int_equal(again, i);
	assert_int_equal(f->map->thresholds[i].threshold_ns, 9);
	assert_int_equal(f->map->generation, 4);

	controlpage_clear(f->page, 8); /* not there */
	assert_int_equal(f->map->generation, 4);
	controlpage_clear(f->page, 0); /* names no entry, though free ones have it */
	assert_int_equal(f->map->generation, 4);
	controlpage_clear(f->page, 7);
	assert_int_equal(f->map->generation, 6);
	assert_int_equal(f->map->thresholds[i].id, 0);
	assert_int_equal(controlpage_find(f->page, 7), -1);
}

static void test_full(void **state)
{
	struct fixture *f = *state;
	struct ring_threshold t;
	size_t i;

	for (uint32_t id = 1; id <= RING_THRESHOLDS; id++) {
		t = threshold(id, "x");
		assert_int_equal(controlpage_set(f->page, &t, &i), 0);
	}
	t = threshold(1000, "one more");
	assert_int_equal(controlpage_set(f->page, &t, &i), -ENOSPC);
	controlpage_clear(f->page, 30);
	assert_int_equal(controlpage_set(f->page, &t, &i), 0);
	assert_int_equal(i, 29);
}

/* All that a program could try with the descriptor that it is given. */
static void test_nobody_else_writes(void **state)
{
	struct fixture *f = *state;
	char path[32];
	void *map;
	int rw;

	assert_int_equal(fcntl(f->fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(write(f->fd, "x", 1), -1);
	map = mmap(NULL, RING_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	assert_true(map == MAP_FAILED);
	assert_int_equal(mprotect((void *)(uintptr_t)f->map, RING_CONTROL_BYTES,
				  PROT_READ | PROT_WRITE),
			 -1);
	assert_int_equal(fcntl(f->fd, F_GET_SEALS) & ~0x20,
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);

	/* opened again for writing, as its owner may */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	rw = open(path, O_RDWR | O_CLOEXEC);
	if (rw < 0)
		return; /* not even that */
	assert_int_equal(pwrite(rw, "x", 1, 0), -1);
	assert_int_equal(ftruncate(rw, 0), -1);
	assert_int_equal(fallocate(rw, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RING_PAGE),
			 -1);
	map = mmap(NULL, RING_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0);
	assert_true(map == MAP_FAILED);
	map = mmap(NULL, RING_CONTROL_BYTES, PROT_READ, MAP_SHARED, rw, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(mprotect(map, RING_CONTROL_BYTES, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(madvise(map, RING_PAGE, MADV_REMOVE), -1);
	(void)munmap(map, RING_CONTROL_BYTES);
	(void)close(rw);
	assert_memory_equal(f->map->magic, RING_CONTROL_MAGIC, 8);
}

/* ---- a reader meanwhile */

struct reader {
	const struct ring_control *map;
	atomic_bool stop;
	atomic_ulong whole;
	unsigned long broken;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;

	while (!atomic_load(&r->stop)) {
		uint32_t before = __atomic_load_n(&r->map->generation, __ATOMIC_ACQUIRE);
		struct ring_threshold t;

		for (size_t i = 0; i < sizeof(t) / 8; i++)
			((volatile uint64_t *)&t)[i] = __atomic_load_n(
				(const uint64_t *)(const void *)&r->map->thresholds[0] + i,
				__ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (before % 2 || before != __atomic_load_n(&r->map->generation, __ATOMIC_RELAXED))
			continue;
		atomic_fetch_add(&r->whole, 1);
		if (t.id &&
		    (t.threshold_ns != t.cooldown_ns || t.name[0] != (uint8_t)t.threshold_ns))
			r->broken++;
	}
	return NULL;
}

static void test_reader(void **state)
{
	struct fixture *f = *state;
	struct reader r = {.map = f->map};
	pthread_t thread;
	size_t i;

	assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
	for (uint64_t n = 1; n < 20000 || atomic_load(&r.whole) < 1000; n++) {
		struct ring_threshold t = {.id = 1,
					   .threshold_ns = n,
					   .cooldown_ns = n,
					   .length = 1};

		t.name[0] = (uint8_t)n;
		assert_int_equal(controlpage_set(f->page, &t, &i), 0);
		if (n % 16 == 0)
			(void)usleep(1); /* so that one processor is enough */
	}
	atomic_store(&r.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(r.broken, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_begin, setup, teardown),
		cmocka_unit_test_setup_teardown(test_set_and_clear, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_else_writes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reader, setup, teardown),
	};

	return cmocka_run_group_tests_name("controlpage", tests, NULL, NULL);
}
