/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of the kernel's functions: a copy of /proc/kallsyms, lines of "address type name", and
 * "[module]" for a module's. The file is a bundle's: any bytes, any size, any order. Where it was
 * read without the right to see addresses they are all 0: then there are no names.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

#define KALLSYMS_MAX_BYTES (64u << 20)

struct kallsyms;
struct symbols;

/*
 * Reads them from `fd` (stays the caller's). -ENODATA: no address in it; -EFBIG, -ENOMEM, or what
 * read() said.
 */
int kallsyms_read(int fd, struct budget *budget, struct kallsyms **ret) _must_check_;
struct kallsyms *kallsyms_free(struct kallsyms *k);
DEFINE_CLEANUP(struct kallsyms *, kallsyms_free)

/* Bytes of the file, not NUL-terminated. */
struct kallsyms_function {
	uint64_t start;
	const char *name, *module; /* module: "[nf_tables]"; NULL for the kernel's own */
	uint32_t name_len, module_len;
};

/* The function at `addr`: false if none is known. */
bool kallsyms_find(const struct kallsyms *k, uint64_t addr, struct kallsyms_function *ret);

/* Adds each of them, with its extent: their names are borrowed. 0 or -ENOMEM. */
int kallsyms_add_functions(const struct kallsyms *k, struct symbols *to) _must_check_;

/*
 * Whether it is the scheduler's own code, which is on top of the stack of each wait (as wchan of
 * proc(5) leaves it out), or what wakes a thread.
 */
bool kallsyms_is_scheduler(const struct kallsyms *k, uint64_t addr);
