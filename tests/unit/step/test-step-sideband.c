// SPDX-License-Identifier: Apache-2.0
/*
 * Segments of the side-band: what is written is the state at the oldest one's beginning, and all
 * since then.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "step/sideband.h"

static struct sideband *new_side(void)
{
	struct sideband *s;

	assert_int_equal(sideband_new(&s), 0);
	return s;
}

/* The threads of the COMM records that are written, in their order. */
static void check_written(const struct sideband *s, const char *want)
{
	static const struct perf_event_attr attr = {.sample_type = PERF_SAMPLE_IDENTIFIER,
						    .sample_id_all = 1};
	static const struct step_clock clock = {.conv.mult = 1};
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	const struct perfdata_about about = {.command = "test", .clock = CLOCK_MONOTONIC_RAW};
	_cleanup_close_ int fd = memfd_create("side", MFD_CLOEXEC);
	char got[64] = "";
	uint64_t at, end;
	size_t n = 0;

	assert_true(fd >= 0);
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	assert_int_equal(perfdata_add_event(w, "dummy:u", &attr, NULL, 0), 0);
	assert_int_equal(sideband_write(s, &clock, w), 0);
	assert_int_equal(perfdata_finish(w, &about), 0);
	assert_int_equal(pread(fd, &at, 8, 40), 8);
	assert_int_equal(pread(fd, &end, 8, 48), 8);
	end += at;
	while (at < end) {
		struct perfabi_comm c;

		assert_int_equal(pread(fd, &c, sizeof(c), (off_t)at), sizeof(c));
		assert_int_equal(c.header.type, PERF_RECORD_COMM);
		assert_true(n + 1 < sizeof(got));
		got[n++] = (char)c.tid;
		at += c.header.size;
	}
	assert_string_equal(got, want);
}

static void add(struct sideband *s, char tid)
{
	assert_int_equal(sideband_comm(s, 1, 1, tid, "x", false), 0);
}

static void test_segments(void **state)
{
	_cleanup_(sideband_freep) struct sideband *s = new_side();
	size_t before;

	(void)state;
	check_written(s, "");
	add(s, 'a');
	add(s, 'b');
	assert_true(sideband_second_segment_ticks(s) == 0 && sideband_segment(s) == 0);
	sideband_drop_oldest_segment(s); /* never the only one */
	check_written(s, "ab");
	before = sideband_bytes(s);
	assert_int_equal(sideband_begin_segment(s, 10), 0);
	add(s, 'A');
	sideband_begin_records(s);
	assert_true(sideband_segment_bytes(s) == 0 && sideband_bytes(s) > before);
	add(s, 'c');
	assert_true(sideband_segment_bytes(s) > 0);
	assert_int_equal(sideband_begin_segment(s, 20), 0);
	add(s, 'B');
	sideband_begin_records(s);
	add(s, 'd');
	check_written(s, "abcd");
	assert_true(sideband_second_segment_ticks(s) == 10);
	assert_true(sideband_first_segment(s) == 0 && sideband_segment(s) == 2);
	sideband_drop_oldest_segment(s);
	check_written(s, "Acd");
	assert_true(sideband_second_segment_ticks(s) == 20 && sideband_first_segment(s) == 1);
	sideband_drop_oldest_segment(s);
	check_written(s, "Bd");
	assert_true(sideband_second_segment_ticks(s) == 0 && sideband_first_segment(s) == 2);
	add(s, 'e');
	check_written(s, "Bde");
	assert_true(sideband_bytes(s) < 2 * before);
}

/* The bound is of all segments, and what was forgotten makes room. */
static void test_bound(void **state)
{
	_cleanup_(sideband_freep) struct sideband *s = new_side();
	int r;

	(void)state;
	while ((r = sideband_comm(s, 1, 1, 1, "x", false)) == 0)
		if (sideband_segment_bytes(s) > 20u << 20) {
			assert_int_equal(sideband_begin_segment(s, 10), 0);
			sideband_begin_records(s);
		}
	assert_int_equal(r, -EFBIG);
	assert_true(sideband_bytes(s) <= 64u << 20 && sideband_bytes(s) > 60u << 20);
	sideband_drop_oldest_segment(s);
	assert_true(sideband_bytes(s) < 50u << 20);
	add(s, 'a');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
