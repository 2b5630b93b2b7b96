// SPDX-License-Identifier: Apache-2.0
/*
 * Compares a copy of the kernel's code with /proc/kcore: each page of the copy's segments, at its address. Prints "PAGES DIFFERENT
 * MISSING", and the addresses of the first that differ.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096

static Elf64_Phdr *segments(int fd, unsigned int *n)
{
	Elf64_Ehdr header;
	Elf64_Phdr *v;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		exit(2);
	*n = header.e_phnum;
	v = calloc(*n, sizeof(*v));
	for (unsigned int i = 0; i < *n; i++)
		if (!v || pread(fd, &v[i], sizeof(*v), (off_t)(header.e_phoff + i * sizeof(*v))) != sizeof(*v))
			exit(2);
	return v;
}

static int read_kernel(int fd, const Elf64_Phdr *v, unsigned int n, Elf64_Addr addr, char *page)
{
	for (unsigned int i = 0; i < n; i++)
		if (v[i].p_type == PT_LOAD && addr >= v[i].p_vaddr && addr - v[i].p_vaddr < v[i].p_memsz)
			return pread(fd, page, PAGE, (off_t)(v[i].p_offset + (addr - v[i].p_vaddr))) == PAGE;
	return 0;
}

int main(int argc, char **argv)
{
	static char ours[PAGE], kernels[PAGE];
	unsigned int n_copy, n_kernel, pages = 0, different = 0, missing = 0;
	int copy = argc > 1 ? open(argv[1], O_RDONLY) : -1, kernel = open("/proc/kcore", O_RDONLY);
	Elf64_Phdr *in_copy, *in_kernel;

	if (copy < 0 || kernel < 0)
		return 2;
	in_copy = segments(copy, &n_copy);
	in_kernel = segments(kernel, &n_kernel);
	for (unsigned int i = 0; i < n_copy; i++) {
		for (Elf64_Xword at = 0; at < in_copy[i].p_filesz; at += PAGE) {
			const Elf64_Addr addr = in_copy[i].p_vaddr + at;

			pages++;
			if (pread(copy, ours, PAGE, (off_t)(in_copy[i].p_offset + at)) != PAGE)
				return 2;
			if (!read_kernel(kernel, in_kernel, n_kernel, addr, kernels))
				missing++;
			else if (memcmp(ours, kernels, PAGE) != 0 && different++ < 8)
				(void)printf("different %lx\n", (unsigned long)addr);
		}
	}
	(void)printf("pages %u\ndifferent %u\nmissing %u\n", pages, different, missing);
	return 0;
}
