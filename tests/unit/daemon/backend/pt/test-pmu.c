// SPDX-License-Identifier: Apache-2.0
/*
 * The PMU in a sysfs made up: a whole one, an old one, none, and files that are not what they
 * should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/backend/pt/pmu.h"

static char root[256];

static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void drop(const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(unlink(path), 0);
}

static const char *const files[][2] = {
	{"type", "8\n"},
	{"format/pt", "config:0\n"},
	{"format/cyc", "config:1\n"},
	{"format/mtc", "config:9\n"},
	{"format/tsc", "config:10\n"},
	{"format/noretcomp", "config:11\n"},
	{"format/branch", "config:13\n"},
	{"format/mtc_period", "config:14-17\n"},
	{"format/cyc_thresh", "config:19-22\n"},
	{"format/psb_period", "config:24-27\n"},
	{"caps/mtc", "1\n"},
	{"caps/psb_cyc", "1\n"},
	{"caps/mtc_periods", "249\n"},
	{"caps/cycle_thresholds", "1ff\n"},
	{"caps/psb_periods", "3f\n"},
	{"max_nonturbo_ratio", "36\n"},
	{"nr_addr_filters", "2\n"},
	{"tsc_art_ratio", "216:2\n"},
};

static int setup(void **state)
{
	const char *tmp = getenv("TEST_TMP");
	char path[512];

	(void)snprintf(root, sizeof(root), "%s/pmu.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(root));
	(void)snprintf(path, sizeof(path), "%s/format", root);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/caps", root);
	assert_int_equal(mkdir(path, 0700), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		put(files[i][0], files[i][1]);
	return 0;
}

static int teardown(void **state)
{
	char path[512];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", root, files[i][0]);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof(path), "%s/format", root);
	(void)rmdir(path);
	(void)snprintf(path, sizeof(path), "%s/caps", root);
	(void)rmdir(path);
	return rmdir(root);
}

static void test_whole(void **state)
{
	struct pt_pmu pmu;
	uint64_t config = 0;
	char why[200] = "";

	(void)state;
	assert_int_equal(pt_pmu_read(root, &pmu, why, sizeof(why)), 0);
	assert_int_equal(pmu.type, 8);
	/* hexadecimal, as the kernel prints them */
	assert_int_equal(pmu.caps[PT_CAP_MTC_PERIODS], 0x249);
	assert_int_equal(pmu.max_nonturbo_ratio, 36); /* decimal, as it prints that */
	assert_int_equal(pmu.filters, 2);
	assert_int_equal(pmu.tsc_ctc_n, 216);
	assert_int_equal(pmu.tsc_ctc_d, 2);
	assert_true(pt_pmu_bits(&pmu, PT_TERM_MTC_PERIOD) == 0xfull << 14);
	assert_true(pt_pmu_bits(&pmu, PT_TERM_PTW) == 0);
	assert_true(pt_pmu_set(&pmu, PT_TERM_MTC_PERIOD, 3, &config));
	assert_true(pt_pmu_set(&pmu, PT_TERM_TSC, 1, &config));
	assert_true(config == (3ull << 14 | 1ull << 10));
	/* A number for which there is no room, a setting that does not exist: nothing changes. */
	assert_false(pt_pmu_set(&pmu, PT_TERM_MTC_PERIOD, 16, &config));
	assert_false(pt_pmu_set(&pmu, PT_TERM_PTW, 1, &config));
	assert_true(config == (3ull << 14 | 1ull << 10));
}

static void test_old(void **state)
{
	struct pt_pmu pmu;
	char why[200] = "";

	(void)state;
	drop("format/branch");
	drop("caps/mtc_periods");
	drop("max_nonturbo_ratio");
	drop("nr_addr_filters");
	drop("tsc_art_ratio");
	assert_int_equal(pt_pmu_read(root, &pmu, why, sizeof(why)), 0);
	assert_true(pt_pmu_bits(&pmu, PT_TERM_BRANCH) == 0);
	assert_int_equal(pmu.caps[PT_CAP_MTC_PERIODS], 0);
	assert_int_equal(pmu.max_nonturbo_ratio, 0);
	assert_int_equal(pmu.filters, 0);
	assert_int_equal(pmu.tsc_ctc_n, 0);
	/* A processor without CPUID 15H. */
	put("tsc_art_ratio", "0:0\n");
	assert_int_equal(pt_pmu_read(root, &pmu, why, sizeof(why)), 0);
	assert_int_equal(pmu.tsc_ctc_d, 0);
}

static void test_none(void **state)
{
	struct pt_pmu pmu;
	char why[200] = "", path[512];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/none", root);
	assert_int_equal(pt_pmu_read(path, &pmu, why, sizeof(why)), -ENOENT);
}

static void check_bad(const char *name, const char *text, const char *good)
{
	struct pt_pmu pmu = {.type = 77};
	char why[400] = "";

	put(name, text);
	assert_int_equal(pt_pmu_read(root, &pmu, why, sizeof(why)), -EBADMSG);
	assert_non_null(strstr(why, name));
	assert_int_equal(pmu.type, 77);
	put(name, good);
}

static void test_bad(void **state)
{
	static const char *const types[] = {
		"",     "x\n", "-1\n", "8 \n", "8\n\n", "4294967296\n", "99999999999999999999\n",
		"0x8\n"};
	static const char *const fields[] = {"",
					     "config1:0\n",
					     "config:\n",
					     "config:64\n",
					     "config:3-2\n",
					     "config:1-\n",
					     "config:1-64\n",
					     "config:1,3\n",
					     "config:+1\n",
					     "config: 1\n"};
	static const char *const caps[] = {"g\n", "1ffffffff\n", "1 1\n"};
	static const char *const ratios[] = {"216\n",   "216:\n",   ":2\n",
					     "216/2\n", "216:2x\n", "4294967296:1\n"};
	char *longer = malloc(1000);

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		check_bad("type", types[i], "8\n");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		check_bad("format/tsc", fields[i], "config:10\n");
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		check_bad("caps/mtc", caps[i], "1\n");
	for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++)
		check_bad("tsc_art_ratio", ratios[i], "216:2\n");
	assert_non_null(longer);
	memset(longer, '1', 999);
	longer[999] = '\0';
	check_bad("caps/mtc", longer, "1\n");
	free(longer);
	drop("type");
	assert_int_equal(pt_pmu_read(root, &(struct pt_pmu){0}, (char[200]){""}, 200), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old, setup, teardown),
		cmocka_unit_test_setup_teardown(test_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
