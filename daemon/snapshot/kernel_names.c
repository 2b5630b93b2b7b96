// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/kernel_names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "common/base/io.h"

/* A line, "ffffffff81000000 T _text". */
struct line {
	uint64_t addr;
	const char *text;
	size_t len;
	bool wanted;
};

struct lines {
	struct line *v;
	size_t n, room;
};

static void lines_fini(struct lines *l)
{
	free(l->v);
}

static int line_compare(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	/* as they are in the file */
	return x->text < y->text ? -1 : x->text > y->text;
}

static int add(struct lines *l, const struct line *line)
{
	if (l->n == l->room) {
		const size_t room = l->room ? l->room * 2 : 1u << 16;
		struct line *v = reallocarray(l->v, room, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->room = room;
	}
	l->v[l->n++] = *line;
	return 0;
}

static int split(const char *text, size_t len, struct lines *ret)
{
	const char *nl;
	int r = 0;

	for (const char *p = text, *end = text + len; r == 0 && p < end; p = nl + 1) {
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
			r = add(ret, &(struct line){.addr = addr, .text = p, .len = (size_t)(nl + 1 - p)});
	}
	return r;
}

/* All names of where it is, and the next one, where it ends. */
static void want(struct lines *l, uint64_t addr)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (l->v[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < l->n)
		l->v[lo].wanted = true;
	for (size_t i = lo; i > 0 && l->v[i - 1].addr == l->v[lo - 1].addr; i--)
		l->v[i - 1].wanted = true;
}

int kernel_names_copy(int in, int out, const struct hashmap *addrs, size_t max)
{
	_cleanup_(lines_fini) struct lines lines = {.n = 0};
	_cleanup_free_ char *text = NULL;
	uint32_t pos = 0;
	uint64_t addr;
	size_t len = 0;
	int r;

	r = io_pread_file(in, max, &text, &len);
	if (r == 0)
		r = split(text, len, &lines);
	if (r < 0)
		return r;
	if (lines.n)
		qsort(lines.v, lines.n, sizeof(*lines.v), line_compare);
	while ((addr = hashmap_next(addrs, &pos)) != 0) {
		want(&lines, addr);
		want(&lines, addr - 1);
	}
	for (size_t i = 0; i < lines.n && r == 0; i++)
		if (lines.v[i].wanted)
			r = io_write_all(out, lines.v[i].text, lines.v[i].len);
	return r;
}
