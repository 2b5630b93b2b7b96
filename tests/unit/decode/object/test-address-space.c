// SPDX-License-Identifier: Apache-2.0
/* Maps that cover, split and follow each other; forks that share; checked against a table of bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/object/address_space.h"

/* Images are only compared here: any distinct addresses serve. */
static char images[64];
#define IMAGE(i) ((struct image *)(void *)&images[i])

static struct budget budget = {.max = 64 << 20};

static void set(struct address_space **s, uint64_t start, uint64_t end, uint64_t pgoff,
		struct image *image)
{
	const struct mapping m = {.start = start, .end = end, .pgoff = pgoff, .image = image};

	assert_int_equal(address_space_set(s, &m), 0);
}

static void expect(const struct address_space *s, uint64_t addr, struct image *image, uint64_t off)
{
	const struct mapping *m = address_space_find(s, addr);

	if (!image) {
		assert_null(m);
		return;
	}
	assert_non_null(m);
	assert_ptr_equal(m->image, image);
	assert_int_equal(addr - m->start + m->pgoff, off);
}

static void test_overlap(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space *s = NULL;

	(void)state;
	assert_int_equal(address_space_new(&budget, &s), 0);
	expect(s, 0, NULL, 0);
	set(&s, 0x1000, 0x9000, 0, IMAGE(1));
	set(&s, 0x3000, 0x5000, 0x70000, IMAGE(2));
	expect(s, 0x0fff, NULL, 0);
	expect(s, 0x1000, IMAGE(1), 0);
	expect(s, 0x2fff, IMAGE(1), 0x1fff);
	expect(s, 0x3000, IMAGE(2), 0x70000);
	expect(s, 0x4fff, IMAGE(2), 0x71fff);
	expect(s, 0x5000, IMAGE(1), 0x4000);
	expect(s, 0x9000, NULL, 0);
	assert_int_equal(address_space_count(s), 3);
	/* one that covers the second and both neighbours' edges */
	set(&s, 0x2000, 0x6000, 0, IMAGE(3));
	assert_int_equal(address_space_count(s), 3);
	expect(s, 0x1fff, IMAGE(1), 0xfff);
	expect(s, 0x2000, IMAGE(3), 0);
	expect(s, 0x6000, IMAGE(1), 0x5000);
	/* a hole */
	set(&s, 0x1800, 0x2800, 0, NULL);
	expect(s, 0x17ff, IMAGE(1), 0x7ff);
	expect(s, 0x1800, NULL, 0);
	expect(s, 0x27ff, NULL, 0);
	expect(s, 0x2800, IMAGE(3), 0x800);
	set(&s, 0, UINT64_MAX, 0, NULL);
	assert_int_equal(address_space_count(s), 0);
	expect(NULL, 0, NULL, 0); /* of whom nothing is known */
	/* an empty one changes nothing; one at the very end of memory is found */
	set(&s, 0x1000, 0x1000, 0, IMAGE(1));
	assert_int_equal(address_space_count(s), 0);
	set(&s, UINT64_MAX - 0xfff, UINT64_MAX, 0, IMAGE(1));
	expect(s, UINT64_MAX - 1, IMAGE(1), 0xffe);
}

static void test_fork(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space *parent = NULL, *child = NULL;

	(void)state;
	assert_int_equal(address_space_new(&budget, &parent), 0);
	set(&parent, 0x1000, 0x3000, 0, IMAGE(1));
	child = address_space_ref(parent);
	assert_ptr_equal(child, parent);
	set(&child, 0x2000, 0x3000, 0, IMAGE(2));
	assert_ptr_not_equal(child, parent);
	expect(parent, 0x2000, IMAGE(1), 0x1000);
	expect(child, 0x2000, IMAGE(2), 0);
	expect(child, 0x1000, IMAGE(1), 0);
	set(&parent, 0x1000, 0x3000, 0, NULL);
	expect(child, 0x1000, IMAGE(1), 0);
}

#define PAGES 200u

static void test_random(void **state)
{
	_cleanup_(address_space_unrefp) struct address_space *s = NULL;
	struct {
		struct image *image;
		uint64_t off;
	} model[PAGES] = {0};
	unsigned seed = 7;

	(void)state;
	assert_int_equal(address_space_new(&budget, &s), 0);
	for (unsigned round = 0; round < 5000; round++) {
		unsigned a = (unsigned)rand_r(&seed) % PAGES, n = 1 + (unsigned)rand_r(&seed) % 20;
		unsigned b = a + n < PAGES ? a + n : PAGES;
		struct image *image =
			rand_r(&seed) % 4 ? IMAGE((unsigned)rand_r(&seed) % 64) : NULL;
		uint64_t off = ((unsigned)rand_r(&seed) % 1000u) << 12;

		set(&s, (uint64_t)a << 12, (uint64_t)b << 12, off, image);
		for (unsigned i = a; i < b; i++) {
			model[i].image = image;
			model[i].off = off + ((uint64_t)(i - a) << 12);
		}
		for (unsigned i = 0; i < PAGES; i++)
			expect(s, ((uint64_t)i << 12) + 5, model[i].image, model[i].off + 5);
		for (uint32_t i = 1; i < address_space_count(s); i++)
			assert_true(address_space_at(s, i - 1)->end <=
				    address_space_at(s, i)->start);
	}
}

static void test_limits(void **state)
{
	struct budget small = {.max = 4096};
	_cleanup_(address_space_unrefp) struct address_space *s = NULL;
	struct mapping m = {.image = IMAGE(1)};
	int r = 0;

	(void)state;
	assert_int_equal(address_space_new(&small, &s), 0);
	for (unsigned i = 0; i < 1000 && r == 0; i++) {
		m.start = (uint64_t)i << 13;
		m.end = m.start + 0x1000;
		r = address_space_set(&s, &m);
	}
	assert_true(r < 0);
	expect(s, 0x10, IMAGE(1), 0x10);
	s = address_space_unref(s);
	assert_int_equal(small.used, 0);

	assert_int_equal(address_space_new(&budget, &s), 0);
	for (unsigned i = 0; i < ADDRESS_SPACE_MAX_MAPS; i++) {
		m.start = (uint64_t)i << 13;
		m.end = m.start + 0x1000;
		assert_int_equal(address_space_set(&s, &m), 0);
	}
	m.start = (uint64_t)ADDRESS_SPACE_MAX_MAPS << 13;
	m.end = m.start + 0x1000;
	assert_int_equal(address_space_set(&s, &m), ADDRESS_SPACE_E_FULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
