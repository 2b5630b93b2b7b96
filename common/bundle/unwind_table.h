/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * How the caller of a function is found, as rows that a BPF program can search: what tracerd-decode
 * makes of an ELF file's unwind information (decode/object/unwind_table.c), the daemon checks and
 * loads (daemon/backend/sample/unwind_tables.c), and the program goes by
 * (daemon/backend/sample/bpf/unwind.bpf.h). x86-64 only; little endian, fixed-width fields.
 *
 * A row has the offset of its first address in its page of 4 KiB, and the number of a rule. Each
 * page of code begins with a row for its first byte, so that a search never leaves the page.
 *
 * In a file, for each object: the header, loads, one count of rows for each page, rows, rules.
 */
#pragma once

#include "common/bundle/schedev.h"

#ifdef __bpf__
typedef unsigned char unwind_u8;
typedef short unwind_s16;
typedef int unwind_s32;
#else
typedef uint8_t unwind_u8;
typedef int16_t unwind_s16;
typedef int32_t unwind_s32;
#endif

#define UNWIND_PAGE_BITS 12
#define UNWIND_RULE_BITS 20
#define UNWIND_ROW(off, rule) ((schedev_u32)(off) << UNWIND_RULE_BITS | (schedev_u32)(rule))
#define UNWIND_ROW_OFF(row) ((row) >> UNWIND_RULE_BITS)
#define UNWIND_ROW_RULE(row) ((row) & ((1u << UNWIND_RULE_BITS) - 1))

/*
 * Numbers of registers are DWARF's: 6 is rbp, 7 is rsp. CFA: the stack pointer of the caller, once
 * it has been returned to.
 */
enum unwind_kind {
	UNWIND_UNKNOWN,	     /* by nothing that is told here */
	UNWIND_CFA,	     /* CFA = reg + cfa_off; the return address is below it */
	UNWIND_CFA_DEREF,    /* CFA = *(reg + cfa_off) + extra * 8 */
	UNWIND_PLT,	     /* CFA = rsp + 8, and 8 more from the byte cfa_off of each 16 on */
	UNWIND_SIGNAL,	     /* a signal's frame: all registers are behind rsp */
	UNWIND_END,	     /* nobody has called this */
	UNWIND_FRAME_POINTER, /* the file does not tell; the frame pointer may */
	UNWIND_RA_REGISTER,  /* CFA = reg + cfa_off; the return address is in register `extra` */
	/* the caller's frames are on another stack, and nothing here says where */
	UNWIND_ELSEWHERE,
	UNWIND_KINDS,
};

#define UNWIND_BP_SAME 0
#define UNWIND_BP_UNKNOWN 0x7fff
/* In `extra`; the last two with UNWIND_CFA only. */
#define UNWIND_BP_FROM_BP 0x10	   /* rbp is saved at rbp + bp_off, else at CFA + bp_off */
/* the CFA may lie below the stack pointer: it is on another stack */
#define UNWIND_OTHER_STACK 0x20
#define UNWIND_WAS_INTERRUPTED 0x40 /* the caller has called nobody: it is where it ran */

struct unwind_rule {
	unwind_u8 kind_reg; /* kind, and the register << 4 */
	unwind_u8 extra;
	unwind_s16 bp_off;
	unwind_s32 cfa_off;
};
#define UNWIND_KIND(rule) ((rule)->kind_reg & 15)
#define UNWIND_REG(rule) ((rule)->kind_reg >> 4)

#define UNWIND_FILE_MAGIC 0x33545755u /* "UWT3" */
#define UNWIND_LOADS_MAX 16
#define UNWIND_PAGES_MAX (1u << 17)
#define UNWIND_ROWS_MAX (1u << 22)
#define UNWIND_RULES_MAX (1u << 14)

struct unwind_file {
	schedev_u32 magic;
	schedev_u32 n_loads; /* parts of the file that are code */
	schedev_u32 n_pages, n_rows, n_rules;
	schedev_u32 lo_page; /* number of the first page that has rows */
};

struct unwind_load {
	schedev_u64 off, vaddr, size;
};
