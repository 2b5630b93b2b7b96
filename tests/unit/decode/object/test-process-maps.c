// SPDX-License-Identifier: Apache-2.0
/*
 * Which process had what mapped when: exec, fork, libraries that take each other's place, ids that
 * are given again. Each record goes to the maps that keep what was and to those that know only what
 * is now: as the records go by both answer the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "decode/base/file_request.h"
#include "decode/object/image.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "tests/unit/cmocka_names.h"

#define TEXT 0x1000u /* where the code lies in each file */

static struct budget budget, budget_now;
static struct images *images;
static struct process_maps *past, *now;
static bool untimed; /* the next records are without a time */

static void setup(uint64_t max)
{
	static const struct file_requester files = {NULL, NULL}; /* nothing is opened */

	budget = (struct budget){.max = max};
	budget_now = (struct budget){.max = 64u << 20};
	untimed = false;
	assert_int_equal(images_new(&files, &budget_now, &images), 0);
	assert_int_equal(process_maps_new(images, &budget, true, &past), 0);
	assert_int_equal(process_maps_new(images, &budget_now, false, &now), 0);
}

static void teardown(void)
{
	process_maps_free(past);
	process_maps_free(now);
	images_free(images);
	assert_int_equal(budget.used, 0);
}

/* The file mapped there, its one letter plus the page of its code that is there; 0: none. */
static int at_of(const struct process_maps *m, uint32_t pid, uint64_t time, uint64_t addr)
{
	const struct mapping *map = address_space_find(process_maps_at(m, pid, time), addr);

	return map ? map->image->path[1] + (int)((addr - map->start + map->pgoff - TEXT) / 4096)
		   : 0;
}

static int at(uint32_t pid, uint64_t time, uint64_t addr)
{
	return at_of(past, pid, time, addr);
}

static void record(struct perfevent ev)
{
	static const uint64_t places[] = {0x10000, 0x20000, 0x22000, 0x50000};

	ev.has_time = !untimed;
	if (untimed)
		ev.time = 0;
	process_maps_record(past, &ev);
	process_maps_record(now, &ev);
	for (uint32_t pid = 1; pid < 6 && !process_maps_refused(past); pid++) {
		assert_int_equal(!process_maps_at(now, pid, 0),
				 !process_maps_at(past, pid, UINT64_MAX));
		for (size_t i = 0; i < ARRAY_SIZE(places); i++)
			assert_int_equal(at_of(now, pid, 0, places[i]),
					 at(pid, UINT64_MAX, places[i]));
	}
}

static void map(uint64_t time, uint32_t pid, uint64_t addr, uint64_t len, uint64_t into,
		const char *path)
{
	record((struct perfevent){.kind = PERFEVENT_MMAP,
		.time = time,
		.pid = pid,
		.tid = pid,
		.mmap = {.addr = addr,
			.len = len,
			.pgoff = TEXT + into,
			.ino = (uint8_t)path[1],
			.exec = true,
			.path = path,
			.path_len = strlen(path)}});
}

/* What is mapped there now is no code. */
static void map_data(uint64_t time, uint32_t pid, uint64_t addr, uint64_t len)
{
	record((struct perfevent){.kind = PERFEVENT_MMAP,
		.time = time,
		.pid = pid,
		.tid = pid,
		.mmap = {.addr = addr, .len = len, .path = ""}});
}

static void fork_of(uint64_t time, uint32_t pid, uint32_t tid, uint32_t ppid)
{
	record((struct perfevent){.kind = PERFEVENT_FORK,
		.time = time,
		.pid = pid,
		.tid = tid,
		.fork = {.ppid = ppid, .ptid = ppid}});
}

static void exec(uint64_t time, uint32_t pid)
{
	record((struct perfevent){.kind = PERFEVENT_COMM,
		.time = time,
		.pid = pid,
		.tid = pid,
		.comm = {.name = "x", .name_len = 1, .exec = true}});
}

static void test_libraries_in_turn(void **state)
{
	(void)state;
	setup(64u << 20);
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	map(20, 1, 0x20000, 0x4000, 0, "/B");
	map(30, 1, 0x20000, 0x2000, 0, "/C"); /* B was unmapped before; no record says so */
	map(40, 1, 0x20000, 0x4000, 0x1000, "/C");
	/*
	 * what takes no place is there from the begin on: it may have been mapped before the
	 * recording
	 */
	for (uint64_t t = 0; t < 50; t += 5)
		assert_int_equal(at(1, t, 0x10000), 'A');
	assert_int_equal(at(1, 0, 0x20000), 'B');
	assert_int_equal(at(1, 29, 0x20000), 'B');
	assert_int_equal(at(1, 30, 0x20000), 'C');
	assert_int_equal(at(1, 30, 0x22000), 'B' + 2);
	assert_int_equal(at(1, 40, 0x20000), 'C' + 1);
	assert_int_equal(at(1, 40, 0x22000), 'C' + 3);
	assert_int_equal(at(1, UINT64_MAX, 0x20000), 'C' + 1);
	assert_int_equal(at(1, 0, 0x23fff), 'B' + 3);
	assert_int_equal(at(1, 0, 0x24000), 0);
	assert_null(process_maps_at(past, 2, 40));
	map_data(50, 1, 0x10000, 0x4000);
	assert_int_equal(at(1, 49, 0x10000), 'A');
	assert_int_equal(at(1, 50, 0x10000), 0);
	assert_int_equal(process_maps_records(past), 5);
	assert_int_equal(process_maps_refused(past), 0);
	teardown();
}

static void test_exec_and_fork(void **state)
{
	(void)state;
	setup(64u << 20);
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	fork_of(20, 2, 2, 1);
	fork_of(21, 1, 5, 1); /* a thread is no process */
	map(25, 1, 0x10000, 0x4000, 0, "/B");
	exec(30, 2);
	map(31, 2, 0x10000, 0x4000, 0, "/C");
	fork_of(40, 3, 3, 2);
	exec(50, 2);
	map(51, 2, 0x50000, 0x4000, 0, "/D");
	assert_int_equal(at(1, 24, 0x10000), 'A');
	assert_int_equal(at(1, 25, 0x10000), 'B');
	assert_int_equal(at(2, 20, 0x10000), 'A');
	assert_int_equal(at(2, 29, 0x10000), 'A'); /* what its parent did later is not its own */
	assert_int_equal(at(2, 30, 0x10000), 'C');
	assert_int_equal(at(3, 40, 0x10000), 'C');
	assert_int_equal(at(3, 60, 0x10000), 'C');
	assert_int_equal(at(2, 50, 0x10000), 0);
	assert_int_equal(at(2, 50, 0x50000), 'D');
	assert_int_equal(at(2, 49, 0x50000), 0);
	teardown();
}

/*
 * The kernel lies in all of them, whatever they do; also where a program says that something else
 * does.
 */
static void test_kernel(void **state)
{
	static const uint64_t text = UINT64_C(0xffffffff81000000);
	const struct image_key key = {.path = "/K", .path_len = 2};
	struct address_space *kernel;
	struct budget own = {.max = 1 << 20};
	struct mapping map = {.start = text, .end = text + 0x2000, .pgoff = TEXT};

	(void)state;
	setup(64u << 20);
	map.image = images_get(images, &key);
	assert_int_equal(address_space_new(&own, &kernel), 0);
	assert_int_equal(address_space_set(&kernel, &map), 0);
	process_maps_set_kernel(past, kernel);
	process_maps_set_kernel(now, kernel);
	map_data(10, 1, 0x10000, 0x1000);
	fork_of(20, 2, 2, 1);
	exec(30, 2);
	for (uint32_t pid = 1; pid < 3; pid++) {
		assert_int_equal(at(pid, 40, text), 'K');
		assert_int_equal(at(pid, 40, text + 0x1fff), 'K' + 1);
		assert_int_equal(at(pid, 40, text + 0x2000), 0);
	}
	process_maps_record(past, &(struct perfevent){.kind = PERFEVENT_MMAP,
						      .time = 50,
						      .pid = 1,
						      .tid = 1,
						      .has_time = true,
						      .mmap = {.addr = text,
							       .len = 0x1000,
							       .ino = 'X',
							       .exec = true,
							       .path = "/X",
							       .path_len = 2}});
	assert_int_equal(at(1, 60, text), 'K');
	assert_int_equal(at(3, 60, text), 0);
	teardown();
	address_space_unref(kernel);
	assert_int_equal(own.used, 0);
}

/* The old process is gone with all that it had, whatever is known of the new one's parent. */
static void test_pid_again(void **state)
{
	(void)state;
	setup(64u << 20);
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	fork_of(20, 2, 2, 1);
	exec(21, 2);
	map(22, 2, 0x10000, 0x4000, 0, "/B");
	fork_of(30, 2, 2, 1);
	assert_int_equal(at(2, 29, 0x10000), 'B');
	assert_int_equal(at(2, 30, 0x10000), 'A');
	fork_of(40, 2, 2, 4); /* of whom nothing is known */
	map(45, 2, 0x50000, 0x4000, 0, "/D");
	assert_int_equal(at(2, 39, 0x10000), 'A');
	assert_int_equal(at(2, 40, 0x10000), 0);
	assert_int_equal(at(2, 40, 0x50000), 'D');
	assert_int_equal(at(2, 39, 0x50000), 0);
	/* its thread, by whomever: a process begins with the thread of its own id */
	fork_of(50, 2, 5, 1);
	assert_int_equal(at(2, 50, 0x50000), 'D');
	/* neither is known: a record that comes then holds from the begin on */
	fork_of(60, 3, 3, 4);
	assert_null(process_maps_at(past, 3, 60));
	map(65, 3, 0x10000, 0x4000, 0, "/A");
	assert_int_equal(at(3, 0, 0x10000), 'A');
	teardown();
}

/* A record without a time comes after the one before it. */
static void test_without_time(void **state)
{
	(void)state;
	setup(64u << 20);
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	map(20, 1, 0x10000, 0x4000, 0, "/B");
	untimed = true;
	map(0, 1, 0x10000, 0x4000, 0, "/C");
	untimed = false;
	map(30, 1, 0x10000, 0x4000, 0, "/D");
	assert_int_equal(at(1, 19, 0x10000), 'A');
	assert_int_equal(at(1, 20, 0x10000), 'C');
	assert_int_equal(at(1, 29, 0x10000), 'C');
	assert_int_equal(at(1, 30, 0x10000), 'D');
	teardown();
}

/*
 * Very many versions: bounded by the budget, counted, and what there is stays right. Without the
 * past there is one.
 */
static void test_many(void **state)
{
	char path[3] = "/A";
	uint64_t used = 0;

	(void)state;
	setup(1u << 20);
	for (uint64_t i = 0; i < 5000; i++) {
		path[1] = (char)('A' + i % 20);
		map(10 + i, 1, 0x10000, 0x1000, 0, path);
		if (i == 20)
			used = budget_now.used;
	}
	assert_int_equal(at(1, 10, 0x10000), 'A');
	assert_int_equal(at(1, 110, 0x10000), 'A');
	assert_int_equal(at(1, 111, 0x10000), 'B');
	assert_int_equal(process_maps_records(past), 5000);
	assert_uint_in_range(process_maps_refused(past), 1, 4900);
	assert_true(budget.used <= budget.max);
	assert_int_equal(process_maps_refused(now), 0);
	assert_int_equal(budget_now.used, used);
	assert_int_equal(at_of(now, 1, 0, 0x10000), 'A' + 4999 % 20);
	teardown();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libraries_in_turn),
		cmocka_unit_test(test_exec_and_fork),
		cmocka_unit_test(test_pid_again),
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_without_time),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
