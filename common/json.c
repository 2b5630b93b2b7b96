// SPDX-License-Identifier: Apache-2.0
/*
 * The scanner: one pass, a stack of JSON_DEPTH_MAX bits instead of recursion. It accepts exactly
 * RFC 8259 minus what json.h rules out, and counts the members of all objects; json-c, which
 * keeps the last of two equal keys, ends with fewer members where one was there twice.
 */
#include "common/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/escape.h"

#define NUMBER_MAX 64 /* characters; a double needs 24 */

struct scan {
	const unsigned char *p, *start, *end;
	size_t members;
	unsigned int depth;
	bool in_object[JSON_DEPTH_MAX]; /* else in an array */
	const char *error;
};

static bool scan_fail(struct scan *s, const char *error)
{
	if (!s->error)
		s->error = error;
	return false;
}

static void scan_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static int hex_digit(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Four digits behind \u; -1 if they are none. */
static long scan_hex4(struct scan *s)
{
	long v = 0;

	if (s->end - s->p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int d = hex_digit(s->p[i]);

		if (d < 0)
			return -1;
		v = v * 16 + d;
	}
	s->p += 4;
	return v;
}

static bool scan_escape(struct scan *s)
{
	long v;

	if (s->p == s->end)
		return scan_fail(s, "text ends in a string");
	switch (*s->p++) {
	case '"':
	case '\\':
	case '/':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't':
		return true;
	case 'u':
		break;
	default:
		return scan_fail(s, "unknown escape in a string");
	}
	v = scan_hex4(s);
	if (v < 0)
		return scan_fail(s, "bad \\u escape");
	if (v == 0)
		return scan_fail(s, "NUL in a string");
	if (v >= 0xdc00 && v <= 0xdfff)
		return scan_fail(s, "lone surrogate in a string");
	if (v >= 0xd800 && v <= 0xdbff) {
		if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
			return scan_fail(s, "lone surrogate in a string");
		s->p += 2;
		v = scan_hex4(s);
		if (v < 0xdc00 || v > 0xdfff)
			return scan_fail(s, "lone surrogate in a string");
	}
	return true;
}

/* One character of more than one byte; shortest form, no surrogates, up to U+10FFFF (RFC 3629). */
static bool scan_utf8(struct scan *s)
{
	const unsigned char *p = s->p;
	size_t left = (size_t)(s->end - p), n;
	unsigned char lo = 0x80, hi = 0xbf;

	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		n = 1;
	else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		n = 2;
		if (p[0] == 0xe0)
			lo = 0xa0;
		else if (p[0] == 0xed)
			hi = 0x9f;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		n = 3;
		if (p[0] == 0xf0)
			lo = 0x90;
		else if (p[0] == 0xf4)
			hi = 0x8f;
	} else
		return scan_fail(s, "invalid UTF-8");
	if (left <= n || p[1] < lo || p[1] > hi)
		return scan_fail(s, "invalid UTF-8");
	for (size_t i = 2; i <= n; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return scan_fail(s, "invalid UTF-8");
	s->p += n + 1;
	return true;
}

static bool scan_string(struct scan *s)
{
	s->p++; /* the quote */
	while (s->p < s->end) {
		unsigned char c = *s->p;

		if (c == '"') {
			s->p++;
			return true;
		}
		if (c < 0x20)
			return scan_fail(s, "control character in a string");
		if (c == '\\') {
			s->p++;
			if (!scan_escape(s))
				return false;
		} else if (c < 0x80)
			s->p++;
		else if (!scan_utf8(s))
			return false;
	}
	return scan_fail(s, "text ends in a string");
}

static size_t scan_digits(struct scan *s)
{
	const unsigned char *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return (size_t)(s->p - from);
}

static bool number_fits(const unsigned char *from, size_t len, bool integer)
{
	char buf[NUMBER_MAX + 1];

	if (len > NUMBER_MAX)
		return false;
	memcpy(buf, from, len);
	buf[len] = '\0';
	errno = 0;
	if (integer) {
		(void)strtoll(buf, NULL, 10);
		return errno == 0;
	}
	return isfinite(strtod(buf, NULL));
}

static bool scan_number(struct scan *s)
{
	const unsigned char *from = s->p;
	bool integer = true;

	if (*s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++;
	else if (scan_digits(s) == 0)
		return scan_fail(s, "not a value");
	if (s->p < s->end && *s->p == '.') {
		integer = false;
		s->p++;
		if (scan_digits(s) == 0)
			return scan_fail(s, "bad number");
	}
	if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
		integer = false;
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		if (scan_digits(s) == 0)
			return scan_fail(s, "bad number");
	}
	if (!number_fits(from, (size_t)(s->p - from), integer))
		return scan_fail(s, "number does not fit");
	return true;
}

static bool scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return scan_fail(s, "not a value");
	s->p += n;
	return true;
}

static bool scan_key(struct scan *s)
{
	scan_space(s);
	if (s->p == s->end || *s->p != '"')
		return scan_fail(s, "expected a key");
	if (!scan_string(s))
		return false;
	s->members++;
	scan_space(s);
	if (s->p == s->end || *s->p != ':')
		return scan_fail(s, "expected a colon");
	s->p++;
	return true;
}

/*
 * What stands at s->p: a scalar is consumed whole; '{' and '[' open a level, unless they are
 * closed at once. *opened tells that a value must follow.
 */
static bool scan_value(struct scan *s, bool *opened)
{
	bool object;

	*opened = false;
	scan_space(s);
	if (s->p == s->end)
		return scan_fail(s, "text ends where a value should be");
	switch (*s->p) {
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	case '{':
	case '[':
		break;
	default:
		return scan_number(s);
	}
	object = *s->p == '{';
	if (s->depth == JSON_DEPTH_MAX)
		return scan_fail(s, "too deep");
	s->p++;
	scan_space(s);
	if (s->p < s->end && *s->p == (object ? '}' : ']')) {
		s->p++;
		return true;
	}
	s->in_object[s->depth++] = object;
	*opened = true;
	return !object || scan_key(s);
}

/* Behind a value: closes levels until a comma says that another one follows, or all are closed. */
static bool scan_after(struct scan *s, bool *done)
{
	for (;;) {
		bool object;

		*done = s->depth == 0;
		if (*done)
			return true;
		object = s->in_object[s->depth - 1];
		scan_space(s);
		if (s->p == s->end)
			return scan_fail(s, "text ends too early");
		if (*s->p == ',') {
			s->p++;
			return !object || scan_key(s);
		}
		if (*s->p != (object ? '}' : ']'))
			return scan_fail(s, "expected a comma or the end");
		s->p++;
		s->depth--;
	}
}

static bool scan_text(struct scan *s)
{
	bool done = false;

	while (!done) {
		bool opened;

		if (!scan_value(s, &opened))
			return false;
		if (!opened && !scan_after(s, &done))
			return false;
	}
	scan_space(s);
	return s->p == s->end || scan_fail(s, "something follows the value");
}

/* Members of all objects in the tree; its depth is known to be at most JSON_DEPTH_MAX. */
static size_t count_members(struct json_object *root)
{
	struct {
		struct json_object *array;
		size_t i;
		struct json_object_iterator it, end;
	} stack[JSON_DEPTH_MAX];
	size_t count = 0;
	unsigned int depth = 0;
	struct json_object *o = root;

	for (;;) {
		if (json_object_is_type(o, json_type_object) || json_object_is_type(o, json_type_array)) {
			bool array = json_object_is_type(o, json_type_array);

			if (depth == JSON_DEPTH_MAX)
				return SIZE_MAX;
			stack[depth].array = array ? o : NULL;
			stack[depth].i = 0;
			if (!array) {
				stack[depth].it = json_object_iter_begin(o);
				stack[depth].end = json_object_iter_end(o);
				count += (size_t)json_object_object_length(o);
			}
			depth++;
		}
		for (;;) {
			if (depth == 0)
				return count;
			if (stack[depth - 1].array) {
				if (stack[depth - 1].i < json_object_array_length(stack[depth - 1].array)) {
					o = json_object_array_get_idx(stack[depth - 1].array, stack[depth - 1].i++);
					break;
				}
			} else if (!json_object_iter_equal(&stack[depth - 1].it, &stack[depth - 1].end)) {
				o = json_object_iter_peek_value(&stack[depth - 1].it);
				json_object_iter_next(&stack[depth - 1].it);
				break;
			}
			depth--;
		}
	}
}

static int refuse(const char *what, size_t at, char *why, size_t why_size)
{
	if (why)
		(void)snprintf(why, why_size, "%s (byte %zu)", what, at);
	return JSON_E_INVALID;
}

int json_parse(const char *text, size_t len, size_t max_len, struct json_object **ret, char *why, size_t why_size)
{
	struct scan s = {.p = (const unsigned char *)text, .start = (const unsigned char *)text,
		.end = (const unsigned char *)text + len};
	_cleanup_json_ struct json_object *tree = NULL;
	struct json_tokener *tok;
	enum json_tokener_error error;

	if (len > max_len || len > INT32_MAX)
		return refuse("too long", max_len, why, why_size);
	if (!scan_text(&s))
		return refuse(s.error, (size_t)(s.p - s.start), why, why_size);
	/* json-c counts a scalar inside as a level of its own. */
	tok = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
	if (!tok)
		return -ENOMEM;
	tree = json_tokener_parse_ex(tok, text, (int)len);
	error = json_tokener_get_error(tok);
	/* A bare number or word may go on in the next piece of text, json-c thinks; there is none. */
	if (error == json_tokener_continue) {
		tree = json_tokener_parse_ex(tok, "", -1);
		error = json_tokener_get_error(tok);
	}
	json_tokener_free(tok);
	if (error == json_tokener_success && count_members(tree) != s.members)
		return refuse("the same key twice in an object", len, why, why_size);
	if (error != json_tokener_success)
		return refuse(json_tokener_error_desc(error), len, why, why_size);
	*ret = take_ptr(tree);
	return 0;
}

struct json_object *json_get(struct json_object *o, const char *key, enum json_type type)
{
	struct json_object *v;

	if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &v))
		return NULL;
	return json_object_is_type(v, type) ? v : NULL;
}

struct json_object *json_get_object(struct json_object *o, const char *key)
{
	return json_get(o, key, json_type_object);
}

struct json_object *json_get_array(struct json_object *o, const char *key)
{
	return json_get(o, key, json_type_array);
}

const char *json_get_string(struct json_object *o, const char *key)
{
	struct json_object *v = json_get(o, key, json_type_string);

	return v ? json_object_get_string(v) : NULL;
}

bool json_get_int(struct json_object *o, const char *key, int64_t *ret)
{
	struct json_object *v = json_get(o, key, json_type_int);

	if (!v)
		return false;
	*ret = json_object_get_int64(v);
	return true;
}

bool json_get_uint(struct json_object *o, const char *key, uint64_t *ret)
{
	int64_t v;

	if (!json_get_int(o, key, &v) || v < 0)
		return false;
	*ret = (uint64_t)v;
	return true;
}

bool json_get_bool(struct json_object *o, const char *key, bool *ret)
{
	struct json_object *v = json_get(o, key, json_type_boolean);

	if (!v)
		return false;
	*ret = json_object_get_boolean(v);
	return true;
}

void json_add(struct json_object *o, const char *key, struct json_object *value)
{
	if (!value)
		return;
	if (!o || json_object_object_add(o, key, value) < 0)
		json_object_put(value);
}

void json_add_string(struct json_object *o, const char *key, const char *value)
{
	if (value)
		json_add(o, key, json_object_new_string(value));
	else
		json_add_null(o, key);
}

void json_add_text(struct json_object *o, const char *key, const char *bytes, size_t len)
{
	_cleanup_free_ char *buf = NULL;

	if (len > JSON_TEXT_MAX)
		len = JSON_TEXT_MAX;
	buf = malloc(len * 4 + 1); /* every byte may become \xNN */
	if (!buf)
		return;
	(void)escape_text(buf, len * 4 + 1, bytes, len);
	json_add(o, key, json_object_new_string(buf));
}

void json_add_int(struct json_object *o, const char *key, int64_t value)
{
	json_add(o, key, json_object_new_int64(value));
}

void json_add_uint(struct json_object *o, const char *key, uint64_t value)
{
	/* What does not fit a reader's int64 would be refused by it; nothing counted here gets there. */
	json_add_int(o, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void json_add_bool(struct json_object *o, const char *key, bool value)
{
	json_add(o, key, json_object_new_boolean(value));
}

void json_add_null(struct json_object *o, const char *key)
{
	if (o)
		(void)json_object_object_add(o, key, NULL);
}

struct json_object *json_add_new_object(struct json_object *o, const char *key)
{
	struct json_object *v = json_object_new_object();

	if (!o || !v || json_object_object_add(o, key, v) < 0) {
		json_object_put(v);
		return NULL;
	}
	return v;
}

struct json_object *json_add_new_array(struct json_object *o, const char *key)
{
	struct json_object *v = json_object_new_array();

	if (!o || !v || json_object_object_add(o, key, v) < 0) {
		json_object_put(v);
		return NULL;
	}
	return v;
}

void json_append(struct json_object *array, struct json_object *value)
{
	if (!value)
		return;
	if (!array || json_object_array_add(array, value) < 0)
		json_object_put(value);
}

void json_append_string(struct json_object *array, const char *value)
{
	json_append(array, json_object_new_string(value));
}

const char *json_text(struct json_object *o, size_t *ret_len)
{
	size_t len;
	const char *text;

	text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);
	if (text && ret_len)
		*ret_len = len;
	return text;
}
