/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The debug information (DWARF 2 to 5) of one image: its sections, its units, and one entry of a
 * unit at a time. What is done with entries is elsewhere: decode/dwarf/line.h,
 * decode/dwarf/scope.h.
 *
 * The sections are hostile. Nothing here recurses, no cursor leaves its unit, and each kind of work
 * is paid for by bytes of the section that asks for it (struct dwarf_credit), so that time and
 * memory grow with the size of the file and never with what it says. What is broken is left out and
 * counted.
 *
 * Strings that are handed out lie in the sections: they live as long as the ELF does.
 */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/bytes.h"

#define DWARF_MAX_ATTRS 128u /* of one kind of entry */
#define DWARF_MAX_CODE 32u   /* segments */
#define DWARF_TABLES 64u     /* of abbreviations that are kept for units that share them */

enum dwarf_section {
	DWARF_INFO,
	DWARF_ABBREV,
	DWARF_STR,
	DWARF_LINE,
	DWARF_LINE_STR,
	DWARF_RANGES,
	DWARF_RNGLISTS,
	DWARF_ADDR,
	DWARF_STR_OFFSETS,
	_DWARF_SECTIONS,
};

struct dwarf;
struct dwarf_abbrevs;
struct dwarf_lines;
struct dwarf_scopes;

struct dwarf_unit {
	struct dwarf *dwarf;
	uint64_t off, die, end; /* in DWARF_INFO: its header, its first entry, what follows it */
	uint64_t abbrev_off;
	uint8_t version, offset_size, addr_size;
	bool is_type;
	bool opened, usable;
	/* when usable */
	struct dwarf_abbrevs *abbrevs;
	uint64_t low_pc, addr_base, str_base, rnglists_base;
	uint64_t stmt; /* its lines, in DWARF_LINE; UINT64_MAX: it has none */
	const char *name, *dir;
	struct dwarf_lines *lines; /* line.c's */
	bool lines_tried;
	struct dwarf_scopes *scopes; /* scope.c's */
	bool scopes_tried;
};

/* An entry that another one refers to. */
struct dwarf_ref {
	struct dwarf *dwarf; /* NULL: there is none */
	uint64_t off;
};

/* The attributes that somebody wants. */
struct dwarf_entry {
	uint16_t tag; /* 0: the end of a list of children */
	bool children;
	bool has_low, has_high, high_is_size, has_ranges, ranges_is_index, has_entry,
		entry_is_offset, has_decl_file;
	uint64_t low, high, ranges, entry_pc;
	const char *name, *linkage_name, *dir;
	struct dwarf_ref origin; /* DW_AT_abstract_origin, else DW_AT_specification */
	uint32_t decl_file, decl_line, call_file, call_line; /* 0: not known */
	bool has_stmt;
	uint64_t stmt, addr_base, str_base, rnglists_base;
};

/* Addresses, from start to end. */
struct dwarf_range {
	uint64_t start, end;
};

/* Bytes that may still be read of something that can be asked for again and again. */
struct dwarf_credit {
	uint64_t abbrev, line, ranges;
};

struct dwarf_stats {
	uint64_t broken; /* units, or tables of theirs, that cannot be read */
	uint64_t cut;	 /* those for which there was no memory, or no credit */
};

struct dwarf {
	struct budget *budget; /* borrowed */
	struct bytes sections[_DWARF_SECTIONS];
	struct dwarf *sup; /* the file that several share (dwz); borrowed, NULL: there is none */
	/* what that file is called, and its build id; empty: there is none */
	struct bytes sup_link;
	struct dwarf_unit *units;
	size_t n_units;
	struct dwarf_abbrevs *tables[DWARF_TABLES];
	struct dwarf_place *places; /* scope.c's: which unit an address is of */
	size_t n_places;
	/* what can be executed; elsewhere nothing is believed */
	struct dwarf_range code[DWARF_MAX_CODE];
	uint32_t n_code;
	struct dwarf_credit credit;
	struct dwarf_stats stats;
	uint64_t taken; /* of the budget */
};

/*
 * The ELF stays the caller's and must outlive it. 0, -ENODATA: it has no debug information, -EFBIG,
 * -ENOMEM.
 */
int dwarf_new(Elf *elf, struct budget *budget, struct dwarf **ret) _must_check_;
struct dwarf *dwarf_free(struct dwarf *d);
DEFINE_CLEANUP(struct dwarf *, dwarf_free)

/* Says that there is code; before anything is looked up. */
void dwarf_add_code(struct dwarf *d, uint64_t start, uint64_t end);
bool dwarf_is_code(const struct dwarf *d, uint64_t addr);

/*
 * Reads the unit's own entry and its abbreviations where that was not done; false if it cannot be
 * used.
 */
bool dwarf_unit_open(struct dwarf_unit *u);
/* Forgets its abbreviations until it is opened again. */
void dwarf_unit_close(struct dwarf_unit *u);
/* The unit that an entry lies in, or NULL. */
struct dwarf_unit *dwarf_unit_at(const struct dwarf *d, uint64_t off);

/*
 * The entry at `off` of a unit that is open, and where the next one is. False: it cannot be read.
 */
bool dwarf_entry_read(struct dwarf_unit *u, uint64_t off, struct dwarf_entry *ret,
		      uint64_t *ret_next) _must_check_;

/*
 * What an entry covers, one range after the other, until it answers false. Begins with a `walk`
 * that is all zero.
 */
struct dwarf_walk {
	struct bytes list;
	uint64_t base;
	bool begun;
};
bool dwarf_range_next(struct dwarf_unit *u, const struct dwarf_entry *e, struct dwarf_walk *walk,
		      struct dwarf_range *ret);

/* Memory that grows with the input; false: there is none left. */
bool dwarf_take(struct dwarf *d, uint64_t bytes);

/* A string of a section, or NULL. */
const char *dwarf_string(const struct dwarf *d, enum dwarf_section section, uint64_t off);
/* An offset as wide as this unit's. */
uint64_t dwarf_offset(const struct dwarf_unit *u, struct bytes *b);

/* For the table of lines (DWARF 5), whose attributes have forms, too. */
struct dwarf_value {
	enum {
		DWARF_NOTHING,
		DWARF_NUMBER,
		DWARF_TEXT,
		DWARF_ADDRESS,
		DWARF_REF,
		DWARF_SUP_REF,
		DWARF_OFFSET,
		DWARF_INDEX
	} kind;
	uint64_t number;
	const char *text;
};
/* False (and the cursor has failed) for a form that nobody knows. */
bool dwarf_value_read(const struct dwarf_unit *u, struct bytes *b, uint16_t form, int64_t implicit,
		      struct dwarf_value *ret);
