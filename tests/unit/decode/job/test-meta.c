// SPDX-License-Identifier: Apache-2.0
/*
 * What decoding takes from meta.json: rings, brackets with the TSC, causes; and that nothing odd in
 * it hurts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/job/meta.h"

static int read_text(const char *text, struct meta *ret)
{
	_cleanup_close_ int fd = io_memfd("meta");

	assert_int_equal(io_pwrite_all(fd, text, strlen(text), 0), 0);
	return meta_read(fd, ret);
}

static void test_rings(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"rings\":[{\"file\":\"rings/10-5.ring\",\"pid\":10,\"comm\":\"a\\u001bb\"},"
			"{\"pid\":11},7,{\"file\":\"\"},{\"file\":\"rings/12-5.ring\",\"pid\":99999999999}],"
			"\"clocks\":{\"brackets\":[{\"raw\":100,\"monotonic\":200,\"tsc\":5000,\"width_ns\":3},"
			"{\"raw\":300,\"monotonic\":400}]}}",
			&m),
		0);
	assert_int_equal(m.n_rings, 2);
	assert_string_equal(m.rings[0].file, "rings/10-5.ring");
	assert_string_equal(m.rings[0].comm, "a\\x1bb");
	assert_int_equal(m.rings[0].pid, 10);
	assert_string_equal(m.rings[1].file, "rings/12-5.ring");
	assert_int_equal(m.rings[1].pid, 0);
	assert_int_equal(m.n_brackets, 2);
	assert_int_equal(m.brackets[0].source, 100);
	assert_int_equal(m.brackets[0].monotonic, 200);
	assert_true(m.n_tsc >= 1);
	assert_int_equal(m.tsc[0].source, 5000);
	assert_int_equal(m.tsc[0].monotonic, 100);
	assert_int_equal(m.tsc[0].width, 3);
	meta_fini(&m);
}

/* How far the rings of the CPUs look back is no loss. */
static void test_filters(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text("{\"events\":{\"pt\":{\"filters\":[{\"name\":\"a\\u001bb\"},7]}}}", &m),
		0);
	assert_non_null(m.only);
	assert_int_equal(json_object_array_length(m.only), 2);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(m.only, 0)),
			    "a\\x1bb");
	assert_string_equal(json_object_get_string(json_object_array_get_idx(m.only, 1)), "?");
	meta_fini(&m);
	/* one that names none says that all was traced */
	assert_int_equal(read_text("{\"events\":{\"pt\":{\"filters\":[]}}}", &m), 0);
	assert_null(m.only);
	meta_fini(&m);
	assert_int_equal(read_text("{\"events\":{\"pt\":{\"filters\":[{},{},{},{},{},{}]}}}", &m),
			 0);
	assert_int_equal(json_object_array_length(m.only), 5);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(m.only, 4)),
			    "and 2 more");
	meta_fini(&m);
}

static void test_gaps(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"events\":{\"complete_from_ns\":500},\"gaps\":["
			"{\"kind\":\"ring of cpu 1 overwritten\",\"cpu\":1,\"from_ns\":100,\"to_ns\":500},"
			"{\"kind\":\"not recorded: it was late\",\"from_ns\":700,\"to_ns\":800,\"count\":2}]}",
			&m),
		0);
	assert_int_equal(m.complete_from, 500);
	assert_int_equal(m.n_notes, 1);
	assert_string_equal(m.notes[0].text, "not recorded: it was late");
	assert_true(m.notes[0].begin == 700 && m.notes[0].end == 800 && m.notes[0].count == 2);
	meta_fini(&m);
	assert_int_equal(
		read_text(
			"{\"gaps\":["
			"{\"kind\":\"cpu 2 not traced\",\"blind_cpu\":2,\"from_ns\":100,\"to_ns\":900},"
			"{\"kind\":\"paused\",\"blind_cpu\":0,\"blind_tid\":7,\"from_ns\":300,\"to_ns\":200},"
			"{\"kind\":\"nonsense\",\"blind_cpu\":-1,\"from_ns\":100,\"to_ns\":900}]}",
			&m),
		0);
	assert_true(m.n_notes == 3 && m.n_blinds == 2 && m.complete_from == 0);
	assert_true(m.blinds[0].cpu == 2 && m.blinds[0].tid == 0 && m.blinds[0].from == 100 &&
		    m.blinds[0].to == 900);
	assert_true(m.blinds[1].cpu == 0 && m.blinds[1].tid == 7 && m.blinds[1].from == 200 &&
		    m.blinds[1].to == 200);
	meta_fini(&m);
	/* whoever wrote it: where one begins the others are not whole */
	assert_int_equal(read_text("{\"events\":{\"complete_from_ns\":500},"
				   "\"gaps\":[{\"cpu\":3,\"from_ns\":100,\"to_ns\":900}]}",
				 &m),
		0);
	assert_true(m.complete_from == 900 && m.n_notes == 0);
	meta_fini(&m);
}

/* The target has exited: the last of its processes says when. */
static void test_exit(void **state)
{
	static const char *const lives[] = {
		"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"armed\"},\"processes\":[{\"to_ns\":4000}]}",
		"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},\"processes\":[{\"to_ns\":4000},{\"to_ns\":null}]}",
		"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},\"processes\":[{\"to_ns\":9001}]}",
		"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},\"processes\":[7]}",
		"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},\"processes\":[]}",
	};
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},"
			"\"processes\":[{\"pid\":1,\"nspid\":1,\"to_ns\":4000},{\"to_ns\":3000}]}",
			&m),
		0);
	assert_int_equal(m.n_notes, 2);
	assert_int_equal(m.notes[0].kind, SESSION_EXIT);
	assert_int_equal(m.notes[0].end, 4000);
	meta_fini(&m);
	for (size_t i = 0; i < ARRAY_SIZE(lives); i++) {
		assert_int_equal(read_text(lives[i], &m), 0);
		assert_int_equal(m.n_notes, 1);
		assert_int_equal(m.notes[0].kind, SESSION_MARK);
		meta_fini(&m);
	}
}

/*
 * When the target was suspended nothing was recorded any more, nor is the end of its processes
 * known.
 */
static void test_suspended(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":9000,\"target\":{\"state\":\"exited\"},"
			"\"gaps\":[{\"kind\":\"suspended\",\"why\":\"it executed another program\",\"from_ns\":4000,\"to_ns\":9000}],"
			"\"processes\":[{\"pid\":1,\"nspid\":1,\"from_ns\":100,\"to_ns\":4000}]}",
			&m),
		0);
	assert_int_equal(m.n_notes, 2);
	assert_int_equal(m.notes[0].kind, SESSION_SUSPENDED);
	assert_true(m.notes[0].begin == 4000 && m.notes[0].end == 4000);
	assert_string_equal(m.notes[0].text, "it executed another program");
	assert_int_equal(m.n_ends, 0);
	meta_fini(&m);
}

static void test_ends(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":9000,\"processes\":["
			/* one that became another program, whose end is not known */
			"{\"pid\":5,\"from_ns\":100,\"to_ns\":499,\"goes_on\":true},{\"pid\":5,\"from_ns\":500,\"to_ns\":null},"
			/* its number was given out again at once */
			"{\"pid\":6,\"from_ns\":100,\"to_ns\":900},{\"pid\":6,\"from_ns\":900,\"to_ns\":950},"
			/* it had ended when it was read: its records are of that time */
			"{\"pid\":7,\"from_ns\":100,\"to_ns\":100},"
			"{\"pid\":9,\"from_ns\":100,\"to_ns\":9001},{\"pid\":-1,\"from_ns\":100,\"to_ns\":100},{\"pid\":8,\"to_ns\":100},7]}",
			&m),
		0);
	assert_int_equal(m.n_ends, 3);
	assert_true(m.ends[0].pid == 7 && m.ends[0].ns == 101);
	assert_true(m.ends[1].pid == 6 && m.ends[1].ns == 900 && m.ends[2].pid == 6 &&
		    m.ends[2].ns == 950);
	meta_fini(&m);
}

/*
 * Each loss of the recorder is one of the trace and the summary; how far rings look back is none.
 */
static void test_losses(void **state)
{
	struct meta m = {0};
	uint64_t sum = 0;

	(void)state;
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":9000,\"losses\":{\"lost\":1,\"torn\":2,\"malformed\":4,\"overwritten_bytes\":8,"
			"\"throttled\":16,\"history_lost\":32,\"history_dropped\":64,\"images_missing\":128,\"stacks_in_doubt\":256,"
			"\"blocked_stacks_missing\":512,\"python_functions_missing\":1024,\"processes_refused\":2048,"
			"\"processes_left_out\":4096,\"cpu_outages\":7}}",
			&m),
		0);
	assert_int_equal(m.n_notes, 12); /* and the freeze */
	for (size_t i = 0; i < m.n_notes; i++) {
		assert_true(m.notes[i].kind == SESSION_PROGRAM_LOSS ||
			    m.notes[i].kind == SESSION_MARK);
		assert_int_equal(m.notes[i].end, 9000);
		sum += m.notes[i].count;
		if (m.notes[i].count == 256)
			assert_string_equal(m.notes[i].text, "stacks in doubt");
	}
	assert_int_equal(sum, 8191 - 2 - 8); /* not what the rings' ends have */
	meta_fini(&m);
	assert_int_equal(
		read_text("{\"frozen_raw_ns\":9000,\"losses\":{\"lost\":0,\"stacks_in_doubt\":0}}",
			  &m),
		0);
	assert_int_equal(m.n_notes, 1);
	meta_fini(&m);
}

#define CAUSE(text) "{\"frozen_raw_ns\":9000,\"snapshot\":{\"cause\":{" text "}}}"

static void test_causes(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			CAUSE("\"kind\":\"region\",\"region\":\"ser\\u001bve\",\"begin_raw_ns\":1000,"
			      "\"end_raw_ns\":8000,\"over_ns\":5000,\"tid\":12,\"reason\":\"it was slow\""),
			&m),
		0);
	assert_string_equal(m.slow.region, "ser\\x1bve");
	assert_int_equal(m.slow.tid, 12);
	assert_int_equal(m.slow.begin_raw, 1000);
	assert_int_equal(m.slow.end_raw, 8000);
	assert_int_equal(m.slow.over, 5000);
	assert_int_equal(m.n_notes, 1);
	assert_string_equal(m.notes[0].text, "snapshot: it was slow");
	assert_int_equal(m.notes[0].end, 9000);
	meta_fini(&m);

	assert_int_equal(
		read_text(
			CAUSE("\"kind\":\"program\",\"at_raw_ns\":8500,\"tid\":12,\"reason\":\"please\""),
			&m),
		0);
	assert_int_equal(m.slow.end_raw, 0);
	assert_int_equal(m.n_notes, 2);
	assert_string_equal(m.notes[0].text, "trigger: the program asks, in thread 12");
	assert_int_equal(m.notes[0].end, 8500);
	assert_int_equal(m.notes[0].kind, SESSION_MARK);
	assert_string_equal(m.notes[1].text, "snapshot: please");
	meta_fini(&m);

	/* the moment that was meant is shown where the recording goes on behind it */
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":2000009000,\"snapshot\":{\"late_ns\":1950000000,\"asked_raw_ns\":50009000,\"cause\":{"
			"\"kind\":\"client\",\"reason\":\"\"}}}",
			&m),
		0);
	assert_int_equal(m.n_notes, 2);
	assert_string_equal(m.notes[0].text,
			    "the snapshot was asked for, and frozen 1950.0 ms later");
	assert_true(m.notes[0].begin == 50009000 && m.notes[0].end == 50009000 &&
		    m.notes[0].kind == SESSION_MARK);
	assert_string_equal(m.notes[1].text, "snapshot");
	meta_fini(&m);
	/* not in a recording that begins behind it */
	assert_int_equal(read_text("{\"frozen_raw_ns\":9000,\"events\":{\"complete_from_ns\":8001},"
				   "\"snapshot\":{\"late_ns\":1000,\"asked_raw_ns\":8000}}",
				   &m),
			 0);
	assert_int_equal(m.n_notes, 1);
	meta_fini(&m);
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":9000,\"snapshot\":{\"late_ns\":0,\"asked_raw_ns\":8000}}",
			&m),
		0);
	assert_int_equal(m.n_notes, 1);
	meta_fini(&m);

	assert_int_equal(
		read_text(
			CAUSE("\"kind\":\"hit\",\"hit\":\"serve\",\"at_raw_ns\":8400,\"late_ns\":61500,\"tid\":12"),
			&m),
		0);
	assert_string_equal(m.notes[0].text,
			    "trigger: serve, in thread 12, 61.5 us before the freeze");
	assert_int_equal(m.notes[0].end, 8400);
	assert_int_equal(m.notes[0].tid, 12);
	meta_fini(&m);
}

/* What a streamed trace has not, up to the end of its program: a loss. */
static void test_go_ends(void **state)
{
	struct meta m = {0};

	(void)state;
	assert_int_equal(
		read_text(
			"{\"frozen_raw_ns\":1000,"
			"\"processes\":[{\"pid\":6,\"comm\":\"a\",\"from_ns\":100,\"to_ns\":800}],\"go\":["
			"{\"file\":\"go.trace\",\"pid\":6,\"nspid\":6,\"streamed\":true},"
			"{\"file\":\"go-7.trace\",\"pid\":7,\"nspid\":7,\"streamed\":true},"
			"{\"file\":\"go-8.trace\",\"pid\":8,\"nspid\":8}]}",
			&m),
		0);
	assert_int_equal(m.n_go, 3);
	assert_int_equal(m.frozen_raw, 1000);
	for (size_t i = 0; i < 3; i++)
		meta_go_ends(&m, &m.go[i], 400);
	meta_go_ends(&m, &m.go[0], 800);
	assert_int_equal(m.n_notes, 3); /* the freeze is one */
	assert_string_equal(m.notes[0].text, "Go trace missing: not streamed");
	assert_true(m.notes[0].begin == 400 && m.notes[0].end == 800 && m.notes[0].count == 1);
	for (size_t i = 1; i < 3; i++)
		assert_true(m.notes[i].end == 1000 &&
			    m.notes[i].begin ==
				    (m.notes[i].kind == SESSION_PROGRAM_LOSS ? 400u : 1000u));
	meta_fini(&m);
}

static void test_odd(void **state)
{
	static const char *const odd[] = {
		"{}",
		"{\"rings\":7,\"snapshot\":[],\"clocks\":7}",
		"{\"rings\":{},\"clocks\":{\"brackets\":[null,{}]}}",
		CAUSE("\"kind\":\"region\""),
		CAUSE("\"kind\":\"region\",\"region\":\"x\",\"begin_raw_ns\":8000,\"end_raw_ns\":8000"),
		CAUSE("\"kind\":\"region\",\"region\":7,\"begin_raw_ns\":1,\"end_raw_ns\":8000"),
		CAUSE("\"kind\":\"program\",\"at_raw_ns\":-1"),
		CAUSE("\"kind\":\"client\",\"tid\":5"),
		CAUSE("\"kind\":5"),
	};
	_cleanup_free_ char *many = malloc(1 << 20);
	size_t n = 0;
	struct meta m = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		assert_int_equal(read_text(odd[i], &m), 0);
		assert_int_equal(m.slow.end_raw, 0);
		assert_int_equal(m.n_rings, 0);
		assert_true(m.n_notes <= 1);
		meta_fini(&m);
	}
	assert_int_equal(read_text("[]", &m), META_E_INVALID);
	assert_int_equal(read_text("{", &m), META_E_INVALID);
	/* more programs than there may be */
	assert_non_null(many);
	n += (size_t)sprintf(many, "{\"rings\":[");
	for (unsigned i = 0; i <= META_MAX_RINGS; i++)
		n += (size_t)sprintf(many + n, "%s{\"file\":\"rings/%u-1.ring\",\"pid\":%u}",
				     i ? "," : "", i, i);
	(void)sprintf(many + n, "]}");
	assert_int_equal(read_text(many, &m), 0);
	assert_int_equal(m.n_rings, META_MAX_RINGS);
	assert_int_equal(m.rings_left_out, 1);
	meta_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_exit),
		cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_go_ends),
		cmocka_unit_test(test_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
