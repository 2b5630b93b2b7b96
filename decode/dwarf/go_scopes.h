/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that were inlined into a function of a Go program, by the table that its own runtime
 * has (decode/object/gopclntab.h), as scopes: where there is no DWARF they take the place of its
 * scopes.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/dwarf/scope.h"
#include "decode/object/gopclntab.h"

#define GO_SCOPES_MAX_CALLS 16384u /* in a function: of more, those that come later are not shown */

/* What a scope is that has no unit. */
struct go_scope {
	struct dwarf_scope scope; /* the first member */
	const char *name; /* borrowed; NULL: the table is broken there, or it is the function */
	uint32_t line; /* where it is declared; 0: not known */
	uint64_t at; /* an instruction of its own, which has its file; 0: not known */
	uint64_t called_at; /* an instruction with the place of the call */
};

struct go_scopes;

/* Of the function that `in` tells of, whose table outlives them. 0, or -ENOMEM. */
int go_scopes_new(const struct gopclntab_inlines *in, struct budget *budget,
		  struct go_scopes **ret) _must_check_;
struct go_scopes *go_scopes_free(struct go_scopes *s);
DEFINE_CLEANUP(struct go_scopes *, go_scopes_free)

/* Calls of which something cannot be: they, and those in them, are not shown. */
uint32_t go_scopes_broken(const struct go_scopes *s);

/*
 * The innermost call at an address of the function, and how far that is true; NULL: there is none,
 * likewise.
 */
const struct dwarf_scope *go_scopes_at(const struct go_scopes *s, uint64_t vaddr,
				       uint64_t *ret_end);

static inline const struct go_scope *go_scope_of(const struct dwarf_scope *s)
{
	return s->unit ? NULL : (const struct go_scope *)(const void *)s;
}
