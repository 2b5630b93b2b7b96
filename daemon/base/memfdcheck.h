/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that a descriptor from a stranger is a memfd: memory for which nobody can make us wait.
 * The caller judges the seals. Owns no descriptor and reads no content.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define MEMFDCHECK_E_BAD 1 /* with the sentence in `why` */

/* `what` is how the sentence calls it. 0, MEMFDCHECK_E_BAD, -errno. */
int memfd_check(int fd, const char *what, uint64_t *ret_bytes, unsigned int *ret_seals, char *why,
		size_t why_size) _must_check_;
