// SPDX-License-Identifier: Apache-2.0
/*
 * Python's functions stand where they were called from, or it is said that this is not known;
 * whatever the words are, nothing is read beyond them.
 */
#include "config.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/bundle/python_layout.h"
#include "common/bundle/schedev.h"
#include "common/control/json.h"
#include "decode/stack/python.h"

#define SHIM (PYTHON_ENTRY | PYTHON_BORDER)
#define WORDS_MAX 64

static struct stacktab *st;
static struct budget budget = {.max = 64 << 20};
static struct python python;
static const struct perfattr sched = {.type = PERF_TYPE_SOFTWARE,
				      .config = PERF_COUNT_SW_BPF_OUTPUT};
static const struct perfattr clock_attr = {.type = PERF_TYPE_SOFTWARE,
					   .config = PERF_COUNT_SW_CPU_CLOCK};

static int setup(void **state)
{
	(void)state;
	assert_int_equal(stacktab_new(0, &st), 0);
	python_init(&python, st, &budget);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	python_fini(&python);
	st = stacktab_free(st);
	return 0;
}

static bool add(uint64_t id, const void *name, size_t bytes, uint8_t kind, const char *file,
		uint32_t line, bool cut)
{
	const struct tracerd_sched_event e = {.magic = SCHEDEV_MAGIC, .kind = SCHEDEV_FUNCTION};
	struct python_function f = {.id = id,
				    .line = line,
				    .name_bytes = (uint16_t)bytes,
				    .name_kind = kind,
				    .file_bytes = (uint16_t)strlen(file),
				    .file_kind = 1,
				    .name_cut = cut,
				    .file_cut = cut};
	uint8_t raw[sizeof(e) + sizeof(f)];
	struct perfevent ev = {.kind = PERFEVENT_SAMPLE,
			       .attr = &sched,
			       .sample = {.raw = raw, .raw_size = sizeof(raw)}};

	memcpy(f.name, name, bytes < sizeof(f.name) ? bytes : sizeof(f.name));
	memcpy(f.file, file, strlen(file));
	memcpy(raw, &e, sizeof(e));
	memcpy(raw + sizeof(e), &f, sizeof(f));
	return python_take_function(&python, &ev);
}

/* The payload of a sample with these words. */
static size_t payload(uint8_t *raw, uint64_t head, const uint64_t *words, size_t n)
{
	const uint32_t magic[2] = {PYTHON_MAGIC, 0};

	memcpy(raw, magic, sizeof(magic));
	memcpy(raw + 8, &head, 8);
	memcpy(raw + 16, words, n * 8);
	return 16 + n * 8;
}

/*
 * The stack as the walk pushes it: native frames are "C" for the interpreter's loop, others by
 * their letter, the outermost first.
 */
static const char *draw(uint64_t head, const uint64_t *words, size_t n, const char *native,
			bool whole)
{
	static char text[1024];
	uint8_t raw[16 + WORDS_MAX * 8 + 4];
	const struct perfevent ev = {.kind = PERFEVENT_SAMPLE, .attr = &clock_attr,
		.sample = {.raw = raw, .raw_size = (uint32_t)payload(raw, head, words, n) + 4}};
	const size_t len = strlen(native);
	uint32_t calls = 0, stack, frames[64], depth;
	struct python_part part;

	assert_true(python_part_of(&ev, &part));
	for (size_t i = 0; i < len; i++)
		calls += native[i] == 'C';
	python_place(&python, &part, calls, len && native[len - 1] == 'C', whole);
	stack = python_push_outer(&python, &part, calls, STACKTAB_ROOT);
	for (size_t i = 0; i < len; i++) {
		const char name[2] = {native[i], 0};

		stack = stacktab_push(st, stack,
				      stacktab_frame(st, &(struct frame_info){.name = name,
									      .object = "n"}));
		if (native[i] == 'C')
			stack = python_push_call(&python, &part, --calls, stack);
	}
	depth = stacktab_frames(st, stack, frames, 64);
	text[0] = '\0';
	for (uint32_t i = 0; i < depth; i++) {
		struct frame_info info;

		stacktab_info(st, frames[i], &info);
		(void)strcat(text, i ? " " : "");
		(void)strcat(text, info.name);
	}
	return text;
}

static void test_place(void **state)
{
	/* 3.11: the outermost frame of a call says so; 3.12 on: a border follows it */
	const uint64_t old[] = {3, 2 | PYTHON_ENTRY, 1 | PYTHON_ENTRY},
		       new[] = {3, 2, SHIM, 1, SHIM}, empty[] = {SHIM, 1, SHIM};
	const uint64_t unknown[] = {0, 1 | PYTHON_ENTRY}, own[] = {3, 9, 1 | PYTHON_ENTRY};
	const uint64_t complete = PYTHON_HEAD_WORD(PYTHON_COMPLETE, 0),
		       deep = PYTHON_HEAD_WORD(PYTHON_DEEP, 0);
	static const char lost[] = "[Python functions: where among the others is not known]";
	char want[256];

	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		assert_true(add(i, (const char[]){(char)('a' + i - 1)}, 1, 1, "f.py", 7, false));
	assert_true(add(9, "__init__", 8, 1, "__init__", 0, false));
	assert_string_equal(draw(complete | 3, old, 3, "mCxCy", true), "m C a x C b c y");
	assert_string_equal(draw(complete | 5, new, 5, "mCxCy", true), "m C a x C b c y");
	/* a call that has just begun, or ends */
	assert_string_equal(draw(complete | 3, old, 3, "mCxCyC", true), "m C a x C b c y C");
	assert_string_equal(draw(complete | 3, empty, 3, "mCxCy", true), "m C a x C y");
	assert_int_equal(python.without_place, 0);
	/* other numbers: no order is made up */
	(void)snprintf(want, sizeof(want), "%s a b c m C y", lost);
	assert_string_equal(draw(complete | 3, old, 3, "mCy", true), want);
	(void)snprintf(want, sizeof(want), "%s a b c m C C C y", lost);
	assert_string_equal(draw(complete | 3, old, 3, "mCCCy", true), want);
	(void)snprintf(want, sizeof(want), "%s a b c", lost);
	assert_string_equal(draw(complete | 3, old, 3, "", true), want);
	assert_int_equal(python.without_place, 3);
	/* without the outer native part: from within, and what is outside is outside */
	assert_string_equal(draw(complete | PYTHON_NATIVE_CUT | 3, old, 3, "xCy", true),
			    "a x C b c y");
	assert_string_equal(draw(complete | 3, old, 3, "xCy", false), "a x C b c y");
	/* there the innermost call may have no frame yet */
	(void)snprintf(want, sizeof(want), "%s a b c x C", lost);
	assert_string_equal(draw(complete | PYTHON_NATIVE_CUT | 3, old, 3, "xC", true), want);
	/* of Python's the outermost are missing */
	assert_string_equal(draw(deep | 2, old, 2, "mCxCy", true),
			    "m C [Python callers unknown] x C b c y");
	assert_string_equal(draw(deep | 1, old, 1, "mCxCy", true),
			    "m C [Python callers unknown] x C [Python callers unknown] c y");
	assert_string_equal(draw(complete | 2, unknown, 2, "mCy", true),
			    "m C a [Python function without a name] y");
	assert_int_equal(python.without_name, 1);
	/* what the interpreter runs for itself */
	assert_string_equal(draw(complete | 3, own, 3, "mCy", true), "m C a c y");
	/* the loop itself is at work, or may be, between two functions */
	assert_string_equal(draw(complete | PYTHON_STOPPED | 3, old, 3, "mCxC", true),
			    "m C [Python functions not known] x C [Python functions not known]");
	assert_string_equal(draw(deep | PYTHON_STOPPED | 2, old, 2, "mCxC", true),
			    "m C [Python functions not known] x C [Python functions not known]");
	assert_string_equal(draw(complete | PYTHON_STOPPED | 3, old, 3, "", true), "");
	/*
	 * Who runs has a frame: a loop too many is one that the list has nothing of, and where is
	 * not known.
	 */
	assert_string_equal(
		draw(complete | PYTHON_RUNS | 3, old, 3, "mCxCyC", true),
		"[Python functions: where among the others is not known] a b c m C x C y C");
	assert_int_equal(python.not_found[PYTHON_BETWEEN], 3);
	/* or it has called something meanwhile */
	assert_string_equal(draw(complete | PYTHON_STOPPED | 3, old, 3, "mCxCy", true),
			    "m C a x C b c y");
	/* nothing was found */
	assert_string_equal(draw(PYTHON_HEAD_WORD(PYTHON_BETWEEN, 0), old, 0, "mCy", true),
			    "m C [Python functions not known] y");
	assert_string_equal(draw(PYTHON_HEAD_WORD(PYTHON_NO_THREAD, 0), old, 0, "mCy", true),
			    "m C [Python functions not known] y");
	assert_string_equal(draw(PYTHON_HEAD_WORD(PYTHON_NO_THREAD, 0), old, 0, "my", true), "m y");
	assert_int_equal(python.not_found[PYTHON_NO_THREAD], 1);
}

static void name_is(uint64_t id, const char *name, const char *file, uint32_t line)
{
	struct frame_info info;

	stacktab_info(st, hashmap_index(&python.functions, 0, id), &info);
	assert_string_equal(info.name, name);
	assert_string_equal(info.file, file);
	assert_int_equal(info.line, line);
	assert_int_equal(info.kind, FRAME_KIND_PYTHON);
}

static void test_names(void **state)
{
	const uint16_t two[] = {0x65e5, 0x672c, 0x7e};
	const uint32_t four[] = {0x1d4bb, 0xe9}, wrong[] = {0x110000, 0xffffffff, 0xd800};
	char longest[PYTHON_NAME_BYTES];

	(void)state;
	assert_true(add(20, "gr\xf6\xdf\x65", 5, 1, "/a/b.py", 3, false));
	name_is(20, "größe", "/a/b.py", 3);
	assert_true(add(21, two, sizeof(two), 2, "b.py", 1, false));
	name_is(21, "日本~", "b.py", 1);
	assert_true(add(22, four, sizeof(four), 4, "b.py", 1, true));
	name_is(22, "\xf0\x9d\x92\xbb\xc3\xa9...", "...b.py", 1);
	memset(longest, 'x', sizeof(longest));
	assert_true(add(23, longest, sizeof(longest), 1, "", 1, false));
	assert_true(add(24, "a\nb", 3, 1, "", UINT32_MAX, false));
	/* what is no character, or longer than it can be, does no harm */
	assert_true(add(25, wrong, sizeof(wrong), 4, "", 1, false));
	assert_int_equal(python.refused, 0);
	assert_true(add(26, "x", 1, 3, "", 1, false));
	assert_true(add(26, longest, PYTHON_NAME_BYTES + 1, 1, "", 1, false));
	assert_true(add(0, "x", 1, 1, "", 1, false));
	assert_int_equal(python.refused, 3);
}

static void test_hostile(void **state)
{
	uint8_t raw[16 + WORDS_MAX * 8];
	struct perfevent ev = {.kind = PERFEVENT_SAMPLE,
			       .attr = &clock_attr,
			       .sample = {.raw = raw}};
	struct python_part part;

	(void)state;
	srandom(1);
	for (int round = 0; round < 100000; round++) {
		const size_t n = (size_t)random() % WORDS_MAX;
		uint64_t words[WORDS_MAX];
		uint32_t calls = (uint32_t)random() % 8, stack;

		for (size_t i = 0; i < n; i++)
			words[i] = (uint64_t)random() % 12 | (random() & 1 ? PYTHON_ENTRY : 0) |
				   (random() % 4 ? 0 : PYTHON_BORDER);
		ev.sample.raw_size = (uint32_t)
			payload(raw, PYTHON_HEAD | ((uint64_t)random() & 0xffffffff) % (1u << 26),
				words, n);
		if (round & 1)
			ev.sample.raw_size = (uint32_t)random() % (ev.sample.raw_size + 1);
		if (round % 3 == 0)
			raw[random() % 16] ^= (uint8_t)random();
		if (round % 5 == 0)
			raw[8] = (uint8_t)n;
		if (!python_part_of(&ev, &part))
			continue;
		assert_true(16 + (size_t)part.n * 8 <= ev.sample.raw_size);
		python_place(&python, &part, calls, random() & 1, random() & 1);
		stack = python_push_outer(&python, &part, calls, STACKTAB_ROOT);
		while (calls > 0)
			stack = python_push_call(&python, &part, --calls, stack);
		assert_true(stacktab_depth(st, stack) <= part.n + 10);
	}
}

/* The daemon takes a layout as it was told, and none that would lead beyond what is read. */
static void test_layout(void **state)
{
	const struct python_layout layout = {.interpreters = 632,
					     .next_interpreter = 7264,
					     .threads = 7344,
					     .next = 8,
					     .interpreter = 16,
					     .native_id = 160,
					     .frame = 72,
					     .frame_within = PYTHON_NONE,
					     .code = 0,
					     .previous = 8,
					     .owner = 70,
					     .is_entry = PYTHON_NONE,
					     .top = 64,
					     .file = 112,
					     .name = 128,
					     .line = 68,
					     .version = 92,
					     .ascii = 40,
					     .other = 56};
	struct python_layout got;
	struct json_object *array = python_layout_json(&layout);
	const size_t n = json_object_array_length(array);

	(void)state;
	assert_int_equal(python_layout_parse(array, &got), 0);
	assert_memory_equal(&got, &layout, sizeof(layout));
	for (size_t i = 0; i < n; i++) {
		static const int64_t bad[] = {-1, 1 << 20, INT64_MAX, 65534, 4096};

		for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
			struct json_object *was =
				json_object_get(json_object_array_get_idx(array, i));

			assert_int_equal(json_object_array_put_idx(array, i,
								   json_object_new_int64(bad[k])),
					 0);
			/* where something lies in the large structures may be far */
			if (i >= 3 || bad[k] < 0 || bad[k] == INT64_MAX || bad[k] == 65534)
				assert_int_equal(python_layout_parse(array, &got), -EBADMSG);
			assert_int_equal(json_object_array_put_idx(array, i, was), 0);
		}
	}
	assert_int_equal(python_layout_parse(NULL, &got), -EBADMSG);
	assert_int_equal(json_object_array_add(array, json_object_new_int64(0)), 0);
	assert_int_equal(python_layout_parse(array, &got), -EBADMSG);
	json_object_put(array);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_place, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
		cmocka_unit_test(test_layout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
