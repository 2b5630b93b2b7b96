/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small table of unwind rules that is good in all respects, of which tests damage what they like.
 */
#pragma once

#include <stdint.h>

#include "common/bundle/unwind_table.h"

struct table {
	struct unwind_file head;
	struct unwind_load load;
	uint32_t pages[2], rows[4];
	struct unwind_rule rules[2];
};

static struct table good(void)
{
	return (struct table){
		.head = {.magic = UNWIND_FILE_MAGIC,
			 .n_loads = 1,
			 .n_pages = 2,
			 .n_rows = 4,
			 .n_rules = 2,
			 .lo_page = 7},
		.load = {.off = 0x7000, .vaddr = 0x7000, .size = 0x2000},
		.pages = {3, 1},
		.rows = {UNWIND_ROW(0, 0), UNWIND_ROW(5, 1), UNWIND_ROW(9, 0), UNWIND_ROW(0, 1)},
		.rules = {{.kind_reg = UNWIND_UNKNOWN},
			  {.kind_reg = UNWIND_CFA | 7 << 4, .cfa_off = 16}},
	};
}
