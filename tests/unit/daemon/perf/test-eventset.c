// SPDX-License-Identifier: Apache-2.0
/* Events that write to another set's rings: only while the same CPUs are online. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/perf/eventset.h"

/* As many CPUs as before, but not the same: one has gone and another one has come. */
static void test_other_cpus(void **state)
{
	struct eventset first = {0}, set = {0};
	struct eventset_spec spec = {.attr = {.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY}, .join = &first};

	(void)state;
	assert_int_equal(cpus_online(&first.cpus, &first.n_cpus), 0);
	first.cpus[first.n_cpus - 1]++;
	assert_int_equal(eventset_open(&spec, &set), -EAGAIN);
	first.cpus[first.n_cpus - 1]--;
	first.n_cpus--;
	assert_int_equal(eventset_open(&spec, &set), -EAGAIN);
	free(first.cpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
