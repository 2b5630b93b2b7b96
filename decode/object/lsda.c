// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/lsda.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/base/bytes.h"

struct landing_pad {
	uint64_t pad, start, end;
};

struct lsda {
	struct landing_pad *v; /* by pad */
	size_t n, cap;
	struct budget *budget; /* borrowed */
	/* bytes of tables that are still read: many functions could name the same one */
	uint64_t allowed;
};

#define MAX_CALLS 256u /* with one landing pad, that are looked at */

struct section {
	const uint8_t *data;
	uint64_t vaddr, size;
};

/* Lengths and offsets within a function. */
static uint64_t read_offset(struct bytes *b, uint8_t coding)
{
	switch (coding) {
	case DW_EH_PE_uleb128:
		return bytes_uleb(b);
	case DW_EH_PE_udata4:
		return bytes_u32(b);
	case DW_EH_PE_udata8:
		return bytes_u64(b);
	default:
		b->failed = true;
		return 0;
	}
}

static uint8_t read_byte(struct bytes *b)
{
	const uint8_t *p = bytes_take(b, 1);

	return p ? *p : 0;
}

static int lsda_push(struct lsda *l, const struct landing_pad *e)
{
	if (l->n == l->cap) {
		const size_t cap = l->cap ? l->cap * 2 : 256;
		struct landing_pad *v;

		if (!budget_take(l->budget, (cap - l->cap) * sizeof(*v)))
			return -ENOMEM;
		v = reallocarray(l->v, cap, sizeof(*v));
		if (!v) {
			budget_give(l->budget, (cap - l->cap) * sizeof(*v));
			return -ENOMEM;
		}
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = *e;
	return 0;
}

/* The table of one function: its calls and where each lands. */
static int add_function(struct lsda *l, const struct section *s, const struct extent *x)
{
	struct bytes b;
	uint64_t base = x->start, length;
	uint8_t coding;
	const void *calls;

	if (x->lsda < s->vaddr || x->lsda - s->vaddr >= s->size)
		return 0;
	b = bytes_of(s->data + (x->lsda - s->vaddr), (size_t)(s->size - (x->lsda - s->vaddr)));
	coding = read_byte(&b);
	/*
	 * Where landing pads are counted from: of another place than the function's start only the
	 * plain form is read.
	 */
	if (coding == DW_EH_PE_udata4 || coding == DW_EH_PE_absptr || coding == DW_EH_PE_udata8)
		base = coding == DW_EH_PE_udata4 ? bytes_u32(&b) : bytes_u64(&b);
	else if (coding != DW_EH_PE_omit)
		return 0;
	if (read_byte(&b) != DW_EH_PE_omit)
		(void)bytes_uleb(&b); /* where the types are */
	coding = read_byte(&b);
	length = bytes_uleb(&b);
	calls = b.failed ? NULL : bytes_take(&b, length);
	if (!calls || length > l->allowed)
		return 0;
	l->allowed -= length;
	b = bytes_of(calls, (size_t)length);
	while (b.left && !b.failed) {
		const uint64_t start = read_offset(&b, coding), n = read_offset(&b, coding),
			       pad = read_offset(&b, coding);
		int r;

		(void)bytes_uleb(&b); /* what it catches */
		if (b.failed || pad == 0)
			continue;
		r = lsda_push(l, &(struct landing_pad){.pad = base + pad,
						       .start = x->start + start,
						       .end = x->start + start + n});
		if (r < 0)
			return r;
	}
	return 0;
}

static int landing_pad_compare(const void *a, const void *b)
{
	const struct landing_pad *x = a, *y = b;

	return x->pad < y->pad ? -1 : x->pad > y->pad;
}

static bool find_section(Elf *elf, const char *wanted, struct section *ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (!elf || gelf_getclass(elf) != ELFCLASS64 || elf_getshdrstrndx(elf, &names) < 0)
		return false;
	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		const char *name;
		Elf_Data *data;
		GElf_Shdr sh;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_PROGBITS)
			continue;
		name = elf_strptr(elf, names, sh.sh_name);
		if (!name || strcmp(name, wanted) != 0)
			continue;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf)
			return false;
		*ret = (struct section){.data = data->d_buf,
					.vaddr = sh.sh_addr,
					.size = data->d_size};
		return true;
	}
	return false;
}

int lsda_new(Elf *elf, const struct extents *extents, struct budget *budget, struct lsda **ret)
{
	_cleanup_(lsda_freep) struct lsda *l = NULL;
	struct section s;

	*ret = NULL;
	if (!extents || !find_section(elf, ".gcc_except_table", &s))
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->budget = budget;
	l->allowed = 4 * s.size;
	for (size_t i = 0; i < extents_count(extents); i++) {
		const struct extent *x = extents_at(extents, i);
		int r = x->lsda ? add_function(l, &s, x) : 0;

		if (r < 0)
			return r;
	}
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), landing_pad_compare);
	*ret = take_ptr(l);
	return 0;
}

struct lsda *lsda_free(struct lsda *l)
{
	if (!l)
		return NULL;
	budget_give(l->budget, l->cap * sizeof(*l->v));
	free(l->v);
	free(l);
	return NULL;
}

bool lsda_has(const struct lsda *l, uint64_t call, uint64_t pad)
{
	size_t low = 0, high = l->n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (l->v[mid].pad < pad)
			low = mid + 1;
		else
			high = mid;
	}
	for (size_t i = 0; i < MAX_CALLS && low < l->n && l->v[low].pad == pad; i++, low++)
		if (call >= l->v[low].start && call < l->v[low].end)
			return true;
	return false;
}
