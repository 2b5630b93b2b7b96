/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a process cannot be stepped, as a sentence. For the kernel's EPERM it finds the reason in
 * /proc.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/*
 * For EPERM. `status`: text of /proc/PID/status; `yama`: kernel.yama.ptrace_scope; `uid`: who wants
 * to trace.
 */
void attach_error_describe_eperm(pid_t pid, const char *status, long yama, uid_t uid, char *ret,
				 size_t size);

/* `error` is the result of step_attach() for `pid`. */
void attach_error_describe(pid_t pid, int error, char *ret, size_t size);
