/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a descriptor that a stranger passed is a memfd: memory that nobody can make us wait for, and whose seals
 * are then for the caller to judge. Owns no descriptor and reads nothing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define MEMFDCHECK_E_BAD 1 /* with the sentence in `why` */

/* `what` is how the sentence calls it. 0, MEMFDCHECK_E_BAD, -errno. */
int memfd_check(int fd, const char *what, uint64_t *ret_bytes, unsigned int *ret_seals, char *why, size_t why_size)
	_must_check_;
