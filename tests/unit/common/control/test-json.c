// SPDX-License-Identifier: Apache-2.0
/* What strict means: each text here is one that json-c, or somebody's client, sees differently. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/control/json.h"

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
		{"11111111111111111111111111111111111111111111111111111111111111111",
		 "does not fit"},
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

		assert_int_equal(json_parse(big, sizeof(big), sizeof(big) - 1, &o, NULL, 0),
				 JSON_E_INVALID);
		assert_int_equal(json_parse(big, sizeof(big), sizeof(big), &o, NULL, 0), 0);
	}
}

/* Every prefix of a valid object is invalid, and no prefix is read past its end (sanitizers). */
static void test_prefixes(void **state)
{
	static const char text[] =
		"{\"v\":1,\"id\":7,\"m\":\"\\u00e9\\ud83d\\ude00\xe2\x82\xac\",\"p\":[{},[],-1.5e3,true,null]}";

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
	static const char text[] =
		"{\"s\":\"x\",\"i\":-5,\"u\":7,\"b\":true,\"n\":null,\"o\":{},\"a\":[],\"d\":1.5}";
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

/* ---- the same trees and the same text as json-c's own tokener and writer make */

static uint64_t seed = 20;

static unsigned int dice(unsigned int sides)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(seed >> 33) % sides;
}

struct out {
	char text[16384];
	size_t len;
};

static void say(struct out *o, const char *s)
{
	size_t n = strlen(s);

	assert_true(o->len + n < sizeof(o->text));
	memcpy(o->text + o->len, s, n + 1);
	o->len += n;
}

static void say_string(struct out *o, unsigned int number)
{
	static const char *const parts[] = {"a",
					    "key",
					    "\xc3\xa9",
					    "\xe2\x82\xac",
					    "\xf0\x9f\x98\x80",
					    "\\\"",
					    "\\\\",
					    "\\/",
					    "\\b\\f\\n\\r\\t",
					    "\\u0001",
					    "\\u001F",
					    "\\u007f",
					    "\\u00e9",
					    "\\u07ff",
					    "\\u0800",
					    "\\uFFFF",
					    "\\uD83D\\uDE00",
					    "\\ud800\\udc00",
					    "\\udbff\\udfff",
					    "\x7f",
					    "/",
					    "'",
					    " ",
					    "\\u2028",
					    "\\u0022\\u005c"};
	char unique[16];

	say(o, "\"");
	for (unsigned int i = dice(5); i > 0; i--)
		say(o, parts[dice(ARRAY_SIZE(parts))]);
	if (number > 0) {
		(void)snprintf(unique, sizeof(unique), "%u", number);
		say(o, unique);
	}
	say(o, "\"");
}

static void say_value(struct out *o, unsigned int depth)
{
	static const char *const scalars[] = {"true",
					      "false",
					      "null",
					      "0",
					      "-0",
					      "7",
					      "-12",
					      "9223372036854775807",
					      "-9223372036854775808",
					      "1.5",
					      "-0.0",
					      "1e5",
					      "1E+5",
					      "2.50e-3",
					      "0e0",
					      "123456789012345678.25",
					      "-1.7976931348623157e308",
					      "4.9e-324",
					      "1e-999"};
	static const char *const spaces[] = {"", "", " ", "\n\t", "\r"};
	unsigned int kind = dice(depth < 6 ? 5 : 3), n;

	say(o, spaces[dice(ARRAY_SIZE(spaces))]);
	if (kind == 0)
		say_string(o, 0);
	else if (kind < 3)
		say(o, scalars[dice(ARRAY_SIZE(scalars))]);
	else {
		n = dice(dice(8) == 0 ? 30 : 5);
		say(o, kind == 3 ? "[" : "{");
		for (unsigned int i = 1; i <= n && o->len < sizeof(o->text) / 2; i++) {
			if (i > 1)
				say(o, ",");
			if (kind == 4) {
				say_string(o, i);
				say(o, ":");
			}
			say_value(o, depth + 1);
		}
		say(o, kind == 3 ? "]" : "}");
	}
	say(o, spaces[dice(ARRAY_SIZE(spaces))]);
}

static void same_as_json_c(const char *text, size_t len)
{
	static const struct {
		enum json_style style;
		int flags;
	} styles[] = {
		{JSON_COMPACT, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE},
		{JSON_INDENTED, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE},
		{JSON_SPACED, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
				      JSON_C_TO_STRING_NOSLASHESCAPE},
	};
	_cleanup_json_ struct json_object *ours = NULL, *theirs = NULL;
	struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
	size_t ours_len = 0, theirs_len = 0;

	assert_non_null(tok);
	assert_int_equal(json_parse(text, len, JSON_TEXT_MAX, &ours, NULL, 0), 0);
	theirs = json_tokener_parse_ex(tok, text, (int)len + 1);
	if (json_tokener_get_error(tok) != json_tokener_success || !json_object_equal(ours, theirs))
		fail_msg("read otherwise: %s", text);
	json_tokener_free(tok);
	for (size_t i = 0; ours && i < ARRAY_SIZE(styles); i++) {
		const char *a, *b;

		/* From 0.17 on json-c does not end the line in an empty object. */
		if (styles[i].style != JSON_COMPACT && json_c_version_num() >= (17 << 8))
			continue;
		b = json_object_to_json_string_length(theirs, styles[i].flags, &theirs_len);
		a = json_text_styled(ours, styles[i].style, &ours_len);
		assert_non_null(a);
		assert_string_equal(a, b);
		assert_int_equal(ours_len, theirs_len);
		assert_int_equal(strlen(a), ours_len);
	}
}

static void test_like_json_c(void **state)
{
	static struct out o;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		o.len = 0;
		o.text[0] = '\0';
		say_value(&o, 0);
		same_as_json_c(o.text, o.len);
	}
}

/* What is made here and never read: numbers of all kinds, shared and replaced members. */
static void test_made(void **state)
{
	_cleanup_json_ struct json_object *o = json_object_new_object();
	struct json_object *array;

	(void)state;
	json_add_uint(o, "i", UINT64_MAX);
	json_add(o, "u", json_object_new_uint64(UINT64_MAX));
	json_add(o, "d", json_object_new_double(0.1));
	json_add(o, "e", json_object_new_double(1e300));
	json_add(o, "whole", json_object_new_double(3));
	json_add_null(o, "null");
	json_add_bool(o, "null", true);
	json_add_shared(o, "absent", NULL);
	array = json_add_new_array(o, "a");
	json_append_string(array, "/");
	json_add_shared(o, "again", array);
	(void)json_add_new_object(o, "empty");
	assert_string_equal(json_text(o, NULL),
			    json_object_to_json_string_ext(o,
							   JSON_C_TO_STRING_PLAIN |
								   JSON_C_TO_STRING_NOSLASHESCAPE));
	assert_string_equal(json_text(array, NULL), "[\"/\"]");
}

/* ---- the n-th allocation fails */

#ifndef __SANITIZE_ADDRESS__
static long fail_in;

static bool malloc_fails(void)
{
	return fail_in > 0 && --fail_in == 0;
}

#define MALLOC_COUNTED
#include "tests/programs/failing_malloc.h"

/* A member for each call that may fail, and enough of them for tables and arrays to grow. */
static struct json_object *build(struct json_object *shared)
{
	struct json_object *o = json_object_new_object(), *list = json_add_new_array(o, "list");
	char key[16];

	for (int i = 0; i < 30; i++) {
		struct json_object *one =
			json_add_new_object(o, (snprintf(key, sizeof(key), "k%d", i), key));

		json_add_string(one, "s", "text");
		json_add_text(one, "t", "a\nb", 3);
		json_add_int(one, "i", i);
		json_add_bool(one, "b", true);
		json_add_null(one, "n");
		json_append_string(list, "s");
	}
	for (int i = 0; i < 40; i++)
		json_append(list, json_object_new_object());
	json_add_shared(o, "shared", shared);
	json_add_int(o, "r", 1);
	json_add_string(o, "r", "replaced");
	return o;
}

static void test_no_memory(void **state)
{
	static const char text[] =
		"{\"a\":[1,-1.5,\"\\u0001x\",true,null,{}],\"b\":{\"c\":{\"d\":[[],[[]]]}},\"e\":1,\"f\":2,\"g\":3,"
		"\"h\":4,\"i\":5,\"j\":6,\"k\":7,\"l\":8,\"m\":9,\"n\":10,\"o\":11,\"p\":12,\"q\":13}";
	_cleanup_json_ struct json_object *whole = build(NULL);
	const char *want = json_text(whole, NULL);
	bool all = false;
	int n;

	(void)state;
	assert_non_null(want);
	for (n = 1; !all; n++) {
		long before = malloc_live;
		struct json_object *o = NULL;
		int r;

		fail_in = n;
		r = json_parse(text, sizeof(text) - 1, JSON_TEXT_MAX, &o, NULL, 0);
		all = fail_in > 0;
		fail_in = 0;
		assert_int_equal(r, all ? 0 : -ENOMEM);
		if (all)
			assert_string_equal(json_text(o, NULL), text);
		json_object_put(o);
		assert_int_equal(malloc_live, before);
	}
	assert_true(n > 60);
	for (n = 1, all = false; !all; n++) {
		long before = malloc_live;
		struct json_object *o;
		const char *got;

		fail_in = n;
		o = build(NULL);
		got = json_text(o, NULL);
		all = fail_in > 0;
		fail_in = 0;
		if (all)
			assert_string_equal(got, want);
		else
			assert_null(got);
		/* Not for want of memory now: what is missing stays missing. */
		assert_true(all || !o || got || !json_text(o, NULL) ||
			    strcmp(json_text(o, NULL), want) == 0);
		json_object_put(o);
		assert_int_equal(malloc_live, before);
	}
	assert_true(n > 400);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepts),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_raw_nul_and_length),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_accessors),
		cmocka_unit_test(test_names_of_targets),
		cmocka_unit_test(test_like_json_c),
		cmocka_unit_test(test_made),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(test_no_memory),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
