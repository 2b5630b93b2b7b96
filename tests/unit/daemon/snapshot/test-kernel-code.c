// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel's code out of something like /proc/kcore: what is copied and what is not, and files
 * that are none.
 */
#include "daemon/snapshot/kernel_code.h"

#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "daemon/snapshot/kernel_symbols.h"

#define PAGE 4096u
#define TEXT UINT64_C(0xffffffff81000000)
#define TEXT_AT 0x10000u
#define MODULES UINT64_C(0xffffffffc0000000)
#define MODULES_AT 0x100000u
#define MODULES_BYTES (UINT64_C(1) << 30) /* most of it is not mapped */

/* With the end of the text in the middle of a page. Zeros between what is written. */
static const char names[] = "0000000000000000 A fixed_percpu_data\n"
			    "ffffffff81000000 T _stext\n"
			    "ffffffff81001000 t inner\n"
			    "ffffffff81002100 T _etext\n"
			    "ffffffff81004000 T start_of_init\n"
			    "ffffffff81005000 D secrets\n"
			    /* one after the other, over two pages; then what is no code */
			    "ffffffffc0000000 t first\t[one]\n"
			    "ffffffffc0000800 t second\t[one]\n"
			    "ffffffffc0002000 d data\t[one]\n"
			    /* the last one, whose length nobody knows */
			    "ffffffffc0010010 t last\t[two]\n"
			    /* unloaded meanwhile */
			    "ffffffffc0020000 t gone\t[three]\n"
			    "ffffffffc0030000 t bpf_prog_1\t[bpf]\n";

struct kcore {
	Elf64_Ehdr header;
	Elf64_Phdr segments[3];
};

static struct kcore kcore(void)
{
	return (struct kcore){.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
						     ELFDATA2LSB, EV_CURRENT},
					 .e_type = ET_CORE,
					 .e_machine = EM_X86_64,
					 .e_phoff = sizeof(Elf64_Ehdr),
					 .e_phentsize = sizeof(Elf64_Phdr),
					 .e_phnum = 3},
			      .segments = {{.p_type = PT_NOTE,
					    .p_offset = 8,
					    .p_filesz = 8,
					    .p_vaddr = TEXT,
					    .p_memsz = 4 * PAGE},
					   {.p_type = PT_LOAD,
					    .p_offset = TEXT_AT,
					    .p_filesz = 8 * PAGE,
					    .p_vaddr = TEXT,
					    .p_memsz = 8 * PAGE},
					   {.p_type = PT_LOAD,
					    .p_offset = MODULES_AT,
					    .p_filesz = MODULES_BYTES,
					    .p_vaddr = MODULES,
					    .p_memsz = MODULES_BYTES}}};
}

static void put(int fd, uint64_t addr, uint8_t value)
{
	uint8_t page[PAGE];

	memset(page, value, sizeof(page));
	assert_return_code(io_pwrite_all(fd, page, sizeof(page),
					 (off_t)(addr < MODULES ? TEXT_AT + addr - TEXT
								: MODULES_AT + addr - MODULES)),
			   0);
}

static int make(const struct kcore *k)
{
	int fd = io_memfd("kcore");

	assert_true(fd >= 0);
	assert_return_code(ftruncate(fd, (off_t)(MODULES_AT + MODULES_BYTES)), 0);
	assert_return_code(io_pwrite_all(fd, k, sizeof(*k), 0), 0);
	for (uint8_t i = 0; i < 8; i++)
		put(fd, TEXT + i * PAGE, (uint8_t)(0x10 + i));
	put(fd, TEXT + PAGE, 0); /* the kernel's text is whole, whatever is in it */
	put(fd, MODULES, 0x20);
	put(fd, MODULES + PAGE, 0x21);
	put(fd, MODULES + 2 * PAGE, 0x22);
	put(fd, MODULES + 0x10000, 0x30);
	put(fd, MODULES + 0x12000, 0x32); /* somebody else's, behind what is not mapped */
	put(fd, MODULES + 0x30000, 0x40);
	return fd;
}

static int copy(int in, const char *text, uint64_t max, int out, uint64_t *ret_bytes)
{
	_cleanup_(kernel_symbols_fini) struct kernel_symbols symbols = {.n = 0};
	_cleanup_close_ int list = io_memfd("kallsyms");

	assert_return_code(io_write_all(list, text, strlen(text)), 0);
	assert_return_code(kernel_symbols_read(list, 1 << 20, &symbols), 0);
	return kernel_code_copy(in, &symbols, out, max, ret_bytes);
}

/* The byte at an address of the copy; -1: it does not have it. */
static int byte_at(int fd, uint64_t addr)
{
	Elf64_Ehdr header;
	Elf64_Phdr s;
	uint8_t byte;

	assert_int_equal(io_pread_full(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(header.e_machine, EM_X86_64);
	for (unsigned int i = 0; i < header.e_phnum; i++) {
		assert_int_equal(io_pread_full(fd, &s, sizeof(s),
					       (off_t)(header.e_phoff + i * sizeof(s))),
				 sizeof(s));
		assert_int_equal(s.p_type, PT_LOAD);
		assert_int_equal(s.p_flags, PF_R | PF_X);
		if (addr < s.p_vaddr || addr - s.p_vaddr >= s.p_filesz)
			continue;
		assert_int_equal(io_pread_full(fd, &byte, 1,
					       (off_t)(s.p_offset + addr - s.p_vaddr)),
				 1);
		return byte;
	}
	return -1;
}

static void test_copy(void **state)
{
	const struct kcore k = kcore();
	_cleanup_close_ int in = make(&k), out = io_memfd("out");
	uint64_t bytes;

	assert_int_equal(copy(in, names, UINT64_MAX, out, &bytes), 0);
	assert_int_equal(bytes, (3 + 2 + 1 + 1) * PAGE);
	assert_int_equal(byte_at(out, TEXT), 0x10);
	assert_int_equal(byte_at(out, TEXT + PAGE), 0);
	assert_int_equal(byte_at(out, TEXT + 2 * PAGE + 0x200), 0x12);
	assert_int_equal(byte_at(out, MODULES), 0x20);
	assert_int_equal(byte_at(out, MODULES + 2 * PAGE - 1), 0x21);
	assert_int_equal(byte_at(out, MODULES + 0x10000), 0x30);
	assert_int_equal(byte_at(out, MODULES + 0x30fff), 0x40);
	/* what the kernel began with, data, and what is not mapped or somebody else's */
	assert_int_equal(byte_at(out, TEXT + 4 * PAGE), -1);
	assert_int_equal(byte_at(out, TEXT + 5 * PAGE), -1);
	assert_int_equal(byte_at(out, MODULES + 2 * PAGE), -1);
	assert_int_equal(byte_at(out, MODULES + 0x11000), -1);
	assert_int_equal(byte_at(out, MODULES + 0x12000), -1);
	assert_int_equal(byte_at(out, MODULES + 0x20000), -1);
}

static void test_limits(void **state)
{
	const struct kcore k = kcore();
	_cleanup_close_ int in = make(&k), out = io_memfd("out"), rest = io_memfd("rest");
	uint64_t bytes;

	assert_int_equal(copy(in, names, 7 * PAGE, out, &bytes), 0);
	assert_int_equal(copy(in, names, 7 * PAGE - 1, rest, &bytes), -EFBIG);
	assert_int_equal(copy(in, names, 0, rest, &bytes), -EFBIG);
}

/* Who may not see addresses sees zeros. */
static void test_hidden(void **state)
{
	const struct kcore k = kcore();
	_cleanup_close_ int in = make(&k), out = io_memfd("out");
	uint64_t bytes;

	assert_int_equal(copy(in, "0000000000000000 T _stext\n0000000000000000 T _etext\n",
			      UINT64_MAX, out, &bytes),
			 -ENODATA);
	assert_int_equal(copy(in, "", UINT64_MAX, out, &bytes), -ENODATA);
	assert_int_equal(copy(in, "ffffffff81002000 T _stext\nffffffff81000000 T _etext\n",
			      UINT64_MAX, out, &bytes),
			 -ENODATA);
	/* somewhere else than kcore has it, and beyond its end */
	assert_int_equal(copy(in, "ffffffff91000000 T _stext\nffffffff91001000 T _etext\n",
			      UINT64_MAX, out, &bytes),
			 -ENODATA);
	assert_int_equal(copy(in, "ffffffff81007000 T _stext\nffffffff81009000 T _etext\n",
			      UINT64_MAX, out, &bytes),
			 -ENODATA);
}

static int of_header(const struct kcore *k)
{
	_cleanup_close_ int in = make(k), out = io_memfd("out");
	uint64_t bytes;

	return copy(in, names, UINT64_MAX, out, &bytes);
}

static void test_other_files(void **state)
{
	struct kcore k = kcore();
	_cleanup_close_ int empty = io_memfd("empty"), out = io_memfd("out");
	uint64_t bytes;

	assert_int_equal(copy(empty, names, UINT64_MAX, out, &bytes), -ENOEXEC);
	k.header.e_type = ET_EXEC;
	assert_int_equal(of_header(&k), -ENOEXEC);
	k = kcore();
	k.header.e_ident[EI_CLASS] = ELFCLASS32;
	assert_int_equal(of_header(&k), -ENOEXEC);
	k = kcore();
	k.header.e_phentsize = 32;
	assert_int_equal(of_header(&k), -ENOEXEC);
	k = kcore();
	k.header.e_phnum = PN_XNUM;
	assert_int_equal(of_header(&k), -ENOEXEC);
	k = kcore();
	k.header.e_phoff = UINT64_MAX;
	assert_int_equal(of_header(&k), -ENOEXEC);
	k = kcore();
	k.header.e_phoff = INT64_MAX / 4;
	assert_int_equal(of_header(&k), -ENOEXEC);
	/* an offset beyond all files, and a segment of no whole page */
	k = kcore();
	k.segments[1].p_offset = UINT64_MAX - 16;
	assert_int_equal(of_header(&k), -ENODATA);
	k = kcore();
	k.segments[1].p_memsz = 100;
	assert_int_equal(of_header(&k), -ENODATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_other_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
