// SPDX-License-Identifier: Apache-2.0
/*
 * Frames over a real socket pair: pieces of every size, descriptors where they may and may not be.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/frame.h"

static void make_pair(int sv[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
}

static uint64_t soon(void)
{
	return io_now_ns() + 2000000000u;
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void put(char *to, uint32_t len)
{
	to[0] = (char)(len >> 24);
	to[1] = (char)(len >> 16);
	to[2] = (char)(len >> 8);
	to[3] = (char)len;
}

static void test_round_trip(void **state)
{
	int sv[2], fds[FRAME_FDS_MAX], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t len, n;

	(void)state;
	make_pair(sv);
	assert_int_equal(frame_send(sv[0], "hello", 5, NULL, 0, soon()), 0);
	assert_int_equal(frame_send(sv[0], "fds", 3, (int[]){null, null}, 2, soon()), 0);
	assert_int_equal(frame_send(sv[0], "x", 1, NULL, 0, soon()), 0);
	assert_int_equal(frame_recv(sv[1], 100, &text, &len, fds, &n, soon()), 0);
	assert_string_equal(text, "hello");
	assert_int_equal(n, 0);
	free(text);
	assert_int_equal(frame_recv(sv[1], 100, &text, &len, fds, &n, soon()), 0);
	assert_string_equal(text, "fds");
	assert_int_equal(n, 2);
	assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
	(void)close(fds[0]);
	(void)close(fds[1]);
	free(text);
	assert_int_equal(frame_recv(sv[1], 100, &text, &len, fds, &n, soon()), 0);
	assert_int_equal(len, 1);
	assert_int_equal(n, 0);
	free(text);
	(void)close(sv[0]);
	assert_int_equal(frame_recv(sv[1], 100, &text, &len, fds, &n, soon()), FRAME_EOF);
	(void)close(sv[1]);
	(void)close(null);
}

static void test_byte_by_byte(void **state)
{
	static const char frame[] = "\0\0\0\5hello\0\0\0\2yo";
	struct frame_reader r;
	int sv[2], whole = 0;

	(void)state;
	make_pair(sv);
	frame_reader_init(&r, 100);
	for (size_t i = 0; i < sizeof(frame) - 1; i++) {
		int k;

		assert_int_equal(write(sv[0], frame + i, 1), 1);
		k = frame_reader_read(&r, sv[1]);
		if (i == 8 || i == 14) {
			assert_int_equal(k, FRAME_DONE);
			assert_string_equal(r.body, whole++ ? "yo" : "hello");
			frame_reader_reset(&r);
			assert_false(frame_reader_is_half(&r));
		} else {
			assert_int_equal(k, FRAME_AGAIN);
			assert_true(frame_reader_is_half(&r));
		}
	}
	assert_int_equal(whole, 2);
	assert_int_equal(write(sv[0], frame, 6), 6);
	(void)close(sv[0]);
	assert_int_equal(frame_reader_read(&r, sv[1]), FRAME_E_HALF);
	frame_reader_fini(&r);
	(void)close(sv[1]);
}

static void test_lengths(void **state)
{
	static const uint32_t bad[] = {0, 101, 65536, 0x7fffffff, 0x80000000, 0xffffffff};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct frame_reader r;
		char head[8];
		int sv[2];

		memset(head, 'x', sizeof(head));
		make_pair(sv);
		put(head, bad[i]);
		frame_reader_init(&r, 100);
		assert_int_equal(write(sv[0], head, sizeof(head)), sizeof(head));
		assert_int_equal(frame_reader_read(&r, sv[1]), FRAME_E_TOO_LARGE);
		frame_reader_fini(&r);
		(void)close(sv[0]);
		(void)close(sv[1]);
	}
}

/* Descriptors inside of a body, or too many: refused, and none is left open. */
static void test_misplaced_fds(void **state)
{
	int before = count_fds(), null = open("/dev/null", O_RDONLY | O_CLOEXEC), many[40];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = null;
	for (int where = 0; where < 3; where++) {
		struct frame_reader r;
		int sv[2];

		make_pair(sv);
		frame_reader_init(&r, 100);
		if (where == 0) { /* in the body */
			assert_int_equal(write(sv[0], "\0\0\0\4", 4), 4);
			assert_int_equal(io_send_fds(sv[0], "body", 4, &null, 1, 0), 4);
		} else if (where == 1) { /* on the header's second byte, when the first was read */
			assert_int_equal(write(sv[0], "", 1), 1);
			assert_int_equal(frame_reader_read(&r, sv[1]), FRAME_AGAIN);
			assert_int_equal(io_send_fds(sv[0], "\0\0\4body", 7, &null, 1, 0), 7);
		} else /* more than there may be */
			assert_int_equal(io_send_fds(sv[0], "\0\0\0\4body", 8, many,
						     ARRAY_SIZE(many), 0),
					 8);
		assert_int_equal(frame_reader_read(&r, sv[1]), FRAME_E_FDS);
		frame_reader_fini(&r);
		(void)close(sv[0]);
		(void)close(sv[1]);
	}
	(void)close(null);
	assert_int_equal(count_fds(), before);
}

/* What nobody takes out of a reader, or out of a queue, is closed with it. */
static void test_leftover_fds(void **state)
{
	int before = count_fds(), sv[2], null;
	struct frame_reader r;
	struct frame_queue q;

	(void)state;
	make_pair(sv);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	frame_reader_init(&r, 100);
	assert_int_equal(io_send_fds(sv[0], "\0\0\0\4body", 8, (int[]){null, null, null}, 3, 0), 8);
	assert_int_equal(frame_reader_read(&r, sv[1]), FRAME_DONE);
	assert_int_equal(r.n_fds, 3);
	frame_reader_fini(&r);
	frame_queue_init(&q);
	assert_int_equal(frame_queue_push(&q, "x", 1, &null, 1), 0);
	frame_queue_fini(&q);
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(frame_queue_push(&q, "", 0, &null, 1), -E2BIG);
	(void)close(sv[0]);
	(void)close(sv[1]);
	assert_int_equal(count_fds(), before);
}

/* A reader that does not read: the queue keeps what the socket does not take, in order. */
static void test_slow_reader(void **state)
{
	static char big[FRAME_REPLY_MAX];
	struct frame_queue q;
	struct frame_reader r;
	int sv[2], got = 0, k = FRAME_AGAIN;

	(void)state;
	make_pair(sv);
	memset(big, 'x', sizeof(big));
	frame_queue_init(&q);
	frame_reader_init(&r, FRAME_REPLY_MAX);
	for (int i = 0; i < 4; i++) {
		big[0] = (char)('a' + i);
		assert_int_equal(frame_queue_push(&q, big, sizeof(big), NULL, 0), 0);
	}
	assert_int_equal(q.count, 4);
	assert_int_equal(q.bytes, 4 * (sizeof(big) + FRAME_HEADER));
	while (got < 4) {
		if (k == FRAME_AGAIN)
			k = frame_queue_flush(&q, sv[0], 100000);
		if (frame_reader_read(&r, sv[1]) == FRAME_DONE) {
			assert_int_equal(r.len, sizeof(big));
			assert_int_equal(r.body[0], 'a' + got);
			got++;
			frame_reader_reset(&r);
		}
	}
	assert_int_equal(k, FRAME_DONE);
	assert_int_equal(q.bytes, 0);
	assert_int_equal(q.count, 0);
	frame_queue_fini(&q);
	frame_reader_fini(&r);
	(void)close(sv[0]);
	(void)close(sv[1]);
}

static void test_deadlines(void **state)
{
	static char big[FRAME_REPLY_MAX];
	int sv[2], fds[FRAME_FDS_MAX];
	uint64_t from = io_now_ns();
	char *text = NULL;
	size_t n;

	(void)state;
	make_pair(sv);
	assert_int_equal(frame_recv(sv[0], 100, &text, NULL, fds, &n, from + 50000000), -ETIMEDOUT);
	assert_true(io_now_ns() - from >= 50000000);
	assert_int_equal(frame_send(sv[0], big, sizeof(big), NULL, 0, io_now_ns() + 50000000),
			 -ETIMEDOUT);
	(void)close(sv[0]);
	(void)close(sv[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_byte_by_byte),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_misplaced_fds),
		cmocka_unit_test(test_leftover_fds),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_deadlines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
