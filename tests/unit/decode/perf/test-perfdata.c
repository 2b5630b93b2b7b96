// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of perf.data: made files, whole and broken, and real recordings of a dozen versions of
 * perf (where they are at hand), each whole and cut at every 4 KiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/io.h"
#include "common/bundle/perfdata_write.h"
#include "decode/perf/data.h"
#include "decode/perf/event.h"
#include "tests/unit/decode/object/decode-files.h"
#include "tests/unit/decode/perf/perfdata-make.h"

static struct make m;
static struct budget budget = {.max = 256u << 20};

static void make_some(void)
{
	const uint64_t chain[] = {0x1234, 0x2000, 0x3000};

	make_init(&m);
	/* written newest first, as a backward ring is read */
	make_sample(&m, 5000, 10, 11, chain, 3);
	make_switch(&m, 4500, 10, 11, 1);
	make_sample(&m, 4000, 10, 10, chain, 1);
	make_mmap(&m, 3000, 10, 0x1000, 0x5000, 0x2000, 42, "/bin/prog");
	make_fork(&m, 2000, 10, 11, 10, 10);
	make_comm(&m, 1000, 10, 10, "prog", 1);
}

static struct perfdata *open_scan(int fd)
{
	struct perfdata *pd = NULL;

	assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
	assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	return pd;
}

static void test_order_and_fields(void **state)
{
	static const enum perfevent_kind kinds[] = {PERFEVENT_COMM, PERFEVENT_FORK, PERFEVENT_MMAP,
		PERFEVENT_SAMPLE, PERFEVENT_SWITCH, PERFEVENT_SAMPLE};
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_close_ int fd = -1;
	struct perfevent ev;
	size_t n = 0;

	(void)state;
	make_some();
	fd = make_file(&m);
	pd = open_scan(fd);
	for (; perfdata_next(pd, &ev) == 1; n++) {
		assert_true(n < ARRAY_SIZE(kinds));
		assert_int_equal(ev.kind, kinds[n]);
		assert_true(ev.has_time);
		switch (ev.kind) {
		case PERFEVENT_COMM:
			assert_true(ev.comm.exec);
			assert_string_equal(ev.comm.name, "prog");
			assert_int_equal(ev.time, 1000);
			break;
		case PERFEVENT_FORK:
			assert_int_equal(ev.tid, 11);
			assert_int_equal(ev.fork.ptid, 10);
			break;
		case PERFEVENT_MMAP:
			assert_int_equal(ev.mmap.addr, 0x1000);
			assert_int_equal(ev.mmap.pgoff, 0x2000);
			assert_int_equal(ev.mmap.ino, 42);
			assert_true(ev.mmap.exec);
			assert_string_equal(ev.mmap.path, "/bin/prog");
			break;
		case PERFEVENT_SWITCH:
			assert_true(ev.sw.out);
			assert_int_equal(ev.tid, 11);
			break;
		default:
			assert_int_equal(ev.sample.n_chain, ev.tid == 11 ? 4 : 2);
			assert_int_equal(ev.sample.ip, 0x1234);
			assert_int_equal(ev.sample.period, 1000000);
			break;
		}
	}
	assert_int_equal(n, ARRAY_SIZE(kinds));
	assert_int_equal(pd->losses.torn, 0);
	assert_int_equal(pd->losses.malformed, 0);
}

static int answer_of(const void *p, size_t len)
{
	_cleanup_close_ int fd = io_memfd("perf.data");
	struct perfdata *pd = NULL;
	int r;

	assert_int_equal(io_pwrite_all(fd, p, len, 0), 0);
	r = perfdata_open(fd, &budget, &pd);
	perfdata_free(pd);
	return r;
}

static void test_refused(void **state)
{
	uint64_t header[13] = {0};

	(void)state;
	assert_int_equal(answer_of("", 0), PERFDATA_E_NOT_PERF);
	assert_int_equal(answer_of("#!/bin/sh\necho hello\n", 21), PERFDATA_E_NOT_PERF);
	memcpy(header, "2ELIFREP", 8); /* the same letters from the other end */
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_ENDIAN);
	memcpy(header, "PERFFILE", 8);
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_OLD);
	memcpy(header, "PERFILE2", 8);
	header[1] = 104;
	assert_int_equal(answer_of(header, 50), PERFDATA_E_HEADER);
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_HEADER);
	header[1] = 99;
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_HEADER);
	/* attributes past the end, and as many as no machine has */
	header[1] = 104;
	header[2] = 144;
	header[3] = UINT64_MAX - 8;
	header[4] = 144;
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_HEADER);
	header[3] = 0;
	header[4] = UINT64_MAX;
	assert_int_equal(answer_of(header, sizeof(header)), PERFDATA_E_HEADER);
}

static uint64_t count_events(struct perfdata *pd)
{
	struct perfevent ev;
	uint64_t n = 0;

	while (perfdata_next(pd, &ev) == 1)
		n++;
	return n;
}

static void test_bad_records(void **state)
{
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_close_ int fd = -1;
	size_t second;

	(void)state;
	/* a size of zero: what is before is read, and it ends */
	make_some();
	second = 0;
	memcpy(&second, m.data + 6, 2);
	memset(m.data + second + 6, 0, 2);
	fd = make_file(&m);
	pd = open_scan(fd);
	assert_int_equal(count_events(pd), 1);
	assert_int_equal(pd->losses.torn, 1);
	assert_int_equal(pd->losses.unread_bytes, m.n - second);
	pd = perfdata_free(pd);
	fd = close_fd(fd);

	/* a chain longer than its record: counted, and the next one is read */
	make_some();
	memset(m.data + 8 + 40, 0xff, 8);
	fd = make_file(&m);
	pd = open_scan(fd);
	assert_int_equal(count_events(pd), 5);
	assert_int_equal(pd->losses.malformed, 1);
	pd = perfdata_free(pd);
	fd = close_fd(fd);

	/* no room for the index */
	struct budget small = {.max = 1000};

	make_some();
	fd = make_file(&m);
	assert_int_equal(perfdata_open(fd, &small, &pd), 0);
	assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	assert_int_equal(count_events(pd), 0);
	assert_int_equal(pd->losses.no_memory, 1);
}

/* Every record in a box of its own, cut at odd places, in one zstd stream. */
static void test_compressed(void **state)
{
	static struct make boxes;
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_close_ int fd = -1;
	ZSTD_CCtx *z = ZSTD_createCCtx();

	(void)state;
	make_some();
	make_init(&boxes);
	for (size_t at = 0; at < m.n; at += 100) {
		uint8_t buf[4096];
		ZSTD_inBuffer in = {m.data + at, m.n - at < 100 ? m.n - at : 100, 0};
		ZSTD_outBuffer out = {buf, sizeof(buf), 0};
		uint64_t pad = 0;

		assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_flush), 0);
		make_begin(&boxes, PERFDATA_COMPRESSED2, 0);
		make_u64(&boxes, out.pos);
		memcpy(boxes.data + boxes.n, buf, out.pos);
		memcpy(boxes.data + boxes.n + out.pos, &pad, 8);
		boxes.n += (out.pos + 7) & ~(size_t)7;
		make_end(&boxes);
	}
	ZSTD_freeCCtx(z);
	fd = make_file(&boxes);
	pd = open_scan(fd);
	assert_int_equal(count_events(pd), 6);
	assert_int_equal(pd->losses.torn, 0);
	assert_int_equal(pd->losses.compressed, 0);
	pd = perfdata_free(pd);
	fd = close_fd(fd);
	/* the front of the stream is wrong */
	boxes.data[16] ^= 0xff;
	fd = make_file(&boxes);
	pd = open_scan(fd);
	assert_true(count_events(pd) < 6);
	assert_true(pd->losses.compressed > 0);
	pd = perfdata_free(pd);
	assert_int_equal(budget.used, 0);
}

struct recording {
	const char *name;
	uint32_t samples;
	uint64_t first, last; /* time of the first and last sample; 0: not told */
};

static const struct recording recordings[] = {
	{"quipper/perf.data.singleprocess-3.8", 13, 0, 0},
	{"quipper/perf.data.callgraph-3.8", 1768, 346832330193902, 346834330834585},
	{"quipper/perf.data.branch-4.14", 13, 12631245939019, 12631246708679},
	{"quipper/perf.data.group_desc-4.14", 13, 16450092164943, 16450092625594},
	{"quipper/perf.data.ctx_switch_namespaces-4.14", 2, 1056482246901611, 1056482248803937},
	{"quipper/perf.data.lost_samples-4.4", 191, 3325068166316, 3325070377628},
	{"quipper/perf.data.piped.no_attr_ids-4.14", 7, 0, 0},
	{"quipper/perf.data.piped.header_features-4.16", 2, 508975442957986, 508975443205801},
	{"quipper/perf.data.piped.header_feautres_group_desc-6.8", 21, 1117680204319700,
		1117680204963038},
	{"quipper/perf.data.piped.corrupted.zero_size_sample-3.2", 0, 0, 0},
	{"linux-perf-data/sleep.data", 7, 0, 0},
	{"linux-perf-data/sleep.compressed.data", 8, 0, 0},
	{"linux-perf-data/sleep.compressed2.data", 7, 0, 0},
	{"linux-perf-data/sleep.compressed2.pipe.data", 7, 0, 0},
	{"autofdo/ro_sample.perf", 13, 0, 0},
};

static int open_recording(const struct recording *rec)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s", decode_recordings(), rec->name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static uint64_t count_samples(struct perfdata *pd, uint64_t *ret_first, uint64_t *ret_last)
{
	struct perfevent ev;
	uint64_t n = 0, before = 0;

	while (perfdata_next(pd, &ev) == 1) {
		if (ev.kind != PERFEVENT_SAMPLE)
			continue;
		assert_true(!ev.has_time || ev.time >= before);
		before = ev.time;
		if (n++ == 0)
			*ret_first = ev.time;
		*ret_last = ev.time;
	}
	return n;
}

static void test_recordings(void **state)
{
	(void)state;
	if (!decode_recordings()) {
		print_message("SKIP: no recordings ($TRACERD_DATA)\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
		_cleanup_close_ int fd = open_recording(&recordings[i]);
		uint64_t first = 0, last = 0;

		if (fd < 0)
			fail_msg("%s is not there", recordings[i].name);
		pd = open_scan(fd);
		if (count_samples(pd, &first, &last) != recordings[i].samples)
			fail_msg("%s: other number of samples", recordings[i].name);
		if (recordings[i].first &&
			(first != recordings[i].first || last != recordings[i].last))
			fail_msg("%s: other times: %llu .. %llu", recordings[i].name,
				(unsigned long long)first, (unsigned long long)last);
	}
}

/* Cut anywhere, the rest is read or refused; never more samples than there were, and no end but an
 * end. */
static void test_cut_recordings(void **state)
{
	(void)state;
	if (!decode_recordings()) {
		print_message("SKIP: no recordings ($TRACERD_DATA)\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		_cleanup_close_ int fd = open_recording(&recordings[i]), cut = io_memfd("cut");
		_cleanup_free_ uint8_t *file = NULL;
		struct stat st;

		assert_true(fd >= 0 && cut >= 0 && fstat(fd, &st) == 0);
		file = malloc((size_t)st.st_size);
		assert_int_equal(io_pread_full(fd, file, (size_t)st.st_size, 0), st.st_size);
		for (off_t len = 0; len < st.st_size; len += 4096) {
			_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
			uint64_t first = 0, last = 0, n;

			assert_int_equal(ftruncate(cut, 0), 0);
			assert_int_equal(io_pwrite_all(cut, file, (size_t)len, 0), 0);
			if (perfdata_open(cut, &budget, &pd) != 0)
				continue;
			assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
			n = count_samples(pd, &first, &last);
			if (n > recordings[i].samples)
				fail_msg("%s cut at %lld: more samples than it has",
					recordings[i].name, (long long)len);
			/* a pipe may end anywhere between two records */
			if (n < recordings[i].samples && !pd->pipe && !pd->losses.torn)
				fail_msg("%s cut at %lld: nothing is said to be lost",
					recordings[i].name, (long long)len);
		}
	}
	assert_int_equal(budget.used, 0);
}

/*
 * What tracerd writes of a program of which nobody records samples: attributes, features, no
 * record.
 */
static void test_no_records(void **state)
{
	const struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
		.size = PERF_ATTR_SIZE_VER0,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.sample_id_all = 1};
	const uint64_t id = 7;
	_cleanup_close_ int fd = io_memfd("empty");
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	struct perfevent ev;

	(void)state;
	assert_int_equal(perfdata_writer_new(fd, 0, NULL, &w), 0);
	assert_int_equal(perfdata_add_event(w, "history", &attr, &id, 1), 0);
	assert_int_equal(perfdata_finish(w, &(struct perfdata_about){.command = "tracerd"}), 0);
	assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
	assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	assert_false(perfdata_next(pd, &ev));
	assert_int_equal(pd->n_attrs, 1);
	assert_non_null(pd->osrelease);
	assert_int_equal(pd->losses.torn, 0);
	assert_int_equal(pd->losses.unread_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_fields),
		cmocka_unit_test(test_no_records),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bad_records),
		cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_recordings),
		cmocka_unit_test(test_cut_recordings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
