// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a bundle's copy of /proc/kallsyms. */
#include <stdint.h>
#include <stdlib.h>

#include "common/base/io.h"
#include "decode/object/kallsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct budget budget = {.max = 4 << 20};
	struct kallsyms *k = NULL;
	struct kallsyms_function f;
	_cleanup_close_ int fd = io_memfd("fuzz");

	if (fd < 0 || io_pwrite_all(fd, data, size, 0) < 0)
		return 0;
	if (kallsyms_read(fd, &budget, &k) == 0) {
		volatile char sum = 0;

		for (uint64_t addr = UINT64_C(0xffffffff81000000);
		     addr < UINT64_C(0xffffffff81010000); addr += 0x80) {
			(void)kallsyms_is_scheduler(k, addr);
			if (!kallsyms_find(k, addr, &f))
				continue;
			if (f.start > addr)
				abort();
			for (uint32_t i = 0; i < f.name_len; i++)
				sum += f.name[i];
			for (uint32_t i = 0; i < f.module_len; i++)
				sum += f.module[i];
		}
	}
	k = kallsyms_free(k);
	if (budget.used)
		abort();
	return 0;
}
