// SPDX-License-Identifier: Apache-2.0
/*
 * What a file shows of itself after it was mapped: written over, or only renamed, linked, removed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decode/object/overwritten.h"

#define SECOND INT64_C(1000000000)

static int fd = -1;
static struct file_answer file;

static int setup(void **state)
{
	fd = memfd_create("program", MFD_CLOEXEC);
	file = (struct file_answer){.dated = true};
	return fd < 0 || write(fd, "first program", 13) != 13;
}

static int teardown(void **state)
{
	return close(fd);
}

static struct stat now(void)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st;
}

/*
 * Nobody can choose the time of a file's last change: `ns` after it (before it, if negative) is
 * when it was mapped.
 */
static struct mapped_at mapped(int64_t ns)
{
	const struct stat st = now();

	return (struct mapped_at){.ns = (uint64_t)(filenote_ns(&st.st_ctim) + ns)};
}

static void written_at(int64_t ns_before_change)
{
	struct stat st = now();
	int64_t ns = filenote_ns(&st.st_ctim) - ns_before_change;
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND}};

	assert_int_equal(futimens(fd, times), 0);
}

static void note(void)
{
	const struct stat st = now();

	file.noted = true;
	file.note = (struct filenote){.mtime_ns = filenote_ns(&st.st_mtim),
				      .size = (uint64_t)st.st_size};
	file.note.has_head = filenote_head(fd, file.note.head);
	assert_true(file.note.has_head);
}

static void assert_overwritten(bool is, struct mapped_at at)
{
	assert_int_equal(file_is_overwritten(fd, &file, &at), is);
}

static void test_times(void **state)
{
	assert_overwritten(false, mapped(0));
	assert_overwritten(false, mapped(SECOND));
	assert_overwritten(true, mapped(-SECOND));
	/* within what the two clocks may be apart */
	assert_overwritten(false, mapped(-1000));
	assert_overwritten(false,
			   (struct mapped_at){.ns = mapped(-SECOND).ns, .doubt_ns = 2 * SECOND});
	/* nothing is known */
	assert_overwritten(false, (struct mapped_at){0});
	assert_overwritten(false, (struct mapped_at){.ns = UINT64_MAX, .doubt_ns = UINT64_MAX});
	assert_overwritten(false, (struct mapped_at){.ns = 1, .doubt_ns = UINT64_MAX});
	file.dated = false;
	assert_overwritten(false, mapped(-SECOND));
}

/* Its name, links or rights have changed: who has seen it before knows that it is the same. */
static void test_changed_around(void **state)
{
	written_at(10 * SECOND);
	assert_overwritten(true, mapped(-SECOND));
	note();
	assert_overwritten(false, mapped(-SECOND));
	assert_int_equal(fchmod(fd, 0700), 0);
	assert_overwritten(false, mapped(-SECOND));
	assert_overwritten(false, (struct mapped_at){0});
}

static void test_times_put_back(void **state)
{
	struct stat st;

	written_at(10 * SECOND);
	note();
	st = now();
	assert_int_equal(pwrite(fd, "second", 6, 0), 6);
	assert_overwritten(true, mapped(-SECOND));
	assert_overwritten(true, (struct mapped_at){0});
	assert_int_equal(futimens(fd, (struct timespec[2]){st.st_atim, st.st_mtim}), 0);
	assert_overwritten(true, mapped(-SECOND));
	/* mapped only after that */
	assert_overwritten(false, mapped(0));
	/* longer, beyond what was looked at */
	note();
	assert_overwritten(false, mapped(-SECOND));
	assert_int_equal(ftruncate(fd, FILENOTE_HEAD * 2), 0);
	assert_int_equal(futimens(fd, (struct timespec[2]){st.st_atim, st.st_mtim}), 0);
	assert_overwritten(true, mapped(-SECOND));
}

/* A file may come from the future, by an archive or a clock that was set back. */
static void test_future(void **state)
{
	written_at(-1000 * SECOND);
	note();
	assert_overwritten(false, mapped(-SECOND));
	written_at(-2000 * SECOND);
	assert_overwritten(true, mapped(-SECOND));
}

static void test_numbers(void **state)
{
	assert_true(filenote_ns(&(struct timespec){.tv_sec = INT64_MAX, .tv_nsec = 999999999}) ==
		    INT64_MAX);
	assert_true(filenote_ns(&(struct timespec){.tv_sec = INT64_MIN}) == INT64_MIN);
	assert_true(filenote_ns(&(struct timespec){.tv_sec = -1, .tv_nsec = 1}) == 1 - SECOND);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {T(test_times), T(test_changed_around),
					   T(test_times_put_back), T(test_future), T(test_numbers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
