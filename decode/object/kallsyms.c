// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/kallsyms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/address.h"
#include "common/base/io.h"
#include "decode/object/symbols.h"

#define MAX_NAME 512u
/*
 * What is further from the last symbol is in no function: there are gaps between the kernel and its
 * modules.
 */
#define MAX_FUNCTION (1u << 20)

struct entry {
	uint64_t start;
	uint32_t line; /* where it begins in `text` */
	uint16_t name, name_len, module_len; /* the name's distance from there */
	bool code;
};

struct kallsyms {
	char *text;
	size_t len, room;
	struct entry *v;
	size_t n, cap;
	uint64_t sched_start, sched_end, wake_start, wake_end;
	struct budget *budget; /* borrowed */
};

struct kallsyms *kallsyms_free(struct kallsyms *k)
{
	if (!k)
		return NULL;
	budget_give(k->budget, k->room + k->cap * sizeof(*k->v));
	free(k->text);
	free(k->v);
	free(k);
	return NULL;
}

static int add(struct kallsyms *k, const struct entry *e)
{
	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 4096;
		struct entry *v;

		if (!budget_take(k->budget, (cap - k->cap) * sizeof(*v)))
			return -ENOMEM;
		v = reallocarray(k->v, cap, sizeof(*v));
		if (!v) {
			budget_give(k->budget, (cap - k->cap) * sizeof(*v));
			return -ENOMEM;
		}
		k->v = v;
		k->cap = cap;
	}
	k->v[k->n++] = *e;
	return 0;
}

static bool is_name(const char *p, size_t len, const char *name)
{
	return len == strlen(name) && memcmp(p, name, len) == 0;
}

/*
 * "ffffffff81000000 T _text" or "ffffffffc0401000 t nft_init\t[nf_tables]"; other lines are passed
 * over.
 */
static int add_line(struct kallsyms *k, const char *p, const char *end)
{
	struct entry e = {.line = (uint32_t)(p - k->text)};
	const char *at = p, *name, *tab;
	size_t len;

	for (; at < end && at - p < 16; at++) {
		const char c = *at;

		if (c >= '0' && c <= '9')
			e.start = e.start << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			e.start = e.start << 4 | (uint64_t)(c - 'a' + 10);
		else
			return 0;
	}
	if (e.start < KERNEL_HALF || end - at < 4 || at[0] != ' ' || at[2] != ' ')
		return 0;
	e.code = strchr("tTwW", at[1]) != NULL && at[1];
	name = at + 3;
	tab = memchr(name, '\t', (size_t)(end - name));
	len = (size_t)((tab ? tab : end) - name);
	if (len == 0 || len > MAX_NAME)
		return 0;
	e.name = (uint16_t)(name - p);
	e.name_len = (uint16_t)len;
	if (tab && end - tab > 1 && (size_t)(end - tab) <= MAX_NAME)
		e.module_len = (uint16_t)(end - tab - 1);
	if (is_name(name, len, "__sched_text_start"))
		k->sched_start = e.start;
	else if (is_name(name, len, "__sched_text_end"))
		k->sched_end = e.start;
	else if (is_name(name, len, "try_to_wake_up"))
		k->wake_start = e.start;
	return add(k, &e);
}

/*
 * Of several names of one address the first function's: marks like _stext have no code of their
 * own, and come last.
 */
static int entry_compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->code != y->code)
		return x->code ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

/* The size of a file in /proc is 0, that of a bundle's is right. */
static int read_text(struct kallsyms *k, int fd)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || st.st_size > KALLSYMS_MAX_BYTES)
		return -EFBIG;
	if (!budget_take(k->budget, (size_t)st.st_size))
		return -ENOMEM;
	k->room = (size_t)st.st_size;
	k->text = malloc(k->room + 1);
	if (!k->text)
		return -ENOMEM;
	n = io_pread_full(fd, k->text, k->room, 0);
	if (n < 0)
		return (int)n;
	k->len = (size_t)n;
	return 0;
}

int kallsyms_read(int fd, struct budget *budget, struct kallsyms **ret)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k = calloc(1, sizeof(*k));
	size_t kept = 0;
	int r;

	if (!k)
		return -ENOMEM;
	k->budget = budget;
	r = read_text(k, fd);
	for (const char *p = k->text, *end = p + k->len, *nl; r == 0 && p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl)
			break;
		r = add_line(k, p, nl);
	}
	if (r < 0)
		return r;
	if (k->n == 0)
		return -ENODATA;
	qsort(k->v, k->n, sizeof(*k->v), entry_compare);
	for (size_t i = 0; i < k->n; i++)
		if (kept == 0 || k->v[kept - 1].start != k->v[i].start)
			k->v[kept++] = k->v[i];
	k->n = kept;
	for (size_t i = 0; i + 1 < k->n && k->wake_start; i++)
		if (k->v[i].start == k->wake_start)
			k->wake_end = k->v[i + 1].start;
	*ret = take_ptr(k);
	return 0;
}

bool kallsyms_find(const struct kallsyms *k, uint64_t addr, struct kallsyms_function *ret)
{
	size_t lo = 0, hi = k->n;
	const struct entry *e;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->v[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0)
		return false;
	e = &k->v[lo - 1];
	if (!e->code || addr - e->start >= MAX_FUNCTION)
		return false;
	*ret = (struct kallsyms_function){
		.start = e->start,
		.name = k->text + e->line + e->name,
		.name_len = e->name_len,
		.module = e->module_len ? k->text + e->line + e->name + e->name_len + 1 : NULL,
		.module_len = e->module_len,
	};
	return true;
}

int kallsyms_add_functions(const struct kallsyms *k, struct symbols *to)
{
	int r = 0;

	for (size_t i = 0; i < k->n && r == 0; i++) {
		const struct entry *e = &k->v[i];
		const uint64_t left = i + 1 < k->n ? e[1].start - e->start : MAX_FUNCTION;

		if (e->code)
			r = symbols_add(to,
					&(struct symbol){.addr = e->start,
							 .size = left < MAX_FUNCTION ? left
										     : MAX_FUNCTION,
							 .sized = true,
							 .name = k->text + e->line + e->name,
							 .name_len = e->name_len});
	}
	return r;
}

bool kallsyms_is_scheduler(const struct kallsyms *k, uint64_t addr)
{
	return (addr >= k->sched_start && addr < k->sched_end) ||
	       (addr >= k->wake_start && addr < k->wake_end);
}
