// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/perfmap.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"

#define MAX_NAME 4096u

struct perfmap_entry {
	uint64_t start, size;
	uint32_t name, name_len; /* in `text` */
	uint32_t line;
	/*
	 * of what has another name and lies over its begin, as far as one reaches; 0: nothing does
	 */
	uint64_t other_end;
};

struct perfmap {
	char *text;
	size_t len;
	struct perfmap_entry *v;
	size_t n, cap;
	struct budget *budget; /* borrowed */
	uint64_t bad_lines;
	uint64_t usual, strange; /* lines, by what makes a file a map */
};

struct perfmap *perfmap_free(struct perfmap *m)
{
	if (!m)
		return NULL;
	budget_give(m->budget, m->len + m->cap * sizeof(*m->v));
	free(m->text);
	free(m->v);
	free(m);
	return NULL;
}

/* A hex number (with or without 0x) and the spaces after it. */
static bool parse_hex(const char **p, const char *end, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v = 0;
	int digits = 0;

	if (end - s > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		s += 2;
	for (; s < end && digits <= 16; s++, digits++) {
		char c = *s;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v = v << 4 | (uint64_t)(c - 'A' + 10);
		else
			break;
	}
	if (digits == 0 || digits > 16 || s == end || *s != ' ')
		return false;
	while (s < end && *s == ' ')
		s++;
	*p = s;
	*ret = v;
	return true;
}

static int entry_compare(const void *a, const void *b)
{
	const struct perfmap_entry *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->line > y->line ? -1 : x->line < y->line;
}

/* A function without code is one that was thrown away. */
static bool is_usual(const struct perfmap_entry *e)
{
	return e->start >= PERFMAP_MIN_ADDRESS && e->start < PERFMAP_MAX_ADDRESS &&
	       e->size <= PERFMAP_MAX_FUNCTION;
}

static int add_line(struct perfmap *m, const char *p, const char *end, uint32_t line)
{
	struct perfmap_entry e = {.line = line};
	bool parsed = parse_hex(&p, end, &e.start) && parse_hex(&p, end, &e.size) && p < end;

	if (parsed && is_usual(&e))
		m->usual++;
	else
		m->strange++;
	if (!parsed || e.size == 0 || e.start + e.size < e.start) {
		m->bad_lines++;
		return 0;
	}
	e.name = (uint32_t)(p - m->text);
	e.name_len = (uint32_t)(end - p > MAX_NAME ? MAX_NAME : end - p);
	if (m->n == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 256;
		struct perfmap_entry *v;

		if (!budget_take(m->budget, (cap - m->cap) * sizeof(*v)))
			return -ENOMEM;
		v = reallocarray(m->v, cap, sizeof(*v));
		if (!v) {
			budget_give(m->budget, (cap - m->cap) * sizeof(*v));
			return -ENOMEM;
		}
		m->v = v;
		m->cap = cap;
	}
	m->v[m->n++] = e;
	return 0;
}

/* `other`, which begins where `e` does or before it, may be the name of what is there. */
static void add_other(const struct perfmap *m, struct perfmap_entry *e,
		      const struct perfmap_entry *other)
{
	const uint64_t end = other->start + other->size;

	if (end <= e->start || end <= e->other_end ||
	    (e->name_len == other->name_len &&
	     memcmp(m->text + e->name, m->text + other->name, e->name_len) == 0))
		return;
	e->other_end = end;
}

/* Keeps the last line of each begin. */
static void keep_last(struct perfmap *m)
{
	struct perfmap_entry farthest = {0}; /* so far */
	size_t kept = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct perfmap_entry e = m->v[i];

		if (kept && m->v[kept - 1].start == e.start) {
			add_other(m, &m->v[kept - 1], &e);
		} else {
			m->v[kept] = e;
			add_other(m, &m->v[kept++], &farthest);
		}
		if (e.start + e.size > farthest.start + farthest.size)
			farthest = e;
	}
	m->n = kept;
}

int perfmap_read(int fd, struct budget *budget, struct perfmap **ret)
{
	_cleanup_(perfmap_freep) struct perfmap *m = calloc(1, sizeof(*m));
	struct stat st;
	uint32_t line = 0;
	size_t size;
	ssize_t n;

	if (!m)
		return -ENOMEM;
	m->budget = budget;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || st.st_size > PERFMAP_MAX_BYTES)
		return -EFBIG;
	size = (size_t)st.st_size;
	if (!budget_take(budget, size))
		return -ENOMEM;
	m->len = size;
	m->text = malloc(size + 1);
	if (!m->text)
		return -ENOMEM;
	n = io_pread_full(fd, m->text, size, 0);
	if (n < 0)
		return (int)n;
	for (const char *p = m->text, *end = p + n; p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		int r;

		/* a last line without an end is being written: only its front may be there */
		if (!nl)
			break;
		r = add_line(m, p, nl, line++);
		if (r < 0)
			return r;
		p = nl + 1;
	}
	if (!m->usual || m->strange > (m->usual + m->strange) / PERFMAP_LINES_PER_STRANGE)
		return -EBADMSG;
	if (m->n)
		qsort(m->v, m->n, sizeof(*m->v), entry_compare);
	keep_last(m);
	*ret = take_ptr(m);
	return 0;
}

static const struct perfmap_entry *entry_at(const struct perfmap *m, uint64_t addr)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->v[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr - m->v[lo - 1].start < m->v[lo - 1].size ? &m->v[lo - 1] : NULL;
}

const char *perfmap_find(
	const struct perfmap *m, uint64_t addr, size_t *ret_len, uint64_t *ret_start)
{
	const struct perfmap_entry *e = entry_at(m, addr);

	if (!e)
		return NULL;
	*ret_len = e->name_len;
	*ret_start = e->start;
	return m->text + e->name;
}

bool perfmap_has_another(const struct perfmap *m, uint64_t addr)
{
	const struct perfmap_entry *e = entry_at(m, addr);

	return e && addr < e->other_end;
}

uint64_t perfmap_bad_lines(const struct perfmap *m)
{
	return m->bad_lines;
}
