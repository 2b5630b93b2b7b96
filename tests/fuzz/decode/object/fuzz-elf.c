// SPDX-License-Identifier: Apache-2.0
/*
 * An image from a stranger: any bytes as executable and as its debug file. The corpus is
 * tests/unit/decode/object/tiny-elf.c, once with its symbols and once with them in .gnu_debugdata,
 * a program with inlined calls and the debug information of DWARF 4 and 5, and the tables of a Go
 * program by which main.g was inlined in main.f in main.h.
 */
#include <stdlib.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"
#include "tests/fuzz/decode/object/exercise-elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct exercise_result sum = {0};

	if (size > 1 << 20)
		return 0;
	if (fd < 0)
		fd = io_memfd("fuzz-elf");
	if (fd < 0 || ftruncate(fd, 0) < 0 || io_pwrite_all(fd, data, size, 0) < 0)
		abort();
	exercise_elf(fd, &sum);
	return 0;
}
