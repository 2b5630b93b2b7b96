// SPDX-License-Identifier: Apache-2.0
/*
 * Each row of a table says what elfutils says of that address; whatever is done to a file, its
 * table has rows in order and rules that are some.
 */
#include "config.h"

#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/object/cfi.h"
#include "decode/object/unwind_table.h"

#define MEMORY (256u << 20)

static const char *const files[] = {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6",
				    "/usr/lib64/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6",
				    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"};

/* The rule says the same as elfutils' row. */
static bool agrees(const struct cfi_row *row, const struct unwind_rule *rule)
{
	const struct cfi_rule *bp = &row->regs[CFI_REG_BP], *ra = &row->regs[CFI_REG_RA];

	switch (UNWIND_KIND(rule)) {
	case UNWIND_SIGNAL:
		return row->signal;
	case UNWIND_END:
		return ra->kind == CFI_UNDEFINED;
	case UNWIND_FRAME_POINTER:
		return !row->known;
	case UNWIND_CFA:
		if (row->cfa.kind != CFI_REGISTER || row->cfa.reg != UNWIND_REG(rule) ||
		    row->cfa.off != rule->cfa_off || ra->kind != CFI_AT_CFA || ra->off != -8)
			return false;
		if (rule->extra & UNWIND_BP_FROM_BP)
			return bp->kind == CFI_AT_EXPR;
		if (rule->bp_off == UNWIND_BP_SAME)
			return bp->kind == CFI_SAME;
		return rule->bp_off == UNWIND_BP_UNKNOWN ||
		       (bp->kind == CFI_AT_CFA && bp->off == rule->bp_off);
	case UNWIND_CFA_DEREF:
	case UNWIND_PLT:
		return row->cfa.kind == CFI_EXPR;
	case UNWIND_RA_REGISTER:
		return ra->kind == CFI_REGISTER && ra->reg == rule->extra;
	default:
		return true; /* it does not say anything */
	}
}

static void compare(const char *path)
{
	struct budget budget = {.max = MEMORY}, other = {.max = UINT64_MAX};
	_cleanup_(unwind_table_fini) struct unwind_table t = {0};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct cfi *cfi = NULL;
	uint32_t at = 0, known = 0;
	Elf *elf;

	if (fd < 0)
		return;
	assert_int_equal(unwind_table_build(fd, &budget, &t), 0);
	assert_int_equal(budget.used, 0);
	assert_int_not_equal(elf_version(EV_CURRENT), EV_NONE);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	assert_int_equal(cfi_new(elf, &other, &cfi), 0);
	for (uint32_t page = 0; page < t.n_pages; page++) {
		for (uint32_t i = 0; i < t.pages[page]; i++, at++) {
			const uint64_t pc = ((uint64_t)t.lo_page + page) << UNWIND_PAGE_BITS |
					    UNWIND_ROW_OFF(t.rows[at]);
			const struct unwind_rule *rule = &t.rules[UNWIND_ROW_RULE(t.rows[at])];
			const struct cfi_row *row;

			known += UNWIND_KIND(rule) != UNWIND_UNKNOWN;
			/* elfutils is slow: one in some */
			if (t.n_rows > 4000 && at % (t.n_rows / 4000) != 0)
				continue;
			row = cfi_row(cfi, pc);
			assert_non_null(row);
			/* Padding behind a function has the function's last row. */
			if (!row->known || agrees(row, rule))
				continue;
			fail_msg(
				"%s: %#llx: kind %u, register %u, offset %d, rbp %d is not what elfutils says",
				path, (unsigned long long)pc, UNWIND_KIND(rule), UNWIND_REG(rule),
				rule->cfa_off, rule->bp_off);
		}
	}
	assert_int_equal(at, t.n_rows);
	assert_true(known > t.n_rows - t.n_rows / 100 - 2);
	(void)cfi_free(cfi);
	(void)elf_end(elf);
}

static void test_elfutils(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		compare(files[i]);
}

/* Where the section lies in the file. */
static void section_of(const char *want, uint8_t *file, size_t size, size_t *ret_off,
		       size_t *ret_size)
{
	Elf *elf = elf_memory((char *)file, size);
	Elf_Scn *scn = NULL;
	size_t names;

	assert_non_null(elf);
	assert_int_equal(elf_getshdrstrndx(elf, &names), 0);
	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		GElf_Shdr sh;

		assert_non_null(gelf_getshdr(scn, &sh));
		if (strcmp(elf_strptr(elf, names, sh.sh_name), want) == 0) {
			*ret_off = sh.sh_offset;
			*ret_size = sh.sh_size;
		}
	}
	(void)elf_end(elf);
}

static void check_order(const struct unwind_table *t)
{
	uint32_t at = 0;

	assert_true(t->n_pages >= 1 && t->n_pages <= UNWIND_PAGES_MAX && t->n_rules >= 1 &&
		    t->n_rules <= UNWIND_RULES_MAX);
	for (uint32_t page = 0; page < t->n_pages; page++) {
		assert_true(t->pages[page] >= 1);
		for (uint32_t i = 0; i < t->pages[page]; i++, at++) {
			assert_true(i == 0 ? UNWIND_ROW_OFF(t->rows[at]) == 0
					   : UNWIND_ROW_OFF(t->rows[at]) >
						     UNWIND_ROW_OFF(t->rows[at - 1]));
			assert_true(UNWIND_ROW_RULE(t->rows[at]) < t->n_rules);
			assert_true(UNWIND_KIND(&t->rules[UNWIND_ROW_RULE(t->rows[at])]) <
				    UNWIND_KINDS);
		}
	}
	assert_int_equal(at, t->n_rows);
}

static void test_damaged(void **state)
{
	_cleanup_close_ int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	size_t off = 0, size = 0, made = 0;
	_cleanup_free_ uint8_t *file = NULL, *copy = NULL;
	struct stat st;

	assert_int_equal(fstat(self, &st), 0);
	file = malloc((size_t)st.st_size);
	copy = malloc((size_t)st.st_size);
	assert_non_null(file);
	assert_non_null(copy);
	assert_int_equal(io_pread_full(self, file, (size_t)st.st_size, 0), st.st_size);
	section_of(".eh_frame", file, (size_t)st.st_size, &off, &size);
	assert_true(size > 1000);
	srand(3);
	for (int turn = 0; turn < 150; turn++) {
		struct budget budget = {.max = turn % 10 == 9 ? 100000 : MEMORY};
		_cleanup_(unwind_table_fini) struct unwind_table t = {0};
		_cleanup_close_ int fd = io_memfd("damaged");

		memcpy(copy, file, (size_t)st.st_size);
		for (int k = 0; k < 200; k++)
			copy[off + (size_t)rand() % size] = (uint8_t)rand();
		if (turn % 3 == 0) /* the headers, too */
			copy[(size_t)rand() % 4096] = (uint8_t)rand();
		assert_int_equal(io_write_all(fd, copy, (size_t)st.st_size), 0);
		if (unwind_table_build(fd, &budget, &t) == 0) {
			check_order(&t);
			made++;
		}
		assert_int_equal(budget.used, 0);
	}
	assert_true(made > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_elfutils),
					   cmocka_unit_test(test_damaged)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
