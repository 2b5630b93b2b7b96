// SPDX-License-Identifier: Apache-2.0
/*
 * Places in this very program: its functions, lines and addresses, what is like them, and questions
 * that are none.
 */
#include "decode/job/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/procfs.h"
#include "common/control/json.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/own_map.h"

static volatile unsigned int sink;

enum { PLACE_LINE = __LINE__ + 3 };
__attribute__((noinline)) static void a_place_of_its_own(void)
{
	sink++;
}

static int ask(void *arg, const struct file_request *request, struct file_answer *ret_file,
	       int *ret_fd)
{
	if (request->kind != FILE_REQUEST_OBJECT || strcmp(request->path, "/self") != 0)
		return 0;
	*ret_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 1;
}

static void chosen_one_for_all(void)
{
	sink++;
}

__attribute__((no_sanitize("address", "undefined"))) static void (*choose(void))(void)
{
	return chosen_one_for_all;
}

void chosen_one(void) __attribute__((ifunc("choose")));

/* The answer's "stats"; `result` is what resolve_run() is to say. */
static struct json_object *resolve(const char *body, int result)
{
	static const struct file_requester files = {.ask = ask};
	struct json_object *stats = json_object_new_object(), *job = NULL;
	struct budget budget = {.max = 512u << 20};

	assert_int_equal(json_parse(body, strlen(body), 1 << 16, &job, NULL, 0), 0);
	assert_int_equal(resolve_run(job, &files, &budget, stats), result);
	json_object_put(job);
	return stats;
}

#define OBJECTS "\"pid\":1,\"objects\":[{\"path\":\"/gone\",\"major\":0,\"minor\":0,\"inode\":1}," \
		"{\"path\":\"/self\",\"major\":0,\"minor\":0,\"inode\":2}]"
#define FIND(text) "{" OBJECTS ",\"find\":{" text "}}"

/* Where the function is in the file, as the kernel says that it is mapped. */
static uint64_t offset_of(const void *function)
{
	const struct proc_map map = own_map_of(function);

	return map.pgoff + ((uint64_t)(uintptr_t)function - map.start);
}

static uint64_t number(struct json_object *o, const char *key)
{
	uint64_t v = UINT64_MAX;

	assert_true(json_get_uint(o, key, &v));
	return v;
}

/* The only place of the answer. */
static struct json_object *only(struct json_object *stats)
{
	struct json_object *list = json_get_array(stats, "places");

	assert_int_equal(json_object_array_length(list), 1);
	return json_object_array_get_idx(list, 0);
}

static bool flag(struct json_object *o, const char *key)
{
	bool v = false;

	assert_true(json_get_bool(o, key, &v));
	return v;
}

static void test_symbol(void **state)
{
	_cleanup_json_ struct json_object *stats =
		resolve(FIND("\"symbol\":\"a_place_of_its_own\""), 0);
	struct json_object *p = only(stats);

	assert_int_equal(number(p, "object"), 1);
	assert_int_equal(number(p, "offset"), offset_of(a_place_of_its_own));
	assert_string_equal(json_get_string(p, "name"), "a_place_of_its_own");
	assert_true(number(p, "size") > 0 && number(p, "into") == 0 && flag(p, "boundary"));
	assert_int_equal(json_object_array_length(json_get_array(stats, "unread")), 1);
	assert_int_equal(json_object_array_length(json_get_array(stats, "near")), 0);
}

static void test_near(void **state)
{
	_cleanup_json_ struct json_object *stats =
		resolve(FIND("\"symbol\":\"a_plaec_of_its_own\""), 0);
	struct json_object *near = json_get_array(stats, "near");

	assert_int_equal(json_object_array_length(json_get_array(stats, "places")), 0);
	assert_int_equal(json_object_array_length(near), 1);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(near, 0)),
			    "a_place_of_its_own");
}

/* The code of an IFUNC's symbol is what chooses; what it may choose is named. */
static void test_chooser(void **state)
{
	_cleanup_json_ struct json_object *stats = resolve(FIND("\"symbol\":\"chosen_one\""), 0);
	struct json_object *near = json_get_array(stats, "near");

	assert_true(flag(only(stats), "chooser"));
	assert_int_equal(json_object_array_length(near), 1);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(near, 0)),
			    "chosen_one_for_all");
	json_object_put(stats);
	stats = resolve(FIND("\"symbol\":\"chosen_one_for_all\""), 0);
	assert_false(flag(only(stats), "chooser"));
	assert_false(flag(stats, "incomplete"));
}

static void test_line(void **state)
{
	char body[512];
	struct json_object *stats, *p;

	(void)snprintf(body, sizeof(body), FIND("\"file\":\"test-resolve.c\",\"line\":%d"),
		       PLACE_LINE);
	stats = resolve(body, 0);
	if (json_object_array_length(json_get_array(stats, "without_lines"))) {
		json_object_put(stats);
		skip();
	}
	p = only(stats);
	assert_string_equal(json_get_string(p, "name"), "a_place_of_its_own");
	assert_true(number(p, "offset") - offset_of(a_place_of_its_own) == number(p, "into") &&
		    flag(p, "boundary"));
	json_object_put(stats);
	/* Only whole parts of a path are compared; of a line without code the next one is told. */
	stats = resolve(FIND("\"file\":\"resolve.c\",\"line\":1"), 0);
	assert_true(flag(stats, "file_known") && number(stats, "next_line") > 1);
	json_object_put(stats);
	stats = resolve(FIND("\"file\":\"st-resolve.c\",\"line\":1"), 0);
	assert_false(flag(stats, "file_known"));
	json_object_put(stats);
}

/* What is not searched for inlined calls is said. */
static void test_inlined_limit(void **state)
{
	struct json_object *stats = resolve(FIND("\"symbol\":\"a_place_of_its_own\""), 0);

	assert_int_equal(json_object_array_length(json_get_array(stats, "inlined_cut")), 0);
	json_object_put(stats);
	stats = resolve(
		FIND("\"symbol\":\"a_place_of_its_own\"},\"inlined_max_bytes\":0,\"more\":{"), 0);
	if (json_object_array_length(json_get_array(stats, "without_lines")) == 0) {
		assert_int_equal(json_object_array_length(json_get_array(stats, "inlined_cut")), 1);
		assert_int_equal(json_object_get_int64(json_object_array_get_idx(
					 json_get_array(stats, "inlined_cut"), 0)),
				 1);
	}
	json_object_put(stats);
}

static void test_offset(void **state)
{
	const uint64_t at = offset_of(a_place_of_its_own);
	struct json_object *stats, *p;
	char body[512];

	(void)snprintf(body, sizeof(body), FIND("\"object\":1,\"offset\":%llu"),
		       (unsigned long long)at);
	stats = resolve(body, 0);
	p = only(stats);
	assert_string_equal(json_get_string(p, "name"), "a_place_of_its_own");
	assert_true(flag(p, "boundary") && flag(p, "boundary_known"));
	json_object_put(stats);
	/* The first byte after the end of no code. */
	stats = resolve(FIND("\"object\":1,\"offset\":0"), 0);
	assert_int_equal(json_object_array_length(json_get_array(stats, "places")), 0);
	json_object_put(stats);
}

static void test_no_questions(void **state)
{
	static const char *const bodies[] = {
		"{}",
		"{" OBJECTS "}",
		FIND(""),
		FIND("\"symbol\":\"\""),
		FIND("\"symbol\":\"f::\""),
		FIND("\"symbol\":7"),
		FIND("\"file\":\"a.c\""),
		FIND("\"file\":\"a.c\",\"line\":0"),
		FIND("\"file\":\"a.c\",\"line\":99999999999"),
		FIND("\"file\":\"a/\",\"line\":1"),
		FIND("\"object\":2,\"offset\":0"),
		FIND("\"object\":1"),
		"{\"pid\":1,\"objects\":[],\"find\":{\"symbol\":\"f\"}}",
		"{\"pid\":1,\"objects\":[7],\"find\":{\"symbol\":\"f\"}}",
		"{\"pid\":1,\"objects\":[{\"path\":\"/a\",\"major\":-1,\"minor\":0,\"inode\":1}],\"find\":{\"symbol\":\"f\"}}",
		"{\"pid\":99999999999,\"objects\":[{\"path\":\"/a\",\"major\":1,\"minor\":0,\"inode\":1}],\"find\":{\"symbol\":\"f\"}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
		json_object_put(resolve(bodies[i], -EINVAL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbol),
		cmocka_unit_test(test_near),
		cmocka_unit_test(test_chooser),
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_inlined_limit),
		cmocka_unit_test(test_offset),
		cmocka_unit_test(test_no_questions),
	};

	a_place_of_its_own();
	chosen_one();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
