/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One conversion of a printf format, taken apart: libtracerd walks formats to take their values,
 * the decoder writes the values down later, and both must see the same conversions. Knows no values
 * and prints nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PRINTF_SPEC_MAX 65535u /* a width or a precision that is larger counts as this */

enum printf_length {
	PRINTF_LENGTH_NONE,
	PRINTF_LENGTH_HH,
	PRINTF_LENGTH_H,
	PRINTF_LENGTH_L,
	PRINTF_LENGTH_LL,
	PRINTF_LENGTH_J,
	PRINTF_LENGTH_Z,
	PRINTF_LENGTH_T,
	PRINTF_LENGTH_LD, /* L */
};

struct printf_spec {
	bool minus, plus, space, alt, zero;
	bool width_is_value, precision_is_value; /* a `*`: the next value is it */
	bool has_precision;
	size_t width, precision; /* 0 where there is none, or it is a value */
	enum printf_length length;
	char conversion; /* 0: none of ISO C's */
};

/*
 * Reads what follows a '%' at `at`, up to `end`; NULL: up to the NUL that ends the format. Returns
 * where the conversion ends; with one that ISO C does not have, where it was found.
 */
const char *printf_spec_read(const char *at, const char *end, struct printf_spec *ret);
