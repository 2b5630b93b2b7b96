// SPDX-License-Identifier: Apache-2.0
/*
 * Which name an address has: rules on a hand-made table, then the names of this very program and
 * of a small one beside it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <link.h>

#include "decode/object/image.h"
#include "decode/object/symbols.h"
#include "tests/unit/decode/object/decode-files.h"

static struct budget budget = {.max = 256u << 20};

static void push(struct symbols *s, const char *name, uint64_t addr, uint64_t size, uint8_t rank)
{
	static struct symbol room[64];

	if (!s->v) {
		s->v = malloc(sizeof(room));
		s->cap = ARRAY_SIZE(room);
		assert_true(budget_take(&budget, sizeof(room)));
	}
	assert_true(s->n < s->cap);
	s->v[s->n++] = (struct symbol){.addr = addr,
		.size = size ? size : 0x10000 - addr,
		.sized = size != 0,
		.label = size == 0,
		.name = name,
		.name_len = (uint32_t)strlen(name),
		.rank = rank};
}

static const char *name_at(const struct symbols *s, uint64_t addr)
{
	static char buf[256];
	const struct symbol *sym = symbols_find(s, addr);

	if (!sym)
		return "";
	(void)snprintf(buf, sizeof(buf), "%.*s", (int)sym->name_len, sym->name);
	return buf;
}

static void test_rules(void **state)
{
	_cleanup_(symbols_fini) struct symbols s;

	(void)state;
	symbols_init(&s, &budget);
	symbols_finish(&s);
	assert_null(symbols_find(&s, 0));
	symbols_fini(&s);

	symbols_init(&s, &budget);
	push(&s, "outer", 0x1000, 0x100, 10);
	push(&s, "outer_alias", 0x1000, 0x100, 5);
	push(&s, "inner", 0x1040, 0x10, 10);
	push(&s, "within", 0x1050, 0, 20);
	push(&s, "label", 0x2000, 0, 1);
	push(&s, "next", 0x2080, 0x20, 10);
	push(&s, "last_label", 0x3000, 0, 1);
	symbols_finish(&s);
	assert_string_equal(name_at(&s, 0xfff), "");
	assert_string_equal(name_at(&s, 0x1000), "outer");
	assert_string_equal(name_at(&s, 0x1045), "inner");
	assert_string_equal(name_at(&s, 0x1050), "outer");
	assert_string_equal(name_at(&s, 0x10ff), "outer");
	assert_string_equal(name_at(&s, 0x1100), "");
	assert_string_equal(name_at(&s, 0x2000), "label");
	assert_string_equal(name_at(&s, 0x207f), "label");
	assert_string_equal(name_at(&s, 0x2080), "next");
	assert_string_equal(name_at(&s, 0x20a0), "");
	assert_string_equal(name_at(&s, 0xffff), "last_label");
	assert_string_equal(name_at(&s, 0x10000), "");
}

static int find_main_base(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(uintptr_t *)arg = info->dlpi_addr;
	return 1; /* the program itself comes first */
}

int visible_function(int);
__attribute__((noinline)) int visible_function(int n)
{
	return n * 3 + 1;
}

static __attribute__((noinline)) int local_function(int n)
{
	return visible_function(n) + 2;
}

static void test_own_program(void **state)
{
	int (*volatile visible)(int) = visible_function, (*volatile local)(int) = local_function;
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	_cleanup_(symbols_fini) struct symbols s;
	uintptr_t base = 0;
	Elf *elf;

	(void)state;
	assert_true(elf_version(EV_CURRENT) != EV_NONE);
	assert_true(dl_iterate_phdr(find_main_base, &base) == 1);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	symbols_init(&s, &budget);
	assert_int_equal(symbols_add_elf(&s, elf, SHT_SYMTAB), 1);
	symbols_finish(&s);
	assert_string_equal(name_at(&s, (uintptr_t)visible - base), "visible_function");
	assert_string_equal(name_at(&s, (uintptr_t)local - base), "local_function");
	(void)elf_end(elf);
}

static void test_plt(void **state)
{
	_cleanup_close_ int fd = decode_open_tiny();
	_cleanup_(symbols_fini) struct symbols s;
	bool printf_plt = false, outer = false;
	Elf *elf;

	(void)state;
	if (fd < 0)
		skip();
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	symbols_init(&s, &budget);
	assert_true(symbols_add_elf(&s, elf, SHT_SYMTAB) >= 0);
	symbols_add_plt(&s, elf);
	symbols_finish(&s);
	for (size_t i = 0; i < s.n; i++) {
		/* "printf" or a fortified one of its kind */
		if (s.v[i].plt && memmem(s.v[i].name, s.v[i].name_len, "printf", 6))
			printf_plt = true;
		if (!s.v[i].plt && s.v[i].name_len == 10 &&
			memcmp(s.v[i].name, "tiny_outer", 10) == 0)
			outer = true;
	}
	assert_true(printf_plt);
	assert_true(outer);
	(void)elf_end(elf);
}

static void test_budget(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct budget small = {.max = 1000};
	_cleanup_(symbols_fini) struct symbols s;
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);

	(void)state;
	symbols_init(&s, &small);
	(void)symbols_add_elf(&s, elf, SHT_SYMTAB);
	symbols_finish(&s);
	assert_true(small.used <= small.max);
	(void)elf_end(elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_own_program),
		cmocka_unit_test(test_plt),
		cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
