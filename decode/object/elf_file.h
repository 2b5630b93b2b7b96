/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of code, opened for those that read x86-64 only, and a section of it by its name. The file
 * is hostile: numbers are bounded here.
 */
#pragma once

#include <gelf.h>

#include "common/base/cleanup.h"

DEFINE_CLEANUP(Elf *, elf_end)

/*
 * `fd` stays the caller's, and must stay open. The caller ends what it gets. 0; -EBADMSG: it is no
 * such file; -ENOTSUP: libelf is too old.
 */
int elf_file_open(int fd, Elf **ret, GElf_Ehdr *ret_head) _must_check_;

/*
 * The first section of that name that has bytes in the file, with its header; NULL: there is none.
 */
Elf_Scn *elf_file_section(Elf *elf, const char *name, GElf_Shdr *ret);
/*
 * Its bytes as they are in the file, which are read into memory: as many as the header says. NULL:
 * there is no section, or it has none.
 */
Elf_Data *elf_file_bytes(Elf_Scn *section);
