// SPDX-License-Identifier: Apache-2.0
/* What is lost for want of code, by object: times, and bytes of the trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/control/json.h"
#include "decode/object/image.h"
#include "decode/pt/missing_code.h"

static struct pipeline_event event(uint32_t buffer, uint64_t offset)
{
	return (struct pipeline_event){.buffer = buffer, .offset = offset};
}

static void expect(const struct missing_code *m, const char *want)
{
	_cleanup_json_ struct json_object *losses = json_object_new_object();

	missing_code_report(m, losses);
	assert_string_equal(json_object_to_json_string_ext(losses, JSON_C_TO_STRING_PLAIN), want);
}

static void test_bytes(void **state)
{
	_cleanup_(missing_code_freep) struct missing_code *m = NULL;
	const struct image libc = {.text = (char[]){"/lib/libc.so"}},
			   jit = {.text = (char[]){"//anon"}};
	struct pipeline_event ev;

	assert_int_equal(missing_code_new(2, &m), 0);
	expect(m, "{}");
	ev = event(0, 100);
	assert_int_equal(missing_code_lost(m, &ev, &libc), 0);
	ev = event(1, 5000); /* another buffer's says nothing of it */
	missing_code_event(m, &ev);
	ev = event(1, 6000);
	assert_int_equal(missing_code_lost(m, &ev, &jit), 0);
	ev = event(0, 130);
	missing_code_event(m, &ev);
	ev = event(0, 900); /* it is known again since then */
	missing_code_event(m, &ev);
	/* lost, and lost again before it was known */
	ev = event(0, 1000);
	assert_int_equal(missing_code_lost(m, &ev, NULL), 0);
	ev = event(0, 1010);
	assert_int_equal(missing_code_lost(m, &ev, &libc), 0);
	ev = event(0, 1030);
	missing_code_event(m, &ev);
	expect(m,
	       "{\"code_missing\":[{\"name\":\"\\/lib\\/libc.so\",\"times\":2,\"trace_bytes\":50},"
	       "{\"name\":\"[not mapped]\",\"times\":1,\"trace_bytes\":10},"
	       "{\"name\":\"\\/\\/anon\",\"times\":1,\"trace_bytes\":0}]}");
}

/* The first twenty are told by name, the others as a sum; nothing is ever out of bounds. */
static void test_many(void **state)
{
	_cleanup_(missing_code_freep) struct missing_code *m = NULL;
	_cleanup_json_ struct json_object *losses = json_object_new_object();
	static struct image images[5000];
	char name[] = "x";
	struct pipeline_event ev;

	assert_int_equal(missing_code_new(1, &m), 0);
	for (uint32_t i = 0; i < 5000; i++) {
		images[i].text = name;
		ev = event(0, 10000ull * i);
		assert_int_equal(missing_code_lost(m, &ev, &images[i]), 0);
		ev = event(0, 10000ull * i + i % 100);
		missing_code_event(m, &ev);
	}
	ev = event(7, 1);
	assert_int_equal(missing_code_lost(m, &ev, &images[0]), 0);
	missing_code_event(m, &ev);
	missing_code_report(m, losses);
	assert_int_equal(json_object_array_length(json_object_object_get(losses, "code_missing")),
			 20);
	assert_int_equal(json_object_get_int64(
				 json_object_object_get(losses, "code_missing_elsewhere")),
			 4981);
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(json_object_get_int64(json_object_object_get(
					 json_object_array_get_idx(
						 json_object_object_get(losses, "code_missing"), i),
					 "trace_bytes")),
				 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
