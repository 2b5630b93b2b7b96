/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder and the Perfetto writer, read back by a decoder that knows nothing of them
 * (pftrace-read.c).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/base/workers.h"
#include "decode/writer/pb.h"
#include "decode/writer/writer.h"
#include "tests/unit/decode/timeline/timeline-random.h"
#include "tests/unit/decode/writer/pftrace-read.h"

static const struct writer_meta meta = {.version = "test",
					.clock = "monotonic",
					.kernel_release = "6.1"};
static const struct writer_clocks clocks = {.monotonic = 1000, .boottime = 1500};

static int read_fd(int fd, struct read_trace *t)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	assert_int_equal(io_pread_full(fd, data, (size_t)st.st_size, 0), st.st_size);
	return read_trace(t, data, (size_t)st.st_size);
}

static struct writer *open_writer(int fd, const struct writer_options *o)
{
	struct writer *w = NULL;

	assert_int_equal(pftrace_writer_new(fd, o, &w), 0);
	writer_begin(w, &meta, &clocks);
	return w;
}

static void numbers_and_lengths(void **state)
{
	static uint8_t buf[64 * 1024];
	struct pb pb;
	uint8_t *a, *b;

	pb_init(&pb, buf, sizeof(buf));
	pb_uint(&pb, 1, 0);
	pb_uint(&pb, 1, 300);
	pb_int(&pb, 2, -1);
	pb_fixed64(&pb, 3, 0x0102030405060708ull);
	pb_string(&pb, 16, "ab");
	assert_memory_equal(buf, "\x08\x00\x08\xac\x02\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
			    16);
	assert_memory_equal(buf + 16, "\x19\x08\x07\x06\x05\x04\x03\x02\x01\x82\x01\x02" "ab", 14);
	assert_int_equal(pb.p - buf, 30);
	/* nested, with lengths of one, two and three bytes */
	for (size_t n = 0; n < 20000; n = n * 3 + 1) {
		uint8_t text[20000];
		uint64_t outer;
		size_t at = 1;

		memset(text, 'x', sizeof(text));
		pb_init(&pb, buf, sizeof(buf));
		a = pb_open(&pb, 1);
		b = pb_open(&pb, 2);
		pb_bytes(&pb, 3, text, n);
		pb_close(&pb, b);
		pb_close(&pb, a);
		assert_int_equal(buf[0], 0x0a);
		outer = 0;
		for (int shift = 0;; shift += 7) {
			outer |= (uint64_t)(buf[at] & 0x7f) << shift;
			if (!(buf[at++] & 0x80))
				break;
		}
		assert_int_equal(at + outer, pb.p - buf);
		assert_int_equal(buf[at], 0x12);
		assert_int_equal(n ? pb.p[-1] : 'x', 'x');
	}
}

static void bytes_never_pass_the_end(void **state)
{
	uint8_t *buf = test_malloc(PB_MARGIN + 100), big[500];
	struct pb pb;

	memset(big, 1, sizeof(big));
	pb_init(&pb, buf, PB_MARGIN + 100);
	for (int i = 0; i < 100; i++)
		pb_bytes(&pb, 1, big, sizeof(big));
	assert_true(pb.p <= pb.end);
	assert_true(pb_room(&pb) < 100);
	test_free(buf); /* cmocka checks the guard */
}

static void a_small_trace(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	struct writer *w = open_writer(fd, &(struct writer_options){.compress = false});
	uint32_t process = writer_new_track(w), thread = writer_new_track(w),
		 other = writer_new_track(w);
	const struct writer_arg args[] = {
		{.key = writer_name(w, "why"),
		 .kind = WRITER_ARG_NAME,
		 .value.name = writer_name(w, "so")},
		{.key = writer_name(w, "n"), .kind = WRITER_ARG_INT, .value.i64 = -5},
		{.key = writer_name(w, "t"), .kind = WRITER_ARG_TEXT, .value.text = "once"},
	};
	struct writer_event ev = {.name = writer_name(w, "main"),
				  .category = writer_name(w, "demo")};
	struct writer_stats stats;
	struct read_trace t;

	writer_process(w, process, 10, 1, "demo", 1000);
	writer_thread(w, thread, process, 10, 11, "worker", 1000);
	writer_track(w, other, WRITER_TRACK_NONE, "losses", "text");
	ev.location = writer_location(w, writer_name(w, "main.c"), ev.name, 7);
	writer_slice_begin(w, thread, 2000, &ev);
	ev.args = args;
	ev.n_args = ARRAY_SIZE(args);
	ev.flow = 77;
	writer_instant(w, thread, 2500, &ev);
	ev.flow = 0;
	ev.flow_end = 77;
	writer_slice_begin(w, thread, 2500, &ev);
	writer_slice_end(w, thread, 2500, NULL);
	writer_slice_end(w, thread, 9000, NULL);
	writer_instant(w, other, 2600, &(struct writer_event){.name = ev.name});
	writer_instant(w, other, 2700, &(struct writer_event){.name = ev.name});
	assert_int_equal(writer_end(w), 0);
	writer_stats(w, &stats);
	assert_int_equal(stats.slices, 2);
	assert_int_equal(stats.bytes_out, stats.bytes_raw);
	if (read_fd(fd, &t) < 0)
		fail_msg("%s", t.error);
	assert_int_equal(t.slices, 2);
	assert_int_equal(t.instants, 3);
	assert_int_equal(t.flows_begun, 1);
	assert_int_equal(t.flows_ended, 1);
	assert_int_equal(t.first_ts, 2000);
	assert_int_equal(t.last_ts, 9000);
	assert_int_equal(read_track_named(&t, "worker")->tid, 11);
	assert_int_equal(read_track_named(&t, "worker")->longest, 7000);
	read_trace_fini(&t);
	writer_free(w);
}

/* More threads than sequences: they share one, and still each event finds its track. */
static void many_threads(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	struct writer *w = open_writer(fd, &(struct writer_options){.compress = true});
	uint32_t tracks[400], process = writer_new_track(w), names[5];
	struct read_trace t;

	for (uint32_t i = 0; i < 5; i++)
		names[i] = writer_name(w, &"abcde"[i]);
	writer_process(w, process, 10, 1, "demo", 1000);
	for (uint32_t i = 0; i < 400; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "thread %u", i);
		tracks[i] = writer_new_track(w);
		writer_thread(w, tracks[i], process, 10, 100 + i, name, 2000 + i);
		writer_thread(w, tracks[i], process, 10, 100 + i, name, 2000 + i); /* renamed */
	}
	/* times go up on a track and down between tracks */
	for (uint32_t n = 0; n < 5; n++)
		for (uint32_t i = 400; i-- > 0;)
			writer_slice_begin(w, tracks[i], 5000 + n * 10 + i,
					    &(struct writer_event){.name = names[n]});
	for (uint32_t n = 0; n < 5; n++)
		for (uint32_t i = 0; i < 400; i++)
			writer_slice_end(w, tracks[i], 9000 - i, NULL);
	assert_int_equal(writer_end(w), 0);
	if (read_fd(fd, &t) < 0)
		fail_msg("%s", t.error);
	assert_int_equal(t.slices, 2000);
	for (uint32_t i = 0; i < 400; i += 133) {
		char name[16];

		(void)snprintf(name, sizeof(name), "thread %u", i);
		assert_int_equal(read_track_named(&t, name)->slices, 5);
		assert_int_equal(read_track_named(&t, name)->longest, 4000 - 2 * i);
	}
	read_trace_fini(&t);
	writer_free(w);
}

static void scheduling_is_written_in_columns(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	struct writer *w = open_writer(fd, &(struct writer_options){.compress = true});
	struct read_trace t;

	for (uint32_t i = 0; i < 3000; i++) {
		writer_switch(w, i % 3, 2000 + i,
			      &(struct writer_switch){.prev_tid = i,
						      .prev_name = writer_name(w, "a"),
						      .prev_state = (enum writer_state)(i % 6),
						      .next_tid = i + 3,
						      .next_name = writer_name(w, "b")});
		writer_waking(w, i % 3, 2000 + i,
				     &(struct writer_waking){.tid = i,
							     .name = writer_name(w, "a"),
							     .waker_tid = 7,
							     .waker_is_current = i % 2,
							     .in_irq = i % 5 == 0});
	}
	assert_int_equal(writer_end(w), 0);
	if (read_fd(fd, &t) < 0)
		fail_msg("%s", t.error);
	assert_int_equal(t.switches, 3000);
	assert_true(t.wakings >= 2990); /* the reader counts one long one a bundle */
	read_trace_fini(&t);
	writer_free(w);
}

static void long_names_are_cut_at_a_character(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	struct writer *w = open_writer(fd, &(struct writer_options){.compress = false});
	char name[10000];
	uint32_t id;

	for (size_t i = 0; i + 1 < sizeof(name); i += 2)
		memcpy(name + i, "\xc3\xa4", 2);
	name[0] = 'x'; /* so that the limit falls inside a character */
	name[1] = 'y';
	memmove(name + 1, name + 2, sizeof(name) - 2);
	name[sizeof(name) - 1] = '\0';
	id = writer_name(w, name);
	assert_int_equal(strlen(writer_name_text(w, id)), 4095);
	assert_int_equal(writer_name(w, NULL), 0);
	assert_int_equal(writer_end(w), 0);
	writer_free(w);
}

static void a_full_disk_is_reported(void **state)
{
	_cleanup_close_ int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct writer *w;

	if (fd < 0)
		skip();
	for (int compress = 0; compress < 2; compress++) {
		w = open_writer(fd, &(struct writer_options){.compress = compress});
		writer_process(w, writer_new_track(w), 1, 1, "x", 1000);
		assert_int_equal(writer_end(w), -ENOSPC);
		assert_int_equal(writer_error(w), -ENOSPC);
		writer_free(w);
	}
}

/*
 * Whatever comes in, contradictory as it may be, comes out as a trace that nests; in every form of
 * output, and cut anywhere.
 */
static void random_streams_nest(void **state)
{
	for (uint64_t seed = 1; seed <= 120; seed++) {
		_cleanup_close_ int fd = io_memfd("test");
		_cleanup_(workers_freep) struct workers *workers = NULL;
		_cleanup_(pack_freep) struct pack *pack = NULL;
		_cleanup_(writer_freep) struct writer *w = NULL;
		struct writer_options o = {.compress = seed % 2};
		struct json_object *summary = NULL;
		struct timeline_stats stats;
		struct writer_stats written;
		struct read_trace t;

		if (seed % 4 == 1) {
			assert_int_equal(workers_new(3, &workers), 0);
			assert_int_equal(pack_new(workers, 0, &pack), 0);
			o.pack = pack;
		}
		if (seed % 5 == 0)
			o.max_output_bytes = 2000 * seed;
		assert_int_equal(pftrace_writer_new(fd, &o, &w), 0);
		assert_int_equal(timeline_random_play(seed, 3000, w, &stats, &summary), 0);
		writer_stats(w, &written);
		if (read_fd(fd, &t) < 0 && written.bytes_dropped == 0)
			fail_msg("seed %u: %s", (unsigned int)seed, t.error);
		if (!stats.cut)
			assert_int_equal(t.slices, written.slices);
		if (o.max_output_bytes)
			assert_true(written.bytes_out <= o.max_output_bytes);
		assert_int_equal(stats.out_of_order, 0);
		assert_non_null(summary);
		json_object_put(summary);
		read_trace_fini(&t);
	}
}

static int play_on(uint64_t seed, unsigned int threads, uint64_t max_bytes,
		   struct writer_stats *ret)
{
	const int fd = io_memfd("test");
	_cleanup_(workers_freep) struct workers *workers = NULL;
	_cleanup_(pack_freep) struct pack *pack = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct json_object *summary = NULL;
	struct timeline_stats stats;

	assert_int_equal(workers_new(threads, &workers), 0);
	assert_int_equal(pack_new(workers, 0, &pack), 0);
	assert_int_equal(pftrace_writer_new(fd,
					    &(struct writer_options){.compress = true,
								     .pack = pack,
								     .max_output_bytes = max_bytes},
					    &w),
			 0);
	assert_int_equal(timeline_random_play(seed, 60000, w, &stats, &summary), 0);
	assert_int_equal(stats.cut, max_bytes != 0);
	writer_stats(w, ret);
	json_object_put(summary);
	return fd;
}

/* Who compresses does not change what is written, also where a limit cuts it. */
static void threads_write_the_same(void **state)
{
	static const unsigned int threads[] = {2, 3, 8};

	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct writer_stats all, one;
		const int whole = play_on(seed, 1, 0, &all);
		const uint64_t max = seed % 2 ? 0 : all.bytes_out * (3 + seed) / 10;
		_cleanup_close_ int a = play_on(seed, 1, max, &one);
		_cleanup_free_ uint8_t *x = malloc(one.bytes_out), *y = malloc(one.bytes_out);

		(void)close(whole);
		assert_true(all.bytes_raw > 4 * PACK_PIECE_BYTES);
		assert_non_null(x);
		assert_non_null(y);
		assert_int_equal(pread(a, x, one.bytes_out, 0), one.bytes_out);
		for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++) {
			struct writer_stats other;
			_cleanup_close_ int b = play_on(seed, threads[i], max, &other);

			assert_int_equal(other.bytes_out, one.bytes_out);
			assert_int_equal(other.bytes_raw, one.bytes_raw);
			assert_int_equal(pread(b, y, one.bytes_out, 0), one.bytes_out);
			assert_memory_equal(x, y, one.bytes_out);
		}
	}
}

/* At its limit the trace closes what is open, says so, and the sums go on. */
static void a_cut_trace_is_whole_and_says_so(void **state)
{
	for (int compress = 0; compress < 2; compress++) {
		const struct writer_options o = {.compress = compress,
						 .max_output_bytes = 400 * 1024};
		_cleanup_close_ int fd = io_memfd("test");
		_cleanup_(writer_freep) struct writer *w = NULL;
		struct json_object *summary = NULL, *losses, *cut;
		struct timeline_stats stats;
		struct writer_stats written;
		struct read_trace t;

		assert_int_equal(pftrace_writer_new(fd, &o, &w), 0);
		assert_int_equal(timeline_random_play(1, 60000, w, &stats, &summary), 0);
		writer_stats(w, &written);
		assert_true(stats.cut);
		assert_true(stats.cut_ns > stats.first_ns && stats.cut_ns < stats.last_ns);
		assert_int_equal(written.bytes_dropped, 0);
		assert_true(written.bytes_out <= o.max_output_bytes);
		assert_true(written.bytes_out >= o.max_output_bytes / 2);
		if (read_fd(fd, &t) < 0)
			fail_msg("%s", t.error);
		assert_int_equal(t.last_ts, stats.cut_ns);
		assert_non_null(read_track_named(&t, "tracerd: losses"));
		assert_true(json_object_object_get_ex(summary, "losses", &losses));
		assert_true(json_object_object_get_ex(losses, "output cut", &cut));
		assert_true(stats.samples > 10000);
		json_object_put(summary);
		read_trace_fini(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_and_lengths),
		cmocka_unit_test(bytes_never_pass_the_end),
		cmocka_unit_test(a_small_trace),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(scheduling_is_written_in_columns),
		cmocka_unit_test(long_names_are_cut_at_a_character),
		cmocka_unit_test(a_full_disk_is_reported),
		cmocka_unit_test(random_streams_nest),
		cmocka_unit_test(threads_write_the_same),
		cmocka_unit_test(a_cut_trace_is_whole_and_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
