// SPDX-License-Identifier: Apache-2.0
/*
 * Who is paused: begun twice, ended late, more than there is room for, lost reports, threads that
 * have ended.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/control/json.h"
#include "daemon/backend/pt/pauses.h"

static uint32_t self(void)
{
	return (uint32_t)getpid();
}

static void test_life(void **state)
{
	struct pt_pauses p = {0};

	(void)state;
	pt_pauses_begin(&p, 1, self(), 100);
	pt_pauses_begin(&p, 1, self(), 150); /* it was paused already */
	pt_pauses_end(&p, 2, self(), 200);   /* on another CPU */
	pt_pauses_end(&p, 1, self(), 100);   /* a report of before */
	assert_int_equal(pt_pauses_count(&p), 1);
	pt_pauses_end(&p, 1, self(), 300);
	assert_int_equal(pt_pauses_count(&p), 0);
	assert_int_equal(p.n, 1);
	assert_true(p.v[0].from_ns == 100 && p.v[0].to_ns == 300);
	pt_pauses_begin(&p, 1, self(), 400);
	assert_int_equal(pt_pauses_count(&p), 1);
	assert_int_equal(p.n, 2);
}

/* A thread that has ended is nobody who could go on, and was not traced until then. */
static void test_ended(void **state)
{
	struct pt_pauses p = {0};
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	pt_pauses_begin(&p, 0, (uint32_t)pid, 100);
	pt_pauses_begin(&p, 0, self(), 100);
	assert_int_equal(pt_pauses_count(&p), 1);
	assert_true(p.n == 2 && p.v[0].to_ns > 100 && p.v[1].to_ns == 0);
}

static void test_full(void **state)
{
	struct pt_pauses p = {0};

	(void)state;
	for (uint32_t i = 0; i < PT_PAUSES_MAX; i++)
		pt_pauses_begin(&p, (int)i, self(), 100 + i);
	assert_int_equal(p.unknown_ns, 0);
	/* the oldest that is over gives its place, and nothing is lost */
	pt_pauses_end(&p, 7, self(), 5000);
	pt_pauses_begin(&p, PT_PAUSES_MAX, self(), 6000);
	assert_int_equal(p.unknown_ns, 0);
	assert_int_equal(pt_pauses_count(&p), PT_PAUSES_MAX);
	/* no place: from then on nobody knows */
	pt_pauses_begin(&p, PT_PAUSES_MAX + 1, self(), 7000);
	pt_pauses_begin(&p, PT_PAUSES_MAX + 2, self(), 8000);
	assert_int_equal(p.unknown_ns, 7000);
}

/* Who is seen to go on is known again, from the loss on, once. */
static void test_lost(void **state)
{
	struct pt_pauses p = {0};
	const int cpus[] = {0, 3};
	struct json_object *gaps = json_object_new_array();
	const char *text;

	(void)state;
	pt_pauses_end(&p, 0, self(), 50); /* nothing is lost: it was not paused */
	assert_int_equal(p.n, 0);
	pt_pauses_lose(&p, 100);
	pt_pauses_lose(&p, 200);
	assert_int_equal(p.unknown_ns, 100);
	pt_pauses_end(&p, 3, self(), 300);
	pt_pauses_end(&p, 3, self(), 400);
	assert_int_equal(p.n, 1);
	assert_true(p.v[0].cpu == 3 && p.v[0].from_ns == 100 && p.v[0].to_ns == 300);
	/* also if it is known to have been paused later */
	pt_pauses_begin(&p, 0, self(), 350);
	pt_pauses_end(&p, 0, self(), 360);
	assert_true(p.n == 2 && p.v[1].from_ns == 100 && p.v[1].to_ns == 360);
	p.n = 1;
	pt_pauses_meta(&p, cpus, 2, 1000, gaps);
	assert_int_equal(json_object_array_length(gaps), 3);
	text = json_object_to_json_string_ext(json_object_array_get_idx(gaps, 1),
					      JSON_C_TO_STRING_PLAIN);
	assert_string_equal(
		text,
		"{\"kind\":\"threads may not be traced on cpu 0: paused by a trigger\",\"blind_cpu\":0,"
		"\"blind_unknown\":true,\"from_ns\":100,\"to_ns\":1000}");
	json_object_put(gaps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
