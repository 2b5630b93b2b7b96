// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/kernel_names.h"

#include "common/base/hashmap.h"
#include "common/base/io.h"
#include "daemon/snapshot/kernel_symbols.h"

/* All names of where it is, and the next one, where it ends. */
static void want(struct kernel_symbols *s, uint64_t addr)
{
	const size_t behind = kernel_symbols_behind(s, addr);

	if (behind < s->n)
		s->v[behind].wanted = true;
	for (size_t i = behind; i > 0 && s->v[i - 1].addr == s->v[behind - 1].addr; i--)
		s->v[i - 1].wanted = true;
}

int kernel_names_copy(int in, int out, const struct hashmap *addrs, size_t max)
{
	_cleanup_(kernel_symbols_fini) struct kernel_symbols symbols;
	uint32_t pos = 0;
	uint64_t addr;
	int r = kernel_symbols_read(in, max, &symbols);

	if (r < 0)
		return r;
	while ((addr = hashmap_next(addrs, &pos)) != 0) {
		want(&symbols, addr);
		want(&symbols, addr - 1);
	}
	for (size_t i = 0; i < symbols.n && r == 0; i++)
		if (symbols.v[i].wanted)
			r = io_write_all(out, symbols.v[i].text, symbols.v[i].len);
	return r;
}
