/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of 64-bit Linux. */
#pragma once

#include <stdint.h>

#define KERNEL_HALF (UINT64_C(1) << 63) /* from here on they are the kernel's */
