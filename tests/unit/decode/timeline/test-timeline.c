/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the timeline, one case file each in tests/golden/timeline/ (language:
 * timeline-case.h): events, "---", the text trace they must give. A NAME.json beside NAME.case is
 * the summary. Each case also goes through the Perfetto writer and is read back.
 * UPDATE_GOLDEN=1 rewrites the expectations: look at the difference before committing it.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "tests/unit/decode/timeline/timeline-case.h"
#include "tests/unit/decode/writer/pftrace-read.h"

#define MAX_CASE (1u << 20)

static char folder[4096];

static char *read_text(int fd)
{
	struct stat st;
	char *text;

	assert_int_equal(fstat(fd, &st), 0);
	text = calloc(1, (size_t)st.st_size + 1);
	assert_non_null(text);
	assert_int_equal(io_pread_full(fd, text, (size_t)st.st_size, 0), st.st_size);
	return text;
}

static bool updating(void)
{
	return getenv("UPDATE_GOLDEN") != NULL;
}

static void rewrite(const char *path, const char *head, size_t head_len, const char *got)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(head, 1, head_len, f), head_len);
	assert_true(fputs(got, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* The first line in which two texts differ. */
static void compare(const char *name, const char *want, const char *got)
{
	int line = 1;

	while (*want && *want == *got) {
		line += *want == '\n';
		want++;
		got++;
	}
	if (*want == *got)
		return;
	fail_msg("%s: expectation line %d differs there:\n  want ...%.*s\n  got  ...%.*s", name,
		 line, (int)strcspn(want, "\n"), want, (int)strcspn(got, "\n"), got);
}

static void check_summary(const char *name, struct json_object *summary)
{
	const char *got = json_text_styled(summary, JSON_INDENTED, NULL);
	_cleanup_free_ char *want = NULL;
	char path[4400];
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/%.*s.json", folder, (int)(strlen(name) - 5), name);
	if (io_read_file_at(AT_FDCWD, path, MAX_CASE, &want, &len) < 0)
		return;
	if (updating()) {
		rewrite(path, got, strlen(got), "\n");
		return;
	}
	if (len && want[len - 1] == '\n')
		want[len - 1] = '\0';
	compare(path, want, got);
}

static void check_case(const char *name)
{
	_cleanup_free_ char *text = NULL, *copy = NULL, *again = NULL, *got = NULL;
	_cleanup_close_ int fd = io_memfd("text"), fd2 = io_memfd("pftrace");
	_cleanup_(writer_freep) struct writer *w = NULL, *w2 = NULL;
	const struct writer_options compressed = {.compress = true}, plain = {.compress = false};
	struct json_object *summary = NULL, *summary2 = NULL;
	struct writer_stats stats, stats2;
	struct timeline_stats ts;
	struct read_trace t;
	char path[4400], error[256];
	const char *want;
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(io_read_file_at(AT_FDCWD, path, MAX_CASE, &text, &len), 0);
	copy = strdup(text);
	again = strdup(text);
	assert_int_equal(text_writer_new(fd, &plain, &w), 0);
	if (timeline_case_play(text, w, &ts, &summary, &want, error, sizeof(error)) < 0)
		fail_msg("%s: %s", name, error);
	got = read_text(fd);
	if (updating()) {
		const char *end = strstr(copy, "\n---\n");
		size_t head = end ? (size_t)(end - copy) : len - 1;

		copy[head] = '\0';
		strcat(copy, "\n---\n");
		rewrite(path, copy, strlen(copy), got);
	} else {
		assert_non_null(want);
		compare(name, want, got);
	}
	check_summary(name, summary);

	assert_int_equal(pftrace_writer_new(fd2, &compressed, &w2), 0);
	if (timeline_case_play(again, w2, &ts, &summary2, &want, error, sizeof(error)) < 0)
		fail_msg("%s: %s", name, error);
	writer_stats(w, &stats);
	writer_stats(w2, &stats2);
	assert_int_equal(stats.slices, stats2.slices);
	assert_int_equal(stats.flows, stats2.flows);
	_cleanup_free_ char *binary = read_text(fd2);

	if (read_trace(&t, (const uint8_t *)binary, stats2.bytes_out) < 0)
		fail_msg("%s: %s", name, t.error);
	assert_int_equal(t.slices, stats.slices);
	assert_int_equal(t.instants, stats.instants);
	assert_int_equal(t.counters, stats.counters);
	assert_int_equal(t.switches, stats.switches);
	read_trace_fini(&t);
	json_object_put(summary);
	json_object_put(summary2);
}

static void every_case_gives_its_golden(void **state)
{
	DIR *d = opendir(folder);
	int n = 0;

	if (!d)
		fail_msg("%s: %s", folder, strerror(errno));
	for (struct dirent *e; (e = readdir(d));) {
		size_t len = strlen(e->d_name);

		if (len > 5 && strcmp(e->d_name + len - 5, ".case") == 0) {
			check_case(e->d_name);
			n++;
		}
	}
	(void)closedir(d);
	assert_true(n >= 10);
}

int main(void)
{
	const char *src = getenv("TRACERD_SRC");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_gives_its_golden),
	};

	(void)snprintf(folder, sizeof(folder), "%s/tests/golden/timeline", src ? src : ".");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
