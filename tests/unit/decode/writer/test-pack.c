/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces come back whole and in order, whoever compresses them; a failing sink is said once. */
#include "config.h"

#include <errno.h>
#include <libdeflate.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "decode/base/workers.h"
#include "decode/writer/pack.h"

#define N_PIECES 200u

struct seen {
	struct libdeflate_decompressor *d;
	uint8_t *buf;
	uint32_t n;
	int answer;
};

static int check(void *arg, uint8_t *data, size_t len, size_t raw_len)
{
	struct seen *s = arg;
	size_t got = 0;
	uint32_t number;

	if (s->answer < 0)
		return s->answer;
	memset(data - PACK_HEADROOM, 0xcd, PACK_HEADROOM); /* ours to write */
	assert_int_equal(libdeflate_zlib_decompress(s->d, data, len, s->buf, PACK_PIECE_ROOM, &got),
			 LIBDEFLATE_SUCCESS);
	assert_int_equal(got, raw_len);
	memcpy(&number, s->buf, 4);
	assert_int_equal(number, s->n);
	assert_int_equal(got, 4 + s->n * 997 % PACK_PIECE_BYTES);
	for (size_t i = 4; i < got; i++)
		assert_int_equal(s->buf[i], (uint8_t)(i * number));
	s->n++;
	return 0;
}

static void run(unsigned int threads)
{
	struct seen s = {.d = libdeflate_alloc_decompressor(), .buf = test_malloc(PACK_PIECE_ROOM)};
	struct workers *w = NULL;
	struct pack *p = NULL;

	assert_int_equal(workers_new(threads, &w), 0);
	assert_int_equal(pack_new(w, 0, &p), 0);
	pack_set_sink(p, check, &s);
	for (uint32_t n = 0; n < N_PIECES; n++) {
		uint8_t *b = pack_buffer(p);
		size_t len = 4 + n * 997 % PACK_PIECE_BYTES;

		memcpy(b, &n, 4);
		for (size_t i = 4; i < len; i++)
			b[i] = (uint8_t)(i * n);
		assert_int_equal(pack_submit(p, len), 0);
	}
	assert_int_equal(pack_flush(p), 0);
	assert_int_equal(s.n, N_PIECES);
	pack_free(p);
	workers_free(w);
	libdeflate_free_decompressor(s.d);
	test_free(s.buf);
}

static void in_the_caller(void **state)
{
	run(0);
}

static void by_threads_in_order(void **state)
{
	run(2);
	run(4);
}

static void a_failing_sink_is_reported(void **state)
{
	struct seen s = {.answer = -ENOSPC};
	struct workers *w = NULL;
	struct pack *p = NULL;
	int r = 0;

	assert_int_equal(workers_new(3, &w), 0);
	assert_int_equal(pack_new(w, 0, &p), 0);
	pack_set_sink(p, check, &s);
	for (uint32_t n = 0; n < 50 && r == 0; n++) {
		memset(pack_buffer(p), 1, 1000);
		r = pack_submit(p, 1000);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(pack_flush(p), -ENOSPC);
	pack_free(p);
	workers_free(w);
}

static void unused_and_unflushed_pools_end(void **state)
{
	struct workers *w = NULL;
	struct pack *p = NULL;

	assert_int_equal(workers_new(4, &w), 0);
	assert_int_equal(pack_new(w, 0, &p), 0);
	pack_free(p);
	assert_int_equal(pack_new(w, 0, &p), 0);
	for (unsigned int i = 0; i < 3; i++) {
		memset(pack_buffer(p), 1, 1000);
		assert_int_equal(pack_submit(p, 1000), 0);
	}
	pack_free(p);
	workers_free(w);
	pack_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_the_caller),
		cmocka_unit_test(by_threads_in_order),
		cmocka_unit_test(a_failing_sink_is_reported),
		cmocka_unit_test(unused_and_unflushed_pools_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
