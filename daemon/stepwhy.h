/* SPDX-License-Identifier: Apache-2.0 */
/* Why a process cannot be stepped, as a sentence for whoever wanted it: what /proc tells beside the kernel's EPERM. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* `error` is what step_attach() answered for `pid`. */
void stepwhy(pid_t pid, int error, char *ret, size_t size);
