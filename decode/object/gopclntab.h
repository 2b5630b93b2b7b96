/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a Go program as its own runtime knows them: the table "pclntab", which is there
 * also where the symbol table and DWARF were stripped (-ldflags=-s -w). The format is that of Go's
 * runtime/symtab.go (pcHeader, functab, _func), of Go 1.18 and later, 64 bits, little-endian. The
 * calls that were inlined are in the data of the functions (symtabinl.go, of Go 1.20 and later), to
 * which only the module's data (moduledata) lead.
 *
 * The table is hostile: each offset is checked against the section. Names are borrowed from the Elf
 * handle.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

#include "decode/base/bytes.h"
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
	/* NULL: they were not found, and so it is not known what is inlined */
	const uint8_t *func_data;
	uint64_t func_data_size;
};

/* Finds the table in the file; false: there is none. */
bool gopclntab_open(Elf *elf, struct gopclntab *ret);

/* Adds its functions. Returns how many, or -ENOMEM. */
int gopclntab_add(const struct gopclntab *t, struct symbols *s);

/*
 * The file and line of the instruction at `vaddr`, or, with `of_function`, of the begin of its
 * function; false: not known. The name is borrowed, and ends with a zero.
 */
bool gopclntab_line(const struct gopclntab *t, uint64_t vaddr, bool of_function,
		    const char **ret_file, uint32_t *ret_line);

/*
 * A table of values of a function, as it is gone through: what is true from `start` to before
 * `end`, which count from its begin.
 */
struct gopclntab_steps {
	struct bytes b;
	uint64_t start, end;
	int32_t value;
	uint32_t n;
	uint8_t quantum;
};

/* Flags of a function, as the runtime has them. */
#define GOPCLNTAB_IS_OUTERMOST 1u /* nobody has called it */
/* it goes to another stack: how much of it is in use says little there */
#define GOPCLNTAB_WRITES_SP 2u

struct gopclntab_function {
	uint64_t start, end;
	const char *name; /* borrowed, and ends with a zero */
	uint32_t stack;	  /* its table of how much of the stack is in use */
	uint8_t flags;
};

/* Function number `i` of t->n_functions; false: nothing is known of it, or it is none of Go's. */
bool gopclntab_function(const struct gopclntab *t, uint32_t i, struct gopclntab_function *ret);
/* The one that has the address. */
bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_function *ret);
/* Between it and its return address, how many bytes of the stack are in use. */
bool gopclntab_stack_begin(const struct gopclntab *t, const struct gopclntab_function *f,
			   struct gopclntab_steps *ret);
bool gopclntab_stack_next(struct gopclntab_steps *s);

/* The calls that were inlined into a function. */
struct gopclntab_inlines {
	const struct gopclntab *t; /* borrowed */
	uint64_t start, end; /* of the function */
	const uint8_t *calls; /* NULL: there are none */
	uint32_t n_calls; /* that may be there: how many there are nobody says */
	uint32_t table;
};

struct gopclntab_call {
	const char *name; /* borrowed, and ends with a zero */
	/*
	 * an instruction with the place of the call, which is of the call around it, from the
	 * function's begin
	 */
	uint32_t called_at;
	uint32_t line; /* where it is declared; the file is that of its instructions */
};

/* Those of the function at an address; false: it is of none, or it is not known. */
bool gopclntab_inlines(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_inlines *ret);
/*
 * Which call is the innermost, by the address: the value is its number, or below 0 where there is
 * none.
 */
bool gopclntab_inlines_begin(const struct gopclntab_inlines *in, struct gopclntab_steps *ret);
bool gopclntab_inlines_next(struct gopclntab_steps *s);
bool gopclntab_inlined_call(const struct gopclntab_inlines *in, uint32_t number,
			    struct gopclntab_call *ret);
