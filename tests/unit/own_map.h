/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kernel has mapped something of the test program itself. */
#ifndef TESTS_UNIT_OWN_MAP_H
#define TESTS_UNIT_OWN_MAP_H

#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/procfs.h"

/* The mapping of an address, without its path. Fails the test where there is none. */
static inline struct proc_map own_map_of(const void *address)
{
	const uint64_t at = (uint64_t)(uintptr_t)address;
	static char text[1 << 16];
	struct proc_map map;
	size_t pos = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	size_t len = f ? fread(text, 1, sizeof(text), f) : 0;

	assert_non_null(f);
	(void)fclose(f);
	while (proc_map_next(text, len, &pos, &map) == 1)
		if (at >= map.start && at < map.end) {
			map.path = NULL;
			return map;
		}
	fail_msg("this program is not mapped");
	return (struct proc_map){0};
}

#endif
