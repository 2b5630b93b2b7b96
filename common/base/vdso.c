// SPDX-License-Identifier: Apache-2.0
#include "common/base/vdso.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#define ALIGNED(n) (((size_t)(n) + 3) & ~(size_t)3)

static size_t find_note(const uint8_t *p, size_t left, uint8_t ret[VDSO_BUILD_ID_MAX])
{
	while (left >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *n = (const void *)p;
		const size_t size = sizeof(*n) + ALIGNED(n->n_namesz) + ALIGNED(n->n_descsz);

		if (size > left)
			break;
		if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 &&
		    n->n_descsz <= VDSO_BUILD_ID_MAX) {
			memcpy(ret, p + sizeof(*n) + 4, n->n_descsz);
			return n->n_descsz;
		}
		p += size;
		left -= size;
	}
	return 0;
}

size_t vdso_build_id(uint8_t ret[VDSO_BUILD_ID_MAX])
{
	const uint8_t *base = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	const ElfW(Ehdr) *e = (const void *)base;
	const ElfW(Phdr) *p;
	size_t n = 0;

	if (!base)
		return 0;
	p = (const void *)(base + e->e_phoff);
	for (unsigned int i = 0; n == 0 && i < e->e_phnum; i++)
		if (p[i].p_type == PT_NOTE)
			n = find_note(base + p[i].p_offset, p[i].p_filesz, ret);
	return n;
}
