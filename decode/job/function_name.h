/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people write for a function, and what the names in symbol tables and debug information are
 * to it: mangled, with what compilers write behind the name of a function that they have changed.
 * No file is known here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FUNCTION_NAME_NEAR_MAX 64u

struct function_name {
	const char *text; /* borrowed */
	/* the identifier of it that every mangled form of it has in it, of "ns::f<int>" f, */
	const char *word;
	size_t word_len;  /* 0: none is sure to be there */
};

/* A better one is greater. What the compiler has made of a function is less than the function. */
enum match { MATCH_NONE, MATCH_SUFFIX_COPY, MATCH_SUFFIX, MATCH_FULL_COPY, MATCH_FULL };

/* False: the text ends before it has a name. */
bool function_name_set(struct function_name *f, const char *text);

enum match function_name_match(const struct function_name *f, const char *name, size_t len);
/* Of a name that has nothing of the compiler's behind it. */
enum match function_name_match_plain(const struct function_name *f, const char *name, size_t len);
/*
 * Whether it may be what somebody has meant who mistyped it. At most FUNCTION_NAME_NEAR_MAX bytes
 * are.
 */
bool function_name_is_near(const struct function_name *f, const char *name, size_t len);

/* A symbol's name as its place is told by: "ns::f(int)", "f.constprop.0". */
void function_name_show(const char *name, size_t len, char *dst, size_t size);
