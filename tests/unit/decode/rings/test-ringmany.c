// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that write what costs most: a quarter of a million of one thing. Where the work grew
 * with the square of that, these would not come to an end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/control/json.h"
#include "decode/rings/event.h"
#include "tests/unit/decode/rings/ringfile-make.h"

#define SLOTS (1u << 18)
#define WRITTEN (SLOTS - RING_SPAN_MAX)
#define T0 UINT64_C(8000000000)
/* of all threads and fibers together */
#define MAX_STACKS 65536u

typedef void (*write_fn)(struct ringmake *m, uint32_t i);

static uint32_t name;

static void begins(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_REGION_BEGIN, T0 + i, name, 0, 0, NULL);
}

static void begins_at_once(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_REGION_BEGIN, T0, name, 0, 0, NULL);
}

/* Begins, then ends that are of none of them though their time is. */
static void ends_of_others(struct ringmake *m, uint32_t i)
{
	if (i < WRITTEN / 2)
		ringmake_record(m, 0, RING_REGION_BEGIN, T0, name, 0, 0, NULL);
	else
		ringmake_record(m, 0, RING_REGION_END, T0 + 1, name + 1, T0, 0, NULL);
}

/* Each around the one before: begins are made for all. */
static void ends_inside_out(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_REGION_END, T0 + i, name, T0 - 1 - i, 0, NULL);
}

/* Each crosses all before. */
static void ends_crossing(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_REGION_END, T0 + i, name, T0 - SLOTS + i, 0, NULL);
}

static void deep(struct ringmake *m, uint32_t i)
{
	if (i < WRITTEN / 2)
		ringmake_record(m, 0, RING_REGION_BEGIN, T0 + i, name, 0, 0, NULL);
	else
		ringmake_record(m, 0, RING_REGION_END, T0 + i, name, T0 + WRITTEN - 1 - i, 0, NULL);
}

static void task_begins(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_TASK_BEGIN, T0 + i, name, 1 + i, 0, NULL);
}

static void task_ends(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_TASK_END, T0 + i, name, 1 + i, T0 - i, NULL);
}

static void one_task(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, i % 2 ? RING_TASK_END : RING_TASK_BEGIN, T0 + i, name, 1,
			i % 2 ? T0 + i - 1 : 0, NULL);
}

static void fibers(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_FIBER, T0 + i, name, 1 + (uint64_t)i * 0x100000001, i, NULL);
}

static void threads(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_THREAD, T0 + i, name, 1 + i, i, NULL);
}

static void unknown_threads(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_THREAD, T0 + i, name, UINT32_MAX - i, 0, NULL);
}

static void names(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_INSTANT, T0 + i, i, 0, 0, NULL);
}

/* Spans that are not there. */
static void spans(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_INSTANT | RING_SPAN_MAX << RING_SPAN_SHIFT, T0, name, 0, 0,
			NULL);
}

static void orphans(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, i ? RING_CONT : RING_INSTANT | RING_SPAN_MAX << RING_SPAN_SHIFT, T0,
			name, 0, 0, NULL);
}

/* Falling, and in steps that are too large. */
static void falling(struct ringmake *m, uint32_t i)
{
	ringmake_record(m, 0, RING_INSTANT, T0 - i * UINT64_C(20000), name, 0, 0, NULL);
}

static uint64_t count_of(struct json_object *o, const char *key)
{
	uint64_t n = 0;

	(void)json_get_uint(o, key, &n);
	return n;
}

/* Returns how many events were handed out; *ret_losses must be given back. */
static size_t run(write_fn write, uint64_t memory, struct json_object **ret_losses)
{
	const struct ringmake_options o = {.rings = 1, .slots = SLOTS};
	_cleanup_(ringmake_freep) struct ringmake *m = ringmake_new(&o);
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *losses = json_object_new_object();
	_cleanup_close_ int fd = -1;
	struct budget budget = {.max = memory};
	struct ringevent ev;
	size_t n = 0;

	assert_non_null(m);
	name = ringmake_name(m, "one");
	ringmake_name(m, "two");
	for (uint32_t i = 0; i < WRITTEN; i++)
		write(m, i);
	fd = ringmake_file(m);
	assert_int_equal(ringevents_new(NULL, 0, &budget, &r), 0);
	assert_int_equal(ringevents_add(r, fd), 0);
	assert_int_equal(ringevents_finish(r), 0);
	assert_true(budget.used <= budget.max);
	while (ringevents_next(r, &ev))
		n += ev.kind != RINGEVENT_LOST;
	ringevents_report(r, stats, losses);
	assert_int_equal(count_of(stats, "events"), n);
	r = ringevents_free(r);
	assert_int_equal(budget.used, 0);
	*ret_losses = take_ptr(losses);
	return n;
}

static void test_many(void **state)
{
	/* what comes out, the thread at the edge included, and one loss */
	static const struct {
		write_fn write;
		size_t events;
		const char *loss;
		uint64_t lost;
	} cases[] = {
		{begins, WRITTEN + 1, "", 0},
		{begins_at_once, WRITTEN + 1, "", 0},
		{ends_of_others, 2 * WRITTEN - WRITTEN / 2 + 1, "", 0},
		{ends_inside_out, 2 * WRITTEN + 1, "", 0},
		{ends_crossing, 3, "regions_crossing", WRITTEN - 1},
		{deep, WRITTEN + 1, "", 0},
		{task_begins, WRITTEN + 1, "", 0},
		{task_ends, 2 * WRITTEN + 1, "", 0},
		{one_task, WRITTEN + 1, "", 0},
		{fibers, MAX_STACKS, "events_over_limits", WRITTEN + 1 - MAX_STACKS},
		{threads, MAX_STACKS, "events_over_limits", WRITTEN - MAX_STACKS},
		{unknown_threads, MAX_STACKS, "events_over_limits", WRITTEN - MAX_STACKS},
		{names, WRITTEN + 1, "names_unknown", WRITTEN - 3},
		{spans, 0, "events_torn", WRITTEN},
		{orphans, 2, "events_malformed", WRITTEN - 1 - RING_SPAN_MAX},
		{falling, 50002, "stamps_wrong", WRITTEN - 50001},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_json_ struct json_object *losses = NULL;
		size_t n = run(cases[i].write, 512 << 20, &losses);

		if (n != cases[i].events || count_of(losses, cases[i].loss) != cases[i].lost)
			fail_msg("case %zu: %zu events, %s", i, n,
				 json_object_to_json_string(losses));
	}
}

/*
 * Less memory than it takes: what does not fit is counted, and that it is no more than it may be.
 */
static void test_small_budget(void **state)
{
	static const write_fn writes[] = {begins, ends_inside_out, fibers, task_ends, names};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(writes); i++) {
		for (uint64_t memory = 9 << 20; memory < 60 << 20; memory += 7 << 20) {
			_cleanup_json_ struct json_object *losses = NULL;
			size_t n = run(writes[i], memory, &losses);

			assert_true(n > 0);
			if (memory < 16 << 20)
				assert_true(count_of(losses, "events_over_memory") > 0);
		}
		_cleanup_json_ struct json_object *losses = NULL;

		assert_int_equal(run(writes[i], 1 << 20, &losses), 0);
		assert_int_equal(count_of(losses, "ring_files_over_memory"), 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_small_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
