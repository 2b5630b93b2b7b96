// SPDX-License-Identifier: Apache-2.0
/*
 * Who ran on a CPU between two times, from records of switches: whole ones, halves, equal times,
 * nothing at all.
 */
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
#include "decode/pt/blind.h"
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

static const struct pt_blind *blind(const struct pt_blind *v, size_t n, uint32_t tid, uint64_t from,
				    uint64_t to)
{
	return pt_blind_find(v, n, f.who_ran, tid, from, to);
}

static void test_blind(void **state)
{
	struct pt_blind any = {.cpu = 1, .from = 120, .to = 150},
			own = {.cpu = 1, .tid = 21, .from = 220, .to = 250};
	struct pt_blind both[] = {own, any, {.cpu = 1, .from = 130, .to = 400, .unknown = true}};
	struct pt_blind elsewhere = {.cpu = 7, .from = 120, .to = 150};
	struct pt_blind late = {.cpu = 2, .from = 100, .to = 400, .late = true, .unseen = true};

	(void)state;
	two_cpus();
	pt_blind_sort(&any, 1);
	pt_blind_sort(&own, 1);
	pt_blind_sort(both, 3);
	pt_blind_sort(&elsewhere, 1);
	pt_blind_sort(&late, 1);
	/* who ran there at that time, and stopped before its end, and goes on after its begin */
	assert_ptr_equal(blind(&any, 1, 11, 110, 160), &any);
	assert_ptr_equal(blind(&any, 1, 11, 140, 145), &any);
	assert_null(blind(&any, 1, 11, 100, 120));
	assert_null(blind(&any, 1, 11, 150, 190));
	assert_null(blind(&any, 1, 21, 110, 260)); /* it was another's turn */
	/*
	 * nobody knows who ran there: whoever was not on another CPU all the time, also if the CPU
	 * has records of others, from before
	 */
	assert_null(blind(&late, 1, 11, 110, 190));
	assert_ptr_equal(blind(&late, 1, 11, 110, 210), &late);
	assert_ptr_equal(blind(&late, 1, 31, 200, 300), &late);
	assert_null(blind(&any, 1, 31, 110, 260)); /* on another CPU */
	assert_ptr_equal(blind(&own, 1, 21, 210, 260), &own);
	assert_null(blind(&own, 1, 11, 110, 260));
	/*
	 * the first of them; one of nobody knows whom is not of those that have their own, one of
	 * all is
	 */
	assert_ptr_equal(blind(both, 3, 11, 110, 400), &both[0]);
	assert_ptr_equal(blind(both, 3, 11, 151, 400), &both[1]);
	assert_ptr_equal(blind(both, 3, 21, 110, 400), &both[2]);
	assert_null(blind(both, 3, 21, 251, 400));
	both[1].unknown = false;
	assert_ptr_equal(blind(both, 3, 21, 251, 400), &both[1]);
	/* of a CPU of which nothing is known it may be anybody */
	assert_ptr_equal(blind(&elsewhere, 1, 11, 110, 160), &elsewhere);
	assert_null(blind(NULL, 0, 11, 0, UINT64_MAX));
	teardown();
	/* without who is next: only its own times are known, and those are enough */
	setup();
	make_switch(&f.make, 100, 10, 11, 0);
	make_switch(&f.make, 110, 10, 11, 1);
	make_switch(&f.make, 300, 10, 11, 0);
	finish();
	assert_null(blind(&(struct pt_blind){.cpu = 0, .from = 120, .to = 150, .latest = 150}, 1,
			  11, 105, 310));
	assert_non_null(blind(&(struct pt_blind){.cpu = 0, .from = 105, .to = 150, .latest = 150},
			      1, 11, 104, 310));
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
	/*
	 * out and in of one switch, in either order; the half that knows less does not hide the
	 * other
	 */
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

/*
 * Without a switch a thread has the number of its process when it has executed a program; another
 * name changes nothing.
 */
static void test_exec(void **state)
{
	(void)state;
	setup();
	make_comm(&f.make, 0, 10, 11, "from before", 1);
	make_switch(&f.make, 100, 10, 11, 0);
	make_comm(&f.make, 120, 10, 12, "named by another", 0);
	make_comm(&f.make, 150, 10, 10, "program", 1);
	make_comm(&f.make, 160, 20, 20, "of another CPU", 1);
	make_switch(&f.make, 200, 10, 10, 1);
	finish();
	assert_int_equal(find(0, 90, 90), 0);
	assert_int_equal(find(0, 140, 170), 2);
	is_span(0, 100, 150, 10, 11);
	is_span(1, 150, 200, 10, 10);
	teardown();
}

/* After the end it is nobody whom a record names, but where one is later. */
static void test_end(void **state)
{
	(void)state;
	two_cpus();
	assert_int_equal(who_ran_end(f.who_ran, 200, UINT32_MAX), 0);
	assert_int_equal(find(1, 350, 350), 1);
	is_span(0, 300, UINT64_MAX, 0, 0);
	assert_int_equal(find(2, 199, 250), 2);
	is_span(0, 150, 200, 30, 31);
	is_span(1, 200, UINT64_MAX, UINT32_MAX, UINT32_MAX);
	assert_int_equal(find(3, 250, 250), 0);
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
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_halves),
		cmocka_unit_test(test_equal_times),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_little_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
