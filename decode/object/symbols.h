/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of one image's functions: collected from .symtab and .dynsym of any number of ELF
 * files with the same addresses (the image, its debug file, its .gnu_debugdata), and from its
 * PLT; then sorted, one name an address, for bsearch.
 *
 * The ELF is hostile: sizes are checked against the budget, numbers against their tables. Names
 * are borrowed from the Elf handles, which must stay open; they are bytes, not text.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

#define SYMBOLS_MAX_SECTIONS 65536u

struct symbol {
	uint64_t addr;
	uint64_t size;
	const char *name;
	uint32_t name_len;
	uint8_t rank; /* which of two names for one address is shown: the higher */
	bool plt;     /* its entry in the procedure linkage table; shown as name@plt */
	bool sized;   /* `size` is the table's, not guessed from what follows */
	bool chooser; /* an IFUNC: chooses at run time which code the name stands for */
	bool label;   /* neither type nor size: it may lie within a function */
};

struct symbols {
	struct symbol *v;
	size_t n, cap;
	struct budget *budget; /* borrowed */
	bool cut;              /* the budget refused some */
	bool finished;
};

void symbols_init(struct symbols *s, struct budget *budget);
void symbols_fini(struct symbols *s);

/*
 * Adds the functions of a symbol table (SHT_SYMTAB or SHT_DYNSYM). Returns how many sections of
 * that type there were, or -ENOMEM. What is broken is left out.
 */
int symbols_add_elf(struct symbols *s, Elf *elf, uint32_t sh_type);

/* Adds one: its name must stay. 0 or -ENOMEM. */
int symbols_add(struct symbols *s, const struct symbol *sym);

/* Adds names for the entries of .plt, .plt.sec and .plt.got (x86-64 only). */
void symbols_add_plt(struct symbols *s, Elf *elf);

/*
 * Sorts, keeps the best name of each address and no label within a function that says how long it
 * is, closes sizes. Must be called before find.
 */
void symbols_finish(struct symbols *s);

/* The function that `addr` lies in, or NULL. */
const struct symbol *symbols_find(const struct symbols *s, uint64_t addr);
