/* SPDX-License-Identifier: Apache-2.0 */
/* Why a process cannot be stepped, as a sentence for whoever wanted it: what /proc tells beside the kernel's EPERM. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* For EPERM: `status` is what /proc/PID/status says, `yama` kernel.yama.ptrace_scope, `uid` who wants to trace. */
void attach_error_describe_eperm(pid_t pid, const char *status, long yama, uid_t uid, char *ret, size_t size);

/* `error` is what step_attach() answered for `pid`. */
void attach_error_describe(pid_t pid, int error, char *ret, size_t size);
