// SPDX-License-Identifier: Apache-2.0
// Fork, _Fork() and a bare clone(): the child is off at once, leaves its parent's memory alone, and
// may start itself.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/lib/eventlib.h"
#include "tests/unit/client/lib/ring-read.h"

/* In a child there is no cmocka: it ends with the number of the line that was wrong. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			_exit(__LINE__ % 255 + 1);                                                 \
	} while (0)

static pid_t bare_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static pid_t (*const ways[])(void) = {fork, _Fork, bare_clone};

static tracerd_name name;
static tracerd_region region;
static tracerd_task task;
static uint64_t flow;

static void fresh(void)
{
	static uint32_t rings = 2;

	process_enter();
	events_enable(false);
	assert_int_equal(ringmem_create(rings++, 64, 256, RING_CLOCK_TSC), 0);
	events_enable(true);
	name = tracerd_intern("forking");
	region = tracerd_region_begin(name);
	task = tracerd_task_begin(name, 0);
	flow = tracerd_flow_begin(name);
}

/*
 * Everything that a program might go on doing. Nothing of it must touch the memory, which is not
 * there.
 */
static void do_everything(void)
{
	tracerd_region_end(region);
	tracerd_task_end(task);
	tracerd_flow_end(name, flow);
	tracerd_region_end(tracerd_region_begin(name));
	tracerd_instant(name);
	tracerd_counter(name, 1);
	tracerd_log(TRACERD_INFO, "%s", "in the child");
	tracerd_thread_name(name);
	tracerd_fiber_switch(1, name);
	CHECK(tracerd_intern("forking") == name);
	CHECK(tracerd_intern("made in the child") != 0);
}

static void child_is_off(void)
{
	CHECK(tracerd_enabled() == 0);
	CHECK(!events_enabled());
	CHECK(ringmem_header() == NULL);
	CHECK(ringmem_fd() == -ENOENT);
	errno = 4711;
	do_everything();
	CHECK(errno == 4711);
}

static void expect_exit(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("the child ended with %#x: line %d, or one 255 away", status,
			 WEXITSTATUS(status) - 1);
}

static void test_child_is_off(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		_cleanup_(ringread_freep) struct ringread *r = NULL;
		uint64_t head;
		pid_t pid;

		fresh();
		pid = ways[i]();
		if (pid == 0) {
			child_is_off();
			_exit(0);
		}
		expect_exit(pid);
		/* the parent goes on as if nothing had happened */
		assert_int_equal(tracerd_enabled(), 1);
		tracerd_instant(name);
		r = ringread_new(ringmem_fd());
		head = ringread_entry(r, 0)->head;
		assert_int_equal(head, 5);
		assert_int_equal(r->header.pid, getpid());
	}
}

/*
 * The child makes memory of its own; its thread, which had a ring of the parent's, gets one of it.
 */
static void child_starts(int parents_fd, bool handler)
{
	_cleanup_(ringread_freep) struct ringread *r = NULL;
	struct ringread_record e;
	uint64_t i = 0;

	/* without a handler the parent's descriptor is closed when the child starts */
	if (!handler)
		CHECK(fcntl(parents_fd, F_GETFD) >= 0);
	process_enter();
	CHECK(fcntl(parents_fd, F_GETFD) < 0 && errno == EBADF);
	events_enable(true);
	CHECK(!events_enabled());
	CHECK(ringmem_create(2, 64, 256, RING_CLOCK_TSC) == 0);
	events_enable(true);
	CHECK(events_enabled());
	tracerd_instant(name);
	/* a region of the parent has its end here, and none other can be told */
	tracerd_region_end(region);
	r = ringread_new(ringmem_fd());
	CHECK(r->header.pid == (uint32_t)getpid());
	CHECK(ringread_entry(r, 0)->tid == (uint32_t)getpid());
	CHECK(ringread_record(r, 0, i, &e, &i) && e.kind == RING_THREAD);
	CHECK(ringread_record(r, 0, i, &e, &i) && e.kind == RING_INSTANT && e.name == name);
	CHECK(ringread_record(r, 0, i, &e, &i) && e.kind == RING_REGION_END && e.a == region.begin);
	CHECK(ringread_entry(r, 0)->head == i);
	/* names of before are there, under the same number */
	CHECK(!strcmp(ringread_name(r, name), "forking"));
}

static void test_child_starts_itself(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		pid_t pid;
		int fd;

		fresh();
		fd = ringmem_fd();
		pid = ways[i]();
		if (pid == 0) {
			child_starts(fd, i == 0);
			_exit(0);
		}
		expect_exit(pid);
	}
}

static void test_grandchildren(void **state)
{
	fresh();
	for (size_t i = 0; i < 3; i++) {
		int fd = ringmem_fd();
		pid_t pid = ways[i]();

		if (pid == 0) {
			child_starts(fd, i == 0);
			for (size_t k = 0; k < 3; k++) {
				int status = 0, mine = ringmem_fd();
				pid_t grandchild = ways[k]();

				if (grandchild == 0) {
					child_is_off();
					child_starts(mine, k == 0);
					_exit(0);
				}
				CHECK(waitpid(grandchild, &status, 0) == grandchild);
				CHECK(WIFEXITED(status));
				if (WEXITSTATUS(status))
					_exit(WEXITSTATUS(status));
			}
			_exit(0);
		}
		expect_exit(pid);
	}
	assert_int_equal(tracerd_enabled(), 1);
}

/*
 * Threads of the child that the parent never had, and descriptors that are not the library's any
 * more.
 */
static void *instant_on_a_thread(void *arg)
{
	tracerd_instant(name);
	return arg;
}

static void test_child_with_other_descriptors(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		int fd;
		pid_t pid;

		fresh();
		fd = ringmem_fd();
		pid = ways[i]();
		if (pid == 0) {
			int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
			pthread_t t;

			CHECK(null >= 0 && (null == fd || dup2(null, fd) == fd));
			process_enter();
			/* somebody else's is not closed */
			CHECK(fcntl(fd, F_GETFD) >= 0);
			CHECK(ringmem_create(3, 64, 256, RING_CLOCK_TSC) == 0);
			events_enable(true);
			CHECK(pthread_create(&t, NULL, instant_on_a_thread, NULL) == 0);
			CHECK(pthread_join(t, NULL) == 0);
			tracerd_instant(name);
			{
				struct ringread *r = ringread_new(ringmem_fd());

				/* one a thread, or both in the one of the thread that has ended */
				CHECK(ringread_entry(r, 0)->head + ringread_entry(r, 1)->head == 4);
				r = ringread_free(r);
			}
			_exit(0);
		}
		expect_exit(pid);
	}
}

/*
 * Other threads write and make names all the time: whatever they were doing, the child must come
 * through.
 */
static volatile bool stop;

static void *busy(void *arg)
{
	for (uint32_t i = 0; !stop; i++) {
		(void)tracerd_intern_bytes(&i, 1 + i % 2);
		tracerd_log(TRACERD_INFO, "busy %u", i);
	}
	return arg;
}

static void test_fork_while_others_write(void **state)
{
	pthread_t threads[2];

	fresh();
	stop = false;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, busy, NULL), 0);
	for (int round = 0; round < 100; round++) {
		int fd = ringmem_fd();
		pid_t pid = ways[round % 3]();

		if (pid == 0) {
			child_is_off();
			child_starts(fd, round % 3 == 0);
			do_everything();
			_exit(0);
		}
		expect_exit(pid);
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_is_off),
		cmocka_unit_test(test_child_starts_itself),
		cmocka_unit_test(test_grandchildren),
		cmocka_unit_test(test_child_with_other_descriptors),
		cmocka_unit_test(test_fork_while_others_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
