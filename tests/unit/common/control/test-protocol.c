// SPDX-License-Identifier: Apache-2.0
/* The tables are whole and agree with themselves; parameters are held against them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/control/frame.h"
#include "common/control/protocol.h"

static enum protocol_error check(const char *method, const char *text, char *why, size_t why_size)
{
	_cleanup_json_ struct json_object *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), JSON_TEXT_MAX, &o, NULL, 0), 0);
	return protocol_check_params(protocol_method_find(method), o, why, why_size);
}

static void test_tables(void **state)
{
	(void)state;
	for (size_t i = 0; i < _METHOD_MAX; i++) {
		const struct protocol_method *m = &protocol_methods[i];

		assert_non_null(m->name);
		assert_non_null(m->params);
		assert_true(m->doc[0] && m->result[0]);
		assert_true(m->max_fds <= FRAME_FDS_MAX);
		assert_ptr_equal(protocol_method_find(m->name), m);
		for (const struct protocol_param *p = m->params; p->name; p++) {
			assert_true(p->doc && p->doc[0]);
			assert_true((p->type == PARAM_CHOICE) == (p->choices != NULL));
			if (p->type == PARAM_INT || p->type == PARAM_STRING ||
			    p->type == PARAM_STRINGS)
				assert_true(p->max >= p->min && p->max > 0);
			/* A default must pass the check that it spares. */
			if (p->def) {
				char text[100], why[200] = "";
				bool quoted = p->type == PARAM_CHOICE || p->type == PARAM_STRING;

				(void)snprintf(text, sizeof(text),
					       quoted ? "{\"%s\":\"%s\"}" : "{\"%s\":%s}", p->name,
					       p->def);
				(void)check(m->name, text, why, sizeof(why));
				if (strncmp(why, p->name, strlen(p->name)) == 0)
					fail_msg("%s: %s", m->name, why);
			}
		}
	}
	assert_null(protocol_method_find("nope"));
	assert_null(protocol_method_find(""));
	assert_true(protocol_n_events <= 64); /* bits of a subscription */
	for (size_t i = 0; i < protocol_n_events; i++)
		assert_int_equal(protocol_event_find(protocol_events[i].name), (int)i);
	assert_int_equal(protocol_event_find("nope"), -1);
	for (int i = API_OK + 1; i < _API_ERROR_MAX; i++) {
		assert_true(protocol_errors[i].code && protocol_errors[i].doc[0]);
		assert_int_equal(protocol_error_from_code(protocol_errors[i].code), i);
	}
	assert_string_equal(protocol_error_code((enum protocol_error)1000), "internal");
	assert_int_equal(protocol_error_from_code("brand_new"), API_INTERNAL);
	assert_int_equal(protocol_error_from_errno(-ESRCH), API_GONE);
	assert_int_equal(protocol_error_from_errno(-ENOSPC), API_NO_SPACE);
}

static void test_good_params(void **state)
{
	static const char *const good[][2] = {
		{"hello", "{}"},
		{"hello", "{\"unknown\":[1,2]}"},
		{"target.arm", "{\"pid\":1}"},
		{"target.arm",
		 "{\"pid\":2147483647,\"stacks\":\"dwarf\",\"waits\":false,\"fds\":[\"maps\"],\"backend\":\"sample\"}"},
		{"target.arm", "{\"unit\":\"nginx.service\",\"pid\":null}"},
		{"target.show", "{\"target\":\"t1\"}"},
		{"target.show", "{\"target\":77}"},
		{"target.list", "{\"limit\":500,\"cursor\":\"3\"}"},
		{"snapshot.create", "{\"target\":\"t1\",\"reason\":\"\"}"},
		{"snapshot.fetch", "{\"snapshot\":\"x\",\"names\":[\"a\",\"b\"]}"},
	};
	char why[200] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (check(good[i][0], good[i][1], why, sizeof(why)) != API_OK)
			fail_msg("%s %s: %s", good[i][0], good[i][1], why);
	assert_int_equal(protocol_check_params(protocol_method_find("hello"), NULL, why,
					       sizeof(why)),
			 API_OK);
}

static void test_bad_params(void **state)
{
	static const char *const bad[][2] = {
		{"hello", "[]"},
		{"hello", "1"},
		{"target.show", "{}"},
		{"target.show", "{\"target\":null}"},
		{"target.show", "{\"target\":true}"},
		{"target.show", "{\"target\":\"\"}"},
		{"target.show", "{\"target\":0}"},
		{"target.show", "{\"target\":-1}"},
		{"target.show", "{\"target\":2147483648}"},
		{"target.show", "{\"target\":\"ttttttttttttttttttttttttttttttttttttttt\"}"},
		{"target.arm", "{\"pid\":0}"},
		{"target.arm", "{\"pid\":-3}"},
		{"target.arm", "{\"pid\":\"1\"}"},
		{"target.arm", "{\"pid\":1.0}"},
		{"target.arm", "{\"pid\":4294967297}"},
		{"target.arm", "{\"pid\":1,\"stacks\":\"FP\"}"},
		{"target.arm", "{\"pid\":1,\"stacks\":\"\"}"},
		{"target.arm", "{\"pid\":1,\"stacks\":\"auto|fp\"}"},
		{"target.arm", "{\"pid\":1,\"waits\":1}"},
		{"target.arm", "{\"unit\":\"a\\nb\"}"},
		{"target.arm", "{\"fds\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}"},
		{"target.arm", "{\"fds\":[\"\"]}"},
		{"target.arm", "{\"fds\":[1]}"},
		{"target.arm", "{\"fds\":\"maps\"}"},
		{"target.list", "{\"limit\":0}"},
		{"target.list", "{\"limit\":501}"},
		{"snapshot.fetch", "{\"snapshot\":\"x\",\"names\":[]}"},
	};
	char why[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		why[0] = '\0';
		if (check(bad[i][0], bad[i][1], why, sizeof(why)) != API_BAD_PARAMS)
			fail_msg("accepted: %s %s", bad[i][0], bad[i][1]);
		assert_true(why[0]);
	}
}

static void test_accessors(void **state)
{
	_cleanup_json_ struct json_object *o =
		json_tokener_parse("{\"pid\":7,\"fds\":[\"maps\",\"pidfd\"],\"waits\":null}");
	struct params p = {.method = &protocol_methods[METHOD_TARGET_ARM], .object = o};
	struct params none = {.method = &protocol_methods[METHOD_TARGET_ARM]};
	struct params page = {.method = &protocol_methods[METHOD_TARGET_LIST]};

	(void)state;
	assert_true(params_has(&p, "pid"));
	assert_int_equal(params_int(&p, "pid"), 7);
	assert_int_equal(params_int(&none, "pid"), 0);
	assert_true(params_bool(&p, "waits")); /* the default */
	assert_string_equal(params_string(&p, "stacks"), "auto");
	assert_string_equal(params_string(&none, "backend"), "auto");
	assert_null(params_string(&p, "unit"));
	assert_int_equal(params_count(&p, "fds"), 2);
	assert_int_equal(params_count(&none, "fds"), 0);
	assert_string_equal(params_nth(&p, "fds", 1), "pidfd");
	assert_int_equal(params_int(&page, "limit"), PROTOCOL_PAGE_DEFAULT);
}

static void test_target(void **state)
{
	_cleanup_json_ struct json_object *o = json_object_new_object();
	struct params p = {.method = protocol_method_find("target.show"), .object = o};
	char buf[PROTOCOL_TARGET_SIZE];

	(void)state;
	json_add_string(o, "target", "t12");
	assert_string_equal(params_target_name(&p, "target", buf), "t12");
	json_add_int(o, "target", INT64_MIN);
	assert_string_equal(params_target_name(&p, "target", buf), "-9223372036854775808");
}

static void test_messages(void **state)
{
	_cleanup_json_ struct json_object *q = protocol_request(-3, "ping", NULL, 0),
					  *r = protocol_result(7, json_object_new_object(), 2),
					  *e = protocol_error(false, 0, API_GONE, "no"),
					  *ev = protocol_event("x", 5, 2, json_object_new_object());

	(void)state;
	assert_string_equal(json_text(q, NULL),
			    "{\"v\":1,\"id\":-3,\"method\":\"ping\",\"params\":{}}");
	assert_string_equal(json_text(r, NULL), "{\"v\":1,\"id\":7,\"result\":{},\"nfds\":2}");
	assert_string_equal(
		json_text(e, NULL),
		"{\"v\":1,\"id\":null,\"error\":{\"code\":\"gone\",\"message\":\"no\"}}");
	assert_string_equal(json_text(ev, NULL),
			    "{\"v\":1,\"event\":\"x\",\"seq\":5,\"missed\":2,\"data\":{}}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_good_params),
		cmocka_unit_test(test_bad_params),
		cmocka_unit_test(test_accessors),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
