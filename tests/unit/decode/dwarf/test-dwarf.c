// SPDX-License-Identifier: Apache-2.0
/*
 * Debug information that was made to cost: few bytes that ask for much work or memory, and
 * references that lead nowhere. What a compiler makes is compared with other readers by
 * tests/system/decode-dwarf.py.
 */
#include <dwarf.h>
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/dwarf/dwarf.h"
#include "decode/dwarf/line.h"
#include "decode/dwarf/scope.h"

#define FILE_BYTES (4u << 20)
#define CODE 0x1000u
#define CODE_END 0x100000u

/* A section that is being written. */
struct out {
	uint8_t *bytes;
	size_t n;
};

static uint8_t *room(void)
{
	uint8_t *p = calloc(1, FILE_BYTES / 4);

	assert_non_null(p);
	return p;
}

static void u8(struct out *o, unsigned int v)
{
	assert_true(o->n < FILE_BYTES / 4 - 16);
	o->bytes[o->n++] = (uint8_t)v;
}

static void number(struct out *o, uint64_t v, unsigned int size)
{
	for (unsigned int i = 0; i < size; i++)
		u8(o, (uint8_t)(v >> 8 * i));
}

static void uleb(struct out *o, uint64_t v)
{
	do {
		u8(o, (unsigned int)(v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
}

struct file {
	struct out info, abbrev, line, ranges;
	uint8_t *bytes;
	Elf *elf;
	struct budget budget;
	struct dwarf *dwarf;
	uint64_t compressed; /* what .debug_info says to be, unpacked; 0: it is not compressed */
};

static void begin(struct file *f)
{
	*f = (struct file){.info.bytes = room(),
			   .abbrev.bytes = room(),
			   .line.bytes = room(),
			   .ranges.bytes = room()};
	f->budget.max = 64u << 20;
	assert_int_not_equal(elf_version(EV_CURRENT), EV_NONE);
}

/* Four sections behind each other, and their headers. */
static int open_file(struct file *f)
{
	static const char names[] =
		"\0.debug_info\0.debug_abbrev\0.debug_line\0.debug_ranges\0.shstrtab";
	const struct out *outs[] = {&f->info, &f->abbrev, &f->line, &f->ranges};
	static const uint32_t name_at[] = {1, 13, 27, 39};
	Elf64_Shdr sh[6] = {{.sh_type = SHT_NULL}};
	size_t at = sizeof(Elf64_Ehdr), total;
	int r;

	f->bytes = calloc(1, FILE_BYTES);
	assert_non_null(f->bytes);
	for (unsigned int i = 0; i < 4; i++) {
		Elf64_Chdr ch = {.ch_type = ELFCOMPRESS_ZLIB,
				 .ch_size = f->compressed,
				 .ch_addralign = 1};
		const size_t extra = i == 0 && f->compressed ? sizeof(ch) : 0;

		sh[i + 1] = (Elf64_Shdr){.sh_name = name_at[i],
			.sh_type = SHT_PROGBITS,
			.sh_flags = extra ? SHF_COMPRESSED : 0,
			.sh_offset = at,
			.sh_size = outs[i]->n + extra,
			.sh_addralign = 1};
		memcpy(f->bytes + at, &ch, extra);
		memcpy(f->bytes + at + extra, outs[i]->bytes, outs[i]->n);
		at = (at + extra + outs[i]->n + 15) & ~(size_t)15;
	}
	sh[5] = (Elf64_Shdr){.sh_name = 53,
		.sh_type = SHT_STRTAB,
		.sh_offset = at,
		.sh_size = sizeof(names),
		.sh_addralign = 1};
	memcpy(f->bytes + at, names, sizeof(names));
	at = (at + sizeof(names) + 15) & ~(size_t)15;
	memcpy(f->bytes + at, sh, sizeof(sh));
	total = at + sizeof(sh);
	memcpy(f->bytes,
	       &(Elf64_Ehdr){.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					 ELFDATA2LSB, EV_CURRENT},
			     .e_type = ET_DYN,
			     .e_machine = EM_X86_64,
			     .e_version = EV_CURRENT,
			     .e_shoff = at,
			     .e_ehsize = sizeof(Elf64_Ehdr),
			     .e_shentsize = sizeof(Elf64_Shdr),
			     .e_shnum = 6,
			     .e_shstrndx = 5},
	       sizeof(Elf64_Ehdr));
	f->elf = elf_memory((char *)f->bytes, total);
	assert_non_null(f->elf);
	r = dwarf_new(f->elf, &f->budget, &f->dwarf);
	if (r == 0)
		dwarf_add_code(f->dwarf, CODE, CODE_END);
	return r;
}

static void end(struct file *f)
{
	dwarf_free(f->dwarf);
	assert_int_equal(f->budget.used, 0);
	(void)elf_end(f->elf);
	free(f->bytes);
	free(f->info.bytes);
	free(f->abbrev.bytes);
	free(f->line.bytes);
	free(f->ranges.bytes);
}

static void attr(struct out *o, unsigned int name, unsigned int form)
{
	uleb(o, name);
	uleb(o, form);
}

/* A unit's head; it is closed by unit_end(). DWARF 4. */
static size_t unit_begin(struct file *f, uint64_t abbrevs)
{
	const size_t at = f->info.n;

	number(&f->info, 0, 4);
	number(&f->info, 4, 2);
	number(&f->info, abbrevs, 4);
	u8(&f->info, 8);
	return at;
}

static void unit_end(struct file *f, size_t at)
{
	const uint32_t length = (uint32_t)(f->info.n - at - 4);

	memcpy(f->info.bytes + at, &length, 4);
}

/*
 * 1: a unit with addresses and lines; 2: a function; 3: an inlined call with ranges; 4: a block of
 * nothing.
 */
static void abbrevs(struct file *f)
{
	struct out *o = &f->abbrev;

	uleb(o, 1);
	uleb(o, DW_TAG_compile_unit);
	u8(o, DW_CHILDREN_yes);
	attr(o, DW_AT_low_pc, DW_FORM_addr);
	attr(o, DW_AT_high_pc, DW_FORM_data4);
	attr(o, DW_AT_stmt_list, DW_FORM_sec_offset);
	attr(o, 0, 0);
	uleb(o, 2);
	uleb(o, DW_TAG_subprogram);
	u8(o, DW_CHILDREN_yes);
	attr(o, DW_AT_low_pc, DW_FORM_addr);
	attr(o, DW_AT_high_pc, DW_FORM_data4);
	attr(o, DW_AT_abstract_origin, DW_FORM_ref4);
	attr(o, 0, 0);
	uleb(o, 3);
	uleb(o, DW_TAG_inlined_subroutine);
	u8(o, DW_CHILDREN_yes);
	attr(o, DW_AT_ranges, DW_FORM_sec_offset);
	attr(o, 0, 0);
	uleb(o, 4);
	uleb(o, DW_TAG_lexical_block);
	u8(o, DW_CHILDREN_yes);
	attr(o, 0, 0);
	u8(o, 0);
}

static void unit_entry(struct file *f, uint64_t low, uint32_t size, uint32_t lines)
{
	uleb(&f->info, 1);
	number(&f->info, low, 8);
	number(&f->info, size, 4);
	number(&f->info, lines, 4);
}

static size_t function_entry(struct file *f, size_t unit, uint64_t low, uint32_t size)
{
	const size_t at = f->info.n;

	uleb(&f->info, 2);
	number(&f->info, low, 8);
	number(&f->info, size, 4);
	number(&f->info, at - unit, 4); /* its own origin */
	return at;
}

/* 5000 units; the abbreviations of each begin at the first of 3000, or each at another one. */
static void units_with_abbrevs(struct file *f, bool shared)
{
	uint64_t offs[3000];

	begin(f);
	for (unsigned int i = 0; i < 3000; i++) {
		offs[i] = f->abbrev.n;
		uleb(&f->abbrev, i + 1);
		uleb(&f->abbrev, DW_TAG_compile_unit);
		u8(&f->abbrev, DW_CHILDREN_no);
		attr(&f->abbrev, DW_AT_decl_line, DW_FORM_implicit_const);
		uleb(&f->abbrev, 1);
		attr(&f->abbrev, 0, 0);
	}
	u8(&f->abbrev, 0);
	for (unsigned int i = 0; i < 5000; i++) {
		const size_t at = unit_begin(f, shared ? 0 : offs[i % 3000]);

		uleb(&f->info, shared ? 1 : i % 3000 + 1);
		unit_end(f, at);
	}
	assert_int_equal(open_file(f), 0);
	assert_int_equal(f->dwarf->n_units, 5000);
	assert_null(dwarf_unit_of(f->dwarf, CODE));
}

static size_t count_usable(struct file *f)
{
	size_t usable = 0;

	for (size_t i = 0; i < f->dwarf->n_units; i++)
		usable += dwarf_unit_open(&f->dwarf->units[i]);
	return usable;
}

/*
 * A table that all units share is read once. Where each has its own part of a long one, that ends
 * with the credit.
 */
static void test_abbrevs(void **state)
{
	uint64_t credit;
	struct file f;

	units_with_abbrevs(&f, true);
	credit = f.dwarf->credit.abbrev;
	assert_int_equal(count_usable(&f), 5000);
	assert_int_equal(f.dwarf->credit.abbrev, credit);
	assert_int_equal(f.dwarf->stats.cut, 0);
	end(&f);

	units_with_abbrevs(&f, false);
	/* eight times the section, and a little; what is near its end costs little */
	assert_true(count_usable(&f) < 200);
	assert_true(f.dwarf->stats.cut > 4800);
	end(&f);
}

/*
 * The head of the one table of lines, whose opcodes 4 and up are special; it is closed by
 * lines_end().
 */
static void lines_begin(struct file *f)
{
	static const uint8_t head[] = {/* version */ 2, 0, /* header */ 14, 0, 0, 0, 1, 1, 0xfb, 14, 4, 0, 1, 1,
		/* no directories */ 0, 'f', 0, 0, 0, 0, /* no more files */ 0};

	number(&f->line, 0, 4);
	for (size_t i = 0; i < sizeof(head); i++)
		u8(&f->line, head[i]);
	f->line.bytes[6] = (uint8_t)(sizeof(head) - 6);
}

static void lines_end(struct file *f)
{
	const uint32_t length = (uint32_t)f->line.n - 4;

	memcpy(f->line.bytes, &length, 4);
}

/* A sequence: a line of each given address, until its end. */
static void sequence(struct file *f, uint64_t end, const uint64_t *addrs, size_t n)
{
	for (size_t i = 0; i <= n; i++) {
		u8(&f->line, 0);
		uleb(&f->line, 9);
		u8(&f->line, DW_LNE_set_address);
		number(&f->line, i < n ? addrs[i] : end, 8);
		if (i == n)
			break;
		u8(&f->line, DW_LNS_advance_line);
		uleb(&f->line, 10);
		u8(&f->line, DW_LNS_copy);
	}
	u8(&f->line, 0);
	uleb(&f->line, 1);
	u8(&f->line, DW_LNE_end_sequence);
}

/*
 * A line that is told of the end of a sequence is that of no instruction; gcc 14 makes sequences
 * that have no other.
 */
static void test_empty_sequence(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t line;
	} cases[] = {{CODE, 11},      {CODE + 7, 11},  {CODE + 8, 0}, {CODE + 15, 0},
		     {CODE + 16, 11}, {CODE + 23, 21}, {CODE + 24, 0}};
	struct dwarf_unit *u;
	uint32_t file;
	struct file f;
	size_t at;

	begin(&f);
	abbrevs(&f);
	lines_begin(&f);
	sequence(&f, CODE + 8, (const uint64_t[]){CODE}, 1);
	sequence(&f, CODE + 8, (const uint64_t[]){CODE + 8}, 1);
	sequence(&f, CODE + 24, (const uint64_t[]){CODE + 16, CODE + 20, CODE + 24}, 3);
	lines_end(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 32, 0);
	u8(&f.info, 0);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	u = dwarf_unit_of(f.dwarf, CODE);
	assert_non_null(u);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(dwarf_line_at(u, cases[i].addr, &file), cases[i].line);
	end(&f);
}

/* Units that share their lines, and ranges that all calls share. */
static void test_shared_tables(void **state)
{
	uint32_t file;
	size_t lines = 0, at;
	struct file f;

	begin(&f);
	abbrevs(&f);
	/* a table of lines that is long and has none */
	lines_begin(&f);
	for (unsigned int i = 0; i < 20000; i++) {
		u8(&f.line, DW_LNS_advance_line);
		u8(&f.line, 0);
	}
	lines_end(&f);
	for (unsigned int i = 0; i < 20000; i++) {
		number(&f.ranges, 1, 8);
		number(&f.ranges, 1, 8);
	}
	for (unsigned int i = 0; i < 200; i++) {
		at = unit_begin(&f, 0);
		unit_entry(&f, CODE + i * 16, 16, 0);
		(void)function_entry(&f, at, CODE + i * 16, 16);
		for (unsigned int k = 0; k < 20; k++) {
			uleb(&f.info, 3);
			number(&f.info, 0, 4);
			u8(&f.info, 0);
		}
		u8(&f.info, 0);
		u8(&f.info, 0);
		unit_end(&f, at);
	}
	assert_int_equal(open_file(&f), 0);
	for (unsigned int i = 0; i < 200; i++) {
		const uint64_t credit = f.dwarf->credit.line;
		struct dwarf_unit *u = dwarf_unit_of(f.dwarf, CODE + i * 16);
		uint64_t until;

		assert_non_null(u);
		assert_int_equal(dwarf_line_at(u, CODE + i * 16, &file), 0);
		lines += credit - f.dwarf->credit.line > f.line.n / 2; /* else its head alone */
		/* the function is there, however many ranges it has in vain */
		assert_non_null(dwarf_scope_at(f.dwarf, CODE + i * 16, &until));
	}
	assert_true(lines > 0 && lines <= 9);
	assert_true(f.dwarf->credit.ranges < f.ranges.n);
	assert_true(f.dwarf->stats.cut > 190);
	end(&f);
}

/*
 * Who asks for a file pays for the unit's table of abbreviations, which stays, and for nothing
 * else.
 */
/*
 * The head of a table is paid for even where it is broken, or many units that share it would cost
 * time and nothing else.
 */
static void test_broken_head(void **state)
{
	struct dwarf_unit *u;
	struct file f;
	uint64_t credit;
	size_t at;

	(void)state;
	begin(&f);
	abbrevs(&f);
	lines_begin(&f);
	f.line.bytes[13] = 0; /* no range of lines */
	lines_end(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 16, 0);
	u8(&f.info, 0);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	u = &f.dwarf->units[0];
	credit = f.dwarf->credit.line;
	assert_false(dwarf_has_file(u, "f"));
	assert_true(f.dwarf->credit.line < credit);
	end(&f);
}

static void test_has_file(void **state)
{
	uint64_t taken, used, credit;
	struct dwarf_unit *u;
	struct file f;
	size_t at;

	(void)state;
	begin(&f);
	abbrevs(&f);
	lines_begin(&f);
	lines_end(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 16, 0);
	u8(&f.info, 0);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	u = &f.dwarf->units[0];
	dwarf_unit_close(u);
	taken = f.dwarf->taken;
	used = f.budget.used;
	assert_true(dwarf_has_file(u, "f"));
	assert_true(f.dwarf->taken > taken && f.budget.used > used);
	assert_false(dwarf_has_file(u, "g"));
	assert_int_equal(f.budget.used - used, f.dwarf->taken - taken);
	/* what is read is paid for, and without credit it is not read, which is counted */
	credit = f.dwarf->credit.line;
	assert_true(dwarf_has_file(u, "f"));
	assert_true(f.dwarf->credit.line < credit);
	assert_int_equal(f.dwarf->stats.cut, 0);
	f.dwarf->credit.line = 1;
	assert_false(dwarf_has_file(u, "f"));
	assert_int_equal(f.dwarf->stats.cut, 1);
	dwarf_unit_close(u);
	assert_true(f.dwarf->taken >= taken);
	assert_int_equal(f.budget.used - used, f.dwarf->taken - taken);
	end(&f);
}

/* Entries in each other without end; what was read before is good. */
static void test_deep(void **state)
{
	struct file f;
	uint64_t until;
	size_t at;

	begin(&f);
	abbrevs(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 64, 0);
	(void)function_entry(&f, at, CODE, 32);
	for (unsigned int i = 0; i < 500000; i++)
		uleb(&f.info, 4);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	assert_non_null(dwarf_scope_at(f.dwarf, CODE + 31, &until));
	assert_int_equal(until, CODE + 32);
	assert_null(dwarf_scope_at(f.dwarf, CODE + 32, &until));
	assert_int_equal(f.dwarf->stats.broken, 1);
	end(&f);
}

/* A function that is its own origin has no name. */
static void test_circle(void **state)
{
	struct dwarf_name name;
	const struct dwarf_scope *s;
	struct file f;
	uint64_t until;
	size_t at;

	begin(&f);
	abbrevs(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 64, 0);
	(void)function_entry(&f, at, CODE, 32);
	u8(&f.info, 0);
	u8(&f.info, 0);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	s = dwarf_scope_at(f.dwarf, CODE, &until);
	assert_non_null(s);
	dwarf_scope_name(s, &name);
	assert_null(name.name);
	assert_null(name.unit);
	assert_int_equal(name.line, 0);
	end(&f);
}

/* More attributes than anything has; sizes that no file has; no memory. */
static void test_sizes(void **state)
{
	struct file f;
	size_t at;

	begin(&f);
	uleb(&f.abbrev, 1);
	uleb(&f.abbrev, DW_TAG_compile_unit);
	u8(&f.abbrev, DW_CHILDREN_no);
	for (unsigned int i = 0; i <= DWARF_MAX_ATTRS; i++)
		attr(&f.abbrev, DW_AT_external, DW_FORM_flag_present);
	attr(&f.abbrev, 0, 0);
	u8(&f.abbrev, 0);
	at = unit_begin(&f, 0);
	uleb(&f.info, 1);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	assert_false(dwarf_unit_open(&f.dwarf->units[0]));
	assert_int_equal(f.dwarf->stats.broken, 1);
	end(&f);

	begin(&f);
	abbrevs(&f);
	f.compressed = UINT64_C(1) << 40;
	number(&f.info, 0, 8);
	assert_int_equal(open_file(&f), -EFBIG);
	end(&f);

	begin(&f);
	abbrevs(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 64, 0);
	unit_end(&f, at);
	f.budget.max = 100;
	assert_int_equal(open_file(&f), -EFBIG);
	end(&f);
}

/*
 * Calls that overlap any way: from each address it is known how far what is there is true, and each
 * lies in its function.
 */
static void test_overlap(void **state)
{
	struct file f;
	uint32_t seed = 7;
	size_t at, known = 0;

	begin(&f);
	abbrevs(&f);
	at = unit_begin(&f, 0);
	unit_entry(&f, CODE, 4096, 0);
	(void)function_entry(&f, at, CODE, 4096);
	for (unsigned int i = 0; i < 300; i++) {
		uleb(&f.info, 3);
		number(&f.info, f.ranges.n, 4);
		for (unsigned int k = 0; k < 3; k++) {
			seed = seed * 1664525 + 1013904223;
			number(&f.ranges, (seed >> 8) % 3800, 8);
			number(&f.ranges, (seed >> 8) % 3800 + (seed >> 20) % 200, 8);
		}
		number(&f.ranges, 0, 8);
		number(&f.ranges, 0, 8);
		if (i % 3)
			u8(&f.info, 0);
	}
	for (unsigned int i = 0; i < 102; i++)
		u8(&f.info, 0);
	unit_end(&f, at);
	assert_int_equal(open_file(&f), 0);
	for (uint64_t addr = CODE; addr < CODE + 4096;) {
		uint64_t until, again;
		const struct dwarf_scope *s = dwarf_scope_at(f.dwarf, addr, &until);

		assert_non_null(s);
		assert_true(until > addr && until <= CODE + 4096);
		assert_true(s->depth <= DWARF_MAX_INLINED);
		assert_ptr_equal(dwarf_scope_at(f.dwarf, until - 1, &again), s);
		assert_int_equal(again, until);
		known += s->outer != NULL;
		addr = until;
	}
	assert_true(known > 200);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abbrevs),        cmocka_unit_test(test_shared_tables),
		cmocka_unit_test(test_deep),           cmocka_unit_test(test_circle),
		cmocka_unit_test(test_sizes),          cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_empty_sequence), cmocka_unit_test(test_has_file),
		cmocka_unit_test(test_broken_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
