/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON on json-c, and short accessors.
 *
 * json-c alone is too kind for text from a stranger: the last of two equal keys wins, numbers
 * that do not fit are clamped, lone surrogates become question marks. So the text is walked once
 * by a scanner without recursion that knows the whole grammar and the limits, then json-c builds
 * the tree, then the members of the tree are counted against those of the text.
 *
 * Knows nothing of methods or messages (common/protocol.h does).
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"

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
 * fit int64, other numbers finite, nothing behind the value but white space. Returns 0,
 * JSON_E_INVALID with a sentence in `why` (may be NULL), or -ENOMEM.
 */
int json_parse(const char *text, size_t len, size_t max_len, struct json_object **ret, char *why, size_t why_size)
	_must_check_;

/* Reading. A member that is absent, null or of another type: NULL, or false and *ret untouched. */
struct json_object *json_get(struct json_object *o, const char *key, enum json_type type);
struct json_object *json_get_object(struct json_object *o, const char *key);
struct json_object *json_get_array(struct json_object *o, const char *key);
const char *json_get_string(struct json_object *o, const char *key);
bool json_get_int(struct json_object *o, const char *key, int64_t *ret);
bool json_get_uint(struct json_object *o, const char *key, uint64_t *ret);
bool json_get_bool(struct json_object *o, const char *key, bool *ret);

/*
 * Writing. Each takes over the value; a NULL object or no memory loses the member, which the
 * reader sees as absent (library code has nobody to tell). json_add_text() is for names that come
 * from targets: they are made valid, harmless UTF-8 (common/escape.h).
 */
void json_add(struct json_object *o, const char *key, struct json_object *value);
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

/* The text on one line, no spaces, slashes not escaped; borrowed from `o`. NULL: no memory. */
const char *json_text(struct json_object *o, size_t *ret_len);
