/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's code as it is now, out of /proc/kcore: an ELF file with a segment for each piece, at
 * the addresses where it runs. Its own text, that of its modules, and what it has generated (BPF
 * programs, trampolines), as far as /proc/kallsyms names it. Data are left out. What the bytes mean
 * is not known here. Pieces are whole pages: no more of the memory beside code than that.
 *
 * kcore is the kernel's own: its table of segments is read, and each number checked, but no more of
 * ELF. On the copier thread.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"

/* Twice what a kernel with all of a distribution's modules has. */
#define KERNEL_CODE_MAX (128u << 20)

struct kernel_symbols;

/*
 * Copies it from `kcore` to the empty file `out`. 0 and the bytes of code; -ENODATA: `symbols` have
 * no addresses, or those that are not in kcore; -EFBIG: more than `max`, or than KERNEL_CODE_MAX;
 * -ENOEXEC: it is no kcore; -errno.
 */
int kernel_code_copy(int kcore, const struct kernel_symbols *symbols, int out, uint64_t max,
		     uint64_t *ret_bytes) _must_check_;
