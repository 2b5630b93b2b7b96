/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON on json-c, and short accessors.
 *
 * json-c alone is too kind for text from a stranger: the last of two equal keys wins, numbers that
 * do not fit are clamped, lone surrogates become question marks. And it cannot bear that memory
 * fails: its tokener crashes, its writer leaves out what had no room. So its trees are all that is
 * used of it: a scanner without recursion knows the whole grammar and the limits, the tree is built
 * from what it reports, and the text is written here.
 *
 * Knows nothing of methods or messages (common/control/protocol.h does).
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define JSON_DEPTH_MAX 16
#define JSON_TEXT_MAX (64u * 1024)

enum { JSON_E_INVALID = 1 /* not strict JSON: `why` says what and where */ };

static inline void json_putp(struct json_object **o)
{
	json_object_put(*o);
}
#define _cleanup_json_ _cleanup_(json_putp)

/*
 * Parses `len` bytes as exactly one JSON value of at most `max_len` bytes and JSON_DEPTH_MAX
 * levels: valid UTF-8, no NUL (also not as an escape), no key twice in an object, integers that
 * fit int64, other numbers finite, nothing after the value but white space. Returns 0,
 * JSON_E_INVALID with a sentence in `why` (may be NULL), or -ENOMEM.
 */
int json_parse(const char *text, size_t len, size_t max_len, struct json_object **ret, char *why,
	       size_t why_size) _must_check_;

/* Reading. A member that is absent, null or of another type: NULL, or false and *ret untouched. */
struct json_object *json_get(struct json_object *o, const char *key, enum json_type type);
struct json_object *json_get_object(struct json_object *o, const char *key);
struct json_object *json_get_array(struct json_object *o, const char *key);
const char *json_get_string(struct json_object *o, const char *key);
bool json_get_int(struct json_object *o, const char *key, int64_t *ret);
bool json_get_uint(struct json_object *o, const char *key, uint64_t *ret);
bool json_get_bool(struct json_object *o, const char *key, bool *ret);

/*
 * Writing. Each takes over the value. Whoever builds an answer of forty members does not ask forty
 * times whether there was memory: a value that could not be made (NULL) or kept breaks what it was
 * to be added to, for good, and a tree with something broken in it has no text. So nothing
 * incomplete can be sent or stored; it is asked once, of json_text(). A NULL object or array takes
 * nothing: what it was to be part of is broken already.
 *
 * json_add_text() is for names that come from targets: they are made valid, harmless UTF-8
 * (common/base/escape.h).
 */
void json_add(struct json_object *o, const char *key, struct json_object *value);
/*
 * Another tree's value as ours, too, and never to be changed; NULL (null, or absent): adds nothing.
 */
void json_add_shared(struct json_object *o, const char *key, struct json_object *value);
void json_add_string(struct json_object *o, const char *key, const char *value /* NULL: null */);
void json_add_text(struct json_object *o, const char *key, const char *bytes, size_t len);
void json_add_int(struct json_object *o, const char *key, int64_t value);
void json_add_uint(struct json_object *o, const char *key, uint64_t value);
void json_add_bool(struct json_object *o, const char *key, bool value);
void json_add_null(struct json_object *o, const char *key);
struct json_object *json_add_new_object(struct json_object *o, const char *key); /* borrowed */
struct json_object *json_add_new_array(struct json_object *o, const char *key);  /* borrowed */
void json_append(struct json_object *array, struct json_object *value);
void json_append_string(struct json_object *array, const char *value);

enum json_style {
	JSON_COMPACT,  /* on one line, no spaces */
	JSON_INDENTED, /* a line for each value */
	JSON_SPACED,   /* likewise, for eyes */
};

/*
 * The text, slashes not escaped; borrowed from `o` until it is asked for again. NULL: there is no
 * memory, or was none when `o` was built.
 */
const char *json_text(struct json_object *o, size_t *ret_len); /* JSON_COMPACT */
const char *json_text_styled(struct json_object *o, enum json_style style, size_t *ret_len);
