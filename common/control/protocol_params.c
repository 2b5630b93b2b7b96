// SPDX-License-Identifier: Apache-2.0
/*
 * Parameters against their table: the check that every request passes, and the accessors of what
 * passed.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/control/protocol.h"

static enum protocol_error bad(char *why, size_t why_size, const struct protocol_param *p,
			       const char *what)
{
	(void)snprintf(why, why_size, "%s: %s", p->name, what);
	return API_BAD_PARAMS;
}

static enum protocol_error bad_range(char *why, size_t why_size, const struct protocol_param *p,
				     const char *of)
{
	(void)snprintf(why, why_size, "%s: %s must be %lld to %lld", p->name, of, (long long)p->min,
		       (long long)p->max);
	return API_BAD_PARAMS;
}

static bool is_choice(const char *choices, const char *value)
{
	size_t len = strlen(value);

	for (const char *c = choices; *c;) {
		size_t n = strcspn(c, "|");

		if (n == len && memcmp(c, value, n) == 0)
			return true;
		c += n;
		if (*c == '|')
			c++;
	}
	return false;
}

static bool has_control(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return true;
	return false;
}

static enum protocol_error check_string(
	const struct protocol_param *p, struct json_object *v, char *why, size_t why_size)
{
	int64_t len;

	if (!json_object_is_type(v, json_type_string))
		return bad(why, why_size, p, "must be a string");
	len = json_object_get_string_len(v);
	if (len < p->min || len > p->max)
		return bad_range(why, why_size, p, "length");
	if (has_control(json_object_get_string(v)))
		return bad(why, why_size, p, "has a control character");
	return API_OK;
}

static enum protocol_error check_strings(
	const struct protocol_param *p, struct json_object *v, char *why, size_t why_size)
{
	size_t n;

	if (!json_object_is_type(v, json_type_array))
		return bad(why, why_size, p, "must be an array of strings");
	n = json_object_array_length(v);
	if ((int64_t)n < p->min || (int64_t)n > p->max)
		return bad_range(why, why_size, p, "count");
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(v, i);
		int len;

		if (!json_object_is_type(e, json_type_string))
			return bad(why, why_size, p, "must be an array of strings");
		len = json_object_get_string_len(e);
		if (len < 1 || len > PROTOCOL_NAME_MAX)
			return bad(why, why_size, p, "holds a name that is empty or too long");
		if (has_control(json_object_get_string(e)))
			return bad(why, why_size, p, "has a control character");
	}
	return API_OK;
}

static enum protocol_error check_target(
	const struct protocol_param *p, struct json_object *v, char *why, size_t why_size)
{
	if (json_object_is_type(v, json_type_int)) {
		int64_t n = json_object_get_int64(v);

		return n >= 1 && n <= INT32_MAX ? API_OK : bad(why, why_size, p, "no such pid");
	}
	if (json_object_is_type(v, json_type_string)) {
		int len = json_object_get_string_len(v);

		if (len >= 1 && len <= 32 && !has_control(json_object_get_string(v)))
			return API_OK;
	}
	return bad(why, why_size, p, "must be a target's id or a pid");
}

static enum protocol_error check_value(
	const struct protocol_param *p, struct json_object *v, char *why, size_t why_size)
{
	int64_t n;

	switch (p->type) {
	case PARAM_STRING:
		return check_string(p, v, why, why_size);
	case PARAM_STRINGS:
		return check_strings(p, v, why, why_size);
	case PARAM_TARGET:
		return check_target(p, v, why, why_size);
	case PARAM_INT:
		if (!json_object_is_type(v, json_type_int))
			return bad(why, why_size, p, "must be an integer");
		n = json_object_get_int64(v);
		if (n < p->min || n > p->max)
			return bad_range(why, why_size, p, "value");
		return API_OK;
	case PARAM_BOOL:
		if (!json_object_is_type(v, json_type_boolean))
			return bad(why, why_size, p, "must be true or false");
		return API_OK;
	case PARAM_CHOICE:
		if (!json_object_is_type(v, json_type_string) ||
		    !is_choice(p->choices, json_object_get_string(v))) {
			(void)snprintf(why, why_size, "%s: must be one of %s", p->name, p->choices);
			return API_BAD_PARAMS;
		}
		return API_OK;
	}
	return API_INTERNAL;
}

enum protocol_error protocol_check_params(
	const struct protocol_method *m, struct json_object *params, char *why, size_t why_size)
{
	if (params && !json_object_is_type(params, json_type_object)) {
		(void)snprintf(why, why_size, "params must be an object");
		return API_BAD_PARAMS;
	}
	for (const struct protocol_param *p = m->params; p->name; p++) {
		struct json_object *v = NULL;
		enum protocol_error e;

		/* null is the same as absent: clients in typed languages write it so. */
		if (!params || !json_object_object_get_ex(params, p->name, &v) || !v) {
			if (p->required)
				return bad(why, why_size, p, "is required");
			continue;
		}
		e = check_value(p, v, why, why_size);
		if (e != API_OK)
			return e;
	}
	return API_OK;
}

static const struct protocol_param *find(const struct params *p, const char *name)
{
	for (const struct protocol_param *q = p->method->params; q->name; q++)
		if (strcmp(q->name, name) == 0)
			return q;
	assert(!"parameter is in the method's table");
	return NULL;
}

static struct json_object *value(const struct params *p, const char *name)
{
	struct json_object *v = NULL;

	if (p->object)
		(void)json_object_object_get_ex(p->object, name, &v);
	return v;
}

bool params_has(const struct params *p, const char *name)
{
	(void)find(p, name);
	return value(p, name) != NULL;
}

const char *params_string(const struct params *p, const char *name)
{
	const struct protocol_param *q = find(p, name);
	struct json_object *v = value(p, name);

	return v ? json_object_get_string(v) : q->def;
}

const char *params_target_name(const struct params *p, const char *name,
			       char buf[PROTOCOL_TARGET_SIZE])
{
	struct json_object *v = value(p, name);

	/* json-c would write the number into memory of its own, or into none. */
	if (!json_object_is_type(v, json_type_int))
		return params_string(p, name);
	(void)snprintf(buf, PROTOCOL_TARGET_SIZE, "%" PRId64, json_object_get_int64(v));
	return buf;
}

int64_t params_int(const struct params *p, const char *name)
{
	const struct protocol_param *q = find(p, name);
	struct json_object *v = value(p, name);

	if (v)
		return json_object_get_int64(v);
	return q->def ? strtoll(q->def, NULL, 10) : 0;
}

bool params_bool(const struct params *p, const char *name)
{
	const struct protocol_param *q = find(p, name);
	struct json_object *v = value(p, name);

	if (v)
		return json_object_get_boolean(v);
	return q->def && strcmp(q->def, "true") == 0;
}

size_t params_count(const struct params *p, const char *name)
{
	struct json_object *v = value(p, name);

	(void)find(p, name);
	return v ? json_object_array_length(v) : 0;
}

const char *params_nth(const struct params *p, const char *name, size_t i)
{
	return json_object_get_string(json_object_array_get_idx(value(p, name), i));
}
