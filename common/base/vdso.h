/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vDSO that the kernel has mapped into this process, as into every other of its kind. It is the
 * kernel's own memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define VDSO_BUILD_ID_MAX 20

/* The length of its build id, at most VDSO_BUILD_ID_MAX; 0: it has none, or there is no vDSO. */
size_t vdso_build_id(uint8_t ret[VDSO_BUILD_ID_MAX]);
