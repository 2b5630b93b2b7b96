// SPDX-License-Identifier: Apache-2.0
/*
 * json-c, which keeps the last of two equal keys, ends with fewer members than the scanner has
 * counted where one was there twice. And the accessors.
 */
#include "common/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/escape.h"
#include "common/json_scan.h"

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
	_cleanup_json_ struct json_object *tree = NULL;
	struct json_tokener *tok;
	enum json_tokener_error error;
	const char *bad = NULL;
	size_t members = 0, at = 0;

	if (len > max_len || len > INT32_MAX)
		return refuse("too long", max_len, why, why_size);
	if (!json_scan(text, len, &members, &bad, &at))
		return refuse(bad, at, why, why_size);
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
	if (error == json_tokener_success && count_members(tree) != members)
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
