// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/elf_file.h"

#include <errno.h>
#include <string.h>

#include "decode/object/symbols.h"

int elf_file_open(int fd, Elf **ret, GElf_Ehdr *ret_head)
{
	_cleanup_(elf_endp) Elf *elf = NULL;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOTSUP;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, ret_head) ||
	    ret_head->e_machine != EM_X86_64 || gelf_getclass(elf) != ELFCLASS64 ||
	    ret_head->e_ident[EI_DATA] != ELFDATA2LSB)
		return -EBADMSG;
	*ret = take_ptr(elf);
	return 0;
}

Elf_Scn *elf_file_section(Elf *elf, const char *name, GElf_Shdr *ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return NULL;
	for (unsigned int i = 0; i < SYMBOLS_MAX_SECTIONS && (scn = elf_nextscn(elf, scn)); i++) {
		const char *own;

		if (!gelf_getshdr(scn, ret) || ret->sh_type == SHT_NOBITS)
			continue;
		own = elf_strptr(elf, names, ret->sh_name);
		if (own && strcmp(own, name) == 0)
			return scn;
	}
	return NULL;
}

Elf_Data *elf_file_bytes(Elf_Scn *section)
{
	Elf_Data *data = section ? elf_rawdata(section, NULL) : NULL;

	return data && data->d_buf ? data : NULL;
}
