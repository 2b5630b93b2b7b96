/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammar by itself, for json.c: is this text strict JSON within the limits of json.h? What it
 * finds it reports in the order of the text. Allocates nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum json_event {
	JSON_OPEN_OBJECT,
	JSON_OPEN_ARRAY,
	JSON_CLOSE,   /* of either */
	JSON_KEY,     /* text: between the quotes, escapes as they stand */
	JSON_STRING,  /* likewise */
	JSON_INTEGER, /* text: fits int64 */
	JSON_REAL,    /* text: a finite double, at most JSON_NUMBER_MAX characters */
	JSON_TRUE,
	JSON_FALSE,
	JSON_NULL,
};

#define JSON_NUMBER_MAX 64 /* characters; a double needs 24 */

/* NULL, or why the text is not to be read on: a constant sentence. */
typedef const char *(*json_event_fn)(void *arg, enum json_event event, const char *text,
				     size_t len);

/* True for a whole value; else what is wrong, and at which byte. */
bool json_scan(const char *text, size_t len, json_event_fn fn, void *arg, const char **ret_error,
	       size_t *ret_at);
