// SPDX-License-Identifier: Apache-2.0
/*
 * Where a recording's PT lies: buffers of threads and of CPUs in several pieces, bytes that are
 * missing, bytes that snapshots have twice, files that end too early, and numbers from a stranger.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/control/json.h"
#include "decode/perf/data.h"
#include "decode/pt/auxtrace.h"
#include "tests/unit/decode/perf/perfdata-make.h"
#include "tests/unit/decode/pt/pt-make.h"

struct file {
	struct make make;
	int fd;
	struct budget budget;
	struct perfdata *pd;
	struct auxtrace *aux;
	int answer;
};

static void setup(struct file *f, int snapshot, int per_cpu)
{
	memset(f, 0, sizeof(*f));
	f->budget.max = 64u << 20;
	make_init(&f->make);
	make_pt_info(&f->make, snapshot, per_cpu);
}

static void finish(struct file *f, off_t cut)
{
	f->fd = make_file(&f->make);
	if (cut)
		assert_int_equal(ftruncate(f->fd, lseek(f->fd, 0, SEEK_END) - cut), 0);
	assert_int_equal(perfdata_open(f->fd, &f->budget, &f->pd), 0);
	assert_int_equal(perfdata_scan(f->pd, NULL, NULL), 0);
	f->answer = auxtrace_new(f->pd, &f->budget, &f->aux);
	if (f->answer == 0)
		assert_int_equal(auxtrace_scan(f->aux), 0);
}

static void teardown(struct file *f)
{
	auxtrace_free(f->aux);
	perfdata_free(f->pd);
	assert_int_equal(f->budget.used, 0);
	(void)close(f->fd);
}

static void add(struct file *f, uint32_t idx, int32_t tid, int32_t cpu, uint64_t offset,
		const void *bytes, size_t n)
{
	make_aux(&f->make, idx, tid, cpu, offset, 0, bytes, n);
}

static void is_block(const struct file *f, size_t i, uint32_t buffer, uint64_t offset,
		     uint64_t bytes, uint64_t tsc)
{
	const struct auxtrace_block *b = auxtrace_block(f->aux, i);

	if (b->buffer != buffer || b->offset != offset || b->bytes != bytes || b->tsc != tsc)
		fail_msg("block %zu: buffer %u, %lu..+%lu, TSC %lu", i, b->buffer, b->offset,
			 b->bytes, b->tsc);
}

static uint64_t number_of(const struct file *f, const char *name)
{
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *losses = json_object_new_object();
	struct json_object *v;

	auxtrace_report(f->aux, stats, losses);
	if (!json_object_object_get_ex(losses, name, &v) &&
	    !json_object_object_get_ex(stats, name, &v))
		return 0;
	return json_object_get_uint64(v);
}

/*
 * A trace of blocks of `each` bytes, a multiple of 8: one begins with the TSC `first`, the next
 * with one more ...
 */
static void make_trace(struct ptmake *m, size_t blocks, size_t each, uint64_t first)
{
	ptmake_init(m);
	for (size_t i = 0; i < blocks; i++) {
		const size_t end = m->n + each;

		ptmake_psb(m, 0x401000, first + i);
		while (m->n < end) {
			const uint8_t byte = (uint8_t)(4 + 2 * (m->n * 7 % 100)); /* decisions */

			ptmake_raw(m, &byte, 1);
		}
	}
}

static void test_none(void **state)
{
	static struct file f;

	(void)state;
	memset(&f, 0, sizeof(f));
	f.budget.max = 1u << 20;
	make_init(&f.make);
	make_comm(&f.make, 1, 1, 1, "x", 0);
	finish(&f, 0);
	assert_int_equal(f.answer, AUXTRACE_E_NONE);
	teardown(&f);
}

static void test_one_thread(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;
	uint8_t got[64];

	(void)state;
	make_trace(&m, 3, 2048, 1000);
	setup(&f, 0, 0);
	/* a ring begins in the middle of a packet */
	add(&f, 0, 42, -1, 0, m.bytes + 2040, m.n - 2040);
	finish(&f, 0);
	assert_int_equal(auxtrace_n_buffers(f.aux), 1);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->tid, 42);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->cpu, -1);
	assert_int_equal(auxtrace_n_blocks(f.aux), 2);
	is_block(&f, 0, 0, 8, 2048, 1001);
	is_block(&f, 1, 0, 8 + 2048, 2048, 1002);
	assert_true(auxtrace_block(f.aux, 0)->joined && !auxtrace_block(f.aux, 1)->joined);
	assert_int_equal(number_of(&f, "pt_bytes_before_sync"), 8);
	assert_int_equal(auxtrace_read(f.aux, 0, 8, got, sizeof(got)), sizeof(got));
	assert_memory_equal(got, m.bytes + 2048, sizeof(got));
	assert_int_equal(auxtrace_read(f.aux, 0, 8 + 4096 - 10, got, sizeof(got)), 10);
	assert_int_equal(auxtrace_read(f.aux, 0, 1u << 30, got, sizeof(got)), 0);
	teardown(&f);
}

static void test_config(void **state)
{
	static const uint8_t some[64];
	static struct file f;
	const struct auxtrace_config *c;

	(void)state;
	setup(&f, 0, 1);
	add(&f, 0, -1, 0, 0, some, sizeof(some));
	finish(&f, 0);
	c = auxtrace_config(f.aux);
	assert_int_equal(c->shift, 1);
	assert_int_equal(c->mult, 2);
	assert_int_equal(auxtrace_ns(c, 12345), 12345);
	assert_int_equal(auxtrace_ns(c, 0), 0);
	assert_int_equal(c->time.mtc_shift, 3);
	assert_int_equal(c->time.tsc_ctc_n, 4);
	assert_int_equal(c->time.tsc_ctc_d, 1);
	assert_int_equal(c->time.nominal_ratio, 24);
	assert_true(c->per_cpu && !c->snapshot && c->kernel);
	assert_int_equal(auxtrace_n_blocks(f.aux), 0);
	assert_int_equal(number_of(&f, "pt_bytes_before_sync"), 64);
	teardown(&f);
}

/* PSBs that come close upon another belong to its block. */
static void test_short_blocks(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;
	size_t sum = 0;

	(void)state;
	make_trace(&m, 400, 64, 1);
	setup(&f, 0, 0);
	add(&f, 0, 1, -1, 0, m.bytes, m.n);
	finish(&f, 0);
	assert_int_equal(auxtrace_n_blocks(f.aux), m.n / AUXTRACE_MIN_BLOCK);
	for (size_t i = 0; i < auxtrace_n_blocks(f.aux); i++) {
		is_block(&f, i, 0, sum, AUXTRACE_MIN_BLOCK, 1 + i * AUXTRACE_MIN_BLOCK / 64);
		sum += AUXTRACE_MIN_BLOCK;
	}
	teardown(&f);
}

/* Two CPUs, whose pieces come in turn; some bytes of one are missing; a PSB lies in two pieces. */
static void test_pieces(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake a, b;
	static struct file f;
	uint8_t *got;

	(void)state;
	make_trace(&a, 10, 4096, 100);
	make_trace(&b, 10, 4096, 100);
	setup(&f, 0, 1);
	for (size_t at = 0; at < a.n; at += 1032) {
		const size_t n = a.n - at < 1032 ? a.n - at : 1032;

		add(&f, 0, -1, 0, at, a.bytes + at, n);
		if (at != 1032 * 12)
			add(&f, 1, -1, 1, at, b.bytes + at, n);
	}
	finish(&f, 0);
	assert_int_equal(auxtrace_n_buffers(f.aux), 2);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, a.n);
	assert_int_equal(auxtrace_buffer(f.aux, 1)->bytes, b.n - 1032);
	/*
	 * 12384..13416 is missing of the second: its PSB at 12288 is there, the one at 16384 is the
	 * next
	 */
	assert_int_equal(auxtrace_n_blocks(f.aux), 20);
	for (size_t i = 0; i < 10; i++) {
		is_block(&f, i, 0, i * 4096, 4096, 100 + i);
		assert_int_equal(auxtrace_block(f.aux, i)->joined, i < 9);
		assert_false(auxtrace_block(f.aux, i)->lost_before);
	}
	is_block(&f, 13, 1, 12288, 12384 - 12288, 103);
	assert_false(auxtrace_block(f.aux, 13)->joined);
	is_block(&f, 14, 1, 16384 - 1032, 4096, 104);
	assert_true(auxtrace_block(f.aux, 14)->lost_before && auxtrace_block(f.aux, 14)->joined);
	assert_int_equal(number_of(&f, "pt_bytes_before_sync"), 16384 - 13416);
	got = malloc(a.n);
	assert_non_null(got);
	assert_int_equal(auxtrace_read(f.aux, 0, 0, got, a.n), a.n);
	assert_memory_equal(got, a.bytes, a.n);
	assert_int_equal(auxtrace_read(f.aux, 1, 12000, got, 4096), 4096);
	assert_memory_equal(got, b.bytes + 12000, 384);
	assert_memory_equal(got + 384, b.bytes + 13416, 4096 - 384);
	free(got);
	teardown(&f);
}

/* In a whole trace the offset tells what was there before. */
static void test_overlap_by_offset(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;

	(void)state;
	make_trace(&m, 4, 2048, 1);
	setup(&f, 0, 0);
	add(&f, 0, 1, -1, 1000, m.bytes, 4096);
	add(&f, 0, 1, -1, 1000 + 2000, m.bytes + 2000, 2000);
	add(&f, 0, 1, -1, 1000 + 4000, m.bytes + 4000, m.n - 4000);
	finish(&f, 0);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, m.n);
	assert_int_equal(number_of(&f, "pt_bytes_twice"), 2000 + 96);
	assert_int_equal(auxtrace_n_blocks(f.aux), 4);
	assert_true(auxtrace_block(f.aux, 2)->joined);
	teardown(&f);
}

/*
 * perf fills a record up to 8 bytes with zeros, and the next one has the trace from where it really
 * was.
 */
static void test_padding_by_offset(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;
	uint8_t *got;

	(void)state;
	make_trace(&m, 4, 2048, 1);
	setup(&f, 0, 0);
	add(&f, 0, 1, -1, 1000, m.bytes, 4093);
	add(&f, 0, 1, -1, 1000 + 4093, m.bytes + 4093, 8);
	add(&f, 0, 1, -1, 1000 + 4101, m.bytes + 4101, m.n - 4101);
	finish(&f, 0);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, 4101 + ((m.n - 4101 + 7) & ~7ul));
	assert_int_equal(number_of(&f, "pt_bytes_twice"), 0);
	got = malloc(m.n);
	assert_non_null(got);
	assert_int_equal(auxtrace_read(f.aux, 0, 0, got, m.n), m.n);
	assert_memory_equal(got, m.bytes, m.n);
	free(got);
	teardown(&f);
}

/* In snapshots the bytes do; the offsets only say where in the ring they lay. */
static void test_snapshots(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;

	(void)state;
	make_trace(&m, 100, 2048, 1);
	setup(&f, 1, 1);
	add(&f, 0, -1, 0, 0, m.bytes, 65536);
	/* half of it again; the same once more; then something that has nothing in common */
	add(&f, 0, -1, 0, 0, m.bytes + 32768 + 8, 65536);
	add(&f, 0, -1, 0, 0, m.bytes + 32768 + 8, 65536);
	add(&f, 0, -1, 0, 0, m.bytes + 131072 + 16, 65536);
	finish(&f, 0);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, 98312 + 65536);
	assert_int_equal(number_of(&f, "pt_bytes_twice"), 32768 - 8 + 65536);
	/* 48, of which the last one has half a PSB at its end, then from the 66th on */
	for (size_t i = 0; i < 48; i++) {
		is_block(&f, i, 0, i * 2048, i < 47 ? 2048 : 2056, i + 1);
		assert_int_equal(auxtrace_block(f.aux, i)->joined, i < 47);
	}
	is_block(&f, 48, 0, 98312 + 2032, 2048, 66);
	assert_true(auxtrace_block(f.aux, 48)->lost_before);
	teardown(&f);
}

/*
 * perf fills a record up with zeros: they are no bytes of the trace, which may go on in the middle
 * of a packet.
 */
static void test_snapshots_filled_up(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static uint8_t read[65536];
	static struct file f;
	size_t begin = 0, end = 0;

	(void)state;
	make_trace(&m, 40, 1024, 1);
	setup(&f, 1, 0);
	for (size_t i = 0; end < 32000; i++) {
		/* each time another number of zeros is missing */
		end = 5000 + i * 3001;
		add(&f, 0, 100, -1, 0, m.bytes + begin, end - begin);
		begin = end - 4000 - i;
	}
	finish(&f, 0);
	/* but for those at the end of all */
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, (end + 7) / 8 * 8);
	assert_true(auxtrace_read(f.aux, 0, 0, read, end) == end);
	assert_memory_equal(read, m.bytes, end);
	for (size_t i = 0; i + 1 < auxtrace_n_blocks(f.aux); i++)
		assert_true(auxtrace_block(f.aux, i)->joined);
	teardown(&f);
}

/* Zeros at both ends are nothing that two snapshots have in common. */
static void test_snapshots_of_zeros(void **state)
{
	static uint8_t zeros[8192];
	static struct file f;

	(void)state;
	setup(&f, 1, 1);
	add(&f, 0, -1, 0, 0, zeros, sizeof(zeros));
	add(&f, 0, -1, 0, 0, zeros, sizeof(zeros));
	finish(&f, 0);
	assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, 2 * sizeof(zeros));
	assert_int_equal(number_of(&f, "pt_bytes_twice"), 0);
	teardown(&f);
}

/* A file that ends in the middle of its last buffer, at any byte. */
static void test_cut_file(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;

	(void)state;
	make_trace(&m, 60, 4096, 1);
	for (off_t cut = 1; cut < 220000; cut += cut < 300 ? 1 : 9973) {
		const uint64_t left = m.n - (uint64_t)cut;
		uint64_t sum = 0;
		uint8_t byte;

		setup(&f, 0, 0);
		add(&f, 0, 1, -1, 0, m.bytes, m.n);
		finish(&f, cut);
		assert_int_equal(f.answer, 0);
		assert_int_equal(auxtrace_buffer(f.aux, 0)->bytes, left);
		assert_int_equal(number_of(&f, "pt_bytes_cut"), cut);
		for (size_t i = 0; i < auxtrace_n_blocks(f.aux); i++)
			sum += auxtrace_block(f.aux, i)->bytes;
		assert_int_equal(sum + number_of(&f, "pt_bytes_before_sync"), left);
		assert_int_equal(auxtrace_read(f.aux, 0, left - 1, &byte, 1), 1);
		assert_int_equal(byte, m.bytes[left - 1]);
		teardown(&f);
	}
}

/* Sizes and counts from a stranger. */
static void test_hostile(void **state)
{
	static const uint64_t sizes[] = {
		1,         15, 16, 65537, 1ull << 32, 1ull << 62, UINT64_MAX / 2, UINT64_MAX - 4096,
		UINT64_MAX};
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;

	(void)state;
	make_trace(&m, 4, 2048, 1);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t field = 8; field <= 16; field += 8) {
			size_t at;

			setup(&f, (int)(i & 1), 0);
			add(&f, 0, 1, -1, 0, m.bytes, 4096);
			at = f.make.n;
			add(&f, 0, 1, -1, 4096, m.bytes + 4096, 4096);
			memcpy(f.make.data + at + field, &sizes[i], 8);
			finish(&f, 0);
			if (f.answer == 0)
				assert_true(auxtrace_buffer(f.aux, 0)->bytes <= m.n);
			teardown(&f);
		}
	}
	/* more buffers than anybody has CPUs and threads */
	setup(&f, 0, 0);
	for (uint32_t i = 0; i < AUXTRACE_MAX_BUFFERS + 100; i++)
		add(&f, i, (int32_t)i + 1, -1, 0, m.bytes, 64);
	finish(&f, 0);
	assert_int_equal(auxtrace_n_buffers(f.aux), AUXTRACE_MAX_BUFFERS);
	assert_int_equal(number_of(&f, "pt_over_memory"), 100);
	teardown(&f);
	/* little memory */
	setup(&f, 0, 0);
	f.budget.max = 16384;
	for (uint32_t i = 0; i < 500; i++)
		add(&f, i, (int32_t)i + 1, -1, 0, m.bytes, 64);
	finish(&f, 0);
	assert_true(f.answer == AUXTRACE_E_NONE || auxtrace_n_buffers(f.aux) < 500);
	teardown(&f);
}

/* The reference has the byte that a TSC packet lacks. */
static void test_reference(void **state)
{
	_cleanup_(ptmake_fini) struct ptmake m;
	static struct file f;

	(void)state;
	make_trace(&m, 1, 2048, 0x5000);
	setup(&f, 0, 0);
	make_aux(&f.make, 0, 1, -1, 0, 0x0300000000004000, m.bytes, m.n);
	finish(&f, 0);
	is_block(&f, 0, 0, 0, 2048, 0x0300000000005000);
	assert_int_equal(auxtrace_config(f.aux)->time.reference, 0x0300000000004000);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_short_blocks),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_overlap_by_offset),
		cmocka_unit_test(test_padding_by_offset),
		cmocka_unit_test(test_snapshots),
		cmocka_unit_test(test_snapshots_filled_up),
		cmocka_unit_test(test_snapshots_of_zeros),
		cmocka_unit_test(test_cut_file),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
