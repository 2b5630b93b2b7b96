/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies a printf format to values that were recorded, as printf() would have at the time. The
 * format and the values are the program's: nothing of either reaches a printf of ours. Each
 * conversion is read by rules of our own, width and precision are bounded, a value that is not
 * there becomes "<missing>", one of another type is shown in angle brackets.
 *
 * Integers are cut to the C type that the conversion names. %n shows itself and takes no value; the
 * first conversion that ISO C does not have ends it: the rest of the format is shown as it is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "decode/rings/fields.h"

/* Wider is shown so wide. */
#define LOGFORMAT_MAX_WIDTH 256u
#define LOGFORMAT_MAX_PRECISION 256u

/*
 * Writes at most `size` bytes, without a NUL, and returns how many; *ret_cut: there was more. Texts
 * are bytes: the result is to be escaped. Values of type RING_FIELD_NAME are not known here:
 * "<missing>".
 */
size_t logformat(char *dst, size_t size, const char *format, size_t len,
		 const struct ringfield *values, size_t n_values, bool *ret_cut);
