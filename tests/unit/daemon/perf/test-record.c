// SPDX-License-Identifier: Apache-2.0
/* Records in private memory: layouts, cut ones, and the masks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/perf/record.h"
#include "tests/unit/daemon/perf/record-make.h"

static void test_layout(void **state)
{
	struct record_view v;
	struct record_made b;
	uint64_t id;

	record_make(&b, &record_example, 100, 101);
	assert_true(record_header_ok(b.bytes, b.len));
	assert_false(record_header_ok(b.bytes, b.len - 8));
	assert_int_equal(record_id(b.bytes, &id), 0);
	assert_int_equal(id, 77);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
	assert_int_equal(v.time, 1000);
	assert_int_equal(*v.pid, 100);
	assert_int_equal(v.n_chain, 5);
	assert_int_equal(v.chain[3], 0x401000);
	assert_int_equal(*v.stack_size, RECORD_STACK_BYTES);
}

/* A record that is cut at any word, or whose counts lie, is refused and never read past its end. */
static void test_lies(void **state)
{
	struct record_view v;
	struct record_made whole;

	record_make(&whole, &record_example, 100, 101);
	for (size_t n = 8; n < whole.len; n += 8) {
		uint8_t *cut = malloc(n);
		struct perf_event_header *h = (void *)cut;

		memcpy(cut, whole.bytes, n);
		h->size = (uint16_t)n;
		assert_int_equal(record_parse(cut, &record_dwarf_layout, &v), -EBADMSG);
		free(cut);
	}
	for (size_t at = 8; at < whole.len; at += 4) {
		uint8_t *lie = malloc(whole.len);
		uint32_t big = UINT32_MAX;

		memcpy(lie, whole.bytes, whole.len);
		memcpy(lie + at, &big, sizeof(big));
		if (record_parse(lie, &record_dwarf_layout, &v) == 0) {
			record_clear_unwritten(&v);
			record_mask_kernel(&v);
			record_drop_stack(&v);
		}
		free(lie);
	}
}

static void test_mask(void **state)
{
	struct record_view v;
	struct record_made b;

	record_make(&b, &record_example, 100, 101);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
	record_mask_kernel(&v);
	assert_int_equal(*v.ip, 0);
	/*
	 * Nothing tells how deep the kernel's part was: the mark of the user's is the first entry.
	 */
	assert_int_equal(v.n_chain, 3);
	assert_int_equal(v.chain[0], PERF_CONTEXT_USER);
	assert_int_equal(v.chain[1], 0x401000);
	assert_int_equal(b.len - v.header->size, 16);
	for (size_t at = 0; at + 8 <= v.header->size; at += 8) {
		uint64_t word;

		memcpy(&word, b.bytes + at, sizeof(word));
		assert_false(word >= UINT64_C(0xffff800000000000) &&
			     word < (uint64_t)PERF_CONTEXT_MAX);
	}
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
	assert_int_equal(*v.stack_size, RECORD_STACK_BYTES);
	record_drop_stack(&v);
	for (size_t i = 0; i < v.n_chain; i++)
		assert_true(v.chain[i] == (uint64_t)PERF_CONTEXT_USER);
	for (size_t i = 0; i + 8 <= RECORD_STACK_BYTES; i++)
		assert_int_equal(((uint8_t *)(v.stack_size + 1))[i], 0);
	/* It still is a whole record of the same layout. */
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
}

/*
 * The kernel skips what it could not copy of a stack, and pads the payload: both are bytes of older
 * records.
 */
static void test_unwritten(void **state)
{
	struct tracerd_sched_event ev;
	struct record_view v;
	struct record_made b;
	const uint8_t *stack, *pad;
	uint64_t filled = 16;

	record_make(&b, &record_example, 100, 101);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
	stack = (const uint8_t *)(v.stack_size + 1);
	pad = (const uint8_t *)v.raw + sizeof(ev);
	memcpy((uint8_t *)v.stack_size + sizeof(uint64_t) + RECORD_STACK_BYTES, &filled,
	       sizeof(filled));
	memset((uint8_t *)v.raw + sizeof(ev), 0x77, 4);
	record_clear_unwritten(&v);
	for (size_t i = 0; i < RECORD_STACK_BYTES; i++)
		assert_int_equal(stack[i], i < filled ? 0x55 : 0);
	assert_true(record_sched(&v, &ev));
	record_sched_put(&v, &ev);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pad[i], 0);
	/* A count above the size clears nothing, and nothing behind the bytes. */
	filled = UINT64_MAX;
	memcpy((uint8_t *)v.stack_size + sizeof(uint64_t) + RECORD_STACK_BYTES, &filled,
	       sizeof(filled));
	record_clear_unwritten(&v);
	assert_int_equal(stack[0], 0x55);
	assert_int_equal(record_parse(b.bytes, &record_dwarf_layout, &v), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_unwritten),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_mask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
