// SPDX-License-Identifier: Apache-2.0
/*
 * A strict text as a tree of json-c: built here from what the scanner reports, since json-c's own
 * tokener cannot bear that an allocation of its own fails. Up to 0.16 it uses a key that strdup()
 * did not make, and crashes, and leaves out of a text what its buffer had no room for. 0.17 tells
 * that memory failed (json-c pull request 759), but not for each allocation (issues 854 and 857,
 * pull request 861, of 2024). No recursion: the scanner bounds the depth. One scratch buffer as
 * long as the text takes what had escapes in it.
 */
#include "common/control/json_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/control/json.h"
#include "common/control/json_scan.h"

static const char no_memory[] = "out of memory";

struct builder {
	struct json_object *root, *open[JSON_DEPTH_MAX]; /* open: borrowed */
	unsigned int depth;
	char *scratch;   /* the key that waits for its value, then the value's text */
	size_t key_size; /* with its NUL; 0: none waits */
};

bool json_tree_add(struct json_object *o, const char *key, struct json_object *value)
{
	struct lh_table *t = json_object_get_object(o);

	if (t->count >= t->size * LH_LOAD_FACTOR && lh_table_resize(t, t->size * 2) < 0)
		return false;
	return json_object_object_add_ex(o, key, value, JSON_C_OBJECT_ADD_KEY_IS_NEW) == 0;
}

static const char *place(struct builder *b, struct json_object *value)
{
	struct json_object *o = b->depth > 0 ? b->open[b->depth - 1] : NULL;
	bool ok = true;

	if (!o)
		b->root = value;
	else if (json_object_is_type(o, json_type_array))
		ok = json_object_array_add(o, value) == 0;
	else
		ok = json_tree_add(o, b->scratch, value);
	b->key_size = 0;
	if (!ok)
		json_object_put(value);
	return ok ? NULL : no_memory;
}

static const char *place_made(struct builder *b, struct json_object *value)
{
	return value ? place(b, value) : no_memory;
}

static unsigned long hex4(const char *p)
{
	char digits[5];

	memcpy(digits, p, 4);
	digits[4] = '\0';
	return strtoul(digits, NULL, 16);
}

static char *put_utf8(char *to, unsigned long c)
{
	if (c < 0x80) {
		*to++ = (char)c;
		return to;
	}
	if (c < 0x800)
		*to++ = (char)(0xc0 | c >> 6);
	else {
		if (c < 0x10000)
			*to++ = (char)(0xe0 | c >> 12);
		else {
			*to++ = (char)(0xf0 | c >> 18);
			*to++ = (char)(0x80 | (c >> 12 & 0x3f));
		}
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
	}
	*to++ = (char)(0x80 | (c & 0x3f));
	return to;
}

/*
 * The scanner has seen that each escape is whole and each surrogate has its pair. Returns the
 * length.
 */
static size_t unescape(const char *text, size_t len, char *to)
{
	static const char from[] = "bfnrt", into[] = "\b\f\n\r\t";
	const char *end = text + len;
	char *start = to;

	while (text < end) {
		const char *known;
		unsigned long c;

		if (*text != '\\') {
			*to++ = *text++;
			continue;
		}
		text++;
		if (*text != 'u') {
			known = memchr(from, *text, sizeof(from) - 1);
			*to++ = known ? into[known - from] : *text;
			text++;
			continue;
		}
		c = hex4(text + 1);
		text += 5;
		if (c >= 0xd800 && c <= 0xdbff) {
			c = 0x10000 + ((c - 0xd800) << 10) + (hex4(text + 2) - 0xdc00);
			text += 6;
		}
		to = put_utf8(to, c);
	}
	*to = '\0';
	return (size_t)(to - start);
}

static const char *on_key(struct builder *b, const char *text, size_t len)
{
	b->key_size = unescape(text, len, b->scratch) + 1;
	return json_object_object_get_ex(b->open[b->depth - 1], b->scratch, NULL)
		       ? "the same key twice in an object"
		       : NULL;
}

static const char *on_string(struct builder *b, const char *text, size_t len)
{
	char *to = b->scratch + b->key_size;

	len = unescape(text, len, to);
	return place_made(b, json_object_new_string_len(to, (int)len));
}

static const char *on_number(struct builder *b, enum json_event event, const char *text, size_t len)
{
	char number[JSON_NUMBER_MAX + 1];

	memcpy(number, text, len);
	number[len] = '\0';
	if (event == JSON_INTEGER)
		return place_made(b, json_object_new_int64(strtoll(number, NULL, 10)));
	/* It is written again as it was read. */
	return place_made(b, json_object_new_double_s(strtod(number, NULL), number));
}

static const char *on_open(struct builder *b, struct json_object *o)
{
	const char *error = place_made(b, o);

	if (!error)
		b->open[b->depth++] = o;
	return error;
}

static const char *on_event(void *arg, enum json_event event, const char *text, size_t len)
{
	struct builder *b = arg;

	switch (event) {
	case JSON_OPEN_OBJECT:
		return on_open(b, json_object_new_object());
	case JSON_OPEN_ARRAY:
		return on_open(b, json_object_new_array());
	case JSON_CLOSE:
		b->depth--;
		return NULL;
	case JSON_KEY:
		return on_key(b, text, len);
	case JSON_STRING:
		return on_string(b, text, len);
	case JSON_INTEGER:
	case JSON_REAL:
		return on_number(b, event, text, len);
	case JSON_TRUE:
	case JSON_FALSE:
		return place_made(b, json_object_new_boolean(event == JSON_TRUE));
	case JSON_NULL:
		break;
	}
	return place(b, NULL); /* which is what json-c has for null */
}

static int refuse(const char *what, size_t at, char *why, size_t why_size)
{
	if (why)
		(void)snprintf(why, why_size, "%s (byte %zu)", what, at);
	return JSON_E_INVALID;
}

int json_parse(const char *text, size_t len, size_t max_len, struct json_object **ret, char *why,
	       size_t why_size)
{
	struct builder b = {0};
	const char *bad = NULL;
	size_t at = 0;

	if (len > max_len || len > INT32_MAX)
		return refuse("too long", max_len, why, why_size);
	b.scratch = malloc(len + 1);
	if (!b.scratch)
		return -ENOMEM;
	if (!json_scan(text, len, on_event, &b, &bad, &at)) {
		free(b.scratch);
		json_object_put(b.root);
		return bad == no_memory ? -ENOMEM : refuse(bad, at, why, why_size);
	}
	free(b.scratch);
	*ret = b.root;
	return 0;
}
