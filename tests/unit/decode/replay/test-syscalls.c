// SPDX-License-Identifier: Apache-2.0
/*
 * The names of system calls: by the numbers of this machine's headers, and without a hole among
 * those that there have long been.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef __x86_64__
#include <sys/syscall.h>
#endif

#include "decode/replay/syscalls.h"

#define LAST_OLD 334 /* rseq; what came after Linux 4.18 goes on at 424, as everywhere */

static void test_names(void **state)
{
	(void)state;
	for (uint32_t i = 0; i <= LAST_OLD; i++)
		assert_non_null(syscall_info(i));
	assert_null(syscall_info(LAST_OLD + 1));
	assert_null(syscall_info(UINT32_MAX));
#ifdef __x86_64__
	assert_string_equal(syscall_info(SYS_eventfd2)->name, "eventfd2");
	assert_string_equal(syscall_info(SYS_futex)->name, "futex");
	assert_string_equal(syscall_info(SYS_rseq)->name, "rseq");
	assert_string_equal(syscall_info(SYS_clone3)->name, "clone3");
	assert_false(syscall_info(SYS_eventfd2)->fd);
	assert_true(syscall_info(SYS_timerfd_settime)->fd);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
