// SPDX-License-Identifier: Apache-2.0
/* Blocks by file: found again wherever the file is mapped, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "decode/base/budget.h"
#include "decode/object/address_space.h"
#include "decode/object/image.h"
#include "decode/pt/block_cache.h"
#include "tests/unit/cmocka_names.h"

static struct image image = {.id = 7}, other = {.id = 8};
static struct budget budget = {.max = 1 << 20};

static struct address_space *mapped(uint64_t at, uint64_t bytes, uint64_t pgoff, struct image *img)
{
	struct address_space *s = NULL;

	assert_int_equal(address_space_new(&budget, &s), 0);
	assert_int_equal(address_space_set(&s, &(struct mapping){.start = at,
								 .end = at + bytes,
								 .pgoff = pgoff,
								 .image = img}),
			 0);
	return s;
}

static bool is_known(const struct block_cache *c, const struct address_space *s, uint64_t ip,
		     bool is64)
{
	struct block_place p;
	struct codeblock b;
	const bool known = block_place_at(s, ip, is64, &p) && block_cache_find(c, &p, ip, &b);

	assert_true(!known || b.start == ip);
	return known;
}

static void add(struct block_cache *c, const struct address_space *s, const struct codeblock *b)
{
	struct block_place p;

	assert_true(block_place_at(s, b->start, true, &p));
	block_cache_add(c, &p, b);
}

static void test_elsewhere(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space
		*a = mapped(0x10000, 0x2000, 0x1000, &image),
		*same = mapped(0x50000, 0x2000, 0x1000, &image),
		*shorter = mapped(0x10000, 0x1000, 0x1000, &image),
		*later = mapped(0x10000, 0x2000, 0x2000, &image),
		*not = mapped(0x10000, 0x2000, 0x1000, &other);
	_cleanup_(block_cache_freep) struct block_cache *c = NULL;
	struct block_place p;

	(void)state;
	assert_int_equal(block_cache_new(1 << 20, &c), 0);
	assert_false(is_known(c, a, 0x10010, true));
	add(c, a,
	    &(struct codeblock){.start = 0x10010,
				.to_last = 6,
				.last_bytes = 2,
				.insns = 3,
				.kind = INSN_RET,
				.tags = CODEBLOCK_LOADS_SP});
	assert_true(is_known(c, a, 0x10010, true));
	assert_true(is_known(c, same, 0x50010, true));
	assert_false(is_known(c, same, 0x50011, true));
	assert_false(is_known(c, a, 0x10010, false));
	assert_false(is_known(c, shorter, 0x10010, true));
	assert_false(is_known(c, later, 0x10010, true));
	assert_false(is_known(c, not, 0x10010, true));
	assert_false(block_place_at(a, 0x12000, true, &p));
	assert_false(block_place_at(NULL, 0x10010, true, &p));
}

/*
 * A block that goes on in what is mapped next, or jumps there, is another one where something else
 * is mapped.
 */
static void test_beyond(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space *a =
		mapped(0x10000, 0x1000, 0, &image);
	_cleanup_(block_cache_freep) struct block_cache *c = NULL;

	(void)state;
	assert_int_equal(block_cache_new(1 << 20, &c), 0);
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10ff0, .to_last = 15, .last_bytes = 2, .kind = INSN_RET});
	assert_false(is_known(c, a, 0x10ff0, true));
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10ff0, .to_last = 14, .last_bytes = 2, .kind = INSN_RET});
	assert_true(is_known(c, a, 0x10ff0, true));
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10f00, .last_bytes = 5, .offset = 0xfb, .kind = INSN_JUMP});
	assert_false(is_known(c, a, 0x10f00, true));
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10f00, .last_bytes = 5, .offset = 0xfa, .kind = INSN_JUMP});
	assert_true(is_known(c, a, 0x10f00, true));
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10010, .last_bytes = 2, .offset = -0x13, .kind = INSN_COND});
	assert_false(is_known(c, a, 0x10010, true));
	/* a call is handed out wherever it goes */
	add(c, a,
	    &(struct codeblock){
		    .start = 0x10020, .last_bytes = 5, .offset = 0x100000, .kind = INSN_CALL});
	assert_true(is_known(c, a, 0x10020, true));
}

/* More than there is memory for: what is there is right, and the last one always is. */
static void test_full(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space *a = mapped(0, 1 << 20, 0, &image);
	_cleanup_(block_cache_freep) struct block_cache *c = NULL;
	unsigned int known = 0;

	(void)state;
	assert_int_equal(block_cache_new(1, &c), 0);
	for (uint64_t ip = 0; ip < 20000; ip++) {
		struct block_place p;
		struct codeblock b;

		add(c, a,
		    &(struct codeblock){.start = ip,
					.insns = (uint16_t)(ip % 512),
					.kind = INSN_RET});
		assert_true(block_place_at(a, ip, true, &p) && block_cache_find(c, &p, ip, &b) &&
			    b.insns == ip % 512);
	}
	for (uint64_t ip = 0; ip < 20000; ip++)
		known += is_known(c, a, ip, true);
	assert_uint_in_range(known, 1, 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_beyond),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
