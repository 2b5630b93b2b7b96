// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/kernel_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"

void kernel_symbols_fini(struct kernel_symbols *s)
{
	free(s->v);
	free(s->text);
}

static int compare(const void *a, const void *b)
{
	const struct kernel_symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->text < y->text ? -1 : x->text > y->text;
}

static int add(struct kernel_symbols *s, const struct kernel_symbol *symbol)
{
	if (s->n == s->room) {
		const size_t room = s->room ? s->room * 2 : 1u << 16;
		struct kernel_symbol *v = reallocarray(s->v, room, sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->room = room;
	}
	s->v[s->n++] = *symbol;
	return 0;
}

static int split(struct kernel_symbols *s, size_t len)
{
	const char *nl;
	int r = 0;

	for (const char *p = s->text, *end = p + len; r == 0 && p < end; p = nl + 1) {
		uint64_t addr = 0;
		size_t digits = 0;

		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl)
			break;
		for (; digits < 16 && p + digits < nl; digits++) {
			const char c = p[digits];

			if (c >= '0' && c <= '9')
				addr = addr << 4 | (uint64_t)(c - '0');
			else if (c >= 'a' && c <= 'f')
				addr = addr << 4 | (uint64_t)(c - 'a' + 10);
			else
				break;
		}
		if (digits > 0)
			r = add(s, &(struct kernel_symbol){.addr = addr,
							   .text = p,
							   .len = (size_t)(nl + 1 - p)});
	}
	return r;
}

int kernel_symbols_read(int fd, size_t max, struct kernel_symbols *ret)
{
	size_t len = 0;
	int r;

	*ret = (struct kernel_symbols){.n = 0};
	r = io_pread_file(fd, max, &ret->text, &len);
	if (r == 0)
		r = split(ret, len);
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), compare);
	return r;
}

size_t kernel_symbols_behind(const struct kernel_symbols *s, uint64_t addr)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (s->v[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
