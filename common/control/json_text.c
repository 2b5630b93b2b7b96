// SPDX-License-Identifier: Apache-2.0
/*
 * A tree as text, byte for byte as json-c 0.16 writes it. json-c's own writer, of 0.16 and of what
 * came after it, goes on where its buffer could not grow, and what it returns then is the text with
 * a hole. Here the tree is walked twice, to measure and to write, so one allocation is all that can
 * fail. A tree that lacks something is no text at all: see json.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/control/json.h"
#include "common/control/json_tree.h"

/*
 * What we build is read by those who take JSON_DEPTH_MAX levels; some put it into a list of theirs.
 */
#define TEXT_DEPTH_MAX (JSON_DEPTH_MAX * 2)

struct text {
	char *to; /* NULL: only measured */
	size_t len;
	enum json_style style;
	struct level {
		struct json_object *array; /* NULL: an object */
		size_t n; /* written so far */
		struct json_object_iterator it, end;
	} levels[TEXT_DEPTH_MAX];
	unsigned int depth;
};

static void put(struct text *t, const char *bytes, size_t n)
{
	if (t->to)
		memcpy(t->to + t->len, bytes, n);
	t->len += n;
}

static void put_char(struct text *t, char c)
{
	put(t, &c, 1);
}

static void put_escaped(struct text *t, const char *s, size_t len)
{
	static const char from[] = "\b\n\r\t\f\"\\", into[] = "bnrtf\"\\";
	size_t done = 0;

	put_char(t, '"');
	for (size_t i = 0; i < len; i++) {
		const char *known = memchr(from, s[i], sizeof(from) - 1);
		char escape[8];

		if (!known && (unsigned char)s[i] >= 0x20)
			continue;
		put(t, s + done, i - done);
		done = i + 1;
		if (known)
			(void)snprintf(escape, sizeof(escape), "\\%c", into[known - from]);
		else
			(void)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned char)s[i]);
		put(t, escape, strlen(escape));
	}
	put(t, s + done, len - done);
	put_char(t, '"');
}

static void put_int(struct text *t, struct json_object *o)
{
	int64_t v = json_object_get_int64(o);
	char number[24];

	if (v < 0)
		(void)snprintf(number, sizeof(number), "%" PRId64, v);
	else
		(void)snprintf(number, sizeof(number), "%" PRIu64, json_object_get_uint64(o));
	put(t, number, strlen(number));
}

/* As it was read, where it was. */
static void put_double(struct text *t, struct json_object *o)
{
	const char *source = json_object_get_userdata(o);
	char number[32];

	if (!source) {
		(void)snprintf(number, sizeof(number), "%.17g", json_object_get_double(o));
		source = number;
	}
	put(t, source, strlen(source));
	if (source[strspn(source, "-0123456789")] == '\0')
		put(t, ".0", 2);
}

static void put_line(struct text *t)
{
	if (t->style == JSON_COMPACT)
		return;
	put_char(t, '\n');
	for (unsigned int i = 0; i < t->depth; i++)
		put(t, "  ", 2);
}

static int put_value(struct text *t, struct json_object *o)
{
	enum json_type type = json_object_get_type(o);
	struct level *l;

	switch (type) {
	case json_type_null:
		put(t, "null", 4);
		return 0;
	case json_type_boolean:
		put(t, json_object_get_boolean(o) ? "true" : "false",
		    json_object_get_boolean(o) ? 4 : 5);
		return 0;
	case json_type_int:
		put_int(t, o);
		return 0;
	case json_type_double:
		put_double(t, o);
		return 0;
	case json_type_string:
		put_escaped(t, json_object_get_string(o), (size_t)json_object_get_string_len(o));
		return 0;
	case json_type_object:
	case json_type_array:
		break;
	}
	if (json_tree_is_broken(o))
		return -ENOMEM;
	if (t->depth == TEXT_DEPTH_MAX)
		return -E2BIG;
	l = &t->levels[t->depth++];
	*l = (struct level){.array = type == json_type_array ? o : NULL};
	if (!l->array) {
		l->it = json_object_iter_begin(o);
		l->end = json_object_iter_end(o);
	}
	put_char(t, l->array ? '[' : '{');
	return 0;
}

/* The next value in the innermost level, with what stands before it; false: it has no more. */
static bool next_value(struct text *t, struct json_object **ret)
{
	struct level *l = &t->levels[t->depth - 1];

	if (l->array ? l->n == json_object_array_length(l->array)
		     : json_object_iter_equal(&l->it, &l->end))
		return false;
	if (l->n > 0)
		put_char(t, ',');
	put_line(t);
	if (l->array)
		*ret = json_object_array_get_idx(l->array, l->n);
	else {
		const char *key = json_object_iter_peek_name(&l->it);

		put_escaped(t, key, strlen(key));
		put_char(t, ':');
		if (t->style == JSON_SPACED)
			put_char(t, ' ');
		*ret = json_object_iter_peek_value(&l->it);
		json_object_iter_next(&l->it);
	}
	l->n++;
	return true;
}

static int write_tree(struct text *t, struct json_object *o)
{
	do {
		int r = put_value(t, o);

		if (r < 0)
			return r;
		while (t->depth > 0 && !next_value(t, &o)) {
			const struct level *l = &t->levels[--t->depth];

			put_line(t);
			put_char(t, l->array ? ']' : '}');
		}
	} while (t->depth > 0);
	return 0;
}

static void free_text(struct json_object *o, void *text)
{
	(void)o;
	free(text);
}

const char *json_text_styled(struct json_object *o, enum json_style style, size_t *ret_len)
{
	struct text t = {.style = style};
	char *text;

	if (!o || write_tree(&t, o) < 0)
		return NULL;
	text = malloc(t.len + 1);
	if (!text)
		return NULL;
	t.to = text;
	t.len = 0;
	(void)write_tree(&t, o); /* as it went before */
	text[t.len] = '\0';
	if (ret_len)
		*ret_len = t.len;
	/* It lives as long as the value, or until it is asked for again. */
	json_object_set_userdata(o, text, free_text);
	return text;
}

const char *json_text(struct json_object *o, size_t *ret_len)
{
	return json_text_styled(o, JSON_COMPACT, ret_len);
}
