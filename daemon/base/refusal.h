/* SPDX-License-Identifier: Apache-2.0 */
/* Why something is refused, in words for whoever asked. */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

/* Writes the reason, cut to `size`, and returns `answer`. */
int _printf_(4, 5) refusal(char *why, size_t size, int answer, const char *fmt, ...);
