/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of programs by the thousand: what is well-formed comes out as it went in, sums included;
 * what is too much of anything is refused, counted, and breaks nothing. The rules one by one are
 * goldens (test-timeline.c).
 */
#include "config.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "decode/timeline/timeline.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/decode/writer/pftrace-read.h"

#define N_THREADS 5u
#define N_FIBERS 4u
#define N_STACKS (N_THREADS + N_FIBERS)
#define N_NAMES 6u
#define MAX_DEPTH 600u

struct fixture {
	int fd;
	struct writer *w;
	struct stacktab *st;
	struct timeline *tl;
	struct timeline_stats stats;
	struct json_object *summary;
};

static void start(struct fixture *x, const struct timeline_options *o)
{
	const struct writer_options wo = {.compress = true};

	*x = (struct fixture){.fd = io_memfd("test")};
	assert_int_equal(pftrace_writer_new(x->fd, &wo, &x->w), 0);
	assert_int_equal(stacktab_new(0, &x->st), 0);
	assert_int_equal(timeline_new(o, x->st, x->w, &x->tl), 0);
}

static void finish(struct fixture *x)
{
	assert_int_equal(timeline_finish(x->tl, &x->summary), 0);
	timeline_stats(x->tl, &x->stats);
}

static void read_back(struct fixture *x, struct read_trace *t)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;

	assert_int_equal(fstat(x->fd, &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	assert_int_equal(io_pread_full(x->fd, data, (size_t)st.st_size, 0), st.st_size);
	if (read_trace(t, data, (size_t)st.st_size) < 0)
		fail_msg("%s", t->error);
}

static void end(struct fixture *x)
{
	json_object_put(x->summary);
	timeline_free(x->tl);
	stacktab_free(x->st);
	writer_free(x->w);
	(void)close_fd(x->fd);
}

static uint64_t draw(uint64_t *state, uint64_t n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 33) % n;
}

static uint64_t number(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (!json_object_object_get_ex(o, key, &v))
		fail_msg("no \"%s\" in %s", key, json_object_to_json_string(o));
	return json_object_get_uint64(v);
}

static struct json_object *by_name(struct json_object *summary, const char *name)
{
	struct json_object *list = NULL;

	assert_true(json_object_object_get_ex(summary, "regions", &list));
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i), *v;

		if (json_object_object_get_ex(o, "name", &v) &&
		    strcmp(json_object_get_string(v), name) == 0)
			return o;
	}
	return NULL;
}

/* ---- well-formed streams against a model */

struct model {
	struct {
		uint32_t name;
		uint64_t begin, children;
	} open[N_STACKS][MAX_DEPTH];
	uint32_t depth[N_STACKS];
	uint64_t runs[N_THREADS];   /* the fiber, 0: none */
	uint64_t runs_on[N_FIBERS]; /* the thread + 1 */
	struct {
		uint64_t count, total, self, max;
	} sums[N_NAMES];
	uint64_t slices;
};

static const char *const names[N_NAMES] = {"a", "b", "c", "d", "e", "f"};

static void region(struct fixture *x, struct model *m, uint64_t *seed, uint32_t thread, uint64_t ts)
{
	uint64_t fiber = m->runs[thread];
	uint32_t stack = fiber ? N_THREADS + (uint32_t)fiber - 1 : thread;
	struct ringevent ev = {.ts = ts, .pid = 7, .tid = 100 + thread, .fiber = fiber};
	uint32_t *depth = &m->depth[stack];

	if (*depth < MAX_DEPTH && (*depth == 0 || draw(seed, 100) < 53)) {
		uint32_t name = (uint32_t)draw(seed, N_NAMES);

		ev.kind = RINGEVENT_REGION_BEGIN;
		ev.name = names[name];
		m->slices += *depth <= 500; /* the one beyond is "deeper regions" */
		m->open[stack][*depth].name = name;
		m->open[stack][*depth].begin = ts;
		m->open[stack][(*depth)++].children = 0;
	} else {
		uint64_t began = m->open[stack][--*depth].begin, ns = ts - began;
		uint32_t name = m->open[stack][*depth].name;

		ev.kind = RINGEVENT_REGION_END;
		ev.name = names[name];
		ev.began = began;
		m->sums[name].count++;
		m->sums[name].total += ns;
		/* what is too deep to be drawn is nobody's child */
		m->sums[name].self += ns - m->open[stack][*depth].children;
		if (*depth && *depth < 500)
			m->open[stack][*depth - 1].children += ns;
		if (ns > m->sums[name].max)
			m->sums[name].max = ns;
	}
	assert_int_equal(timeline_event(x->tl, &ev), 0);
}

static void switch_fiber(struct fixture *x, struct model *m, uint64_t *seed, uint32_t thread,
			 uint64_t ts)
{
	uint64_t fiber = draw(seed, N_FIBERS + 1);
	const struct ringevent ev = {.kind = RINGEVENT_FIBER,
				     .ts = ts,
				     .pid = 7,
				     .tid = 100 + thread,
				     .id = fiber,
				     .name = "co"};

	if (fiber == m->runs[thread] || (fiber && m->runs_on[fiber - 1]))
		return;
	if (m->runs[thread])
		m->runs_on[m->runs[thread] - 1] = 0;
	m->slices += fiber != 0;
	m->runs[thread] = fiber;
	if (fiber)
		m->runs_on[fiber - 1] = thread + 1;
	assert_int_equal(timeline_event(x->tl, &ev), 0);
}

static void well_formed_streams_come_out_as_they_went_in(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		_cleanup_free_ struct model *m = calloc(1, sizeof(*m));
		uint64_t s = seed, ts = 1000000;
		struct read_trace t;
		struct fixture x;

		assert_non_null(m);
		start(&x, &(struct timeline_options){.switches = false});
		for (uint32_t i = 0; i < 20000; i++) {
			/* of some seeds, one stack gets deep */
			uint32_t thread =
				seed % 3 == 0 && draw(&s, 3) ? 0 : (uint32_t)draw(&s, N_THREADS);

			ts += 1 + draw(&s, 100);
			if (seed % 4 && draw(&s, 20) == 0)
				switch_fiber(&x, m, &s, thread, ts);
			else
				region(&x, m, &s, thread, ts);
		}
		finish(&x);
		assert_int_equal(x.stats.regions_not_nested, 0);
		assert_int_equal(x.stats.out_of_order, 0);
		assert_int_equal(x.stats.refused_full, 0);
		for (uint32_t i = 0; i < N_NAMES; i++) {
			struct json_object *o = by_name(x.summary, names[i]);

			assert_non_null(o);
			assert_int_equal(number(o, "count"), m->sums[i].count);
			assert_int_equal(number(o, "total_ns"), m->sums[i].total);
			assert_int_equal(number(o, "self_ns"), m->sums[i].self);
			assert_int_equal(number(o, "max_ns"), m->sums[i].max);
		}
		read_back(&x, &t);
		if (x.stats.regions_folded == 0)
			assert_int_equal(t.slices, m->slices);
		read_trace_fini(&t);
		end(&x);
	}
}

/* ---- too much of something */

static void a_stack_without_end_is_folded(void **state)
{
	struct ringevent ev = {.kind = RINGEVENT_REGION_BEGIN,
			       .pid = 7,
			       .tid = 100,
			       .name = "deep"};
	struct read_trace t;
	struct fixture x;

	start(&x, &(struct timeline_options){.switches = false});
	for (uint32_t i = 0; i < 100000; i++) {
		ev.ts = 1000 + i;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	ev.kind = RINGEVENT_REGION_END;
	for (uint32_t i = 0; i < 100000; i++) {
		ev.ts = 200000 + i;
		ev.began = 1000 + 99999 - i;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	finish(&x);
	assert_int_equal(x.stats.regions_folded, 100000 - 500);
	assert_int_equal(x.stats.regions_not_nested, 0);
	assert_int_equal(number(by_name(x.summary, "deep"), "count"), 100000);
	assert_int_equal(number(by_name(x.summary, "deep"), "max_ns"), 299999 - 1000);
	read_back(&x, &t);
	assert_int_equal(t.slices, 501);
	assert_int_equal(read_track_named(&t, "regions")->max_depth, 501);
	read_trace_fini(&t);
	end(&x);
}

/*
 * Many fibers: the first have tracks, the others lanes while they are in use; then they are
 * refused.
 */
static void fibers_without_end(void **state)
{
	struct ringevent ev = {.pid = 7, .tid = 100};
	struct writer_stats written;
	struct fixture x;

	start(&x, &(struct timeline_options){.switches = false});
	for (uint32_t i = 1; i <= 70000; i++) {
		int want = i <= 65536 ? 0 : TIMELINE_E_FULL;

		ev.ts = i * 10;
		ev.kind = RINGEVENT_FIBER;
		ev.id = ev.fiber = i;
		ev.name = "";
		assert_int_equal(timeline_event(x.tl, &ev), want);
		ev.kind = RINGEVENT_REGION_BEGIN;
		ev.name = "run";
		assert_int_equal(timeline_event(x.tl, &ev), want);
		ev.kind = RINGEVENT_REGION_END;
		ev.began = i * 10;
		ev.ts += 5;
		assert_int_equal(timeline_event(x.tl, &ev), want);
	}
	finish(&x);
	writer_stats(x.w, &written);
	assert_int_equal(number(by_name(x.summary, "run"), "count"), 65536);
	assert_int_equal(x.stats.fibers, 65536);
	assert_int_equal(x.stats.refused_full, 3 * (70000 - 65536));
	assert_uint_in_range(written.tracks, 1024, 1100);
	assert_int_equal(written.slices, 2 * 65536);
	end(&x);
}

static void tasks_without_end(void **state)
{
	struct ringevent ev = {.kind = RINGEVENT_TASK_BEGIN, .pid = 7, .tid = 100, .name = "task"};
	struct writer_stats written;
	struct fixture x;

	start(&x, &(struct timeline_options){.switches = false});
	for (uint32_t i = 1; i <= 3000; i++) {
		ev.ts = 1000 + i;
		ev.task = i;
		assert_int_equal(timeline_event(x.tl, &ev), i <= 1024 ? 0 : TIMELINE_E_FULL);
	}
	/*
	 * a lane that is free is used again, the lowest first; an end whose begin was refused is
	 * none
	 */
	ev.kind = RINGEVENT_TASK_END;
	for (uint32_t i = 3000; i > 0; i--) {
		ev.ts = 10000 - i;
		ev.task = i;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	for (uint32_t i = 1; i <= 5000; i++) {
		ev.kind = RINGEVENT_TASK_BEGIN;
		ev.ts = 10000 + i;
		ev.task = 1ull << 48 | i;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
		ev.kind = RINGEVENT_TASK_END;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	finish(&x);
	writer_stats(x.w, &written);
	assert_int_equal(written.slices, 1024 + 5000);
	assert_uint_in_range(written.tracks, 1024, 1030);
	assert_int_equal(x.stats.refused_full, 3000 - 1024);
	end(&x);
}

/*
 * The longest names and texts that a record can name, in all its arguments: what fits is written.
 */
static void arguments_of_any_length(void **state)
{
	static char keys[RINGEVENT_MAX_ARGS][4200], texts[RINGEVENT_MAX_ARGS][9000];
	struct ringevent ev = {.pid = 7,
			       .tid = 100,
			       .name = texts[0],
			       .n_args = RINGEVENT_MAX_ARGS};
	struct writer_stats written;
	struct read_trace t;
	struct fixture x;

	start(&x, &(struct timeline_options){.switches = false});
	for (uint32_t round = 0; round < 4; round++) {
		for (size_t i = 0; i < RINGEVENT_MAX_ARGS; i++) {
			size_t key = (size_t)snprintf(keys[i], sizeof(keys[i]), "%u %zu ", round,
						      i),
			       text = i % 3;

			/*
			 * characters of two bytes at even and odd places, so that limits fall
			 * inside one
			 */
			for (size_t max = round == 0 ? 20 : 4190; key + 2 < max; key += 2)
				memcpy(keys[i] + key, "\xc3\xa4", 3);
			memset(texts[i], 'x', text);
			for (size_t max = round == 1 ? 20 : 8990; text + 2 < max; text += 2)
				memcpy(texts[i] + text, "\xc3\xa4", 3);
			ev.args[i] = (struct ringevent_arg){.key = keys[i],
							    .type = RINGEVENT_TEXT,
							    .cut = i % 2,
							    .value.text = texts[i]};
		}
		ev.kind = RINGEVENT_REGION_BEGIN;
		ev.ts = 1000 + round;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
		ev.kind = RINGEVENT_LOG;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
		ev.kind = RINGEVENT_REGION_END;
		ev.began = 1000 + round;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	finish(&x);
	writer_stats(x.w, &written);
	read_back(&x, &t);
	assert_int_equal(t.slices, 4);
	assert_int_equal(t.args + written.args_dropped, 4 * (3 * RINGEVENT_MAX_ARGS + 1) + 3);
	assert_true(written.args_dropped > 0);
	assert_true(t.args > 100);
	read_trace_fini(&t);
	end(&x);
}

/* A region of days does not make the recording days long; its slice is. */
static void early_begins_are_not_the_recording(void **state)
{
	struct ringevent ev = {.kind = RINGEVENT_REGION_BEGIN,
			       .ts = 1000,
			       .pid = 7,
			       .tid = 100,
			       .name = "main",
			       .began_early = true};
	struct read_trace t;
	struct fixture x;

	start(&x, &(struct timeline_options){.switches = false});
	assert_int_equal(timeline_event(x.tl, &ev), 0);
	ev = (struct ringevent){
		.kind = RINGEVENT_INSTANT, .ts = 5000000000000, .pid = 7, .tid = 100, .name = "x"};
	assert_int_equal(timeline_event(x.tl, &ev), 0);
	ev.kind = RINGEVENT_REGION_END;
	ev.name = "main";
	ev.ts += 7000;
	ev.began = 1000;
	assert_int_equal(timeline_event(x.tl, &ev), 0);
	finish(&x);
	assert_int_equal(number(x.summary, "from_ns"), 5000000000000);
	assert_int_equal(number(x.summary, "to_ns"), 5000000007000);
	assert_int_equal(number(by_name(x.summary, "main"), "max_ns"), 5000000006000);
	read_back(&x, &t);
	assert_int_equal(t.first_ts, 1000);
	assert_int_equal(read_track_named(&t, "regions")->longest, 5000000006000);
	read_trace_fini(&t);
	end(&x);
}

/*
 * Many long names, deep waits in each: the summary stays within its bound, and keeps the slowest.
 */
static void a_summary_is_bounded(void **state)
{
	char name[1100], longest[1100];
	struct ringevent ev = {.pid = 7, .tid = 100, .name = name};
	struct json_object *slowest, *first;
	uint64_t ts = 1000;
	struct fixture x;
	uint32_t stack = STACKTAB_ROOT;
	size_t len = 0;

	start(&x, &(struct timeline_options){.switches = true,
					     .cause = {.region = longest,
						       .tid = 100,
						       .begin_ns = 1000,
						       .end_ns = 900000}});
	memset(name, 'n', sizeof(name));
	memcpy(longest, name, sizeof(name));
	longest[1099] = '\0';
	for (uint32_t i = 0; i < 200; i++) {
		char frame[300];

		memset(frame, 'f', sizeof(frame));
		(void)snprintf(frame + 280, 20, "%u", i);
		stack = stacktab_push(x.st, stack,
				      stacktab_frame(x.st, &(struct frame_info){.name = frame}));
	}
	for (uint32_t i = 0; i < 300; i++) {
		(void)snprintf(name + 1080, 20, "%u", i);
		ev.kind = RINGEVENT_REGION_BEGIN;
		ev.ts = ts++;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
		assert_int_equal(timeline_switch_out(x.tl, 100, ts++, 0, OFF_CPU_SLEEPING, stack,
						     101, "o"),
				 0);
		ts += 1000 * (i % 100);
		assert_int_equal(timeline_switch_in(x.tl, 100, ts++, 0, 101, "o"), 0);
		ev.kind = RINGEVENT_REGION_END;
		ev.began = ev.ts;
		ev.ts = ts++;
		assert_int_equal(timeline_event(x.tl, &ev), 0);
	}
	finish(&x);
	assert_true(json_object_to_json_string_length(x.summary, JSON_C_TO_STRING_PLAIN,
						      &len) != NULL);
	assert_uint_in_range(len, 1000, 40 * 1024);
	assert_true(json_object_object_get_ex(x.summary, "slowest_regions", &slowest));
	first = json_object_array_get_idx(slowest, 0);
	assert_int_equal(number(first, "ns"), 99 * 1000 + 3);
	assert_int_equal(number(first, "off_cpu_ns"), 99 * 1000 + 1);
	end(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(well_formed_streams_come_out_as_they_went_in),
		cmocka_unit_test(a_stack_without_end_is_folded),
		cmocka_unit_test(fibers_without_end),
		cmocka_unit_test(tasks_without_end),
		cmocka_unit_test(arguments_of_any_length),
		cmocka_unit_test(early_begins_are_not_the_recording),
		cmocka_unit_test(a_summary_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
