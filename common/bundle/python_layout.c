// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/python_layout.h"

#include <errno.h>
#include <stddef.h>

#include "common/control/json.h"

/*
 * What each is within: the least offset, the first that is too high, and what it is a multiple of.
 */
static const struct field {
	uint16_t at, size;
	uint32_t from, to, align;
	bool optional;
} fields[] = {
#define FIELD(name, from, to, align, optional)                                                     \
	{offsetof(struct python_layout, name), sizeof(((struct python_layout *)0)->name),          \
	 from, to, align, optional}
	FIELD(interpreters, 0, PYTHON_RUNTIME_BYTES, 8, false),
	FIELD(next_interpreter, 0, PYTHON_RUNTIME_BYTES, 8, false),
	FIELD(threads, 0, PYTHON_RUNTIME_BYTES, 8, false),
	FIELD(prev, 0, PYTHON_THREAD_BYTES, 8, false),
	FIELD(next, 0, PYTHON_THREAD_BYTES, 8, false),
	FIELD(interpreter, 0, PYTHON_THREAD_BYTES, 8, false),
	FIELD(native_id, 0, PYTHON_THREAD_BYTES, 8, false),
	FIELD(frame, 0, PYTHON_THREAD_BYTES, 8, false),
	FIELD(frame_within, 0, 4096, 8, true),
	FIELD(code, 0, PYTHON_FRAME_BYTES, 8, false),
	FIELD(previous, 0, PYTHON_FRAME_BYTES, 8, false),
	FIELD(owner, 0, PYTHON_FRAME_BYTES, 1, false),
	FIELD(is_entry, 0, PYTHON_FRAME_BYTES, 1, true),
	FIELD(top, 0, PYTHON_FRAME_BYTES, 8, true),
	FIELD(file, PYTHON_CODE_AT, PYTHON_CODE_AT + PYTHON_CODE_BYTES, 8, false),
	FIELD(name, PYTHON_CODE_AT, PYTHON_CODE_AT + PYTHON_CODE_BYTES, 8, false),
	FIELD(line, PYTHON_CODE_AT, PYTHON_CODE_AT + PYTHON_CODE_BYTES, 4, false),
	FIELD(version, PYTHON_CODE_AT, PYTHON_CODE_AT + PYTHON_CODE_BYTES, 4, true),
	FIELD(ascii, 40, 256, 1, false),
	FIELD(other, 40, 256, 1, false),
#undef FIELD
};

static uint32_t get(const struct python_layout *layout, const struct field *f)
{
	const void *at = (const char *)layout + f->at;

	return f->size == sizeof(uint16_t) ? *(const uint16_t *)at : *(const uint32_t *)at;
}

static void set(struct python_layout *layout, const struct field *f, uint32_t v)
{
	void *at = (char *)layout + f->at;

	if (f->size == sizeof(uint16_t))
		*(uint16_t *)at = (uint16_t)v;
	else
		*(uint32_t *)at = v;
}

static bool field_ok(const struct field *f, uint64_t v)
{
	return (f->optional && v == PYTHON_NONE) ||
	       (v >= f->from && v < f->to && v % f->align == 0);
}

bool python_layout_ok(const struct python_layout *layout)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!field_ok(&fields[i], get(layout, &fields[i])))
			return false;
	return true;
}

struct json_object *python_layout_json(const struct python_layout *layout)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; array && i < ARRAY_SIZE(fields); i++)
		json_append(array, json_object_new_uint64(get(layout, &fields[i])));
	return array;
}

int python_layout_parse(struct json_object *array, struct python_layout *ret)
{
	struct python_layout layout = {0};

	if (!array || json_object_array_length(array) != ARRAY_SIZE(fields))
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		struct json_object *number = json_object_array_get_idx(array, i);
		int64_t v = json_object_is_type(number, json_type_int)
				    ? json_object_get_int64(number)
				    : -1;

		if (v < 0 || !field_ok(&fields[i], (uint64_t)v))
			return -EBADMSG;
		set(&layout, &fields[i], (uint32_t)v);
	}
	*ret = layout;
	return 0;
}
