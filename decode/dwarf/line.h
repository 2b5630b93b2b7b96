/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of lines of a unit: which line of which file an address comes from. Run once, when the
 * unit is first asked for; then looked up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/dwarf/dwarf.h"

#define DWARF_PATH_MAX 4096u

/* The line of an address; 0: it has none. *ret_file is a number for dwarf_file_path(). */
uint32_t dwarf_line_at(struct dwarf_unit *u, uint64_t addr, uint32_t *ret_file);

/*
 * A file of the unit's table, absolute where the unit names its directory; as it stands there.
 * False: there is no such file.
 */
bool dwarf_file_path(struct dwarf_unit *u, uint32_t file, char *buf, size_t size);

/*
 * The other way around: whether a file of this name (what follows the last slash) is in the unit's
 * table, read without its lines; and its rows, one after the other, from *pos = 0 on. A row is
 * where the code of a line begins.
 */
bool dwarf_has_file(struct dwarf_unit *u, const char *name);
struct dwarf_row {
	uint64_t addr;
	uint32_t file, line;
};
bool dwarf_row_next(struct dwarf_unit *u, size_t *pos, struct dwarf_row *ret);
