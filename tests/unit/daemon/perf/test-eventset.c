// SPDX-License-Identifier: Apache-2.0
/* Events that write to another set's rings: only while the same CPUs are online. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/perf/eventset.h"

/* As many CPUs as before, but not the same: one has gone and another one has come. */
static void test_other_cpus(void **state)
{
	struct eventset first = {0}, set = {0};
	struct eventset_spec spec = {.attr = {.type = PERF_TYPE_SOFTWARE,
					      .config = PERF_COUNT_SW_DUMMY},
				     .join = &first};

	(void)state;
	assert_int_equal(cpus_online(&first.cpus, &first.n_cpus), 0);
	first.cpus[first.n_cpus - 1]++;
	assert_int_equal(eventset_open(&spec, &set), -EAGAIN);
	first.cpus[first.n_cpus - 1]--;
	first.n_cpus--;
	assert_int_equal(eventset_open(&spec, &set), -EAGAIN);
	free(first.cpus);
}

/*
 * On the CPUs of another set, although more are online: a recording goes on with those that it
 * began with.
 */
static void test_cpus_of(void **state)
{
	const pid_t self = getpid();
	struct eventset first = {0}, set = {0}, online = {0};
	struct eventset_spec spec = {.attr = {.type = PERF_TYPE_SOFTWARE,
					      .size = sizeof(spec.attr),
					      .config = PERF_COUNT_SW_DUMMY,
					      .disabled = 1,
					      .exclude_kernel = 1},
				     .subjects = &self,
				     .n_subjects = 1,
				     .ring_bytes = 4096,
				     .cpus_of = &online};
	int r;

	(void)state;
	assert_int_equal(cpus_online(&online.cpus, &online.n_cpus), 0);
	if (online.n_cpus < 2) {
		free(online.cpus);
		skip();
	}
	online.n_cpus--;
	r = eventset_open(&spec, &first);
	if (r == 0) {
		assert_int_equal(first.n_cpus, online.n_cpus);
		assert_int_equal(first.n_fds, online.n_cpus);
		spec.join = &first;
		spec.cpus_of = NULL;
		assert_int_equal(eventset_open(&spec, &set), -EAGAIN);
		spec.cpus_of = &first;
		assert_int_equal(eventset_open(&spec, &set), 0);
		assert_int_equal(set.n_cpus, first.n_cpus);
		assert_memory_equal(set.cpus, first.cpus, first.n_cpus * sizeof(*first.cpus));
	}
	eventset_close(&set);
	eventset_close(&first);
	free(online.cpus);
	if (r == -EACCES || r == -EPERM || r == -ENOBUFS)
		skip();
	assert_int_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_cpus),
		cmocka_unit_test(test_cpus_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
