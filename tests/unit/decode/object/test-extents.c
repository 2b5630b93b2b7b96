// SPDX-License-Identifier: Apache-2.0
/*
 * Functions by the unwind table: those of a hand-made table, cut short at each byte, then those of
 * a small program against its symbols, and the name that one without symbols gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>

#include "decode/object/extents.h"
#include "decode/object/image.h"
#include "decode/stack/resolve.h"
#include "tests/unit/decode/object/decode-files.h"

static struct budget budget = {.max = 64u << 20};

/* At 0x5000: one CIE "zPLR" (starts relative, 4 bytes), two functions and a thrown-away one; then
 * a CIE without augmentation (8-byte starts) and its function. */
static const uint8_t table[] = {
	/* 0x00: CIE */
	0x1c, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 0x10, 7, 0x9b, 1, 0, 0, 0,
	0x1b, 0x1b, 0x0c, 7, 8, 0, 0, 0, 0,
	/* 0x20: 0x1000..0x1040: 0x1000 - 0x5028 */
	0x10, 0, 0, 0, 0x24, 0, 0, 0, 0xd8, 0xbf, 0xff, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0,
	/* 0x34: 0x1080..0x1090: 0x1080 - 0x503c */
	0x10, 0, 0, 0, 0x38, 0, 0, 0, 0x44, 0xc0, 0xff, 0xff, 0x10, 0, 0, 0, 0, 0, 0, 0,
	/* 0x48: 0, thrown away by the linker */
	0x10, 0, 0, 0, 0x4c, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0,
	/* 0x5c: CIE */
	0x0c, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 0x10, 0, 0, 0,
	/* 0x6c: 0x2000..0x2008 */
	0x14, 0, 0, 0, 0x14, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
	/* the end */
	0, 0, 0, 0};

static uint64_t start_of(const struct extents *x, uint64_t addr)
{
	const struct extent *e = extents_find(x, addr);

	return e ? e->start : 0;
}

static void test_table(void **state)
{
	(void)state;
	for (size_t size = 0; size <= sizeof(table); size++) {
		_cleanup_(extents_freep) struct extents *x = NULL;
		_cleanup_free_ uint8_t *exact = malloc(size + 1);
		bool whole = size >= sizeof(table) - 4;

		assert_int_equal(extents_new(&budget, &x), 0);
		memcpy(exact, table, size);
		extents_add(x, exact, size, 0x5000);
		assert_int_equal(start_of(x, 0xfff), 0);
		assert_int_equal(start_of(x, 0x1000), size >= 0x34 ? 0x1000 : 0);
		assert_int_equal(start_of(x, 0x103f), size >= 0x34 ? 0x1000 : 0);
		assert_int_equal(start_of(x, 0x1040), 0);
		assert_int_equal(start_of(x, 0x108f), size >= 0x48 ? 0x1080 : 0);
		assert_int_equal(start_of(x, 0x2000), whole ? 0x2000 : 0);
		assert_int_equal(start_of(x, 0x2008), 0);
		assert_int_equal(start_of(x, 0x5050), 0);
	}
	assert_int_equal(budget.used, 0);
}

/*
 * At 0x5000: one CIE "zR" (CFA = rsp+8) and functions that say more of it in front of their first
 * instruction.
 */
static void test_framed(void **state)
{
	static const uint8_t cie[] = {0x14, 0,    0,    0, 0,    0,    0, 0, 1,    'z', 'R', 0,
				      1,    0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,   0,   0};
	static const struct {
		const char *what;
		uint8_t rows[12];
		bool framed;
	} cases[] = {
		{"a function", {0x41, 0x0e, 16, 0x86, 2}, false},
		{"a part with pushed registers", {0x0e, 32, 0x86, 2, 0x83, 3}, true},
		{"with a frame pointer", {0x0c, 6, 16, 0x86, 2}, true},
		{"by register alone", {0x0d, 6}, true},
		{"which is called with it", {0x0e, 8}, false},
		{"by an expression", {0x0f, 2, 0x77, 0x28}, false},
		/* remember_state: none begins so */
		{"after what is skipped",
		 {0x2e, 16, 0x10, 3, 1, 0x50, 0x09, 1, 2, 0x0a, 0x0e, 48},
		 false},
		{"after register rules",
		 {0x2e, 16, 0x10, 3, 1, 0x50, 0x09, 1, 2, 0xc3, 0x0e, 48},
		 true},
		{"in a later row", {0x02, 4, 0x0e, 16}, false},
		{"cut short", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0e}, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		/*
		 * its length, the way back to the CIE, 0x1000 - 0x5020, its size, no augmentation
		 */
		static const uint8_t fde[] = {0x19, 0,    0,    0,    0x1c, 0, 0, 0, 0xe0,
					      0xbf, 0xff, 0xff, 0x40, 0,    0, 0, 0};
		_cleanup_(extents_freep) struct extents *x = NULL;
		uint8_t bytes[sizeof(cie) + sizeof(fde) + sizeof(cases[i].rows)];

		memcpy(bytes, cie, sizeof(cie));
		memcpy(bytes + sizeof(cie), fde, sizeof(fde));
		memcpy(bytes + sizeof(cie) + sizeof(fde), cases[i].rows, sizeof(cases[i].rows));
		assert_int_equal(extents_new(&budget, &x), 0);
		extents_add(x, bytes, sizeof(bytes), 0x5000);
		assert_int_equal(extents_count(x), 1);
		assert_int_equal(extents_at(x, 0)->start, 0x1000);
		if (extents_at(x, 0)->framed != cases[i].framed)
			fail_msg("%s: framed: %d", cases[i].what, extents_at(x, 0)->framed);
	}
}

static void test_program(void **state)
{
	_cleanup_close_ int fd = decode_open_tiny();
	_cleanup_(symbols_fini) struct symbols s;
	_cleanup_(extents_freep) struct extents *x = NULL;
	unsigned found = 0;
	Elf *elf;

	(void)state;
	if (fd < 0)
		skip();
	assert_true(elf_version(EV_CURRENT) != EV_NONE);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	symbols_init(&s, &budget);
	assert_int_equal(symbols_add_elf(&s, elf, SHT_SYMTAB), 1);
	symbols_finish(&s);
	assert_int_equal(extents_new(&budget, &x), 0);
	extents_add_elf(x, elf);
	for (size_t i = 0; i < s.n; i++) {
		const struct symbol *sym = &s.v[i];
		const struct extent *e = extents_find(x, sym->addr);

		if (sym->name_len < 5 || memcmp(sym->name, "tiny_", 5) != 0)
			continue;
		assert_non_null(e);
		assert_int_equal(e->start, sym->addr);
		assert_int_equal(e->end, sym->addr + sym->size);
		found++;
	}
	assert_int_equal(found, 2);
	(void)elf_end(elf);
}

/* The image is there, its names are not: a program without any symbols. */
static int ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd)
{
	if (request->kind != FILE_REQUEST_OBJECT)
		return 0;
	*ret_file = (struct file_answer){.found = true};
	*ret_fd = fcntl(*(int *)arg, F_DUPFD_CLOEXEC, 3);
	return *ret_fd >= 0;
}

static void test_names(void **state)
{
	static const uint64_t base = 0x10000000;
	_cleanup_close_ int fd = decode_open_tiny();
	const struct file_requester files = {.ask = ask, .arg = &fd};
	const struct image_key key = {.ino = 1, .path = "/opt/tiny", .path_len = 9, .pid = 1};
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(resolver_freep) struct resolver *r = NULL;
	_cleanup_(address_space_unrefp) struct address_space *space = NULL;
	struct code code = {.serial = 1, .pid = 1};
	struct mapping map = {.start = base, .end = base + 0x100000};
	uint64_t outer = 0, inner = 0;
	struct frame_info info;
	struct image *img;
	char expected[64];
	uint32_t frame;

	(void)state;
	if (fd < 0)
		skip();
	assert_int_equal(stacktab_new(1 << 20, &st), 0);
	assert_int_equal(images_new(&files, &budget, &images), 0);
	assert_int_equal(resolver_new(st, images, &files, true, &budget, &r), 0);
	assert_int_equal(address_space_new(&budget, &space), 0);
	img = images_get(images, &key);
	assert_non_null(img);
	map.image = img;
	assert_int_equal(address_space_set(&space, &map), 0);
	code.space = space;
	assert_int_equal(image_open(images, img), 0);
	assert_int_equal(image_load_symbols(images, img), 0);
	for (size_t i = 0; i < img->symbols.n; i++) {
		const struct symbol *sym = &img->symbols.v[i];

		if (sym->name_len != 10 || memcmp(sym->name, "tiny_", 5) != 0)
			continue;
		*(sym->name[5] == 'o' ? &outer : &inner) = sym->addr;
	}
	assert_true(outer && inner);
	img->symbols.n = 0; /* stripped */

	/* tiny-elf's code lies in its file where it lies in memory */
	frame = resolver_frame(r, &code, base + outer + 3, RESOLVE_EXACT);
	stacktab_info(st, frame, &info);
	(void)snprintf(expected, sizeof(expected), "[tiny+0x%llx]", (unsigned long long)outer);
	assert_string_equal(info.name, expected);
	assert_string_equal(info.object, "/opt/tiny");
	assert_int_equal(info.offset, outer);
	assert_int_equal(frame, resolver_frame(r, &code, base + outer + 5, RESOLVE_EXACT));
	assert_int_not_equal(frame, resolver_frame(r, &code, base + inner + 5, RESOLVE_EXACT));
	/* the ELF's own header is no function */
	stacktab_info(st, resolver_frame(r, &code, base + 4, RESOLVE_EXACT), &info);
	assert_string_equal(info.name, "[tiny]");
	assert_int_equal(resolver_stats(r)->unknown_no_symbol, 4);
	code_fini(&code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_framed),
		cmocka_unit_test(test_program),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
