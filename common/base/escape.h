/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names from targets are bytes, not text: they may hold newlines, terminal escapes, bidi
 * controls or invalid UTF-8. This makes them safe to log, to show and to put into JSON or a
 * trace, without losing what they were.
 */
#pragma once

#include <stddef.h>

/*
 * Copies `len` bytes of `src` to `dst` (`size` bytes, always NUL-terminated) as valid UTF-8.
 * Control characters (C0, DEL, C1), bidi and invisible format controls, and bytes that are not
 * UTF-8 become \xNN; a backslash stays one. What does not fit is cut at a character's edge.
 * Returns the length written.
 */
size_t escape_text(char *dst, size_t size, const char *src, size_t len);
