// SPDX-License-Identifier: Apache-2.0
/*
 * Causes as the daemon would find them in the shared memory: what is told, what is kept to itself,
 * and that a descriptor which is not the library's any more is left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/cause.h"
#include "client/lib/eventlib.h"
#include "common/base/io.h"
#include "tests/unit/cmocka_names.h"
#include "tracerd.h"

/* MONOTONIC_RAW: a tick is a nanosecond. */
/* however busy the machine is, half of it is more than it keeps a thread waiting */
#define OVER 2000000000u
#define COOLDOWN 3600000000000u

static struct ring_control page;
static int wake;

static void watch(uint32_t slot, uint32_t id, const char *name, uint64_t over, uint64_t cooldown)
{
	struct ring_threshold *t = &page.thresholds[slot];

	memset(t, 0, sizeof(*t));
	t->id = id;
	t->length = (uint32_t)strlen(name);
	t->hash = ring_hash(name, t->length);
	t->threshold_ns = over;
	t->cooldown_ns = cooldown;
	memcpy(t->name, name, t->length);
}

static void publish(void)
{
	thresholds_bind(&page);
	cause_connect(&page);
}

static int setup(void **state)
{
	process_enter();
	assert_int_equal(ringmem_create(4, 256, 64, RING_CLOCK_MONOTONIC_RAW), 0);
	events_enable(true);
	memset(&page, 0, sizeof(page));
	wake = cause_wake_fd();
	assert_true(wake > 2);
	return 0;
}

/* How often the daemon was woken since the last time. */
static uint64_t woken(void)
{
	uint64_t n = 0;

	return read(wake, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static const struct ring_cause *cause(uint64_t c)
{
	return (const struct ring_cause *)((const char *)ringmem_header() + RING_CAUSES_OFFSET) +
	       c % RING_CAUSES;
}

/* A region that ends now and began that long ago. */
static void region(const char *name, uint64_t ns)
{
	tracerd_region r = {.begin = events_now() - ns, .name = tracerd_intern(name)};

	tracerd_region_end(r);
}

static void test_region(void **state)
{
	uint64_t head = ringmem_header()->cause_head;
	const struct ring_cause *c = cause(head);

	/* one name before the page is there, one after */
	(void)tracerd_intern("slow");
	watch(3, 70, "slow", OVER, COOLDOWN);
	watch(5, 71, "late", OVER, COOLDOWN);
	publish();
	region("slow", OVER / 2);
	region("other", 2ull * OVER);
	assert_int_equal(woken(), 0);
	assert_int_equal(ringmem_header()->cause_head, head);

	errno = 77;
	region("slow", 2ull * OVER);
	assert_int_equal(errno, 77);
	assert_int_equal(woken(), 1);
	assert_int_equal(ringmem_header()->cause_head, head + 1);
	assert_int_equal(c->sequence, head + 1);
	assert_int_equal(c->kind, RING_CAUSE_REGION);
	assert_int_equal(c->tid, gettid());
	assert_int_equal(c->trigger, 70);
	assert_int_equal(c->name, tracerd_intern("slow"));
	assert_uint_in_range(c->end - c->begin, 2ull * OVER, 3600000000000);
	assert_int_equal(c->length, 4);
	assert_memory_equal(c->text, "slow", 4);

	/* within the cooldown: counted, each at its own entry */
	region("slow", 2ull * OVER);
	region("slow", 3ull * OVER);
	assert_int_equal(woken(), 0);
	assert_int_equal(ringmem_header()->suppressed[3], 2);
	region("late", 2ull * OVER);
	assert_int_equal(woken(), 1);
	assert_int_equal(ringmem_header()->suppressed[5], 0);

	/* another trigger at the same place has its own cooldown */
	watch(3, 72, "slow", OVER, 0);
	publish();
	region("slow", 2ull * OVER);
	region("slow", 2ull * OVER);
	assert_int_equal(woken(), 2);
	assert_int_equal(ringmem_header()->suppressed[3], 2);

	/* nobody is there */
	thresholds_bind(NULL);
	cause_connect(NULL);
	region("slow", 2ull * OVER);
	assert_int_equal(woken(), 0);
	page.thresholds[3].id = page.thresholds[5].id = 0;
}

/* The mark that the timeline shows: in the ring of the thread that was slow. */
static void test_mark(void **state)
{
	const struct ring_header *h = ringmem_header();
	const struct ring_entry *e = (const struct ring_entry *)((const char *)h + h->dir_offset);
	const struct ring_slot *slots =
		(const struct ring_slot *)((const char *)h + h->data_offset);
	uint64_t head = h->cause_head;
	const struct ring_slot *s;

	watch(0, 80, "marked", OVER, 0);
	publish();
	region("marked", 2ull * OVER);
	s = &slots[(e->head - 1) % h->slots];
	assert_int_equal(s->kind & RING_KIND_MASK, RING_TRIGGER);
	assert_int_equal(s->name, tracerd_intern("marked"));
	assert_int_equal(s->a, cause(head)->begin);
	assert_int_equal(s->b, cause(head)->sequence);
	s = &slots[(e->head - 2) % h->slots];
	assert_int_equal(s->kind & RING_KIND_MASK, RING_REGION_END);
	page.thresholds[0].id = 0;
	(void)woken();
}

static void test_request(void **state)
{
	char big[RING_CAUSE_TEXT + 100];
	uint64_t head = ringmem_header()->cause_head,
		 suppressed = ringmem_header()->requests_suppressed;
	const struct ring_cause *c = cause(head);

	cause_connect(NULL);
	assert_int_equal(tracerd_snapshot("x"), -ENOTCONN);
	page.request_interval_ns = 3600000000000;
	publish();
	errno = 77;
	assert_int_equal(tracerd_snapshot("why"), 0);
	assert_int_equal(tracerd_snapshot("again"), -EAGAIN);
	assert_int_equal(errno, 77);
	assert_int_equal(woken(), 1);
	assert_int_equal(c->kind, RING_CAUSE_REQUEST);
	assert_int_equal(c->length, 3);
	assert_memory_equal(c->text, "why", 3);
	assert_int_equal(c->name, 0);
	assert_int_equal(c->begin, c->end);
	assert_int_equal(ringmem_header()->requests_suppressed, suppressed + 1);

	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	page.request_interval_ns = 0;
	publish();
	assert_int_equal(tracerd_snapshot(big), 0);
	assert_int_equal(cause(head + 1)->length, RING_CAUSE_TEXT);
	assert_int_equal(tracerd_snapshot(NULL), 0);
	assert_int_equal(cause(head + 2)->length, 0);
	assert_int_equal(woken(), 2);
}

static void *storm(void *arg)
{
	for (int i = 0; i < 2000; i++)
		region("storm", 2ull * OVER);
	return NULL;
}

/* Threads that are slow at the same time: within the cooldown few are told, all others counted. */
static void test_threads(void **state)
{
	uint64_t head = ringmem_header()->cause_head, told,
		 suppressed = ringmem_header()->suppressed[9];
	pthread_t t[3];

	watch(9, 90, "storm", OVER, 3600000000000);
	publish();
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, storm, NULL), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	told = ringmem_header()->cause_head - head;
	/* the first ones of each thread may not have seen the others' */
	assert_uint_in_range(told, 1, 3);
	assert_int_equal(told + ringmem_header()->suppressed[9] - suppressed, 6000);
	assert_int_equal(woken(), told);

	/* without one all are told */
	watch(9, 91, "storm", OVER, 0);
	publish();
	head = ringmem_header()->cause_head;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, storm, NULL), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	told = ringmem_header()->cause_head - head;
	assert_uint_in_range(told, 2000, 6000);
	assert_int_equal(woken(), told);
	for (uint64_t i = 0; i < RING_CAUSES; i++) {
		assert_int_equal((cause(i)->sequence - 1) % RING_CAUSES, i);
		assert_int_equal(cause(i)->length, 5);
		assert_memory_equal(cause(i)->text, "storm", 5);
	}
	page.thresholds[9].id = 0;
	publish();
}

/* The program has closed it, and has a file there now. */
static void test_descriptor_taken(void **state)
{
	char path[] = "/tmp/test-cause.XXXXXX";
	uint64_t head = ringmem_header()->cause_head;
	int fd = mkstemp(path), again;
	struct stat st;

	assert_true(fd >= 0);
	page.request_interval_ns = 0;
	publish();
	watch(2, 92, "unheard", OVER, 0);
	publish();
	assert_true(cause_is_heard());
	assert_int_equal(dup2(fd, wake), wake);
	region("unheard", 2ull * OVER);
	assert_int_equal(ringmem_header()->suppressed[2], 1);
	publish();
	assert_int_equal(tracerd_snapshot("x"), -ENOTCONN);
	assert_false(cause_is_heard());
	assert_int_equal(ringmem_header()->cause_head, head);
	assert_int_equal(fstat(wake, &st), 0);
	assert_int_equal(st.st_size, 0);
	/* the next registration has a new one */
	again = cause_wake_fd();
	assert_true(again >= 0 && again != wake);
	(void)close(wake);
	(void)close(fd);
	(void)unlink(path);
	wake = again;
	page.thresholds[2].id = 0;
	publish();
	assert_int_equal(tracerd_snapshot("x"), 0);
	assert_int_equal(woken(), 1);
}

static void test_fork(void **state)
{
	int status = 0;
	pid_t pid;

	page.request_interval_ns = 0;
	watch(1, 95, "forked", OVER, 0);
	publish();
	pid = fork();
	if (pid == 0) {
		int bad = tracerd_snapshot("child") != -ENOTCONN;

		region("forked", 2ull * OVER);
		_exit(bad || fcntl(wake, F_GETFD) >= 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(woken(), 0);
	assert_int_equal(tracerd_snapshot("parent"), 0);
	assert_int_equal(woken(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region),
		cmocka_unit_test(test_mark),
		cmocka_unit_test(test_request),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_descriptor_taken),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
