/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names as people write them, from what a C++ or Rust compiler made of them.
 *
 * The work is done by libiberty's demangler (the one of binutils and gdb): it is the only kept
 * library that reads both C++ and both of Rust's schemes (libstdc++'s __cxa_demangle reads no
 * Rust), it has callbacks that need no heap, so a name that would print for ever can be left in
 * the middle, and it is LGPL-2.1-or-later, cp-demangle.c and rust-demangle.c with the exception
 * that linking adds no terms: no hindrance to Apache-2.0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define DEMANGLE_MAX_IN 4096u  /* longer names are shown as they are */
#define DEMANGLE_MAX_OUT 2048u /* of text; what is longer is cut and ends in "..." */

/*
 * Writes the name of a symbol (`len` bytes, any) to `dst`, demangled where it is mangled, always
 * as valid, harmless UTF-8 and NUL-terminated. Returns the length.
 */
size_t demangle_name(const char *name, size_t len, char *dst, size_t size);
/*
 * The same with the types of a C++ function's parameters, which tell overloads apart: "ns::f(int)".
 */
size_t demangle_signature(const char *name, size_t len, char *dst, size_t size);
