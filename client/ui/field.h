/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of the daemon's answers: a missing field, or one of another type (an older or newer
 * daemon), reads as nothing, never as an error. The strict accessors are in common/control/json.h.
 */
#pragma once

#include <string.h>

#include "common/control/json.h"

/* The member, or NULL; also for an `o` that is NULL or no object. Borrowed. */
static inline struct json_object *field(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (!o || !json_object_is_type(o, json_type_object) ||
		!json_object_object_get_ex(o, key, &v))
		return NULL;
	return v;
}

static inline const char *field_text(struct json_object *o, const char *key)
{
	struct json_object *v = field(o, key);

	return v && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

static inline bool field_is(struct json_object *o, const char *key, const char *text)
{
	const char *v = field_text(o, key);

	return v && !strcmp(v, text);
}

/* 0 for what is missing, negative or no number. */
static inline uint64_t field_value_number(struct json_object *v)
{
	double d;

	if (v && json_object_is_type(v, json_type_int)) {
		int64_t n = json_object_get_int64(v);

		return n < 0 ? 0 : json_object_get_uint64(v);
	}
	if (!v || !json_object_is_type(v, json_type_double))
		return 0;
	d = json_object_get_double(v);
	return d > 0 && d < 1e18 ? (uint64_t)d : 0;
}

static inline uint64_t field_number(struct json_object *o, const char *key)
{
	return field_value_number(field(o, key));
}

static inline bool field_bool(struct json_object *o, const char *key)
{
	struct json_object *v = field(o, key);

	return v && json_object_is_type(v, json_type_boolean) && json_object_get_boolean(v);
}

/* The array member, or NULL. */
static inline struct json_object *field_array(struct json_object *o, const char *key)
{
	struct json_object *v = field(o, key);

	return v && json_object_is_type(v, json_type_array) ? v : NULL;
}

/* Elements of an array member, 0 if there is none. */
static inline size_t field_count(struct json_object *o, const char *key)
{
	struct json_object *v = field_array(o, key);

	return v ? json_object_array_length(v) : 0;
}

/* The element of an array member, NULL past its end. Borrowed. */
static inline struct json_object *field_at(struct json_object *o, const char *key, size_t i)
{
	struct json_object *v = field_array(o, key);

	return v && i < json_object_array_length(v) ? json_object_array_get_idx(v, i) : NULL;
}
