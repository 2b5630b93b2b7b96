/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text; opens none. */
#pragma once

#include <string.h>

/* What is behind the last slash; all of it where there is nothing. */
static inline const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}
