// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of unwind rules that are wrong in any way are refused; where a process has mapped code,
 * and what of that is in doubt.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/backend/sample/unwind_check.h"
#include "daemon/backend/sample/unwind_doubt.h"
#include "daemon/backend/sample/unwind_list.h"
#include "tests/unit/daemon/backend/sample/table-make.h"

/* ---- tables */

static int check(const struct table *t)
{
	struct unwind_checked c;

	return unwind_check(t, sizeof(*t), &c);
}

static void test_good(void **state)
{
	const struct table t = good();
	struct unwind_checked c;

	assert_int_equal(unwind_check(&t, sizeof(t), &c), 0);
	assert_int_equal(c.head.lo_page, 7);
	assert_memory_equal(c.rows, t.rows, sizeof(t.rows));
	assert_memory_equal(c.rules, t.rules, sizeof(t.rules));
	for (size_t size = 0; size < sizeof(t); size++)
		assert_int_equal(unwind_check(&t, size, &c), -EBADMSG);
}

static void test_bad_numbers(void **state)
{
	struct {
		size_t at;
		uint32_t value;
	} changes[] = {
		{offsetof(struct table, head.magic), 1},
		{offsetof(struct table, head.n_loads), 0},
		{offsetof(struct table, head.n_loads), UINT32_MAX},
		{offsetof(struct table, head.n_pages), 0},
		{offsetof(struct table, head.n_pages), UINT32_MAX},
		{offsetof(struct table, head.n_rows), 1},
		{offsetof(struct table, head.n_rows), UINT32_MAX},
		{offsetof(struct table, head.n_rules), 0},
		{offsetof(struct table, head.n_rules), UINT32_MAX},
		{offsetof(struct table, head.lo_page), UINT32_MAX},
		{offsetof(struct table, pages[0]), 0},
		{offsetof(struct table, pages[0]), 4},
		{offsetof(struct table, pages[0]), UINT32_MAX},
		{offsetof(struct table, pages[1]), 0},
		{offsetof(struct table, rows[0]), UNWIND_ROW(1, 0)},
		{offsetof(struct table, rows[1]), UNWIND_ROW(5, 2)},
		{offsetof(struct table, rows[1]), UNWIND_ROW(0, 1)},
		{offsetof(struct table, rows[2]), UNWIND_ROW(5, 0)},
		{offsetof(struct table, rows[3]), UNWIND_ROW(1, 0)},
		{offsetof(struct table, rules[0]), UNWIND_KINDS},
		{offsetof(struct table, rules[1]), UNWIND_CFA | 0xff00},
	};

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct table t = good();

		memcpy((uint8_t *)&t + changes[i].at, &changes[i].value, sizeof(uint32_t));
		if (check(&t) != -EBADMSG)
			fail_msg("change %zu passes", i);
	}
}

static void test_bad_loads(void **state)
{
	struct table t = good();

	t.load.size = 0;
	assert_int_equal(check(&t), -EBADMSG);
	t = good();
	t.load.off = UINT64_MAX;
	assert_int_equal(check(&t), -EBADMSG);
	t = good();
	t.load.vaddr = UINT64_C(1) << 47;
	assert_int_equal(check(&t), -EBADMSG);
}

/*
 * What passes leads to nothing outside: every row that a search can come to is a row, with a rule
 * that is one.
 */
static void test_random(void **state)
{
	srand(1);
	for (int i = 0; i < 200000; i++) {
		struct table t = good();
		struct unwind_checked c;
		uint32_t at = 0;

		for (int k = rand() % 4; k >= 0; k--)
			((uint8_t *)&t)[(size_t)rand() % sizeof(t)] = (uint8_t)rand();
		if (unwind_check(&t, sizeof(t), &c) < 0)
			continue;
		for (uint32_t page = 0; page < c.head.n_pages; page++) {
			assert_true(c.pages[page] >= 1 && c.pages[page] <= 4096);
			at += c.pages[page];
		}
		assert_int_equal(at, c.head.n_rows);
		for (uint32_t row = 0; row < c.head.n_rows; row++) {
			assert_true(UNWIND_ROW_RULE(c.rows[row]) < c.head.n_rules);
			assert_true(UNWIND_KIND(&c.rules[UNWIND_ROW_RULE(c.rows[row])]) <
				    UNWIND_KINDS);
		}
	}
}

/* ---- mappings */

static void test_list(void **state)
{
	_cleanup_(unwind_list_fini) struct unwind_list list = {0}, copy = {0};
	const struct unwind_area a = {.start = 0x1000, .end = 0x9000, .off = 0x1000, .ino = 1},
				 b = {.start = 0x3000, .end = 0x5000, .off = 0, .ino = 2},
				 c = {.start = 0x4000, .end = 0xa000, .off = 0, .ino = 3};

	assert_int_equal(unwind_list_add(&list, &a), 0);
	assert_false(unwind_list_overlaps(&list, &a));
	assert_true(unwind_list_overlaps(&list, &b));
	assert_int_equal(unwind_list_add(&list, &b), 0);
	assert_int_equal(list.n, 3);
	assert_int_equal(list.areas[0].end, 0x3000);
	assert_int_equal(list.areas[2].start, 0x5000);
	assert_int_equal(list.areas[2].off, 0x5000);
	assert_int_equal(unwind_list_copy(&copy, &list), 0);
	assert_int_equal(unwind_list_add(&list, &c), 0);
	assert_int_equal(list.n, 3);
	assert_int_equal(list.areas[1].end, 0x4000);
	assert_int_equal(list.areas[2].ino, 3);
	assert_int_equal(copy.n, 3);
	assert_int_equal(copy.areas[1].end, 0x5000);
	assert_int_equal(unwind_list_add(&list, &(struct unwind_area){.start = 5, .end = 5}),
			 -EINVAL);
}

static void test_list_random(void **state)
{
	_cleanup_(unwind_list_fini) struct unwind_list list = {0};
	static uint64_t owner[256];

	srand(2);
	for (uint64_t turn = 1; turn < 20000; turn++) {
		uint64_t start = (uint64_t)(rand() % 255),
			 end = start + 1 +
			       (uint64_t)rand() % (256 - start - 1 ? 256 - start - 1 : 1);
		size_t k = 0;

		assert_int_equal(unwind_list_add(&list, &(struct unwind_area){.start = start,
									      .end = end,
									      .off = start,
									      .ino = turn}),
				 0);
		for (uint64_t i = start; i < end; i++)
			owner[i] = turn;
		for (uint64_t i = 0; i < 256; i++) {
			while (k < list.n && list.areas[k].end <= i)
				k++;
			assert_int_equal(k < list.n && list.areas[k].start <= i ? list.areas[k].ino
										: 0,
					 owner[i]);
			if (k < list.n && list.areas[k].start <= i)
				assert_int_equal(list.areas[k].off, list.areas[k].start);
		}
	}
}

static void test_list_full(void **state)
{
	_cleanup_(unwind_list_fini) struct unwind_list list = {0};

	for (uint64_t i = 0; i < UNWIND_LIST_MAX * 2; i++)
		assert_int_equal(unwind_list_add(&list, &(struct unwind_area){.start = i * 2,
									      .end = i * 2 + 1,
									      .ino = 1}),
				 0);
	assert_int_equal(list.n, UNWIND_LIST_MAX);
	assert_true(list.full);
}

/* ---- doubts */

static void test_doubts(void **state)
{
	_cleanup_(unwind_doubts_fini) struct unwind_doubts d = {0}, copy = {0};
	const uint64_t through[] = {0x10, 0x150, 0x900}, beside[] = {0x10, 0x900};

	unwind_doubts_begin(&d, &(struct unwind_doubt){.pid = 5,
						       .from_ns = 100,
						       .to_ns = UINT64_MAX,
						       .start = 0x100,
						       .end = 0x200});
	assert_true(unwind_doubts_believes(&d, 5, 99, through, 3));
	assert_false(unwind_doubts_believes(&d, 5, 100, through, 3));
	assert_true(unwind_doubts_believes(&d, 6, 100, through, 3));
	assert_true(unwind_doubts_believes(&d, 5, 100, beside, 2));
	unwind_doubts_end(&d, 6, 110);
	assert_false(unwind_doubts_believes(&d, 5, 1000, through, 3));
	unwind_doubts_end(&d, 5, 200);
	assert_int_equal(unwind_doubts_copy(&d, &copy), 0);
	assert_false(unwind_doubts_believes(&copy, 5, 200, through, 3));
	assert_true(unwind_doubts_believes(&copy, 5, 201, through, 3));
	/* Those that had to be forgotten leave nothing that is believed wrongly. */
	for (uint64_t i = 0; i < UNWIND_DOUBTS_MAX; i++)
		unwind_doubts_begin(&d, &(struct unwind_doubt){.pid = 7,
							       .from_ns = 1000 + i,
							       .to_ns = 1000 + i,
							       .start = 1,
							       .end = 2});
	assert_false(unwind_doubts_believes(&d, 5, 150, through, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad_numbers),
		cmocka_unit_test(test_bad_loads),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_list_random),
		cmocka_unit_test(test_list_full),
		cmocka_unit_test(test_doubts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
