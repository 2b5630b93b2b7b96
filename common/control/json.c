// SPDX-License-Identifier: Apache-2.0
/*
 * The accessors. Of json-c's calls these can bear that memory fails: the json_object_new_*() answer
 * NULL, json_object_array_add() and lh_table_resize() change nothing (so in the source of 0.16 and
 * of what came after it); json_object_object_add() is made to by json_tree_add(). Its tokener and
 * its writer cannot and are not used: see json_tree.c and json_text.c.
 * tests/unit/common/control/test-json.c fails each allocation of the library that there is.
 */
#include "common/control/json.h"

#include <string.h>

#include "common/base/escape.h"
#include "common/control/json_tree.h"

/* An object's or array's user data is its text, once there is one, or this. */
static char broken;

void json_tree_break(struct json_object *o)
{
	if (o)
		json_object_set_userdata(o, &broken, NULL);
}

bool json_tree_is_broken(struct json_object *o)
{
	return json_object_get_userdata(o) == &broken;
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

static bool set(struct json_object *o, const char *key, struct json_object *value)
{
	/* Nothing grows where one takes the other's place. */
	if (json_object_object_get_ex(o, key, NULL) ? json_object_object_add(o, key, value) == 0
						    : json_tree_add(o, key, value))
		return true;
	json_tree_break(o);
	return false;
}

void json_add(struct json_object *o, const char *key, struct json_object *value)
{
	if (!value)
		json_tree_break(o);
	else if (!o || !set(o, key, value))
		json_object_put(value);
}

void json_add_shared(struct json_object *o, const char *key, struct json_object *value)
{
	if (value)
		json_add(o, key, json_object_get(value));
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
	if (!buf) {
		json_tree_break(o);
		return;
	}
	(void)escape_text(buf, len * 4 + 1, bytes, len);
	json_add(o, key, json_object_new_string(buf));
}

void json_add_int(struct json_object *o, const char *key, int64_t value)
{
	json_add(o, key, json_object_new_int64(value));
}

void json_add_uint(struct json_object *o, const char *key, uint64_t value)
{
	/*
	 * What does not fit a reader's int64 would be refused by it; nothing counted here gets
	 * there.
	 */
	json_add_int(o, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void json_add_bool(struct json_object *o, const char *key, bool value)
{
	json_add(o, key, json_object_new_boolean(value));
}

void json_add_null(struct json_object *o, const char *key)
{
	if (o)
		(void)set(o, key, NULL);
}

static struct json_object *add_new(struct json_object *o, const char *key, struct json_object *v)
{
	if (!v)
		json_tree_break(o);
	else if (!o || !set(o, key, v)) {
		json_object_put(v);
		return NULL;
	}
	return v;
}

struct json_object *json_add_new_object(struct json_object *o, const char *key)
{
	struct json_object *v = json_object_new_object();

	return add_new(o, key, v);
}

struct json_object *json_add_new_array(struct json_object *o, const char *key)
{
	struct json_object *v = json_object_new_array();

	return add_new(o, key, v);
}

void json_append(struct json_object *array, struct json_object *value)
{
	if (array && value && json_object_array_add(array, value) == 0)
		return;
	json_tree_break(array);
	json_object_put(value);
}

void json_append_string(struct json_object *array, const char *value)
{
	json_append(array, json_object_new_string(value));
}
