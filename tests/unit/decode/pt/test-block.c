// SPDX-License-Identifier: Apache-2.0
/* Blocks of code: where they end, what they remember, and what is left when memory is used up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "decode/pt/block.h"
#include "tests/unit/cmocka_names.h"

#define BASE 0x1000ull

struct code {
	uint8_t bytes[65536];
	size_t n;
	unsigned int reads, made;
};

static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	struct code *c = arg;

	(void)buffer;
	(void)n;
	c->reads++;
	if (ip < BASE || ip - BASE >= c->n)
		return 0;
	*ret = c->bytes + (ip - BASE);
	return c->n - (size_t)(ip - BASE);
}

static void on_made(void *arg, struct codeblock *b)
{
	struct code *c = arg;

	b->tags = ++c->made;
}

static const struct codeblock *at(struct codeblocks *cb, uint64_t ip)
{
	const uint32_t n = codeblocks_get(cb, ip); /* the blocks may move */

	assert_true(n != CODEBLOCK_NONE);
	return &cb->blocks[n];
}

static void test_blocks(void **state)
{
	/*
	 * 1000 nop; 1001 jne 1000; 1003 call 100a; 1008 jmp 1003; 100a ptwrite; 100e nop; 100f
	 * (bad)
	 */
	static const uint8_t bytes[] = {0x90, 0x75, 0xfd, 0xe8, 2,    0,    0,    0,
					0xeb, 0xf9, 0xf3, 0x0f, 0xae, 0xe0, 0x90, 0x06};
	_cleanup_(codeblocks_freep) struct codeblocks *cb = NULL;
	static struct code c;
	const struct codeblock *b;
	uint32_t n;

	(void)state;
	memcpy(c.bytes, bytes, sizeof(bytes));
	c.n = sizeof(bytes);
	assert_int_equal(codeblocks_new(read_code, on_made, &c, 1u << 20, &cb), 0);
	n = codeblocks_get(cb, 0x1000);
	b = &cb->blocks[n];
	assert_true(n != CODEBLOCK_NONE && b->kind == INSN_COND && b->insns == 2 &&
		    b->to_last == 1 && b->last_bytes == 2);
	assert_int_equal(b->offset, -3);
	assert_int_equal(b->tags, 1);
	assert_int_equal(codeblocks_get(cb, 0x1000), n);
	assert_int_equal(c.made, 1);
	/* into the middle of a line: a block of its own */
	b = at(cb, 0x1001);
	assert_true(b->kind == INSN_COND && b->insns == 1);
	assert_int_equal(at(cb, 0x1003)->kind, INSN_CALL);
	assert_int_equal(at(cb, 0x1008)->kind, INSN_JUMP);
	assert_int_equal(at(cb, 0x100a)->kind, INSN_PTWRITE);
	/* up to where no instruction is */
	b = at(cb, 0x100e);
	assert_true(b->kind == INSN_OTHER && b->insns == 1);
	assert_int_equal(codeblocks_get(cb, 0x100f), CODEBLOCK_NONE);
	assert_int_equal(codeblocks_get(cb, 0x5000), CODEBLOCK_NONE);
	b = at(cb, 0x1000);
	assert_int_equal(codeblocks_count(cb, b, 0x1000), 0);
	assert_int_equal(codeblocks_count(cb, b, 0x1001), 1);
	assert_int_equal(codeblocks_count(cb, b, 0x1002), -1);
}

/* 32-bit code: 40 is an instruction there, and a prefix in 64-bit code. */
static void test_modes(void **state)
{
	_cleanup_(codeblocks_freep) struct codeblocks *cb = NULL;
	static struct code c = {.bytes = {0x40, 0x40, 0x90, 0xc3}, .n = 4};
	uint64_t epoch;

	(void)state;
	assert_int_equal(codeblocks_new(read_code, NULL, &c, 1u << 20, &cb), 0);
	assert_int_equal(at(cb, BASE)->insns, 2);
	epoch = cb->epoch;
	codeblocks_set_mode(cb, true);
	assert_int_equal(cb->epoch, epoch);
	codeblocks_set_mode(cb, false);
	assert_int_equal(cb->epoch, epoch + 1);
	assert_int_equal(at(cb, BASE)->insns, 4);
}

/* A long line is cut, and goes on. */
static void test_long_line(void **state)
{
	_cleanup_(codeblocks_freep) struct codeblocks *cb = NULL;
	static struct code c;
	uint64_t ip = BASE, insns = 0;

	(void)state;
	c.n = 60001;
	memset(c.bytes, 0x90, c.n);
	c.bytes[60000] = 0xc3;
	assert_int_equal(codeblocks_new(read_code, NULL, &c, 1u << 20, &cb), 0);
	for (;;) {
		const struct codeblock *b = at(cb, ip);

		assert_uint_in_range(b->insns, 1, CODEBLOCK_MAX_INSNS);
		insns += b->insns;
		ip = b->start + b->to_last + b->last_bytes;
		if (b->kind == INSN_RET)
			break;
		assert_int_equal(b->kind, INSN_OTHER);
	}
	assert_int_equal(insns, 60001);
}

/*
 * All are forgotten when they are too many, what is asked for is there, and the memory stays what
 * was allowed.
 */
static void test_full(void **state)
{
	_cleanup_(codeblocks_freep) struct codeblocks *cb = NULL;
	const size_t most = 4096 * (sizeof(struct codeblock) + 16);
	static struct code c;

	(void)state;
	c.n = 60000;
	memset(c.bytes, 0xc3, c.n);
	assert_int_equal(codeblocks_new(read_code, NULL, &c, most, &cb), 0);
	for (uint64_t i = 0; i < 60000; i++) {
		const struct codeblock *b = at(cb, BASE + i);

		assert_int_equal(b->start, BASE + i);
		assert_true(b->kind == INSN_RET && b->taken == CODEBLOCK_NONE &&
			    b->fall == CODEBLOCK_NONE);
		assert_true(cb->n <= 4096);
	}
	assert_true(cb->epoch >= 60000 / 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_long_line),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
