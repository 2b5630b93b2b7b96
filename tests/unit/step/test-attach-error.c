// SPDX-License-Identifier: Apache-2.0
/* Why a process cannot be stepped, in words. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/control/stepabi.h"
#include "step/attach_error.h"

#define HEAD "Name:\tx\nState:\tS (sleeping)\nTgid:\t7\nPid:\t7\n"
#define UIDS "Uid:\t1\t1000\t2\t3\nGid:\t9\t9\t9\t9\n"
#define MEMORY "VmPeak:\t 100 kB\nVmSize:\t 100 kB\n"

static void check(const char *status, long yama, uid_t uid, const char *want)
{
	char why[STEPABI_TEXT];

	attach_error_describe_eperm(7, status, yama, uid, why, sizeof(why));
	assert_string_equal(why, want);
}

static void test_denied(void **state)
{
	(void)state;
	check(HEAD "TracerPid:\t12\n" UIDS MEMORY, 1, 5,
		"process 7 is already traced, by process 12 (a debugger, or another stepper)");
	check(HEAD "TracerPid:\t0\n" UIDS, 0, 1000,
	      "process 7 is a thread of the kernel, or has ended");
	check(HEAD "TracerPid:\t0\n" UIDS MEMORY, 1, 1001, "process 7 is owned by uid 1000");
	check(HEAD "TracerPid:\t0\n" UIDS MEMORY, 1, 1000,
	      "the kernel lets only a parent trace process 7 (kernel.yama.ptrace_scope is 1): start the program by "
	      "'tracectl run --backend=step', or arm it as root");
	check(HEAD "TracerPid:\t0\n" UIDS MEMORY, 2, 1000,
	      "the kernel lets only administrators trace process 7 (kernel.yama.ptrace_scope is 2)");
	check(HEAD "TracerPid:\t0\n" UIDS MEMORY, 3, 1000,
		"the kernel lets nobody trace process 7 (kernel.yama.ptrace_scope is 3)");
	check(HEAD "TracerPid:\t0\n" UIDS MEMORY, 0, 1000,
	      "the kernel does not let uid 1000 trace process 7: it has privileges, or hides from its user");
	/* of a kernel that says less, or nothing that is right */
	check("\nVmSize:\t1\nUid:\t5", 0, 3,
	      "the kernel does not let uid 3 trace process 7: it has privileges, or hides from its user");
	check("", 0, 3, "process 7 is a thread of the kernel, or has ended");
}

/* The longest fits into what is sent. */
static void test_others(void **state)
{
	char why[STEPABI_TEXT], self[64];

	(void)state;
	attach_error_describe(INT32_MAX, -ESRCH, why, sizeof(why));
	assert_string_equal(why, "no such process: 2147483647");
	attach_error_describe(INT32_MAX, -EPERM, why, sizeof(why));
	assert_string_equal(why, "no such process: 2147483647");
	attach_error_describe(5, -E2BIG, why, sizeof(why));
	assert_string_equal(why, "process 5 has more threads than can be stepped");
	attach_error_describe(5, -EIO, why, sizeof(why));
	assert_string_equal(why, "process 5 cannot be stepped: Input/output error");
	attach_error_describe(getpid(), -EPERM, why, sizeof(why));
	(void)snprintf(self, sizeof(self), "process %d", (int)getpid());
	assert_non_null(strstr(why, self));
	attach_error_describe_eperm(INT32_MAX, HEAD UIDS MEMORY, 1, 1000, why, sizeof(why));
	assert_string_equal(why + strlen(why) - 7, "as root");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
