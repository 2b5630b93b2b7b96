// SPDX-License-Identifier: Apache-2.0
/*
 * Addresses to functions, files and lines, as addr2line -f -i prints them: dwarf-walk FILE
 * [SHARED-FILE] < ADDRESSES For the tests: an address a line in hex; the function and the place,
 * from the innermost inlined call outwards. What is not known is "??".
 */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "decode/dwarf/dwarf.h"
#include "decode/dwarf/line.h"
#include "decode/dwarf/scope.h"

static struct budget budget = {.max = 512u << 20};

static struct dwarf *open_dwarf(const char *path, Elf **ret_elf)
{
	struct dwarf *d = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;
	size_t n;

	*ret_elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	if (!*ret_elf) {
		(void)fprintf(stderr, "%s cannot be opened\n", path);
		return NULL;
	}
	r = dwarf_new(*ret_elf, &budget, &d);
	if (r < 0) {
		(void)fprintf(stderr, "%s: no debug information: %d\n", path, r);
		return NULL;
	}
	for (size_t i = 0; elf_getphdrnum(*ret_elf, &n) == 0 && i < n; i++) {
		GElf_Phdr ph;

		if (gelf_getphdr(*ret_elf, (int)i, &ph) && ph.p_type == PT_LOAD &&
		    (ph.p_flags & PF_X))
			dwarf_add_code(d, ph.p_vaddr, ph.p_vaddr + ph.p_memsz);
	}
	return d;
}

static void print_place(const char *name, struct dwarf_unit *unit, uint32_t file, uint32_t line)
{
	char path[DWARF_PATH_MAX];

	if (unit && line && dwarf_file_path(unit, file, path, sizeof(path)))
		(void)printf("%s\n%s:%" PRIu32 "\n", name, path, line);
	else
		(void)printf("%s\n??:%s\n", name, line ? "?" : "0");
}

static void print_address(struct dwarf *d, uint64_t addr)
{
	struct dwarf_unit *unit = dwarf_unit_of(d, addr);
	uint32_t file = 0, line = unit ? dwarf_line_at(unit, addr, &file) : 0;
	const struct dwarf_scope *s;
	struct dwarf_name name;
	uint64_t end;

	s = dwarf_scope_at(d, addr, &end);
	if (!s) {
		print_place("??", unit, file, line);
		return;
	}
	for (; s; s = s->outer) {
		dwarf_scope_name(s, &name);
		print_place(name.linkage_name ? name.linkage_name
			    : name.name       ? name.name
					      : "??",
			    unit, file, line);
		unit = s->unit;
		file = s->call_file;
		line = s->call_line;
	}
}

int main(int argc, char **argv)
{
	struct dwarf *d, *sup = NULL;
	Elf *elf, *sup_elf = NULL;
	char line[64];

	if (argc < 2 || elf_version(EV_CURRENT) == EV_NONE)
		return 2;
	d = open_dwarf(argv[1], &elf);
	if (!d)
		return 1;
	if (argc > 2)
		d->sup = sup = open_dwarf(argv[2], &sup_elf);
	while (fgets(line, sizeof(line), stdin)) {
		const uint64_t addr = strtoull(line, NULL, 16);

		(void)printf("0x%016" PRIx64 "\n", addr);
		print_address(d, addr);
	}
	if (d->stats.broken || d->stats.cut)
		(void)fprintf(stderr, "broken %" PRIu64 ", over limits %" PRIu64 "\n",
			      d->stats.broken, d->stats.cut);
	dwarf_free(d);
	dwarf_free(sup);
	if (sup_elf)
		(void)elf_end(sup_elf);
	(void)elf_end(elf);
	return 0;
}
