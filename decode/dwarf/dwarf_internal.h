/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between dwarf.c (sections, units, abbreviations), entry.c (entries) and what units keep for
 * others.
 */
#pragma once

#include "decode/dwarf/dwarf.h"

struct dwarf_attr {
	uint16_t name, form;
	int64_t implicit;
};

struct dwarf_abbrev {
	uint64_t code;
	uint32_t first; /* of its attributes */
	uint16_t tag, n;
	bool children;
};

const struct dwarf_abbrev *dwarf_abbrev_find(const struct dwarf_abbrevs *a, uint64_t code,
					     const struct dwarf_attr **ret_attrs);

struct dwarf_lines *dwarf_lines_free(struct dwarf_lines *l);
struct dwarf_scopes *dwarf_scopes_free(struct dwarf_scopes *s);
