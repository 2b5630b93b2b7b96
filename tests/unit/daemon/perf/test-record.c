// SPDX-License-Identifier: Apache-2.0
/* Records in private memory: layouts, cut ones, and what a reader may not see of others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/export.h"
#include "daemon/perf/record.h"

#define STACK_BYTES 64u
#define KERNEL_IP 0xffffffff81000000ULL

static const struct record_layout dwarf_layout = {
	.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW |
		       PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
	.regs_user = 0x7,
};

struct built {
	_Alignas(8) uint8_t bytes[1024];
	size_t len;
};

static void put(struct built *b, const void *p, size_t n)
{
	memcpy(b->bytes + b->len, p, n);
	b->len += n;
}

static void put64(struct built *b, uint64_t v)
{
	put(b, &v, 8);
}

static void put32(struct built *b, uint32_t v)
{
	put(b, &v, 4);
}

/* A "sched" sample with everything in it. */
static void build(struct built *b, const struct tracerd_sched_event *ev, uint32_t pid, uint32_t tid)
{
	struct perf_event_header h = {.type = PERF_RECORD_SAMPLE, .misc = PERF_RECORD_MISC_KERNEL};
	uint8_t stack[STACK_BYTES];

	*b = (struct built){.len = sizeof(h)};
	memset(stack, 0x55, sizeof(stack));
	put64(b, 77); /* id */
	put64(b, KERNEL_IP);
	put32(b, pid);
	put32(b, tid);
	put64(b, 1000); /* time */
	put32(b, 1);
	put32(b, 0);
	put64(b, 5); /* chain */
	put64(b, (uint64_t)PERF_CONTEXT_KERNEL);
	put64(b, KERNEL_IP + 8);
	put64(b, (uint64_t)PERF_CONTEXT_USER);
	put64(b, 0x401000);
	put64(b, 0x402000);
	put32(b, sizeof(*ev) + 4); /* padded, as the kernel does */
	put(b, ev, sizeof(*ev));
	put32(b, 0);
	put64(b, 2); /* registers */
	for (int i = 0; i < 3; i++)
		put64(b, 0x1111);
	put64(b, STACK_BYTES);
	put(b, stack, sizeof(stack));
	put64(b, STACK_BYTES);
	h.size = (uint16_t)b->len;
	memcpy(b->bytes, &h, sizeof(h));
}

static const struct tracerd_sched_event example = {
	.magic = SCHEDEV_MAGIC,
	.kind = SCHEDEV_OUT,
	.pid = 100,
	.tid = 101,
	.state = 1,
	.other_pid = 900,
	.other_tid = 901,
	.other_uid = 5,
	.cpu = 1,
	.other_comm = "secret",
};

static void test_layout(void **state)
{
	struct record_view v;
	struct built b;
	uint64_t id;

	build(&b, &example, 100, 101);
	assert_true(record_header_ok(b.bytes, b.len));
	assert_false(record_header_ok(b.bytes, b.len - 8));
	assert_int_equal(record_id(b.bytes, &id), 0);
	assert_int_equal(id, 77);
	assert_int_equal(record_parse(b.bytes, &dwarf_layout, &v), 0);
	assert_int_equal(v.time, 1000);
	assert_int_equal(*v.pid, 100);
	assert_int_equal(v.n_chain, 5);
	assert_int_equal(v.chain[3], 0x401000);
	assert_int_equal(*v.stack_size, STACK_BYTES);
}

/* A record that is cut at any word, or whose counts lie, is refused and never read past its end. */
static void test_lies(void **state)
{
	struct record_view v;
	struct built whole;

	build(&whole, &example, 100, 101);
	for (size_t n = 8; n < whole.len; n += 8) {
		uint8_t *cut = malloc(n);
		struct perf_event_header *h = (void *)cut;

		memcpy(cut, whole.bytes, n);
		h->size = (uint16_t)n;
		assert_int_equal(record_parse(cut, &dwarf_layout, &v), -EBADMSG);
		free(cut);
	}
	for (size_t at = 8; at < whole.len; at += 4) {
		uint8_t *lie = malloc(whole.len);
		uint32_t big = UINT32_MAX;

		memcpy(lie, whole.bytes, whole.len);
		memcpy(lie + at, &big, sizeof(big));
		if (record_parse(lie, &dwarf_layout, &v) == 0) {
			record_mask_kernel(&v);
			record_drop_stack(&v);
		}
		free(lie);
	}
}

static void test_mask(void **state)
{
	struct record_view v;
	struct built b;

	build(&b, &example, 100, 101);
	assert_int_equal(record_parse(b.bytes, &dwarf_layout, &v), 0);
	record_mask_kernel(&v);
	assert_int_equal(*v.ip, 0);
	assert_int_equal(v.chain[1], 0);
	assert_int_equal(v.chain[3], 0x401000);
	record_drop_stack(&v);
	for (size_t i = 0; i < v.n_chain; i++)
		assert_true(v.chain[i] == (uint64_t)PERF_CONTEXT_USER);
	for (size_t i = 0; i + 8 <= STACK_BYTES; i++)
		assert_int_equal(((uint8_t *)(v.stack_size + 1))[i], 0);
	/* It still is a whole record of the same layout. */
	assert_int_equal(record_parse(b.bytes, &dwarf_layout, &v), 0);
}

static enum export_answer mask(const struct frozen *f, const struct tracerd_sched_event *ev, uint32_t pid,
				   uint32_t tid, struct record_view *v, struct tracerd_sched_event *ret)
{
	static struct built b;
	enum export_answer answer;

	build(&b, ev, pid, tid);
	assert_int_equal(record_parse(b.bytes, &dwarf_layout, v), 0);
	answer = export_mask_sched(f, v);
	if (answer == EXPORT_KEEP)
		assert_true(record_sched(v, ret));
	return answer;
}

static void test_foreign(void **state)
{
	struct frozen_member members[] = {{.pid = 100, .from_ns = 500, .to_ns = UINT64_MAX},
					  {.pid = 200, .from_ns = 0, .to_ns = 900}};
	struct frozen f = {.scope = TARGET_PROCESS, .owner = 1000, .waits = true, .members = members, .n_members = 2};
	struct tracerd_sched_event ev = example, out;
	struct record_view v;

	/* Who ran instead is another user's: neither name nor number. */
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_KEEP);
	assert_string_equal(out.other_comm, "other");
	assert_true(out.other_pid == SCHEDEV_MASKED_ID && out.other_tid == SCHEDEV_MASKED_ID &&
		    out.other_uid == SCHEDEV_MASKED_ID);
	assert_true(out.flags & SCHEDEV_OTHER_MASKED);
	assert_int_equal(v.chain[3], 0x401000); /* the stack is the target's own */
	/* The reader's own, the target's own, the idle task, and an admin's view. */
	ev.other_uid = 1000;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_KEEP);
	assert_string_equal(out.other_comm, "secret");
	ev = example;
	ev.other_pid = 100;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_KEEP);
	assert_string_equal(out.other_comm, "secret");
	ev = example;
	ev.other_tid = ev.other_pid = 0;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_KEEP);
	assert_int_equal(out.other_tid, 0);
	f.admin = true;
	assert_int_equal(mask(&f, &example, 100, 101, &v, &out), EXPORT_KEEP);
	assert_string_equal(out.other_comm, "secret");
	f.admin = false;

	/* At a switch-in the program ran on the other's stack. */
	ev = example;
	ev.kind = SCHEDEV_IN;
	assert_int_equal(mask(&f, &ev, 900, 901, &v, &out), EXPORT_KEEP);
	assert_int_equal(*v.pid, 100);
	assert_int_equal(*v.tid, 101);
	assert_int_equal(v.chain[3], (uint64_t)PERF_CONTEXT_USER);

	/* A waker of another target on the same rings: its stack goes. One of this: it stays. */
	ev.kind = SCHEDEV_WAKEUP;
	ev.flags = SCHEDEV_WAKER_TARGET;
	assert_int_equal(mask(&f, &ev, 900, 901, &v, &out), EXPORT_KEEP);
	assert_false(out.flags & SCHEDEV_WAKER_TARGET);
	assert_int_equal(v.chain[3], (uint64_t)PERF_CONTEXT_USER);
	ev.other_pid = 100;
	ev.other_tid = 102;
	assert_int_equal(mask(&f, &ev, 100, 102, &v, &out), EXPORT_KEEP);
	assert_true(out.flags & SCHEDEV_WAKER_TARGET);
	assert_int_equal(*v.tid, 102);
	assert_int_equal(v.chain[3], 0x401000);

	/* Subjects that are not, or not any more, of the target. */
	ev = example;
	ev.pid = 300;
	assert_int_equal(mask(&f, &ev, 300, 300, &v, &out), EXPORT_FOREIGN);
	ev.pid = 200; /* ended at 900, the record is of 1000 */
	assert_int_equal(mask(&f, &ev, 200, 200, &v, &out), EXPORT_FOREIGN);
	f.scope = TARGET_THREAD;
	f.tid = 555;
	assert_int_equal(mask(&f, &example, 100, 101, &v, &out), EXPORT_FOREIGN);
	f.scope = TARGET_PROCESS;
	/* Without stacks of waits the switch is kept, and its stack is not. */
	f.waits = false;
	ev = example;
	ev.kind = SCHEDEV_OUT;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_KEEP);
	assert_int_equal(out.kind, SCHEDEV_OUT);
	assert_int_not_equal(v.chain[3], 0x401000);
	f.waits = true;
	ev = example;
	ev.magic++;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_MALFORMED);
	ev = example;
	ev.kind = 9;
	assert_int_equal(mask(&f, &ev, 100, 101, &v, &out), EXPORT_MALFORMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_mask),
		cmocka_unit_test(test_foreign),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
