// SPDX-License-Identifier: Apache-2.0
/*
 * A process that hangs whoever looks at its memory map: `hungmap FILE`, of a file system whose server does not answer
 * writes, see hungfs.c. Says "ready"; at a line it maps a program, changes a page of the file and maps something else over
 * that, for which the kernel writes the page back with the map locked. Says "done" after it, and ends with its input.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int program = open("/bin/true", O_RDONLY | O_CLOEXEC);
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	volatile char *at = fd < 0 ? MAP_FAILED : mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char line[16];

	if (at == MAP_FAILED) {
		perror("hungmap");
		return 1;
	}
	(void)puts("ready");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		at[0]++;
		if (mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0) == MAP_FAILED ||
		    mmap((void *)at, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return 1;
		(void)puts("done");
		(void)fflush(stdout);
	}
	return 0;
}
