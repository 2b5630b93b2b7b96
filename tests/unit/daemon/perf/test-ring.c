// SPDX-License-Identifier: Apache-2.0
/* Overwrite rings: whole, wrapped, moving under the copy, and full of garbage. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/perf/ring.h"

#define SIZE (256u << 10)

struct fake {
	uint8_t *data;
	uint64_t head;    /* as the kernel has it: runs down from 0 */
	uint64_t written; /* records */
	uint64_t moves;   /* bytes that are written between the two looks at the head */
	unsigned int looks;
	uint32_t seed;
};

static uint32_t next(struct fake *f)
{
	f->seed = f->seed * 1664525u + 1013904223u;
	return f->seed >> 8;
}

/* Writes one record backwards, as the kernel does: its number is in each of its words. */
static void write_record(struct fake *f, size_t size)
{
	struct perf_event_header h = {.type = 9, .size = (uint16_t)size};

	f->head -= size;
	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = f->written;

		if (i == 0)
			memcpy(&word, &h, sizeof(h));
		memcpy(f->data + ((f->head + i) & (SIZE - 1)), &word, 8);
	}
	f->written++;
}

static uint64_t head(void *arg)
{
	struct fake *f = arg;
	uint64_t until = f->head - f->moves;

	/*
	 * The second look comes after the copy: what was written meanwhile is in nobody's copy yet.
	 */
	if (f->looks++ == 1)
		return until;
	return f->head;
}

static void check_walk(const struct ring_copy *copy, uint64_t newest, size_t *ret_n)
{
	struct ring_records records;

	assert_int_equal(ring_walk(copy, &records), 0);
	assert_false(records.malformed);
	for (size_t i = 0; i < records.n; i++) {
		const uint8_t *at = copy->data + records.offsets[i];
		struct perf_event_header h;
		uint64_t word;

		memcpy(&h, at, sizeof(h));
		for (size_t w = 8; w < h.size; w += 8) {
			memcpy(&word, at + w, 8);
			assert_int_equal(word, newest - i);
		}
	}
	*ret_n = records.n;
	ring_records_fini(&records);
}

static void test_fresh(void **state)
{
	struct fake f = {.data = calloc(1, SIZE)};
	struct ring_copy copy;
	size_t n;

	assert_int_equal(ring_copy_from(f.data, SIZE, head, &f, &copy), 0);
	assert_int_equal(copy.len, 0);
	check_walk(&copy, 0, &n);
	assert_int_equal(n, 0);
	ring_copy_fini(&copy);
	f.looks = 0;
	for (int i = 0; i < 100; i++)
		write_record(&f, 24);
	assert_int_equal(ring_copy_from(f.data, SIZE, head, &f, &copy), 0);
	assert_false(copy.wrapped);
	assert_int_equal(copy.len, 2400);
	check_walk(&copy, 99, &n);
	assert_int_equal(n, 100);
	ring_copy_fini(&copy);
	free(f.data);
}

static void test_wrapped(void **state)
{
	struct fake f = {.data = calloc(1, SIZE), .seed = 7};

	for (int round = 0; round < 300; round++) {
		struct ring_copy copy;
		size_t n;

		for (int i = 0; i < 200; i++)
			write_record(&f, 16 + (next(&f) % 64) * 8);
		f.looks = 0;
		f.moves = round % 3 ? 8 * (next(&f) % 20000) : 0;
		assert_int_equal(ring_copy_from(f.data, SIZE, head, &f, &copy), 0);
		if (round > 10) {
			assert_true(copy.wrapped);
			/* What may be torn is cut off, but not more. */
			assert_true(copy.len + RING_IN_FLIGHT + f.moves == SIZE || copy.len == 0);
		}
		check_walk(&copy, f.written - 1, &n);
		ring_copy_fini(&copy);
	}
	free(f.data);
}

/* The writer runs over everything: nothing is left, and that is told. */
static void test_overrun(void **state)
{
	struct fake f = {.data = calloc(1, SIZE), .moves = SIZE * 3};
	struct ring_copy copy;
	size_t n;

	for (int i = 0; i < 20000; i++)
		write_record(&f, 64);
	assert_int_equal(ring_copy_from(f.data, SIZE, head, &f, &copy), 0);
	assert_int_equal(copy.len, 0);
	assert_true(copy.wrapped && copy.overwritten > 0);
	check_walk(&copy, 0, &n);
	assert_int_equal(n, 0);
	ring_copy_fini(&copy);
	free(f.data);
}

static void test_garbage(void **state)
{
	struct fake f = {.data = malloc(SIZE), .seed = 1};

	for (int round = 0; round < 2000; round++) {
		struct ring_copy copy;
		struct ring_records records;

		for (size_t i = 0; i < 512; i++)
			f.data[next(&f) % SIZE] = (uint8_t)next(&f);
		f.head = 0 - (uint64_t)(next(&f) % (SIZE * 2)) * 8;
		f.looks = 0;
		assert_int_equal(ring_copy_from(f.data, SIZE, head, &f, &copy), 0);
		assert_int_equal(ring_walk(&copy, &records), 0);
		for (size_t i = 0; i < records.n; i++) {
			struct perf_event_header h;

			memcpy(&h, copy.data + records.offsets[i], sizeof(h));
			assert_true(h.size >= 8 && h.size % 8 == 0 &&
				    records.offsets[i] + h.size <= copy.len);
		}
		ring_records_fini(&records);
		ring_copy_fini(&copy);
	}
	free(f.data);
}

static void test_drain(void **state)
{
	uint8_t *base = aligned_alloc(4096, 4096 + 4096);
	struct perf_event_mmap_page *page = (void *)base;
	struct ring ring = {.base = base, .size = 4096, .data = base + 4096};
	uint8_t buf[512];
	uint64_t written = 0, read = 0;

	memset(base, 0, 8192);
	for (int round = 0; round < 500; round++) {
		size_t used;

		while (page->data_head - page->data_tail + 40 <= 4096) {
			struct perf_event_header h = {.type = 1, .size = 40};
			uint8_t record[40];

			memset(record, 0, sizeof(record));
			memcpy(record, &h, sizeof(h));
			memcpy(record + 8, &written, 8);
			for (size_t i = 0; i < 40; i++)
				base[4096 + ((page->data_head + i) & 4095)] = record[i];
			page->data_head += 40;
			written++;
		}
		used = ring_drain(&ring, buf, sizeof(buf));
		assert_int_equal(used, 480); /* whole records only */
		for (size_t at = 0; at < used; at += 40) {
			uint64_t number;

			memcpy(&number, buf + at + 8, 8);
			assert_int_equal(number, read);
			read++;
		}
	}
	free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh),   cmocka_unit_test(test_wrapped),
		cmocka_unit_test(test_overrun), cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
