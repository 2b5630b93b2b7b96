// SPDX-License-Identifier: Apache-2.0
/* An AUX area: empty, begun, come around, exactly full; and that coming around is not forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/perf/aux.h"

#define SIZE 4096u

struct tracer {
	uint8_t bytes[SIZE];
	uint64_t written;
	struct aux aux;
};

static uint8_t byte_at(uint64_t n)
{
	return (uint8_t)(n % 251 + 1); /* no zero, and no period of the size */
}

static void trace(struct tracer *t, uint64_t n)
{
	for (; n > 0; n--, t->written++)
		t->bytes[t->written % SIZE] = byte_at(t->written);
}

static int setup(void **state)
{
	struct tracer *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->aux = (struct aux){.base = t->bytes, .size = SIZE};
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* The copy is the last bytes that were written, the oldest first. */
static void check(struct tracer *t, uint64_t want)
{
	struct aux_copy copy;

	assert_int_equal(aux_copy(&t->aux, t->written % SIZE, &copy), 0);
	assert_int_equal(copy.len, want);
	for (size_t i = 0; i < copy.len; i++)
		assert_int_equal(copy.data[i], byte_at(t->written - want + i));
	assert_int_equal(copy.wrapped, t->written >= SIZE);
	aux_copy_fini(&copy);
}

static void test_begin(void **state)
{
	struct tracer *t = *state;

	check(t, 0);
	trace(t, 1);
	check(t, 1);
	trace(t, 1000);
	check(t, 1001);
	trace(t, SIZE - 1002);
	check(t, SIZE - 1);
}

static void test_full(void **state)
{
	struct tracer *t = *state;

	trace(t, SIZE);
	check(t, SIZE);
}

static void test_around(void **state)
{
	struct tracer *t = *state;

	for (int i = 0; i < 100; i++) {
		trace(t, 777);
		check(t, t->written < SIZE ? t->written : SIZE);
	}
}

/* Zeros are padding: a tracer may write as many as it likes, so what was seen once stays known. */
static void test_around_is_remembered(void **state)
{
	struct tracer *t = *state;
	struct aux_copy copy;

	trace(t, SIZE + 10);
	check(t, SIZE);
	memset(t->bytes, 0, SIZE);
	assert_int_equal(aux_copy(&t->aux, 100, &copy), 0);
	assert_int_equal(copy.len, SIZE);
	assert_true(copy.wrapped);
	aux_copy_fini(&copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_begin, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_around, setup, teardown),
		cmocka_unit_test_setup_teardown(test_around_is_remembered, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
