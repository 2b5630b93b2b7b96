// SPDX-License-Identifier: Apache-2.0
#include "common/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

static int fd_is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* The lowest free number: the same before and after means that nothing leaked. */
static int next_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	(void)close(fd);
	return fd;
}

static void test_files_are_read_and_written_whole(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	char buf[16];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, "hello", 5), 0);
	assert_int_equal(io_pwrite_all(fd, "HE", 2, 0), 0);
	assert_int_equal(io_pread_full(fd, buf, sizeof(buf), 1), 4);
	assert_memory_equal(buf, "Ello", 4);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(io_read_full(fd, buf, sizeof(buf)), 5);
	assert_int_equal(io_read_full(fd, buf, sizeof(buf)), 0);
	assert_int_equal(io_write_all(-1, "x", 1), -EBADF);
	assert_int_equal(io_read_full(-1, buf, 1), -EBADF);
}

static void test_memfd_is_private(void **state)
{
	_cleanup_close_ int fd = io_memfd("test");
	struct stat st;

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
}

static void test_read_file_has_a_limit(void **state)
{
	char dir[] = "/tmp/test-io.XXXXXX", *text = NULL, *big;
	_cleanup_close_ int dirfd_ = -1;
	_cleanup_close_ int fd = -1;
	size_t len = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	assert_true(dirfd_ >= 0);
	fd = openat(dirfd_, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);

	assert_int_equal(io_read_file_at(dirfd_, "f", 0, &text, &len), 0);
	assert_int_equal(len, 0);
	assert_string_equal(text, "");
	free(text);

	big = malloc(10000);
	assert_non_null(big);
	memset(big, 'x', 10000);
	assert_int_equal(io_write_all(fd, big, 10000), 0);
	assert_int_equal(io_read_file_at(dirfd_, "f", 10000, &text, &len), 0);
	assert_int_equal(len, 10000);
	assert_memory_equal(text, big, 10000);
	assert_int_equal(text[10000], 0);
	free(text);
	free(big);

	text = (char *)1;
	assert_int_equal(io_read_file_at(dirfd_, "f", 9999, &text, &len), -EFBIG);
	assert_int_equal(io_read_file_at(dirfd_, "f", 10, &text, &len), -EFBIG);
	assert_int_equal(io_read_file_at(dirfd_, "none", 10, &text, &len), -ENOENT);
	assert_ptr_equal(text, (char *)1); /* set on success only */

	assert_int_equal(unlinkat(dirfd_, "f", 0), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void test_read_file_does_not_wait_for_a_fifo(void **state)
{
	char dir[] = "/tmp/test-io.XXXXXX", path[64], *text = NULL;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	/* no writer: at its end */
	assert_int_equal(io_read_file_at(AT_FDCWD, path, 10, &text, NULL), 0);
	free(text);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void test_fds_ride_on_the_first_byte(void **state)
{
	int sv[2], got[4], before;
	size_t n = 99;
	char buf[8];

	(void)state;
	before = next_fd();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(io_send_fds(sv[0], "ab", 2, sv, 2, 0), 2);
	assert_int_equal(io_recv_fds(sv[1], buf, 1, got, 4, &n, 0), 1);
	assert_int_equal(n, 2);
	assert_int_equal(fcntl(got[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(io_recv_fds(sv[1], buf, 8, got + 2, 2, &n, 0), 1);
	assert_int_equal(n, 0);
	assert_true(fd_is_open(sv[0])); /* what is sent stays the caller's */
	(void)close(got[0]);
	(void)close(got[1]);
	assert_int_equal(io_recv_fds(sv[1], buf, 8, got, 4, &n, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(io_send_fds(sv[0], "", 0, sv, 1, 0), -EINVAL);
	assert_int_equal(io_send_fds(sv[0], "x", 1, sv, IO_MAX_FDS + 1, 0), -EINVAL);
	(void)close(sv[0]);
	assert_int_equal(io_recv_fds(sv[1], buf, 8, got, 4, &n, 0), 0);
	(void)close(sv[1]);
	assert_int_equal(next_fd(), before);
}

static void test_too_many_fds_are_all_closed(void **state)
{
	int sv[2], got[2], many[IO_MAX_FDS], before;
	size_t n = 99;
	char c;

	(void)state;
	before = next_fd();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	for (size_t i = 0; i < IO_MAX_FDS; i++)
		many[i] = sv[0];
	assert_int_equal(io_send_fds(sv[0], "x", 1, many, IO_MAX_FDS, 0), 1);
	assert_int_equal(io_recv_fds(sv[1], &c, 1, got, 2, &n, 0), -EPROTO);
	assert_int_equal(n, 99);
	assert_int_equal(io_send_fds(sv[0], "x", 1, many, 1, 0), 1);
	assert_int_equal(io_recv_fds(sv[1], &c, 1, NULL, 0, &n, 0), -EPROTO);
	(void)close(sv[0]);
	(void)close(sv[1]);
	assert_int_equal(next_fd(), before);
}

static void test_a_closed_peer_is_an_error_not_a_signal(void **state)
{
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	(void)close(sv[1]);
	assert_int_equal(io_send_fds(sv[0], "x", 1, NULL, 0, 0), -EPIPE);
	(void)close(sv[0]);
}

static void test_clock_goes_forward(void **state)
{
	uint64_t a = io_now_ns();

	(void)state;
	assert_true(a > 0);
	assert_true(io_now_ns() >= a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_are_read_and_written_whole),
		cmocka_unit_test(test_memfd_is_private),
		cmocka_unit_test(test_read_file_has_a_limit),
		cmocka_unit_test(test_read_file_does_not_wait_for_a_fifo),
		cmocka_unit_test(test_fds_ride_on_the_first_byte),
		cmocka_unit_test(test_too_many_fds_are_all_closed),
		cmocka_unit_test(test_a_closed_peer_is_an_error_not_a_signal),
		cmocka_unit_test(test_clock_goes_forward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
