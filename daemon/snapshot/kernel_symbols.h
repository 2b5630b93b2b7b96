/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/kallsyms as lines by address: for whoever needs to know where the kernel's functions are,
 * or some of their names. What a name means is not known here. On the copier thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

/*
 * A line, "ffffffff81000000 T _text" or "ffffffffc0401000 t nft_init\t[nf_tables]", with its end.
 */
struct kernel_symbol {
	uint64_t addr;
	const char *text;
	size_t len;
	bool wanted; /* its user's */
};

struct kernel_symbols {
	struct kernel_symbol *v; /* by address, and those of one address as they are in the file */
	size_t n, room;
	char *text;
};

/*
 * `fd`: from its begin, wherever it stands. 0, -EFBIG if there is more than `max`, -errno. *ret is
 * to be ended in any case.
 */
int kernel_symbols_read(int fd, size_t max, struct kernel_symbols *ret) _must_check_;
void kernel_symbols_fini(struct kernel_symbols *s);

/* The first one that is behind `addr`; `n`: none is. */
size_t kernel_symbols_behind(const struct kernel_symbols *s, uint64_t addr);
