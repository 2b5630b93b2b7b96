/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the system calls of 64-bit programs on x86-64. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct syscall_info {
	const char *name;
	bool fd; /* its first argument is a descriptor */
};

/* NULL: it is not in the table. */
const struct syscall_info *syscall_info(uint32_t number);
