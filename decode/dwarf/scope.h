/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which unit of the debug information an address is of, which function of it, and which calls were
 * inlined there. Each unit's functions are read once, when it is first asked for.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "decode/dwarf/dwarf.h"

#define DWARF_MAX_INLINED 64u /* in each other */

/* A function, or a call that was inlined. The same pointer for the same, always. */
struct dwarf_scope {
	/* in whose code this was inlined; NULL: it is a function */
	const struct dwarf_scope *outer;
	struct dwarf_unit *unit; /* NULL: it is of a Go program's own table (go_scopes.h) */
	uint64_t off;	/* its entry */
	uint64_t entry; /* its first instruction; 0: not known */
	uint32_t call_file, call_line; /* of what was inlined: where it is called; 0: not known */
	uint32_t depth; /* of a function 0 */
};

/* The unit, or NULL. */
struct dwarf_unit *dwarf_unit_of(struct dwarf *d, uint64_t addr);

/* The innermost scope at an address, and how far that is true; NULL: none is known, likewise. */
const struct dwarf_scope *dwarf_scope_at(struct dwarf *d, uint64_t addr, uint64_t *ret_end);

/* What a scope is called and where it is declared; what is not known is NULL or 0. Borrowed. */
struct dwarf_name {
	const char *name, *linkage_name;
	struct dwarf_unit *unit; /* whose number `file` is */
	uint32_t file, line;
};
void dwarf_scope_name(const struct dwarf_scope *s, struct dwarf_name *ret);

/*
 * How many calls were inlined, in a unit that is open, of the functions whose name `is` accepts.
 * Reads all of the unit.
 */
uint64_t dwarf_inlined_calls(struct dwarf_unit *u,
			     bool (*is)(const void *arg, const struct dwarf_name *name),
			     const void *arg);
