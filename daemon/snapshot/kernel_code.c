// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/kernel_code.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/io.h"
#include "daemon/snapshot/kernel_symbols.h"

#define PAGE UINT64_C(4096)
#define CHUNK_BYTES (64u << 10)
/* kcore has one for each piece of the machine's memory. */
#define SEGMENTS_MAX 16384u
#define PIECES_MAX 32768u
/* Where no other symbol follows it is not known how long a function is: as the decoder assumes. */
#define FUNCTION_MAX (UINT64_C(1) << 20)

struct copy {
	int in, out;
	Elf64_Phdr *segments; /* of kcore */
	size_t n_segments;
	Elf64_Phdr *made;
	size_t n_made, room;
	uint64_t at, max, bytes;
	uint64_t done; /* of what functions are on: the next page */
	uint8_t buffer[CHUNK_BYTES];
};

static void copy_free(struct copy *c)
{
	free(c->segments);
	free(c->made);
	free(c);
}

static void copy_freep(struct copy **c)
{
	if (*c)
		copy_free(*c);
}

/* ---- kcore */

static int read_header(int fd, Elf64_Ehdr *ret)
{
	const ssize_t n = io_pread_full(fd, ret, sizeof(*ret), 0);

	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(*ret) || memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0 ||
	    ret->e_ident[EI_CLASS] != ELFCLASS64 || ret->e_ident[EI_DATA] != ELFDATA2LSB ||
	    ret->e_type != ET_CORE || ret->e_phentsize != sizeof(Elf64_Phdr) || ret->e_phnum == 0 ||
	    ret->e_phnum > SEGMENTS_MAX || ret->e_phoff > INT64_MAX / 2)
		return -ENOEXEC;
	return 0;
}

static int read_segments(struct copy *c, uint16_t *ret_machine)
{
	Elf64_Ehdr header;
	size_t bytes;
	ssize_t n;
	int r = read_header(c->in, &header);

	if (r < 0)
		return r;
	bytes = header.e_phnum * sizeof(*c->segments);
	c->segments = malloc(bytes);
	if (!c->segments)
		return -ENOMEM;
	n = io_pread_full(c->in, c->segments, bytes, (off_t)header.e_phoff);
	if (n < 0)
		return (int)n;
	if ((size_t)n != bytes)
		return -ENOEXEC;
	c->n_segments = header.e_phnum;
	*ret_machine = header.e_machine;
	return 0;
}

/* Where it is in kcore, and how much follows there; false: kcore does not have it. */
static bool find(const struct copy *c, uint64_t addr, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	for (size_t i = 0; i < c->n_segments; i++) {
		const Elf64_Phdr *s = &c->segments[i];

		if (s->p_type != PT_LOAD || addr < s->p_vaddr || addr - s->p_vaddr >= s->p_memsz ||
		    __builtin_add_overflow(s->p_offset, addr - s->p_vaddr, ret_offset) ||
		    *ret_offset > INT64_MAX - CHUNK_BYTES)
			continue;
		*ret_bytes = s->p_memsz - (addr - s->p_vaddr);
		return true;
	}
	return false;
}

/* ---- what is code */

static bool is_function(const struct kernel_symbol *s)
{
	const char *type = memchr(s->text, ' ', s->len);

	return s->addr >= KERNEL_HALF && type && type + 2 < s->text + s->len &&
	       memchr("tTwW", type[1], 4) && type[2] == ' ';
}

static bool is_named(const struct kernel_symbol *s, const char *name)
{
	const char *type = memchr(s->text, ' ', s->len);
	const size_t len = strlen(name);

	return type && s->len == (size_t)(type + 3 - s->text) + len + 1 &&
	       memcmp(type + 3, name, len) == 0;
}

/* Where the kernel's own text is. */
static bool find_text(const struct kernel_symbols *s, uint64_t *ret, uint64_t *ret_end)
{
	*ret = *ret_end = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (is_named(&s->v[i], "_stext"))
			*ret = s->v[i].addr & ~(PAGE - 1);
		else if (is_named(&s->v[i], "_etext"))
			*ret_end = (s->v[i].addr + PAGE - 1) & ~(PAGE - 1);
	}
	return *ret >= KERNEL_HALF && *ret_end > *ret;
}

/* ---- copying */

static bool is_empty(const uint8_t *page)
{
	return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

static Elf64_Phdr *add_segment(struct copy *c, uint64_t addr)
{
	if (c->n_made == c->room) {
		const size_t room = c->room ? c->room * 2 : 256;
		Elf64_Phdr *v = reallocarray(c->made, room, sizeof(*v));

		if (!v)
			return NULL;
		c->made = v;
		c->room = room;
	}
	c->made[c->n_made] = (Elf64_Phdr){.p_type = PT_LOAD,
					  .p_flags = PF_R | PF_X,
					  .p_offset = c->at,
					  .p_vaddr = addr,
					  .p_align = PAGE};
	return &c->made[c->n_made++];
}

/* So many bytes of the buffer, whole pages. */
static int write_pages(struct copy *c, uint64_t addr, size_t bytes)
{
	Elf64_Phdr *s = c->n_made ? &c->made[c->n_made - 1] : NULL;
	int r;

	if (c->bytes + bytes > c->max ||
	    (c->n_made == PIECES_MAX && s->p_vaddr + s->p_filesz != addr))
		return -EFBIG;
	if (!s || s->p_vaddr + s->p_filesz != addr)
		s = add_segment(c, addr);
	if (!s)
		return -ENOMEM;
	r = io_pwrite_all(c->out, c->buffer, bytes, (off_t)c->at);
	if (r < 0)
		return r;
	s->p_filesz = s->p_memsz += bytes;
	c->at += bytes;
	c->bytes += bytes;
	return 0;
}

/* Into the buffer: how many bytes, whole pages; 0: kcore does not have them. */
static ssize_t read_pages(struct copy *c, uint64_t addr, uint64_t want)
{
	uint64_t offset, left;
	ssize_t n;

	if (!find(c, addr, &offset, &left))
		return 0;
	if (want > left)
		want = left;
	if (want > CHUNK_BYTES)
		want = CHUNK_BYTES;
	n = io_pread_full(c->in, c->buffer, (size_t)want, (off_t)offset);
	return n < 0 ? n : n & ~(ssize_t)(PAGE - 1);
}

static int copy_text(struct copy *c, uint64_t text, uint64_t end)
{
	for (uint64_t addr = text; addr < end;) {
		const ssize_t n = read_pages(c, addr, end - addr);
		int r = n > 0 ? write_pages(c, addr, (size_t)n) : n < 0 ? (int)n : -ENODATA;

		if (r < 0)
			return r;
		addr += (uint64_t)n;
	}
	return 0;
}

/*
 * The pages of a module's function. Where nothing is mapped kcore has zeros, and no page of code is
 * empty: so it ends there. What cannot be read has been unloaded.
 */
static int copy_function(struct copy *c, uint64_t start, uint64_t end)
{
	uint64_t addr = start & ~(PAGE - 1);
	int r = 0;

	for (addr = addr > c->done ? addr : c->done; addr < end && r == 0; addr += PAGE) {
		if (read_pages(c, addr, PAGE) != (ssize_t)PAGE || is_empty(c->buffer))
			return 0;
		r = write_pages(c, addr, PAGE);
		c->done = addr + PAGE;
	}
	return r;
}

static int copy_functions(struct copy *c, const struct kernel_symbols *s, uint64_t text,
			  uint64_t text_end)
{
	int r = 0;

	for (size_t i = 0, next; i < s->n && r == 0; i = next) {
		const uint64_t addr = s->v[i].addr;
		bool code = false;
		uint64_t end;

		for (next = i; next < s->n && s->v[next].addr == addr; next++)
			code |= is_function(&s->v[next]) &&
				memchr(s->v[next].text, '\t', s->v[next].len);
		/*
		 * What has no module and is not in the text is what the kernel began with, which is
		 * gone.
		 */
		if (!code || (addr >= text && addr < text_end))
			continue;
		end = next < s->n ? s->v[next].addr : UINT64_MAX - PAGE;
		r = copy_function(c, addr, end - addr > FUNCTION_MAX ? addr + FUNCTION_MAX : end);
	}
	return r;
}

static int write_headers(struct copy *c, uint16_t machine)
{
	Elf64_Ehdr header = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_CORE,
		.e_machine = machine,
		.e_version = EV_CURRENT,
		.e_phoff = c->at,
		.e_ehsize = sizeof(header),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (Elf64_Half)c->n_made,
	};
	int r = io_pwrite_all(c->out, c->made, c->n_made * sizeof(*c->made), (off_t)c->at);

	return r < 0 ? r : io_pwrite_all(c->out, &header, sizeof(header), 0);
}

int kernel_code_copy(int kcore, const struct kernel_symbols *symbols, int out, uint64_t max,
		     uint64_t *ret_bytes)
{
	_cleanup_(copy_freep) struct copy *c = calloc(1, sizeof(*c));
	uint64_t text, text_end;
	uint16_t machine = 0;
	int r;

	*ret_bytes = 0;
	if (!c)
		return -ENOMEM;
	c->in = kcore;
	c->out = out;
	c->at = PAGE;
	c->max = max < KERNEL_CODE_MAX ? max : KERNEL_CODE_MAX;
	r = read_segments(c, &machine);
	if (r == 0 && !find_text(symbols, &text, &text_end))
		r = -ENODATA;
	/*
	 * perf (6.1) takes the last segment first, and for it the kernel is all of the upper half
	 * until it has met that of _stext: what would come before that would be in it, and is left
	 * out.
	 */
	if (r == 0)
		r = copy_functions(c, symbols, text, text_end);
	if (r == 0)
		r = copy_text(c, text, text_end);
	if (r == 0)
		r = write_headers(c, machine);
	*ret_bytes = c->bytes;
	return r;
}
