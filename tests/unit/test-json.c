// SPDX-License-Identifier: Apache-2.0
/* What strict means: each text here is one that json-c, or somebody's client, sees differently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/json.h"

static int parse(const char *text, size_t len, char *why, size_t why_size)
{
	_cleanup_json_ struct json_object *o = NULL;

	return json_parse(text, len, JSON_TEXT_MAX, &o, why, why_size);
}

static void test_accepts(void **state)
{
	static const char *const texts[] = {
		"{}", "[]", " { } ", "null", "true", "false", "0", "-0", "12", "\"\"", "\"x\"",
		"[1,2,[3,{\"a\":{}}],\"\",null]",
		"{\"a\":1,\"b\":{\"a\":2},\"c\":[{\"a\":3},{\"a\":4}]}",
		"9223372036854775807", "-9223372036854775808", "1.5e300", "-1E-5", "0.0", "[0,0e1]",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
		"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
		"\t\r\n{\"a\" :\n[ 1 , 2 ] }\n",
		"[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", /* 16 levels */
		"[[[[[[[[[[[[[[[{}]]]]]]]]]]]]]]]",
	};
	char why[100] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (parse(texts[i], strlen(texts[i]), why, sizeof(why)) != 0)
			fail_msg("%s: %s", texts[i], why);
}

static void test_refuses(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} texts[] = {
		{"", "text ends"},
		{"   ", "text ends"},
		{"{", "expected a key"},
		{"[", "text ends"},
		{"{\"a\"}", "expected a colon"},
		{"{\"a\":}", "not a value"},
		{"{\"a\":1,}", "expected a key"},
		{"[1,]", "not a value"},
		{"[1 2]", "expected a comma"},
		{"[1}", "expected a comma"},
		{"{a:1}", "expected a key"},
		{"{'a':1}", "expected a key"},
		{"{} {}", "follows"},
		{"{}x", "follows"},
		{"1 2", "follows"},
		{"/**/{}", "not a value"},
		{"nul", "not a value"},
		{"nulll", "follows"},
		{"True", "not a value"},
		{"NaN", "not a value"},
		{"Infinity", "not a value"},
		{"-", "not a value"},
		{"+1", "not a value"},
		{"01", "follows"},
		{"1.", "bad number"},
		{".5", "not a value"},
		{"1e", "bad number"},
		{"0x10", "follows"},
		{"9223372036854775808", "does not fit"},
		{"-9223372036854775809", "does not fit"},
		{"18446744073709551615", "does not fit"},
		{"1e999", "does not fit"},
		{"11111111111111111111111111111111111111111111111111111111111111111", "does not fit"},
		{"\"", "ends in a string"},
		{"\"\\", "ends in a string"},
		{"\"\\x\"", "unknown escape"},
		{"\"\\u12\"", "bad \\u"},
		{"\"\\u0000\"", "NUL"},
		{"\"\\ud800\"", "lone surrogate"},
		{"\"\\udc00\"", "lone surrogate"},
		{"\"\\ud800\\u0041\"", "lone surrogate"},
		{"\"a\tb\"", "control character"},
		{"\"\x01\"", "control character"},
		{"\"\xff\"", "UTF-8"},
		{"\"\xc0\x80\"", "UTF-8"},
		{"\"\xe0\x80\x80\"", "UTF-8"},
		{"\"\xed\xa0\x80\"", "UTF-8"},
		{"\"\xf4\x90\x80\x80\"", "UTF-8"},
		{"\"\xc3", "UTF-8"},
		{"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "too deep"}, /* 17 */
		{"{\"a\":1,\"a\":2}", "twice"},
		{"{\"a\":1,\"\\u0061\":2}", "twice"},
		{"[{\"x\":{\"a\":[],\"b\":0,\"a\":{}}}]", "twice"},
		{"{\"a\":{\"b\":1},\"a\":3}", "twice"},
	};
	char why[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		why[0] = '\0';
		if (parse(texts[i].text, strlen(texts[i].text), why, sizeof(why)) != JSON_E_INVALID)
			fail_msg("accepted: %s", texts[i].text);
		if (!strstr(why, texts[i].why))
			fail_msg("%s: said \"%s\", not \"%s\"", texts[i].text, why, texts[i].why);
	}
}

static void test_raw_nul_and_length(void **state)
{
	char big[300];

	(void)state;
	assert_int_equal(parse("{}\0", 3, NULL, 0), JSON_E_INVALID);
	assert_int_equal(parse("\"a\0b\"", 5, NULL, 0), JSON_E_INVALID);
	memset(big, ' ', sizeof(big));
	big[0] = '0';
	{
		_cleanup_json_ struct json_object *o = NULL;

		assert_int_equal(json_parse(big, sizeof(big), sizeof(big) - 1, &o, NULL, 0), JSON_E_INVALID);
		assert_int_equal(json_parse(big, sizeof(big), sizeof(big), &o, NULL, 0), 0);
	}
}

/* Every prefix of a valid object is invalid, and no prefix is read past its end (sanitizers). */
static void test_prefixes(void **state)
{
	static const char text[] = "{\"v\":1,\"id\":7,\"m\":\"\\u00e9\\ud83d\\ude00\xe2\x82\xac\",\"p\":[{},[],-1.5e3,true,null]}";

	(void)state;
	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		char *copy = malloc(len + 1);

		assert_non_null(copy);
		memcpy(copy, text, len);
		assert_int_equal(parse(copy, len, NULL, 0), JSON_E_INVALID);
		free(copy);
	}
	assert_int_equal(parse(text, sizeof(text) - 1, NULL, 0), 0);
}

static void test_accessors(void **state)
{
	static const char text[] = "{\"s\":\"x\",\"i\":-5,\"u\":7,\"b\":true,\"n\":null,\"o\":{},\"a\":[],\"d\":1.5}";
	_cleanup_json_ struct json_object *o = NULL;
	int64_t i = 99;
	uint64_t u = 99;
	bool b = false;

	(void)state;
	assert_int_equal(json_parse(text, sizeof(text) - 1, JSON_TEXT_MAX, &o, NULL, 0), 0);
	assert_string_equal(json_get_string(o, "s"), "x");
	assert_null(json_get_string(o, "i"));
	assert_null(json_get_string(o, "n"));
	assert_null(json_get_string(NULL, "s"));
	assert_true(json_get_int(o, "i", &i));
	assert_int_equal(i, -5);
	assert_false(json_get_uint(o, "i", &u));
	assert_true(json_get_uint(o, "u", &u));
	assert_int_equal(u, 7);
	assert_false(json_get_int(o, "d", &i));
	assert_true(json_get_bool(o, "b", &b));
	assert_true(b);
	assert_non_null(json_get_object(o, "o"));
	assert_null(json_get_object(o, "a"));
	assert_non_null(json_get_array(o, "a"));
}

static void test_names_of_targets(void **state)
{
	_cleanup_json_ struct json_object *o = json_object_new_object(), *back = NULL;
	const char *text;
	size_t len;

	(void)state;
	json_add_text(o, "comm", "a\n\xff\x1b[0m", 7);
	text = json_text(o, &len);
	assert_int_equal(json_parse(text, len, JSON_TEXT_MAX, &back, NULL, 0), 0);
	assert_string_equal(json_get_string(back, "comm"), "a\\x0a\\xff\\x1b[0m");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepts),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_raw_nul_and_length),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_accessors),
		cmocka_unit_test(test_names_of_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
