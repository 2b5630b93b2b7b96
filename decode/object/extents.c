// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/extents.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/base/bytes.h"

struct extents {
	struct extent *v;
	size_t n, cap;
	struct budget *budget; /* borrowed */
};

/* What the functions of one CIE share. */
struct cie {
	size_t at;      /* of the entry in the section */
	uint8_t coding; /* DW_EH_PE_* of a function's start */
	uint8_t lsda;	/* and of its exception table's address; DW_EH_PE_omit: there is none */
	bool augmented; /* its functions tell how long their augmentation is */
	struct bytes rows; /* the instructions that those of all its functions go on from */
	bool known;	/* else its functions cannot be read */
};

struct reader {
	const uint8_t *data;
	size_t size;
	uint64_t vaddr;
	struct cie cie; /* the last one asked for: mostly one serves many functions */
};

static uint64_t read_number(struct bytes *b, uint8_t format)
{
	switch (format) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return bytes_u64(b);
	case DW_EH_PE_udata4:
		return bytes_u32(b);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int64_t)(int32_t)bytes_u32(b);
	case DW_EH_PE_udata2:
		return bytes_u16(b);
	case DW_EH_PE_sdata2:
		return (uint64_t)(int64_t)(int16_t)bytes_u16(b);
	default: /* no compiler writes a function's start as LEB128 */
		b->failed = true;
		return 0;
	}
}

static bool coding_is_known(uint8_t coding)
{
	return (coding & 0x70) == DW_EH_PE_absptr || (coding & 0x70) == DW_EH_PE_pcrel;
}

/* One entry's body, its length word read: the CIE's id or the way back to it comes first. */
static bool entry_at(const struct reader *r, size_t at, struct bytes *ret_body, size_t *ret_next)
{
	struct bytes b = bytes_of(r->data + at, r->size - at);
	uint64_t len = bytes_u32(&b);
	const void *body;

	if (len == UINT32_MAX)
		len = bytes_u64(&b);
	if (b.failed || len < 4)
		return false;
	body = bytes_take(&b, len);
	if (!body)
		return false;
	*ret_body = bytes_of(body, (size_t)len);
	*ret_next = r->size - b.left;
	return true;
}

/* How a CIE says that starts are coded; known only where the whole way there is understood. */
static bool augmentation_parse(struct bytes *b, const char *aug, struct cie *cie)
{
	const uint8_t *p;

	for (; *aug; aug++) {
		switch (*aug) {
		case 'R':
			p = bytes_take(b, 1);
			if (!p)
				return false;
			cie->coding = *p;
			return coding_is_known(*p);
		case 'P':
			p = bytes_take(b, 1);
			if (!p || (*p & 0x70) == DW_EH_PE_aligned)
				return false;
			(void)read_number(b, *p & 0x0f);
			break;
		case 'L':
			p = bytes_take(b, 1);
			if (!p)
				return false;
			cie->lsda = *p;
			break;
		case 'S':
		case 'B':
			break;
		default:
			return false;
		}
	}
	return !b->failed;
}

static bool cie_parse(struct bytes *b, struct cie *cie)
{
	const uint8_t *version;
	struct bytes data;
	const char *aug;
	const void *p;
	size_t n;

	version = bytes_take(b, 1);
	aug = bytes_str(b, &n);
	if (!version || !aug || (*version != 1 && *version != 3))
		return false;
	(void)bytes_uleb(b); /* code alignment */
	(void)bytes_uleb(b); /* data alignment: signed, as long */
	if (*version == 1)
		(void)bytes_take(b, 1);
	else
		(void)bytes_uleb(b); /* the return address's register */
	cie->coding = DW_EH_PE_absptr;
	cie->lsda = DW_EH_PE_omit;
	cie->augmented = *aug == 'z';
	if (!cie->augmented) {
		cie->rows = *b;
		return *aug == '\0' && !b->failed;
	}
	n = (size_t)bytes_uleb(b);
	p = bytes_take(b, n);
	if (!p)
		return false;
	data = bytes_of(p, n);
	cie->rows = *b;
	return augmentation_parse(&data, aug + 1, cie);
}

static const struct cie *cie_at(struct reader *r, size_t at)
{
	struct bytes body;
	size_t next;

	if (r->cie.known && r->cie.at == at)
		return &r->cie;
	r->cie = (struct cie){.at = at};
	if (!entry_at(r, at, &body, &next) || bytes_u32(&body) != 0 ||
		!cie_parse(&body, &r->cie))
		return NULL;
	r->cie.known = true;
	return &r->cie;
}

/* In the augmentation, which it begins. */
static uint64_t lsda_parse(const struct reader *r, const struct cie *cie, struct bytes *body)
{
	uint64_t v;
	size_t here;

	if (cie->lsda == DW_EH_PE_omit || !coding_is_known(cie->lsda & 0x7f) || (cie->lsda & 0x80))
		return 0;
	(void)bytes_uleb(body);
	here = (size_t)(body->p - r->data);
	v = read_number(body, cie->lsda & 0x0f);
	if (body->failed || v == 0)
		return 0;
	return (cie->lsda & 0x70) == DW_EH_PE_pcrel ? v + r->vaddr + here : v;
}

#define REG_RBP 6u /* by DWARF's numbers, of x86-64 */
#define REG_RSP 7u

/* The canonical frame address of a row. */
struct cfa {
	uint64_t reg, offset;
	bool known;
};

/* Changes it by the instructions in front of the next row. */
static void cfa_follow(struct cfa *cfa, struct bytes b)
{
	while (b.left && !b.failed) {
		const uint8_t op = bytes_u8(&b);

		if ((op & 0xc0) == DW_CFA_offset) {
			(void)bytes_uleb(&b);
			continue;
		}
		if ((op & 0xc0) == DW_CFA_restore)
			continue;
		switch (op) {
		case DW_CFA_nop:
			break;
		case DW_CFA_def_cfa:
			cfa->reg = bytes_uleb(&b);
			cfa->offset = bytes_uleb(&b);
			cfa->known = true;
			break;
		case DW_CFA_def_cfa_register:
			cfa->reg = bytes_uleb(&b);
			break;
		case DW_CFA_def_cfa_offset:
			cfa->offset = bytes_uleb(&b);
			break;
		case DW_CFA_offset_extended:
		case DW_CFA_register:
			(void)bytes_uleb(&b);
			(void)bytes_uleb(&b);
			break;
		case DW_CFA_restore_extended:
		case DW_CFA_undefined:
		case DW_CFA_same_value:
		case DW_CFA_GNU_args_size:
			(void)bytes_uleb(&b);
			break;
		case DW_CFA_expression:
			(void)bytes_uleb(&b);
			(void)bytes_take(&b, bytes_uleb(&b));
			break;
		case DW_CFA_def_cfa_expression:
			(void)bytes_take(&b, bytes_uleb(&b));
			cfa->known = false;
			break;
		default: /* the next row, or what no compiler writes in front of it */
			return;
		}
	}
}

/*
 * The rest of a function's entry. A call leaves nothing but where it returns to between the stack
 * pointer and the CFA.
 */
static bool is_framed(const struct cie *cie, struct bytes body)
{
	struct cfa cfa = {.known = false};

	if (cie->augmented)
		(void)bytes_take(&body, bytes_uleb(&body));
	cfa_follow(&cfa, cie->rows);
	cfa_follow(&cfa, body);
	return cfa.known && (cfa.reg == REG_RBP || (cfa.reg == REG_RSP && cfa.offset > 8));
}

static bool function_parse(struct reader *r, struct bytes *body, struct extent *ret)
{
	size_t here = (size_t)(body->p - r->data);
	uint32_t back = bytes_u32(body);
	const struct cie *cie;
	uint64_t start, len;

	if (back > here)
		return false;
	cie = cie_at(r, here - back);
	if (!cie)
		return false;
	here = (size_t)(body->p - r->data);
	start = read_number(body, cie->coding & 0x0f);
	/* 0 is the start of what the linker has thrown away */
	if (body->failed || start == 0)
		return false;
	if ((cie->coding & 0x70) == DW_EH_PE_pcrel)
		start += r->vaddr + here;
	len = read_number(body, cie->coding & 0x07);
	if (body->failed || len == 0 || __builtin_add_overflow(start, len, &ret->end))
		return false;
	ret->start = start;
	ret->framed = is_framed(cie, *body);
	ret->lsda = lsda_parse(r, cie, body);
	return true;
}

static bool extents_push(struct extents *x, const struct extent *e)
{
	if (x->n == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 256;
		struct extent *v;

		if (!budget_take(x->budget, (cap - x->cap) * sizeof(*v)))
			return false;
		v = reallocarray(x->v, cap, sizeof(*v));
		if (!v) {
			budget_give(x->budget, (cap - x->cap) * sizeof(*v));
			return false;
		}
		x->v = v;
		x->cap = cap;
	}
	x->v[x->n++] = *e;
	return true;
}

static int extent_compare(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

void extents_add(struct extents *x, const void *data, size_t size, uint64_t vaddr)
{
	struct reader r = {.data = data, .size = size, .vaddr = vaddr};
	struct bytes body;
	size_t next;

	for (size_t at = 0; at < size && entry_at(&r, at, &body, &next); at = next) {
		struct bytes peek = body;
		struct extent e;

		if (bytes_u32(&peek) == 0 || !function_parse(&r, &body, &e))
			continue;
		if (!extents_push(x, &e))
			break;
	}
	if (x->n)
		qsort(x->v, x->n, sizeof(*x->v), extent_compare);
}

void extents_add_elf(struct extents *x, Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (gelf_getclass(elf) != ELFCLASS64 || elf_getshdrstrndx(elf, &names) < 0)
		return;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;
		Elf_Data *data;
		GElf_Shdr sh;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS || sh.sh_size == 0 ||
			sh.sh_size > x->budget->max - x->budget->used)
			continue;
		name = elf_strptr(elf, names, sh.sh_name);
		if (!name || strcmp(name, ".eh_frame") != 0)
			continue;
		data = elf_rawdata(scn, NULL);
		if (data && data->d_buf)
			extents_add(x, data->d_buf, data->d_size, sh.sh_addr);
		return;
	}
}

int extents_new(struct budget *budget, struct extents **ret)
{
	struct extents *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->budget = budget;
	*ret = x;
	return 0;
}

struct extents *extents_free(struct extents *x)
{
	if (!x)
		return NULL;
	budget_give(x->budget, x->cap * sizeof(*x->v));
	free(x->v);
	free(x);
	return NULL;
}

const struct extent *extents_find(const struct extents *x, uint64_t addr)
{
	size_t lo = 0, hi = x->n;

	/* the last one that begins at or before the address: functions do not overlap */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->v[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < x->v[lo - 1].end ? &x->v[lo - 1] : NULL;
}

size_t extents_count(const struct extents *x)
{
	return x->n;
}

const struct extent *extents_at(const struct extents *x, size_t i)
{
	return &x->v[i];
}
