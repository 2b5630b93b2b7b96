// SPDX-License-Identifier: Apache-2.0
/* Output is there whole or not at all, and what is no regular file is left what it is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ui/output.h"
#include "client/ui/stdout.h"
#include "common/base/io.h"

static char dir[] = "/tmp/tracerd-test-output.XXXXXX";

static int setup(void **state)
{
	(void)strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return !mkdtemp(dir) || chdir(dir) < 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return chdir("/") < 0 || system(command) != 0;
}

static size_t entries(void)
{
	DIR *d = opendir(".");
	size_t n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	(void)closedir(d);
	return n;
}

static void content(const char *path, const char *want)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	assert_int_equal(io_read_file_at(AT_FDCWD, path, 100, &text, &len), 0);
	assert_string_equal(text, want);
}

static void put(const char *path, const char *text, bool commit)
{
	_cleanup_(output_file_fini) struct output_file f = OUTPUT_FILE_INIT;

	assert_int_equal(output_file_begin(path, &f), 0);
	assert_int_equal(io_write_all(f.fd, text, strlen(text)), 0);
	if (commit)
		assert_int_equal(output_file_commit(&f), 0);
}

static void test_file(void **state)
{
	struct stat st;

	put("x", "half", false);
	assert_int_equal(entries(), 0);
	put("x", "one", true);
	content("x", "one");
	assert_int_equal(stat("x", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	put("x", "half", false);
	content("x", "one");
	put("x", "two", true);
	content("x", "two");
	assert_int_equal(entries(), 1);
}

static void test_through_links(void **state)
{
	struct stat st;

	assert_int_equal(mkdir("sub", 0700), 0);
	put("sub/real", "one", true);
	assert_int_equal(symlink("sub/real", "link"), 0);
	put("link", "two", true);
	content("sub/real", "two");
	assert_int_equal(lstat("link", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

static void test_device(void **state)
{
	struct stat before, after;

	assert_int_equal(lstat("/dev/null", &before), 0);
	put("/dev/null", "gone", true);
	assert_int_equal(lstat("/dev/null", &after), 0);
	assert_true(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
}

static void test_file_refusals(void **state)
{
	struct output_file f = OUTPUT_FILE_INIT;

	assert_int_equal(output_file_begin("no/such/dir", &f), -ENOENT);
	assert_int_equal(output_file_begin(".", &f), -EISDIR);
	assert_int_equal(f.fd, -1);
}

static void test_dir(void **state)
{
	_cleanup_(safedir_abort) struct safedir d = SAFEDIR_INIT;
	_cleanup_close_ int fd = -1;

	assert_true(output_is_dir("new/"));
	assert_false(output_is_dir("new"));
	assert_true(output_is_dir("."));
	assert_int_equal(output_dir_begin("new/", &d), 0);
	assert_int_equal(safefile_create(d.dir_fd, "images/a", &fd), 0);
	assert_int_equal(access("new", F_OK), -1);
	assert_int_equal(safedir_publish(&d), 0);
	assert_int_equal(access("new/images/a", F_OK), 0);
	assert_int_equal(entries(), 1);
}

static void test_dir_there(void **state)
{
	_cleanup_(safedir_abort) struct safedir d = SAFEDIR_INIT, e = SAFEDIR_INIT;

	assert_int_equal(mkdir("empty", 0700), 0);
	assert_int_equal(output_dir_begin("empty", &d), 0);
	assert_int_equal(safedir_publish(&d), 0);
	put("empty/file", "x", true);
	assert_int_equal(output_dir_begin("empty", &e), -ENOTEMPTY);
	assert_int_equal(output_dir_begin("empty/file", &e), -ENOTDIR);
	content("empty/file", "x");
}

static void test_dir_aborted(void **state)
{
	struct safedir d = SAFEDIR_INIT;

	assert_int_equal(output_dir_begin("gone", &d), 0);
	safedir_abort(&d);
	assert_int_equal(entries(), 0);
}

/* Why a write to stdout failed is known at the end, whatever failed after it. */
static void test_stdout_error(void **state)
{
	int status = 0, full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct winsize ws;
	pid_t pid;

	(void)state;
	if (full < 0)
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (dup2(full, STDOUT_FILENO) < 0)
			_exit(2);
		stdout_open();
		for (int i = 0; i < 10000; i++)
			(void)puts("more than a buffer holds");
		if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0)
			_exit(3);
		_exit(stdout_flush() == -ENOSPC && stdout_flush() == -ENOSPC ? 0 : 1);
	}
	assert_int_equal(close(full), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_through_links, setup, teardown),
		cmocka_unit_test_setup_teardown(test_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_refusals, setup, teardown),
		cmocka_unit_test(test_stdout_error),
		cmocka_unit_test_setup_teardown(test_dir, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dir_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dir_aborted, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
