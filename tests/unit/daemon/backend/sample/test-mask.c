// SPDX-License-Identifier: Apache-2.0
/* What a copy shows of other targets, users and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/mask.h"
#include "tests/unit/daemon/perf/record-make.h"

static enum mask_answer mask(const struct frozen *f, const struct tracerd_sched_event *ev,
			     uint32_t pid, uint32_t tid, struct record_view *v,
			     struct tracerd_sched_event *ret)
{
	static struct record_made b;
	enum mask_answer answer;

	record_make(&b, ev, pid, tid);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, v), 0);
	answer = mask_sched(f, v);
	if (answer == MASK_KEEP)
		assert_true(record_sched(v, ret));
	return answer;
}

static void test_foreign(void **state)
{
	struct frozen_member members[] = {{.pid = 100, .from_ns = 500, .to_ns = UINT64_MAX},
					  {.pid = 200, .from_ns = 0, .to_ns = 900}};
	struct frozen f = {.scope = TARGET_PROCESS,
			   .owner = 1000,
			   .waits = true,
			   .members = members,
			   .n_members = 2};
	struct tracerd_sched_event ev = record_example, out;
	struct record_view v;

	/* Who ran instead is another user's: neither name nor number. */
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_string_equal(out.other_comm, "other");
	assert_true(out.other_pid == SCHEDEV_MASKED_ID && out.other_tid == SCHEDEV_MASKED_ID &&
		    out.other_uid == SCHEDEV_MASKED_ID);
	assert_true(out.flags & SCHEDEV_OTHER_MASKED);
	assert_int_equal(v.chain[3], 0x401000); /* the stack is the target's own */
	/* The reader's own, the target's own, the idle task, and an admin's view. */
	ev.other_uid = 1000;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_string_equal(out.other_comm, "secret");
	ev = record_example;
	ev.other_pid = 100;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_string_equal(out.other_comm, "secret");
	ev = record_example;
	ev.other_tid = ev.other_pid = 0;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_int_equal(out.other_tid, 0);
	f.admin = true;
	assert_int_equal(mask(&f, &record_example, 100, 101, &v, &out), MASK_KEEP);
	assert_string_equal(out.other_comm, "secret");
	f.admin = false;

	/* At a switch-in the program ran on the other's stack. */
	ev = record_example;
	ev.kind = SCHEDEV_IN;
	assert_int_equal(mask(&f, &ev, 900, 901, &v, &out), MASK_KEEP);
	assert_int_equal(*v.pid, 100);
	assert_int_equal(*v.tid, 101);
	assert_int_equal(v.chain[3], (uint64_t)PERF_CONTEXT_USER);

	/* Unless its record has the stack of the wait that ends: where it could be seen then. */
	ev.flags = SCHEDEV_WAITED;
	ev.state = 0;
	ev.call = 400; /* since 600 */
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_true(out.flags & SCHEDEV_WAITED);
	assert_int_equal(v.chain[3], 0x401000);
	ev.call = 600; /* since 400 */
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_false(out.flags & SCHEDEV_WAITED);
	assert_int_equal(v.chain[3], (uint64_t)PERF_CONTEXT_USER);
	ev.state = 1; /* longer than there is time */
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_false(out.flags & SCHEDEV_WAITED);
	ev.state = ev.call = 0;

	/* A waker of another target on the same rings: its stack goes. One of this: it stays. */
	ev.kind = SCHEDEV_WAKEUP;
	ev.flags = SCHEDEV_WAKER_TARGET;
	ev.call = 7;
	assert_int_equal(mask(&f, &ev, 900, 901, &v, &out), MASK_KEEP);
	assert_false(out.flags & SCHEDEV_WAKER_TARGET);
	assert_int_equal(out.call, 0); /* another user's */
	assert_int_equal(v.chain[3], (uint64_t)PERF_CONTEXT_USER);
	ev.other_pid = 100;
	ev.other_tid = 102;
	assert_int_equal(mask(&f, &ev, 100, 102, &v, &out), MASK_KEEP);
	assert_true(out.flags & SCHEDEV_WAKER_TARGET);
	assert_int_equal(out.call, 7);
	assert_int_equal(*v.tid, 102);
	assert_int_equal(v.chain[3], 0x401000);

	/* Subjects that are not, or not any more, of the target. */
	ev = record_example;
	ev.pid = 300;
	assert_int_equal(mask(&f, &ev, 300, 300, &v, &out), MASK_FOREIGN);
	ev.pid = 200; /* ended at 900, the record is of 1000 */
	assert_int_equal(mask(&f, &ev, 200, 200, &v, &out), MASK_FOREIGN);
	f.scope = TARGET_THREAD;
	f.tid = 555;
	assert_int_equal(mask(&f, &record_example, 100, 101, &v, &out), MASK_FOREIGN);
	f.scope = TARGET_PROCESS;
	/* Without stacks of waits the switch is kept, and its stack is not. */
	f.waits = false;
	ev = record_example;
	ev.kind = SCHEDEV_OUT;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_KEEP);
	assert_int_equal(out.kind, SCHEDEV_OUT);
	assert_int_not_equal(v.chain[3], 0x401000);
	f.waits = true;
	ev = record_example;
	ev.magic++;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_MALFORMED);
	ev = record_example;
	ev.kind = 9;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), MASK_MALFORMED);
}

/* A target has left rings: their clock was its own until then, switches came a moment longer. */
static void test_left(void **state)
{
	struct frozen_member members[] = {{.pid = 100, .from_ns = 500, .to_ns = UINT64_MAX}};
	struct frozen f = {.scope = TARGET_PROCESS,
			   .owner = 1000,
			   .waits = true,
			   .raw_ns = UINT64_MAX,
			   .members = members,
			   .n_members = 1};
	/* the record is of 1000 */
	struct source source = {.from_ns = 600, .to_ns = 990, .end_ns = 1010};
	static struct record_made b;
	struct record_view v;

	record_make(&b, &record_example, 100, 101);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
	assert_int_equal(mask_record(&f, &source, GROUP_CLOCK, &v), MASK_OUTSIDE);
	assert_int_equal(mask_record(&f, &source, GROUP_STACK, &v), MASK_KEEP);
	source.end_ns = 999;
	assert_int_equal(mask_record(&f, &source, GROUP_STACK, &v), MASK_OUTSIDE);
	source.to_ns = source.end_ns = UINT64_MAX;
	assert_int_equal(mask_record(&f, &source, GROUP_CLOCK, &v), MASK_KEEP);
	source.from_ns = 1001;
	assert_int_equal(mask_record(&f, &source, GROUP_STACK, &v), MASK_OUTSIDE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
