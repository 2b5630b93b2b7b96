// SPDX-License-Identifier: Apache-2.0
/*
 * Ten thousand and more executables that are damaged in one to four places (the same ones each
 * time), sent through opening, symbols, unwind tables and probe: whatever comes out, the process
 * must live, and the undamaged file must be read whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "tests/fuzz/decode/object/exercise-elf.h"
#include "tests/unit/decode/object/decode-files.h"

#define VARIANTS 12000u

static uint32_t seed = 20;

static uint32_t random_next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

/* Headers and tables are small parts of a file: most damage goes to them. */
static size_t somewhere(const uint8_t *file, size_t size)
{
	const Elf64_Ehdr *eh = (const void *)file;
	const Elf64_Shdr *sh;

	switch (random_next() % 6) {
	case 0:
		return random_next() % sizeof(*eh);
	case 1:
		return eh->e_phoff + random_next() % (eh->e_phnum * sizeof(Elf64_Phdr));
	case 2:
		return eh->e_shoff + random_next() % (eh->e_shnum * sizeof(Elf64_Shdr));
	case 3:
	case 4:
		sh = (const void *)(file + eh->e_shoff);
		sh += random_next() % eh->e_shnum;
		if (sh->sh_type != SHT_NOBITS && sh->sh_size)
			return sh->sh_offset + random_next() % sh->sh_size;
		return random_next() % size;
	default:
		return random_next() % size;
	}
}

static size_t damage(const uint8_t *file, size_t size, uint8_t *out)
{
	static const uint64_t extremes[] = {0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000,
		0xffffffff, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
	unsigned n = 1 + random_next() % 4;

	memcpy(out, file, size);
	for (unsigned i = 0; i < n; i++) {
		size_t at = somewhere(file, size), len = (size_t)1 << random_next() % 4;
		uint64_t v = extremes[random_next() % ARRAY_SIZE(extremes)];

		if (at + 8 > size)
			at = size - 8;
		switch (random_next() % 3) {
		case 0:
			out[at] ^= (uint8_t)(1u << random_next() % 8);
			break;
		case 1:
			out[at] = (uint8_t)random_next();
			break;
		default:
			at &= ~(len - 1);
			memcpy(out + at, &v, len);
			break;
		}
	}
	return random_next() % 8 ? size : random_next() % size;
}

static void test_variants(void **state)
{
	_cleanup_close_ int tiny = decode_open_tiny(), fd = io_memfd("broken-elf");
	_cleanup_free_ uint8_t *file = NULL, *out = NULL;
	struct exercise_result whole = {0}, sum = {0};
	struct stat st;

	(void)state;
	assert_true(tiny >= 0 && fd >= 0);
	assert_int_equal(fstat(tiny, &st), 0);
	file = malloc((size_t)st.st_size);
	out = malloc((size_t)st.st_size);
	assert_true(file && out);
	assert_int_equal(io_pread_full(tiny, file, (size_t)st.st_size, 0), st.st_size);

	exercise_elf(tiny, &whole);
	print_message("whole: %llu names, %llu unwind rows, %llu frames, %llu places\n",
		(unsigned long long)whole.symbols, (unsigned long long)whole.rows,
		(unsigned long long)whole.frames, (unsigned long long)whole.places);
	assert_int_equal(whole.ready, 1);
	assert_true(whole.symbols > 5 && whole.rows > 5 && whole.extents > 5 && whole.frames > 16);
	assert_true(whole.places > 30);

	for (unsigned i = 0; i < VARIANTS; i++) {
		size_t n = damage(file, (size_t)st.st_size, out);

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(io_pwrite_all(fd, out, n, 0), 0);
		exercise_elf(fd, &sum);
	}
	print_message("%u variants: %llu still images, with %llu names and %llu unwind rows\n",
		VARIANTS, (unsigned long long)sum.ready, (unsigned long long)sum.symbols,
		(unsigned long long)sum.rows);
	/* the damage must reach what is behind the headers */
	assert_true(sum.ready > VARIANTS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_variants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
