// SPDX-License-Identifier: Apache-2.0
/* A copy of rings as a file: what is taken, what is refused, which slots count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/rings/clock.h"
#include "decode/rings/fields.h"
#include "decode/rings/file.h"
#include "decode/rings/window.h"
#include "tests/unit/decode/rings/ringfile-make.h"

static struct budget budget = {.max = 64 << 20};

static struct ringmake *make(void)
{
	struct ringmake *m = ringmake_new(&(struct ringmake_options){0});

	assert_non_null(m);
	return m;
}

static struct ringfile *read_make(struct ringmake *m)
{
	_cleanup_close_ int fd = ringmake_file(m);
	struct ringfile *f = NULL;

	assert_true(fd >= 0);
	assert_int_equal(ringfile_read(fd, &budget, &f), 0);
	return f;
}

static void expect_bytes(const uint8_t *data, size_t len, int answer)
{
	_cleanup_close_ int fd = io_memfd("ringfile");
	struct ringfile *f = NULL;

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, data, len, 0), 0);
	assert_int_equal(ringfile_read(fd, &budget, &f), answer);
	assert_true((answer == 0) == (f != NULL));
	f = ringfile_free(f);
	assert_int_equal(budget.used, 0);
}

static void instants(struct ringmake *m, uint32_t ring, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ringmake_record(m, ring, RING_INSTANT, 1000 + i, 1, i, 0, NULL);
}

static void test_read(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	_cleanup_(ringfile_freep) struct ringfile *f = NULL;
	struct ring_header program;
	struct ring_entry entry;
	struct ring_slot slot;
	const char *name;
	size_t len = 0;

	(void)state;
	assert_int_equal(ringmake_name(m, "first"), 1);
	assert_int_equal(ringmake_name_bytes(m, "a\0b", 3), 2);
	ringmake_thread(m, 1, 5000, 77, "worker");
	f = read_make(m);
	assert_int_equal(ringfile_header(f)->pid, 1000);
	assert_int_equal(ringfile_n_rings(f), 1);
	assert_int_equal(ringfile_rings_invalid(f), 0);
	assert_int_equal(ringfile_ring(f, 0)->ring, 1);
	ringfile_program(f, &program);
	assert_int_equal(program.n_names, 3);
	ringfile_entry(f, 0, &entry);
	assert_int_equal(entry.tid, 77);
	ringfile_slot(f, 0, 0, &slot);
	assert_int_equal(slot.kind, RING_THREAD);
	assert_int_equal(slot.a, 77);
	name = ringfile_name(f, 2, &len);
	assert_int_equal(len, 3);
	assert_memory_equal(name, "a\0b", 3);
	assert_null(ringfile_name(f, 0, &len));
	assert_null(ringfile_name(f, 4, &len));
	assert_null(ringfile_name(f, 257, &len));
	assert_null(ringfile_name(f, UINT32_MAX, &len));
}

/* Each number of the header that does not fit the others makes it no copy of rings. */
static void test_header(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		size_t bytes;
	} wrong[] = {
#define WRONG(field, v) {offsetof(struct ringfile_header, field), v, sizeof(((struct ringfile_header *)0)->field)}
		WRONG(magic, 0),
		WRONG(version, 2),
		WRONG(pid, 0),
		WRONG(pid, UINT32_MAX),
		WRONG(clock, 0),
		WRONG(clock, 3),
		WRONG(rings, 0),
		WRONG(rings, 1025),
		WRONG(rings, 1024),
		WRONG(slots, 0),
		WRONG(slots, 32),
		WRONG(slots, 65),
		WRONG(slots, 1u << 31),
		WRONG(names_max, 0),
		WRONG(names_max, UINT32_MAX),
		WRONG(text_bytes, 0),
		WRONG(text_bytes, 100),
		WRONG(text_bytes, 0xfffff000),
		WRONG(n_rings, 3),
		WRONG(n_rings, UINT32_MAX),
		WRONG(begin_tsc, UINT64_MAX),
		WRONG(begin_raw_ns, UINT64_MAX),
		WRONG(shared_offset, UINT64_MAX),
		WRONG(shared_offset, 1u << 20),
		WRONG(shared_bytes, 0),
		WRONG(shared_bytes, UINT64_MAX),
#undef WRONG
	};
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;

	(void)state;
	instants(m, 0, 3);
	data = ringmake_bytes(m, &len);
	expect_bytes(data, len, 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_free_ uint8_t *copy = malloc(len);

		assert_non_null(copy);
		memcpy(copy, data, len);
		memcpy(copy + wrong[i].at, &wrong[i].value, wrong[i].bytes);
		expect_bytes(copy, len, RINGFILE_E_INVALID);
	}
	expect_bytes(data, 0, RINGFILE_E_INVALID);
	expect_bytes(data, sizeof(struct ringfile_header) - 1, RINGFILE_E_INVALID);
	expect_bytes(data, sizeof(struct ringfile_header), RINGFILE_E_INVALID);
	expect_bytes(data, 4096, RINGFILE_E_INVALID);
}

/* A ring that is not there, or not whole, is left out; the others stay. */
static void test_table(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m =
		ringmake_new(&(struct ringmake_options){.rings = 4});
	_cleanup_free_ uint8_t *data = NULL;
	struct ringfile_ring *table;
	size_t len;

	(void)state;
	assert_non_null(m);
	for (uint32_t i = 0; i < 4; i++)
		instants(m, i, 3);
	data = ringmake_bytes(m, &len);
	table = (void *)(data + sizeof(struct ringfile_header));
	for (int damage = 0; damage < 7; damage++) {
		const struct ringfile_ring was = table[2];
		_cleanup_(ringfile_freep) struct ringfile *f = NULL;
		_cleanup_close_ int fd = io_memfd("ringfile");

		switch (damage) {
		case 0:
			table[2].ring = 4;
			break;
		case 1:
			table[2].ring = 1; /* the same twice */
			break;
		case 2:
			table[2].offset = UINT64_MAX - 10;
			break;
		case 3:
			table[2].bytes -= RING_SLOT_BYTES;
			break;
		case 4:
			table[2].offset = table[1].offset; /* the same bytes twice */
			break;
		case 5:
			table[2].head_before = table[2].head_after + 1;
			break;
		default:
			table[2].bytes = UINT64_MAX;
			break;
		}
		assert_int_equal(io_pwrite_all(fd, data, len, 0), 0);
		assert_int_equal(ringfile_read(fd, &budget, &f), 0);
		assert_int_equal(ringfile_n_rings(f), 3);
		assert_int_equal(ringfile_rings_invalid(f), 1);
		assert_int_equal(ringfile_ring(f, 2)->ring, 3);
		table[2] = was;
	}
	/* cut off in the last ring */
	expect_bytes(data, len - 1, 0);
}

static void test_names(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	_cleanup_(ringfile_freep) struct ringfile *f = NULL;
	_cleanup_free_ uint8_t *data = NULL;
	struct ring_name *names;
	size_t len;

	(void)state;
	ringmake_name(m, "one");
	ringmake_name(m, "two");
	ringmake_name(m, "three");
	ringmake_name(m, "four");
	names = (void *)((uint8_t *)ringmake_program(m) + RING_NAMES_OFFSET);
	names[0].length = RING_MAX_NAME + 1;
	names[1].offset = RING_PAGE - 1;
	names[2].offset = UINT32_MAX;
	names[3].length = 0;
	instants(m, 0, 1);
	f = read_make(m);
	for (uint32_t i = 1; i <= 4; i++)
		assert_null(ringfile_name(f, i, &len));
}

static void test_memory(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	_cleanup_close_ int fd = -1;
	struct budget small = {.max = 4096};
	struct ringfile *f = NULL;

	(void)state;
	instants(m, 0, 1);
	fd = ringmake_file(m);
	assert_int_equal(ringfile_read(fd, &small, &f), RINGFILE_E_MEMORY);
	assert_null(f);
	assert_int_equal(small.used, 0);
}

/* ---- which slots count */

struct counts {
	uint64_t first, last, n; /* `a` of the records: their number */
	struct ringwindow w;
};

static struct counts walk(struct ringmake *m)
{
	_cleanup_(ringfile_freep) struct ringfile *f = read_make(m);
	struct counts c = {.first = UINT64_MAX};
	struct ringwindow_record rec;

	ringwindow_init(&c.w, f, 0);
	while (ringwindow_next(&c.w, &rec)) {
		if (c.n++ == 0)
			c.first = rec.slot.a;
		c.last = rec.slot.a;
	}
	c.w.f = NULL;
	return c;
}

static void test_window(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	struct counts c;

	(void)state;
	instants(m, 0, 10);
	c = walk(m);
	assert_true(c.first == 0 && c.last == 9 && c.n == 10 && c.w.overwritten == 0);
	/* full: the writer may have been in the slots that come next, which are the oldest */
	for (size_t i = 10; i < 100; i++)
		ringmake_record(m, 0, RING_INSTANT, 1000, 1, i, 0, NULL);
	c = walk(m);
	assert_int_equal(c.first, 100 - 64 + RING_SPAN_MAX);
	assert_true(c.last == 99 && c.n == 64 - RING_SPAN_MAX && c.w.overwritten == c.first);
	assert_true(c.w.torn == 0 && c.w.malformed == 0);
	/* while it was copied, more were written */
	ringmake_ring(m, 0)->head_after += 10;
	c = walk(m);
	assert_int_equal(c.first, 110 - 64 + RING_SPAN_MAX);
	assert_int_equal(c.last, 99);
	ringmake_ring(m, 0)->head_after += 1000;
	c = walk(m);
	assert_true(c.n == 0 && c.w.overwritten == 100);
	/* absurd heads: nothing matches */
	ringmake_ring(m, 0)->head_before = UINT64_MAX;
	ringmake_ring(m, 0)->head_after = UINT64_MAX;
	c = walk(m);
	assert_true(c.n == 0 && c.w.torn <= 64);
}

static void test_unfinished(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	struct ringmake_payload p = {0};
	struct counts c;
	uint64_t at;

	(void)state;
	instants(m, 0, 5);
	ringmake_tear(m, 0, 2);
	c = walk(m);
	assert_true(c.n == 4 && c.w.torn == 1 && c.w.malformed == 0);
	/* one with a payload: killed before its last slot was written */
	ringmake_text(&p, 1, "a text that takes more than a slot to hold");
	at = ringmake_record(m, 0, RING_INSTANT, 1000, 1, 5, 0, &p);
	ringmake_record(m, 0, RING_INSTANT, 1000, 1, 6, 0, NULL);
	assert_int_equal(walk(m).n, 6);
	ringmake_tear(m, 0, at + 2);
	c = walk(m);
	assert_true(c.n == 5 && c.last == 6 && c.w.torn == 3 && c.w.malformed == 0);
	/* its first slot alone is missing: the others are nobody's */
	ringmake_slot(m, 0, at + 2)->sequence++;
	ringmake_tear(m, 0, at);
	c = walk(m);
	assert_true(c.n == 5 && c.w.torn == 2 && c.w.malformed == 0);
}

static void test_nonsense(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	struct counts c;

	(void)state;
	instants(m, 0, 10);
	ringmake_slot(m, 0, 1)->kind = 0;
	ringmake_slot(m, 0, 2)->kind = _RING_KIND_MAX;
	ringmake_slot(m, 0, 4)->kind = RING_CONT;
	ringmake_slot(m, 0, 6)->kind = RING_INSTANT | 63 << RING_SPAN_SHIFT;
	ringmake_slot(m, 0, 9)->kind = RING_INSTANT | 5 << RING_SPAN_SHIFT; /* beyond the head */
	c = walk(m);
	assert_int_equal(c.n, 5);
	assert_int_equal(c.w.malformed, 4);
	assert_int_equal(c.w.torn, 1);
}

/* A record over the end of the ring, in the window's last lap. */
static void test_wrap(void **state)
{
	_cleanup_(ringmake_freep) struct ringmake *m = make();
	_cleanup_(ringfile_freep) struct ringfile *f = NULL;
	struct ringmake_payload p = {0};
	struct ringwindow_record rec;
	uint8_t payload[RING_PAYLOAD_MAX];
	struct ringfield field;
	struct ringwindow w;
	bool broken = false;
	size_t len, pos = 0;

	(void)state;
	ringmake_text(&p, 9, "it goes round: 0123456789 0123456789 0123456789 0123456789");
	instants(m, 0, 62);
	ringmake_record(m, 0, RING_INSTANT, 1000, 1, 4242, 0, &p);
	f = read_make(m);
	ringwindow_init(&w, f, 0);
	do
		assert_true(ringwindow_next(&w, &rec));
	while (rec.slot.a != 4242);
	assert_int_equal(rec.span, 3);
	len = ringfile_payload(f, 0, rec.index + 1, rec.span, payload);
	assert_int_equal(len, 3 * RING_CONT_BYTES);
	assert_true(ringfield_next(payload, len, &pos, &field, &broken));
	assert_int_equal(field.name, 9);
	assert_int_equal(field.length, 58);
	assert_memory_equal(field.text + 50, "23456789", 8);
	assert_false(ringfield_next(payload, len, &pos, &field, &broken));
	assert_false(broken);
}

/* ---- fields */

static void test_fields(void **state)
{
	struct ringmake_payload p = {0};
	struct ringfield f;
	size_t pos = 0;
	bool broken = false;

	(void)state;
	ringmake_u64(&p, 1, 5);
	ringmake_text(&p, 2, "");
	ringmake_text(&p, 3, "odd");
	ringmake_f64(&p, 4, 2.5);
	assert_true(ringfield_next(p.bytes, p.n, &pos, &f, &broken) && f.type == RING_FIELD_U64 &&
		    f.value == 5);
	assert_true(ringfield_next(p.bytes, p.n, &pos, &f, &broken) && f.name == 2 &&
		    f.length == 0);
	assert_true(ringfield_next(p.bytes, p.n, &pos, &f, &broken) && f.name == 3 &&
		    f.length == 3);
	assert_true(ringfield_next(p.bytes, p.n, &pos, &f, &broken) && f.type == RING_FIELD_F64);
	assert_true(f.f64 > 2.4 && f.f64 < 2.6);
	assert_false(ringfield_next(p.bytes, p.n, &pos, &f, &broken));
	assert_int_equal(pos, p.n);
	assert_false(broken);
	assert_false(ringfield_next(p.bytes, 0, &(size_t){0}, &f, &broken));
	assert_false(broken);
}

static void test_broken_fields(void **state)
{
	static const struct {
		uint16_t type, bytes;
	} wrong[] = {{RING_FIELD_U64, 4},
		     {RING_FIELD_F64, 0},
		     {RING_FIELD_POINTER, 9},
		     {RING_FIELD_NAME, 8},
		     {RING_FIELD_TEXT, 21},
		     {RING_FIELD_TEXT, UINT16_MAX},
		     {8, 4},
		     {UINT16_MAX, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		const struct ring_field head = {.name = 1,
						.type = wrong[i].type,
						.bytes = wrong[i].bytes};
		uint8_t *payload = calloc(1, RING_CONT_BYTES);
		struct ringfield f;
		bool broken = false;
		size_t pos = 0;

		assert_non_null(payload);
		memcpy(payload, &head, sizeof(head));
		assert_false(ringfield_next(payload, RING_CONT_BYTES, &pos, &f, &broken));
		assert_true(broken);
		free(payload);
	}
}

/* ---- times */

static void test_clock(void **state)
{
	/*
	 * 3 a ns, but the second from 4 to 5 had 3.000003; a bracket of another boot, one that is
	 * too late
	 */
	const struct clock_bracket brackets[] = {
		{.source = 15000003000, .monotonic = 5000000000},
		{.source = 12000000000, .monotonic = 4000000000},
		{.source = 90000000000, .monotonic = 3000000000},
		{.source = 30000003000, .monotonic = 9900000000},
		{.source = 0, .monotonic = 0},
	};
	const struct ringfile_header h = {.clock = RING_CLOCK_TSC,
		.begin_tsc = 27000003000,
		.begin_raw_ns = 9000000000,
		.end_tsc = 27030003000,
		.end_raw_ns = 9010000000};
	struct ringclock c;
	uint64_t ns = 0, last = 0;

	(void)state;
	assert_int_equal(ringclock_init(&c, &h, brackets, ARRAY_SIZE(brackets), 0), 0);
	assert_true(ringclock_place(&c, 12000000000, &ns) && ns == 4000000000);
	assert_true(ringclock_place(&c, 13500001500, &ns) && ns == 4500000000);
	assert_true(ringclock_place(&c, 15000003000, &ns) && ns == 5000000000);
	assert_true(ringclock_place(&c, 27015003000, &ns) && ns == 9005000000);
	/* before the series: its rate goes on */
	assert_true(ringclock_place(&c, 9000000000, &ns) && ns > 3000000000 - 2000 &&
		    ns < 3000000000 + 2000);
	/* a little after the copy, and much */
	assert_true(ringclock_place(&c, 27030006000, &ns) && ns == 9010001000);
	assert_false(ringclock_place(&c, 27130003000, &ns));
	assert_false(ringclock_place(&c, 0, &ns));
	assert_false(ringclock_place(&c, UINT64_MAX, &ns));
	for (uint64_t stamp = 11000000000; stamp < 27030003000; stamp += 999999937) {
		assert_true(ringclock_place(&c, stamp, &ns));
		assert_true(ns > last);
		last = ns;
	}
	ringclock_fini(&c);
}

/* The only pair of readings is the copy's own; then not even that has a rate. */
static void test_clock_alone(void **state)
{
	struct ringfile_header h = {.clock = RING_CLOCK_TSC,
		.begin_tsc = 29999994000,
		.begin_raw_ns = 9999998000,
		.end_tsc = 30000000000,
		.end_raw_ns = 10000000000};
	struct ringclock c;
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(ringclock_init(&c, &h, NULL, 0, 0), 0);
	assert_true(ringclock_place(&c, 27000000000, &ns) && ns == 9000000000);
	ringclock_fini(&c);
	h.begin_tsc = h.end_tsc;
	assert_int_equal(ringclock_init(&c, &h, NULL, 0, 0), 0);
	assert_false(ringclock_place(&c, 27000000000, &ns));
	ringclock_fini(&c);
}

/* Nothing can be older than the process. */
static void test_clock_start(void **state)
{
	/* booted 1000 s ago, of which 400 s in suspend; the process was started 100 s ago */
	const struct clock_bracket b = {
		.source = 600000000000, .monotonic = 600000000000, .boottime = 1000000000000};
	struct ringfile_header h = {.clock = RING_CLOCK_MONOTONIC_RAW,
				    .start_time = 90000,
				    .end_raw_ns = 600000000000};
	struct ringclock c;
	uint64_t ns;

	(void)state;
	assert_int_equal(ringclock_init(&c, &h, &b, 1, 0), 0);
	assert_true(ringclock_place(&c, 500000000000, &ns) && ns == 500000000000);
	assert_false(ringclock_place(&c, 490000000000, &ns));
	/* it is not known, but the program says when it began */
	h.start_time = 0;
	assert_int_equal(ringclock_init(&c, &h, &b, 1, 550000000000), 0);
	assert_true(ringclock_place(&c, 550000000000, &ns));
	assert_false(ringclock_place(&c, 540000000000, &ns));
	assert_int_equal(ringclock_init(&c, &h, &b, 1, UINT64_MAX), 0);
	assert_true(ringclock_place(&c, 1, &ns));
	h.start_time = UINT64_MAX;
	assert_int_equal(ringclock_init(&c, &h, &b, 1, 0), 0);
	assert_true(ringclock_place(&c, 1, &ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_broken_fields),
		cmocka_unit_test(test_clock),
		cmocka_unit_test(test_clock_alone),
		cmocka_unit_test(test_clock_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
