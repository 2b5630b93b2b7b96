// SPDX-License-Identifier: Apache-2.0
/* Who gets which event, and what a full queue does to the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/control/protocol.h"
#include "daemon/control/subscribers.h"

struct reader {
	bool full;
	unsigned int got;
	int64_t seq, missed;
};

static bool deliver(void *arg, struct json_object *message)
{
	struct reader *r = arg;

	if (r->full)
		return false;
	r->got++;
	assert_true(json_get_int(message, "seq", &r->seq));
	assert_true(json_get_int(message, "missed", &r->missed));
	assert_non_null(json_get_object(message, "data"));
	return true;
}

static uint64_t only(const char *event)
{
	return UINT64_C(1) << protocol_event_find(event);
}

static void test_visibility(void **state)
{
	struct reader admin = {0}, owner = {0}, other = {0}, picky = {0};
	struct subscriber *s[4];
	struct hub *h = NULL;

	(void)state;
	assert_int_equal(hub_new(&h), 0);
	assert_int_equal(subscriber_new(h, 0, true, UINT64_MAX, deliver, &admin, &s[0]), 0);
	assert_int_equal(subscriber_new(h, 1000, false, UINT64_MAX, deliver, &owner, &s[1]), 0);
	assert_int_equal(subscriber_new(h, 1001, false, UINT64_MAX, deliver, &other, &s[2]), 0);
	assert_int_equal(subscriber_new(h, 1000, false, only("target.state"), deliver, &picky,
					&s[3]),
			 0);
	hub_emit(h, "snapshot.state", 1000, json_object_new_object());
	assert_int_equal(admin.got, 1);
	assert_int_equal(owner.got, 1);
	assert_int_equal(other.got, 0);
	assert_int_equal(picky.got, 0);
	hub_emit(h, "target.state", 1000, json_object_new_object());
	assert_int_equal(picky.got, 1);
	assert_int_equal(picky.seq, 1); /* its own numbers: no gap where there was nothing for it */
	hub_emit(h, "daemon.stopping", HUB_EVERYBODY, json_object_new_object());
	assert_int_equal(other.got, 1);
	for (int i = 0; i < 4; i++)
		s[i] = subscriber_free(s[i]);
	hub_emit(h, "target.state", 0, json_object_new_object());
	assert_int_equal(admin.got, 3);
	hub_free(h);
}

static void test_missed(void **state)
{
	struct reader slow = {0}, quick = {0};
	struct subscriber *s[2];
	struct hub_stats stats;
	struct hub *h = NULL;

	(void)state;
	assert_int_equal(hub_new(&h), 0);
	assert_int_equal(subscriber_new(h, 0, true, UINT64_MAX, deliver, &slow, &s[0]), 0);
	assert_int_equal(subscriber_new(h, 0, true, UINT64_MAX, deliver, &quick, &s[1]), 0);
	hub_emit(h, "target.state", 5, json_object_new_object());
	slow.full = true;
	for (int i = 0; i < 7; i++)
		hub_emit(h, "target.state", 5, json_object_new_object());
	slow.full = false;
	hub_emit(h, "target.state", 5, json_object_new_object());
	assert_int_equal(slow.got, 2);
	assert_int_equal(slow.missed, 7);
	assert_int_equal(slow.seq, 9);
	assert_int_equal(quick.got, 9);
	assert_int_equal(quick.missed, 0);
	hub_emit(h, "target.state", 5, json_object_new_object());
	assert_int_equal(slow.missed, 0);
	hub_get_stats(h, &stats);
	assert_int_equal(stats.emitted, 10);
	assert_int_equal(stats.missed, 7);
	assert_int_equal(stats.subscribers, 2);
	subscriber_free(s[0]);
	subscriber_free(s[1]);
	hub_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_visibility),
		cmocka_unit_test(test_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
