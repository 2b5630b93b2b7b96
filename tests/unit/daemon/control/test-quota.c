// SPDX-License-Identifier: Apache-2.0
/* Charges, refusals and refunds; the limiter of audit lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/config.h"
#include "daemon/control/audit.h"
#include "daemon/control/quota.h"

#define SOMEBODY 4711

static void setup(struct quota *q)
{
	static struct config c = {.uid_connections = 3, .uid_ring_mib = 1, .uid_targets = 2};

	quota_init(q, &c);
	q->exempt = 99;
}

static void test_limit(void **state)
{
	struct quota_charge c[4] = {{0}};
	struct quota q;

	(void)state;
	setup(&q);
	for (int i = 0; i < 3; i++)
		assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_CONNECTIONS, 1, &c[i]), 0);
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_CONNECTIONS, 1, &c[3]), QUOTA_E_EXCEEDED);
	assert_null(c[3].user);
	assert_int_equal(q.refused, 1);
	/* Somebody else, and another kind, are not concerned. */
	assert_int_equal(quota_charge(&q, SOMEBODY + 1, QUOTA_CONNECTIONS, 1, &c[3]), 0);
	quota_release(&c[3]);
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_TARGETS, 1, &c[3]), 0);
	quota_release(&c[3]);
	quota_release(&c[1]);
	quota_release(&c[1]); /* once is enough */
	assert_int_equal(quota_used(&q, SOMEBODY, QUOTA_CONNECTIONS), 2);
	assert_int_equal(quota_left(&q, SOMEBODY, QUOTA_CONNECTIONS), 1);
	assert_int_equal(quota_left(&q, SOMEBODY + 1, QUOTA_CONNECTIONS), 3);
	assert_true(quota_left(&q, 0, QUOTA_CONNECTIONS) == UINT64_MAX);
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_CONNECTIONS, 1, &c[1]), 0);
	for (int i = 0; i < 4; i++)
		quota_release(&c[i]);
	assert_int_equal(q.totals[QUOTA_CONNECTIONS], 0);
	quota_fini(&q);
}

static void test_amounts(void **state)
{
	struct quota_charge a = {0}, b = {0};
	struct quota q;

	(void)state;
	setup(&q);
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_RING_BYTES, 1 << 20, &a), 0);
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_RING_BYTES, 1, &b), QUOTA_E_EXCEEDED);
	/* A sum that wraps is no sum, whoever asks. */
	assert_int_equal(quota_charge(&q, SOMEBODY, QUOTA_RING_BYTES, UINT64_MAX, &b),
			 QUOTA_E_EXCEEDED);
	assert_int_equal(quota_charge_forced(&q, SOMEBODY, QUOTA_RING_BYTES, UINT64_MAX, &b),
			 QUOTA_E_EXCEEDED);
	assert_int_equal(quota_charge_forced(&q, SOMEBODY, QUOTA_RING_BYTES, 5, &b), 0);
	assert_int_equal(quota_used(&q, SOMEBODY, QUOTA_RING_BYTES), (1 << 20) + 5);
	/*
	 * An amount that is known only later is what is refunded, and what others may have beside
	 * it.
	 */
	quota_resize(&b, 100);
	assert_int_equal(quota_used(&q, SOMEBODY, QUOTA_RING_BYTES), (1 << 20) + 100);
	assert_int_equal(q.totals[QUOTA_RING_BYTES], (1 << 20) + 100);
	quota_resize(&b, 0);
	assert_int_equal(quota_used(&q, SOMEBODY, QUOTA_RING_BYTES), 1 << 20);
	quota_release(&a);
	assert_int_equal(q.totals[QUOTA_RING_BYTES], 0);
	quota_release(&b);
	quota_resize(&b, 7); /* nothing is charged by what was released */
	quota_fini(&q);
}

static void test_exempt(void **state)
{
	static const uid_t uids[] = {0, 99};
	struct quota_charge c[10] = {{0}};
	struct quota q;

	(void)state;
	setup(&q);
	for (size_t u = 0; u < ARRAY_SIZE(uids); u++) {
		for (size_t i = 0; i < ARRAY_SIZE(c); i++)
			assert_int_equal(quota_charge(&q, uids[u], QUOTA_CONNECTIONS, 1, &c[i]), 0);
		assert_int_equal(quota_used(&q, uids[u], QUOTA_CONNECTIONS), ARRAY_SIZE(c));
		for (size_t i = 0; i < ARRAY_SIZE(c); i++)
			quota_release(&c[i]);
	}
	quota_fini(&q);
}

static void test_audit_rate(void **state)
{
	static struct audit a;
	uint64_t now = 1000000000, dropped = 0;
	unsigned int lines = 0;

	(void)state;
	for (int i = 0; i < 1000; i++)
		lines += audit_allow(&a, SOMEBODY, now, &dropped);
	assert_int_equal(lines, AUDIT_BURST);
	/* Another user is not silenced by it. */
	assert_true(audit_allow(&a, SOMEBODY + 1, now, &dropped));
	assert_int_equal(dropped, 0);
	now += 1000000000;
	assert_true(audit_allow(&a, SOMEBODY, now, &dropped));
	assert_int_equal(dropped, 1000 - AUDIT_BURST);
	/* More users than are remembered: still bounded, nobody is refused a first line. */
	for (unsigned int u = 0; u < 1000; u++)
		assert_true(audit_allow(&a, 10000 + u, now + u, &dropped));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_amounts),
		cmocka_unit_test(test_exempt),
		cmocka_unit_test(test_audit_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
