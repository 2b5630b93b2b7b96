// SPDX-License-Identifier: Apache-2.0
#include "common/base/hashmap.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define KEYS 500u

/* Puts and drops in a mixed order, compared with an array. */
static void mix(struct hashmap *m)
{
	uint64_t model[KEYS] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t k = i * 7919u % KEYS;

		if (i % 3) {
			model[k] = i + 1;
			assert_int_equal(hashmap_put(m, k % 3, (uint64_t)k << 40, i + 1), 0);
		} else {
			model[k] = 0;
			hashmap_drop(m, k % 3, (uint64_t)k << 40);
		}
	}
	for (uint32_t k = 0; k < KEYS; k++) {
		n += model[k] != 0;
		assert_int_equal(hashmap_get(m, k % 3, (uint64_t)k << 40), model[k]);
		assert_int_equal(hashmap_get(m, k % 3 + 1, (uint64_t)k << 40), 0);
	}
	assert_int_equal(m->n, n);
	assert_true(m->n <= m->size / 2);
}

static void test_model(void **state)
{
	_cleanup_(hashmap_fini) struct hashmap seeded = {.n = 0}, ordered = {.ordered = true};

	(void)state;
	assert_int_equal(hashmap_get(&seeded, 1, 1), 0);
	hashmap_drop(&seeded, 1, 1);
	mix(&seeded);
	mix(&ordered);
}

/* Each once, whatever the order. */
static void test_walk(void **state)
{
	_cleanup_(hashmap_fini) struct hashmap m = {.n = 0};
	uint64_t value, sum = 0;
	uint32_t pos = 0, n = 0;

	(void)state;
	assert_int_equal(hashmap_next(&m, &pos), 0);
	for (uint32_t i = 1; i <= 1000; i++)
		assert_int_equal(hashmap_put(&m, 0, i, i), 0);
	for (; (value = hashmap_next(&m, &pos)) != 0; n++)
		sum += value;
	assert_int_equal(n, 1000);
	assert_int_equal(sum, 500500);
}

/*
 * The order of an ordered map shows in traces: it is part of what decoding the same input again
 * must give.
 */
static void test_order(void **state)
{
	static const uint64_t expected[] = {4002, 4000, 1, 4003, 4001};
	_cleanup_(hashmap_fini) struct hashmap m = {.ordered = true};
	uint32_t pos = 0;

	(void)state;
	for (uint64_t id = 4000; id < 4004; id++)
		assert_int_equal(hashmap_put(&m, 0, id, id), 0);
	assert_int_equal(hashmap_put(&m, 0, 1, 1), 0);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		assert_int_equal(hashmap_next(&m, &pos), expected[i]);
}

static void test_more_bytes(void **state)
{
	_cleanup_(hashmap_fini) struct hashmap m = {.n = 0};
	size_t bytes = 0;

	(void)state;
	for (uint32_t i = 1; i <= 1000; i++) {
		bytes += hashmap_more_bytes(&m);
		assert_int_equal(hashmap_put(&m, 0, i, i), 0);
	}
	assert_int_equal(bytes, m.size * sizeof(*m.slots));
}

/*
 * At the bound (and so without memory) nothing changes, and what is there can be read, replaced by
 * nobody, and dropped.
 */
static void test_bound(void **state)
{
	struct hashmap_slot slot = {.id = 5, .value = 7};
	struct hashmap m = {.slots = &slot, .n = HASHMAP_MAX / 2, .size = HASHMAP_MAX};

	(void)state;
	assert_int_equal(hashmap_put(&m, 0, 6, 1), -ENOMEM);
	assert_ptr_equal(m.slots, &slot);
	assert_int_equal(m.size, HASHMAP_MAX);
	assert_int_equal(m.n, HASHMAP_MAX / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_more_bytes),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
