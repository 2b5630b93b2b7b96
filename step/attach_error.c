// SPDX-License-Identifier: Apache-2.0
#include "step/attach_error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"

#define STATUS_BYTES_MAX 16384
#define YAMA "/proc/sys/kernel/yama/ptrace_scope"

/* The nth number after `key` ("\nUid:\t") in a status file; -1 if there is none. */
static long status_number(const char *text, const char *key, unsigned int nth)
{
	const char *p = strstr(text, key);

	if (!p)
		return -1;
	p += strlen(key);
	for (unsigned int i = 0; i < nth; i++) {
		p += strcspn(p, "\t\n");
		if (*p != '\t')
			return -1;
		p++;
	}
	return *p >= '0' && *p <= '9' ? strtol(p, NULL, 10) : -1;
}

static long yama_scope(void)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	return io_read_file_at(AT_FDCWD, YAMA, 16, &text, &len) < 0 ? 0 : strtol(text, NULL, 10);
}

void attach_error_describe_eperm(pid_t pid, const char *status, long yama, uid_t uid, char *ret,
				 size_t size)
{
	const long tracer = status_number(status, "\nTracerPid:\t", 0),
		   owner = status_number(status, "\nUid:\t", 1);
	const int n = (int)pid;

	if (tracer > 0)
		(void)snprintf(
			ret, size,
			"process %d is already traced, by process %ld (a debugger, or another stepper)",
			n, tracer);
	else if (!strstr(status, "\nVmSize:\t"))
		(void)snprintf(ret, size, "process %d is a thread of the kernel, or has ended", n);
	else if (owner >= 0 && (uid_t)owner != uid)
		(void)snprintf(ret, size, "process %d is owned by uid %ld", n, owner);
	else if (yama == 1)
		(void)snprintf(
			ret, size,
			"the kernel lets only a parent trace process %d (kernel.yama.ptrace_scope is 1): start "
			"the program by 'tracectl run --backend=step', or arm it as root",
			n);
	else if (yama > 1)
		(void)snprintf(
			ret, size,
			"the kernel lets %s trace process %d (kernel.yama.ptrace_scope is %ld)",
			yama == 2 ? "only administrators" : "nobody", n, yama);
	else
		(void)snprintf(
			ret, size,
			"the kernel does not let uid %u trace process %d: it has privileges, or hides from its user",
			(unsigned int)uid, n);
}

static void not_permitted(pid_t pid, char *ret, size_t size)
{
	_cleanup_free_ char *status = NULL;
	char path[32];
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (io_read_file_at(AT_FDCWD, path, STATUS_BYTES_MAX, &status, &len) < 0)
		(void)snprintf(ret, size, "no such process: %d", (int)pid);
	else
		attach_error_describe_eperm(pid, status, yama_scope(), geteuid(), ret, size);
}

void attach_error_describe(pid_t pid, int error, char *ret, size_t size)
{
	switch (error) {
	case -EPERM:
	case -EACCES:
		not_permitted(pid, ret, size);
		break;
	case -ESRCH:
		(void)snprintf(ret, size, "no such process: %d", (int)pid);
		break;
	case -E2BIG:
		(void)snprintf(ret, size, "process %d has more threads than can be stepped",
			       (int)pid);
		break;
	default:
		(void)snprintf(ret, size, "process %d cannot be stepped: %s", (int)pid,
			       strerror(-error));
	}
}
