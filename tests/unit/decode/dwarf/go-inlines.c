// SPDX-License-Identifier: Apache-2.0
/*
 * go-inlines FILE < ADDRESSES: what a Go program's own table tells of addresses, one a line in hex:
 * the address, and from the innermost inlined call outwards to the function: its name, file and
 * line, and where it is declared. For go-inlines.py.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "decode/dwarf/go_scopes.h"

static void print_frame(const struct gopclntab *t, const char *name, uint64_t at, uint32_t declared)
{
	const char *file = "?";
	uint32_t line = 0;

	(void)gopclntab_line(t, at, false, &file, &line);
	(void)printf("\t%s %s:%" PRIu32 " %" PRIu32, name, file, line, declared);
}

static int print_address(const struct gopclntab *t, struct budget *budget, uint64_t addr)
{
	_cleanup_(go_scopes_freep) struct go_scopes *go = NULL;
	const struct dwarf_scope *s;
	struct gopclntab_inlines in;
	const char *file;
	uint32_t declared = 0;
	uint64_t at = addr, end;

	(void)printf("%" PRIx64, addr);
	if (!gopclntab_inlines(t, addr, &in))
		return puts("\t?") < 0;
	if (go_scopes_new(&in, budget, &go) < 0 || go_scopes_broken(go))
		return 1;
	for (s = go_scopes_at(go, addr, &end); s && s->outer; s = s->outer) {
		const struct go_scope *g = go_scope_of(s);

		print_frame(t, g->name, at, g->line);
		at = g->called_at;
	}
	(void)gopclntab_line(t, addr, true, &file, &declared);
	print_frame(t, "-", at, declared);
	return puts("") < 0 || end <= addr;
}

int main(int argc, char **argv)
{
	struct budget budget = {.max = 1u << 30};
	struct gopclntab t;
	char line[64];
	Elf *elf;
	int fd, r = 0;

	if (argc != 2 || elf_version(EV_CURRENT) == EV_NONE)
		return 2;
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	elf = fd >= 0 ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
	if (!elf || !gopclntab_open(elf, &t))
		return 2;
	while (!r && fgets(line, sizeof(line), stdin))
		r = print_address(&t, &budget, strtoull(line, NULL, 16));
	(void)elf_end(elf);
	return close(fd) < 0 || r || budget.used;
}
