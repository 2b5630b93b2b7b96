/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a Go program as its own runtime knows them: the table "pclntab", which is there also where the symbol table
 * and DWARF were stripped (-ldflags=-s -w). The format is that of Go's runtime/symtab.go (pcHeader, functab, _func), of Go 1.18
 * and later, 64 bits, little-endian.
 *
 * The table is hostile: each offset is checked against the section. Names are borrowed from the Elf handle.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "decode/object/symbols.h"

#define GOPCLNTAB_MAX_FUNCTIONS (1u << 22)

struct gopclntab {
	const uint8_t *data; /* NULL: the file has none, or one that cannot be read */
	uint64_t size;
	uint64_t names, files, units, values, functions; /* where in it they begin */
	uint64_t text;	     /* where the code begins; offsets of functions are from there */
	uint32_t n_functions;
	uint8_t quantum;
	bool has_lines; /* where functions begin (Go 1.20) */
};

/* Finds the table in the file; false: there is none. */
bool gopclntab_open(Elf *elf, struct gopclntab *ret);

/* Adds its functions. Returns how many, or -ENOMEM. */
int gopclntab_add(const struct gopclntab *t, struct symbols *s);

/*
 * The file and line of the instruction at `vaddr`, or, with `of_function`, of the begin of its function; false: not known. The
 * name is borrowed, and ends with a zero.
 */
bool gopclntab_line(const struct gopclntab *t, uint64_t vaddr, bool of_function, const char **ret_file, uint32_t *ret_line);
