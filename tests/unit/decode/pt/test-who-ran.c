// SPDX-License-Identifier: Apache-2.0
/* Who ran on a CPU between two times, from records of switches: whole ones, halves, equal times, nothing at all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/perf/data.h"
#include "decode/perf/event.h"
#include "decode/pt/who_ran.h"
#include "tests/unit/decode/perf/perfdata-make.h"

struct file {
	struct make make;
	int fd;
	struct budget budget;
	struct perfdata *pd;
	struct who_ran *who_ran;
	struct who_ran_span spans[8];
};

static struct file f;

static void setup(void)
{
	memset(&f, 0, sizeof(f));
	f.budget.max = 16u << 20;
	make_init(&f.make);
}

static int record(void *arg, const struct perfevent *ev)
{
	return who_ran_record(arg, ev);
}

static void finish(void)
{
	f.fd = make_file(&f.make);
	assert_int_equal(perfdata_open(f.fd, &f.budget, &f.pd), 0);
	assert_int_equal(perfdata_scan(f.pd, NULL, NULL), 0);
	assert_int_equal(who_ran_new(&f.budget, &f.who_ran), 0);
	assert_int_equal(perfdata_walk(f.pd, record, f.who_ran), 0);
}

static void teardown(void)
{
	who_ran_free(f.who_ran);
	perfdata_free(f.pd);
	assert_int_equal(f.budget.used, 0);
	(void)close(f.fd);
}

static void is_span(unsigned int i, uint64_t from, uint64_t to, uint32_t pid, uint32_t tid)
{
	const struct who_ran_span *s = &f.spans[i];

	if (s->from != from || s->to != to || s->pid != pid || s->tid != tid)
		fail_msg("span %u: %u/%u from %lu to %lu", i, s->pid, s->tid, s->from, s->to);
}

static unsigned int find(int32_t cpu, uint64_t from, uint64_t to)
{
	return who_ran_find(f.who_ran, cpu, from, to, f.spans, 8);
}

/* CPU 1: idle, 10/11 from 100 to 200, 20/21 to 300, idle. CPU 2: another one all the time. */
static void two_cpus(void)
{
	setup();
	make_switch_wide(&f.make, 100, 1, 0, 0, 10, 11, 1);
	make_switch_wide(&f.make, 100, 1, 10, 11, 0, 0, 0);
	make_switch_wide(&f.make, 150, 2, 30, 31, 0, 0, 0);
	make_switch_wide(&f.make, 200, 1, 10, 11, 20, 21, 1);
	make_switch_wide(&f.make, 200, 1, 20, 21, 10, 11, 0);
	make_switch_wide(&f.make, 300, 1, 20, 21, 0, 0, 1);
	finish();
}

static void test_spans(void **state)
{
	(void)state;
	two_cpus();
	assert_int_equal(find(1, 150, 150), 1);
	is_span(0, 100, 200, 10, 11);
	assert_int_equal(find(1, 200, 200), 1);
	is_span(0, 200, 300, 20, 21);
	assert_int_equal(find(1, 199, 200), 2);
	is_span(0, 100, 200, 10, 11);
	is_span(1, 200, 300, 20, 21);
	assert_int_equal(find(1, 50, 400), 3);
	is_span(0, 100, 200, 10, 11);
	is_span(2, 300, UINT64_MAX, 0, 0);
	/* in front of the first that is known */
	assert_int_equal(find(1, 10, 20), 0);
	assert_int_equal(find(1, 1000000, UINT64_MAX), 1);
	is_span(0, 300, UINT64_MAX, 0, 0);
	assert_int_equal(find(2, 400, 400), 1);
	is_span(0, 150, UINT64_MAX, 30, 31);
	assert_int_equal(who_ran_find(f.who_ran, 1, 0, UINT64_MAX, f.spans, 2), 2);
	/* CPUs that are none */
	assert_int_equal(find(0, 150, 150), 0);
	assert_int_equal(find(-1, 150, 150), 0);
	assert_int_equal(find(INT32_MAX, 150, 150), 0);
	teardown();
}

static void test_processes(void **state)
{
	(void)state;
	two_cpus();
	assert_int_equal(who_ran_process(f.who_ran, 11), 10);
	assert_int_equal(who_ran_process(f.who_ran, 31), 30);
	assert_int_equal(who_ran_process(f.who_ran, 12345), 0);
	teardown();
	setup();
	make_comm(&f.make, 1, 40, 41, "first", 0);
	make_comm(&f.make, 9, 50, 41, "second", 0);
	finish();
	assert_int_equal(who_ran_process(f.who_ran, 41), 50);
	teardown();
}

/* Without who is next: nobody is known until the next one comes. */
static void test_halves(void **state)
{
	(void)state;
	setup();
	make_switch(&f.make, 100, 10, 11, 0);
	make_switch(&f.make, 200, 10, 11, 1);
	make_switch(&f.make, 300, 10, 12, 0);
	finish();
	assert_int_equal(find(0, 150, 150), 1);
	is_span(0, 100, 200, 10, 11);
	assert_int_equal(find(0, 250, 250), 0);
	assert_int_equal(find(0, 250, 300), 1);
	is_span(0, 300, UINT64_MAX, 10, 12);
	teardown();
}

/* The clock may stand still over a switch, and over two of them. */
static void test_equal_times(void **state)
{
	(void)state;
	setup();
	/* out and in of one switch, in either order; the half that knows less does not hide the other */
	make_switch(&f.make, 100, 1, 2, 1);
	make_switch(&f.make, 100, 3, 4, 0);
	make_switch(&f.make, 200, 5, 6, 0);
	make_switch(&f.make, 200, 3, 4, 1);
	/* two switches at once: the last one holds */
	make_switch_wide(&f.make, 300, 0, 5, 6, 7, 8, 1);
	make_switch_wide(&f.make, 300, 0, 7, 8, 5, 6, 0);
	make_switch_wide(&f.make, 300, 0, 7, 8, 9, 10, 1);
	make_switch_wide(&f.make, 300, 0, 9, 10, 7, 8, 0);
	finish();
	assert_int_equal(find(0, 150, 150), 1);
	is_span(0, 100, 200, 3, 4);
	assert_int_equal(find(0, 250, 250), 1);
	is_span(0, 200, 300, 5, 6);
	assert_int_equal(find(0, 300, 300), 1);
	is_span(0, 300, UINT64_MAX, 9, 10);
	teardown();
}

/* Tracing began when somebody ran, long before the first switch. */
static void test_start(void **state)
{
	(void)state;
	setup();
	make_begin(&f.make, 12, 0); /* ITRACE_START */
	make_u32(&f.make, 10, 11);
	make_end_with_id(&f.make, 10, 11, 50, 0);
	make_switch_wide(&f.make, 100, 0, 10, 11, 20, 21, 1);
	finish();
	assert_int_equal(find(0, 60, 60), 1);
	is_span(0, 50, 100, 10, 11);
	assert_int_equal(who_ran_process(f.who_ran, 11), 10);
	teardown();
}

/* Records that say the same again begin nothing new. */
static void test_repeated(void **state)
{
	(void)state;
	setup();
	for (uint64_t i = 0; i < 1000; i++)
		make_switch_wide(&f.make, 100 + i, 0, 10, 11, 0, 0, 0);
	finish();
	assert_int_equal(find(0, 0, UINT64_MAX), 1);
	is_span(0, 100, UINT64_MAX, 10, 11);
	teardown();
}

static void test_little_memory(void **state)
{
	struct who_ran *o;
	uint64_t used;

	(void)state;
	two_cpus();
	used = f.budget.used;
	f.budget.max = used;
	assert_int_equal(who_ran_new(&f.budget, &o), 0);
	assert_int_equal(perfdata_walk(f.pd, record, o), -ENOMEM);
	who_ran_free(o);
	assert_int_equal(f.budget.used, used);
	teardown();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_halves),
		cmocka_unit_test(test_equal_times),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_little_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
