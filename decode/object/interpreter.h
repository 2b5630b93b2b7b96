/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of CPython's interpreter in an image: its function, and the part of it that the compiler
 * has put elsewhere, which has no name in a stripped file. There is nothing but the jumps between
 * them to tell whose part it is.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"
#include "decode/object/extents.h"
#include "decode/object/image.h"

/* Whether the symbol is it, or a part of it. */
bool interpreter_is(const struct symbol *sym);
/*
 * The function of which the code without a name is a part, if that is the interpreter's; NULL. The
 * image's symbols are loaded.
 */
const struct symbol *interpreter_of_part(const struct image *img, const struct extent *part);
