// SPDX-License-Identifier: Apache-2.0
/*
 * go-functions FILE: the functions that a Go program's own table names: address, size, file, line,
 * name. For go-symbols.py.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "decode/object/gopclntab.h"

int main(int argc, char **argv)
{
	struct budget budget = {.max = 1u << 30};
	struct symbols s;
	struct gopclntab t;
	Elf *elf;
	int fd;

	if (argc != 2 || elf_version(EV_CURRENT) == EV_NONE)
		return 2;
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	elf = fd >= 0 ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
	if (!elf)
		return 2;
	if (!gopclntab_open(elf, &t))
		return 1;
	symbols_init(&s, &budget);
	if (gopclntab_add(&t, &s) < 0)
		return 2;
	for (size_t i = 0; i < s.n; i++) {
		const struct symbol *sym = &s.v[i];
		const char *file = "?", *inside = "?";
		uint32_t line = 0, inside_line = 0;

		(void)gopclntab_line(&t, sym->addr, true, &file, &line);
		(void)gopclntab_line(&t, sym->addr + sym->size / 2, false, &inside, &inside_line);
		(void)printf("%" PRIx64 " %" PRIu64 " %s:%" PRIu32 " %s:%" PRIu32 " %.*s\n",
			     sym->addr, sym->size, file, line, inside, inside_line,
			     (int)sym->name_len, sym->name);
	}
	symbols_fini(&s);
	(void)elf_end(elf);
	return close(fd) < 0;
}
