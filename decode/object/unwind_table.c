// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/unwind_table.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/base/bytes.h"
#include "decode/object/cfa_program.h"
#include "decode/object/elf_file.h"
#include "decode/object/go_frames.h"
#include "decode/object/symbols.h"

#define FUNCTIONS_MAX (1u << 21)
#define CIES_MAX (1u << 16)
#define UNPACKED_MAX (128u << 20)
/* Between functions: padding. More than this may be code that nothing is told of. */
#define PADDING_MAX 15
#define PAGE_SIZE (1u << UNWIND_PAGE_BITS)

struct cie {
	Dwarf_Off off;
	struct cfa_program program;
	uint8_t encoding; /* of the addresses in its functions */
	bool augmented, ok;
};

struct function {
	uint64_t start, end;
	const uint8_t *insns, *insns_end; /* borrowed from the ELF handle */
	uint32_t cie;
	uint32_t go; /* of Go's, its number in the table + 1; then there are no instructions */
	bool begins; /* see mark_begins() */
};

struct row {
	uint64_t pc;
	struct unwind_rule rule;
};

struct build {
	struct budget *budget;
	struct unwind_table *t;
	struct cie *cies;
	struct function *functions;
	struct row *rows;
	size_t n_cies, cies_room, n_functions, functions_room, n_rows, rows_room;
	size_t first_cie; /* of the present section */
	struct go_frames go;
	uint64_t charged;
};

static void build_fini(struct build *b)
{
	free(b->cies);
	free(b->functions);
	free(b->rows);
	go_frames_close(&b->go, b->budget);
	budget_give(b->budget, b->charged);
}

/* Room for one more element; false: no memory. */
static bool grow(struct build *b, void *array, size_t n, size_t *room, size_t size)
{
	size_t more = *room ? *room * 2 : 1024;
	void *old, *bigger;

	if (n < *room)
		return true;
	memcpy(&old, array, sizeof(old));
	if (!budget_take(b->budget, (more - *room) * size))
		return false;
	b->charged += (more - *room) * size;
	bigger = reallocarray(old, more, size);
	if (!bigger)
		return false;
	memcpy(array, &bigger, sizeof(bigger));
	*room = more;
	return true;
}

/* ---- .eh_frame, .debug_frame */

static size_t encoded_size(uint8_t encoding)
{
	switch (encoding & 7) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
		return 8;
	case DW_EH_PE_udata4:
		return 4;
	case DW_EH_PE_udata2:
		return 2;
	default:
		return 0;
	}
}

static uint64_t encoded(const uint8_t *p, size_t n, bool is_signed)
{
	uint64_t v = 0;

	memcpy(&v, p, n);
	if (is_signed && n < 8 && v >> (n * 8 - 1))
		v |= UINT64_MAX << (n * 8);
	return v;
}

/* How functions of it are described: false where that is not understood. */
static bool augmentation(struct cie *c, const Dwarf_CIE *cie)
{
	const char *aug = cie->augmentation;
	struct bytes data = bytes_of(cie->augmentation_data, cie->augmentation_data_size);
	const uint8_t *p;

	if (*aug == '\0')
		return true;
	if (*aug++ != 'z')
		return false;
	c->augmented = true;
	for (; *aug; aug++) {
		switch (*aug) {
		case 'S':
			c->program.is_signal = true;
			break;
		case 'L':
			(void)bytes_take(&data, 1);
			break;
		case 'R':
			p = bytes_take(&data, 1);
			if (p)
				c->encoding = *p;
			break;
		case 'P':
			p = bytes_take(&data, 1);
			if (!p || (*p & 0x70) == DW_EH_PE_aligned || !encoded_size(*p))
				return false;
			(void)bytes_take(&data, encoded_size(*p));
			break;
		default:
			return false;
		}
	}
	return !data.failed;
}

static int add_cie(struct build *b, Dwarf_Off off, const Dwarf_CIE *cie)
{
	struct cie *c;

	if (b->n_cies == CIES_MAX)
		return -E2BIG;
	if (!grow(b, &b->cies, b->n_cies, &b->cies_room, sizeof(*b->cies)))
		return -ENOMEM;
	c = &b->cies[b->n_cies++];
	*c = (struct cie){.off = off,
		.program = {.code_factor = cie->code_alignment_factor,
			.data_factor = cie->data_alignment_factor,
			.ra_register = cie->return_address_register}};
	c->ok = c->program.code_factor >= 1 && c->program.code_factor <= 16 &&
		augmentation(c, cie) &&
		cfa_program_begin(&c->program, cie->initial_instructions,
				  cie->initial_instructions_end) == 0;
	return 0;
}

static const struct cie *find_cie(const struct build *b, Dwarf_Off off)
{
	/* Nearly always the last one. */
	if (b->n_cies > b->first_cie && b->cies[b->n_cies - 1].off == off)
		return &b->cies[b->n_cies - 1];
	for (size_t lo = b->first_cie, hi = b->n_cies; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (b->cies[mid].off == off)
			return &b->cies[mid];
		if (b->cies[mid].off < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* `at`: the address of the section's first byte. */
static int add_function(struct build *b, const Dwarf_FDE *fde, const uint8_t *section, uint64_t at)
{
	const struct cie *c = find_cie(b, fde->CIE_pointer);
	struct bytes data = bytes_of(fde->start, (size_t)(fde->end - fde->start));
	size_t n = c ? encoded_size(c->encoding) : 0;
	const uint8_t *p, *q;
	uint64_t start, size;

	p = n ? bytes_take(&data, n) : NULL;
	q = p ? bytes_take(&data, n) : NULL;
	if (!q || !c->ok || (c->encoding & 0x80))
		goto refused;
	start = encoded(p, n, c->encoding & 8);
	if ((c->encoding & 0x70) == DW_EH_PE_pcrel)
		start += at + (uint64_t)(p - section);
	else if (c->encoding & 0x70)
		goto refused;
	size = encoded(q, n, false);
	if (c->augmented)
		(void)bytes_take(&data, bytes_uleb(&data));
	if (data.failed)
		goto refused;
	if (size == 0 || start + size < start || start == 0)
		return 0; /* of a function that the linker has dropped */
	if (b->n_functions == FUNCTIONS_MAX)
		return -E2BIG;
	if (!grow(b, &b->functions, b->n_functions, &b->functions_room, sizeof(*b->functions)))
		return -ENOMEM;
	b->functions[b->n_functions++] = (struct function){.start = start,
							   .end = start + size,
							   .insns = data.p,
							   .insns_end = data.p + data.left,
							   .cie = (uint32_t)(c - b->cies)};
	return 0;
refused:
	b->t->refused++;
	return 0;
}

static int add_section(struct build *b, const uint8_t *ident, Elf_Data *data, bool is_eh,
		       uint64_t at)
{
	Dwarf_Off off = 0, next;
	Dwarf_CFI_Entry e;
	int r = 0;

	b->first_cie = b->n_cies;
	for (; r == 0; off = next) {
		int answer = dwarf_next_cfi(ident, data, is_eh, off, &next, &e);

		if (answer != 0 && (answer > 0 || next <= off || next == (Dwarf_Off)-1))
			break;
		if (next <= off)
			break;
		if (answer != 0)
			b->t->refused++;
		else if (dwarf_cfi_cie_p(&e))
			r = add_cie(b, off, &e.cie);
		else
			r = add_function(b, &e.fde, data->d_buf, at);
	}
	return r;
}

/* A packed one is unpacked, within limits. */
static Elf_Data *section_data(struct build *b, Elf_Scn *scn, const GElf_Shdr *sh)
{
	GElf_Chdr ch;

	if (sh->sh_flags & SHF_COMPRESSED) {
		if (!gelf_getchdr(scn, &ch) || ch.ch_size > UNPACKED_MAX ||
		    !budget_take(b->budget, ch.ch_size))
			return NULL;
		b->charged += ch.ch_size;
		return elf_compress(scn, 0, 0) < 0 ? NULL : elf_getdata(scn, NULL);
	}
	if (sh->sh_size > UNPACKED_MAX || !budget_take(b->budget, sh->sh_size))
		return NULL;
	b->charged += sh->sh_size;
	return elf_rawdata(scn, NULL);
}

static int add_sections(struct build *b, Elf *elf, const GElf_Ehdr *eh)
{
	Elf_Scn *scn = NULL;
	size_t shstr;
	int r = 0;

	if (elf_getshdrstrndx(elf, &shstr) < 0)
		return -ENODATA;
	for (unsigned i = 0; r == 0 && i < SYMBOLS_MAX_SECTIONS && (scn = elf_nextscn(elf, scn));
	     i++) {
		const char *name;
		Elf_Data *data;
		GElf_Shdr sh;
		bool is_eh;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(elf, shstr, sh.sh_name);
		is_eh = name && strcmp(name, ".eh_frame") == 0;
		if (!is_eh && (!name || strcmp(name, ".debug_frame") != 0))
			continue;
		data = section_data(b, scn, &sh);
		if (data && data->d_buf)
			r = add_section(b, eh->e_ident, data, is_eh, is_eh ? sh.sh_addr : 0);
	}
	return r;
}

/* ---- Go */

static int add_go(struct build *b, Elf *elf)
{
	int r = go_frames_open(elf, b->budget, &b->go);

	if (r < 0)
		return r == -ENODATA ? 0 : r;
	for (uint32_t i = 0; i < b->go.table.n_functions; i++) {
		struct gopclntab_function f;

		if (!gopclntab_function(&b->go.table, i, &f) || f.end < f.start || f.start == 0)
			continue;
		if (b->n_functions == FUNCTIONS_MAX)
			return -E2BIG;
		if (!grow(b, &b->functions, b->n_functions, &b->functions_room,
			  sizeof(*b->functions)))
			return -ENOMEM;
		b->functions[b->n_functions++] =
			(struct function){.start = f.start, .end = f.end, .go = i + 1};
	}
	return 0;
}

/* ---- functions with which a stack begins */

/*
 * A greenlet (https://github.com/python-greenlet/greenlet, src/greenlet/TUserGreenlet.cpp) begins
 * in this function, at the place of the thread's stack where that is then. Below its frame others
 * run meanwhile, so what the table says of its caller is true for a moment only. All builds export
 * it.
 */
static bool begins_stack(const struct symbol *sym)
{
	static const char name[] = "_ZN8greenlet12UserGreenlet13g_initialstubEPv";

	return sym->name_len == sizeof(name) - 1 && memcmp(sym->name, name, sizeof(name) - 1) == 0;
}

static void mark_begins(struct build *b, Elf *elf)
{
	_cleanup_(symbols_fini) struct symbols s;

	symbols_init(&s, b->budget);
	/* as many as there is room for */
	(void)symbols_add_elf(&s, elf, SHT_DYNSYM);
	for (size_t i = 0; i < s.n; i++) {
		if (!begins_stack(&s.v[i]))
			continue;
		for (size_t k = 0; k < b->n_functions; k++)
			b->functions[k].begins |= b->functions[k].start == s.v[i].addr;
	}
}

/* ---- rows */

static bool push_row(void *arg, uint64_t pc, const struct unwind_rule *rule)
{
	struct build *b = arg;

	/* The last word on an address counts. */
	if (b->n_rows && b->rows[b->n_rows - 1].pc == pc) {
		b->rows[b->n_rows - 1].rule = *rule;
		return true;
	}
	if (b->n_rows && memcmp(&b->rows[b->n_rows - 1].rule, rule, sizeof(*rule)) == 0)
		return true;
	if (b->n_rows >= UNWIND_ROWS_MAX ||
	    !grow(b, &b->rows, b->n_rows, &b->rows_room, sizeof(*b->rows)))
		return false;
	b->rows[b->n_rows++] = (struct row){.pc = pc, .rule = *rule};
	return true;
}

static int function_cmp(const void *a, const void *b)
{
	const struct function *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	/* DWARF knows nothing of frame pointers and stacks of Go's */
	if (x->go != y->go)
		return x->go > y->go ? -1 : 1;
	return x->cie < y->cie ? -1 : x->cie > y->cie;
}

static int go_rows(struct build *b, const struct function *f)
{
	struct gopclntab_function g;

	return gopclntab_function(&b->go.table, f->go - 1, &g)
		       ? go_frames_run(&b->go, &g, push_row, b)
		       : -EBADMSG;
}

static int add_rows(struct build *b)
{
	static const struct unwind_rule untold = {.kind_reg = UNWIND_FRAME_POINTER},
					unknown = {.kind_reg = UNWIND_UNKNOWN};
	uint64_t last_end = 0;

	if (b->n_functions)
		qsort(b->functions, b->n_functions, sizeof(*b->functions), function_cmp);
	for (size_t i = 0; i < b->n_functions; i++) {
		const struct function *f = &b->functions[i];
		size_t mark;
		int r;

		if (f->start < last_end)
			continue; /* both sections tell it, or the file lies */
		if (b->n_rows && f->start - last_end > PADDING_MAX &&
		    !push_row(b, last_end, &untold))
			return -ENOMEM;
		mark = b->n_rows;
		if (f->begins)
			r = push_row(b, f->start, &(struct unwind_rule){.kind_reg = UNWIND_END})
				    ? 0
				    : -ENOMEM;
		else
			r = f->go ? go_rows(b, f)
				  : cfa_program_run(&b->cies[f->cie].program, f->insns,
						    f->insns_end, f->start, f->end, push_row, b);
		if (r == -EBADMSG) {
			b->t->refused++;
			b->n_rows = mark;
			if (!push_row(b, f->start, &unknown))
				return -ENOMEM;
		} else if (r < 0) {
			return r;
		}
		b->t->functions++;
		last_end = f->end;
	}
	return b->n_rows && !push_row(b, last_end, &untold) ? -ENOMEM : 0;
}

/* ---- the table */

/* Numbers of rules by their bytes: open addressing, at most half full. */
struct numbers {
	uint32_t *slots; /* number + 1 */
	uint32_t mask;
};

/* A rule for which there is no number left is unknown, which is rule 0. */
static uint32_t rule_number(struct unwind_table *t, struct numbers *n,
			    const struct unwind_rule *rule)
{
	uint64_t key;
	uint32_t i;

	memcpy(&key, rule, sizeof(key));
	i = (uint32_t)(key * 0x9e3779b97f4a7c15ULL >> 40) & n->mask;
	for (; n->slots[i]; i = (i + 1) & n->mask)
		if (memcmp(&t->rules[n->slots[i] - 1], rule, sizeof(*rule)) == 0)
			return n->slots[i] - 1;
	if (t->n_rules == UNWIND_RULES_MAX) {
		t->refused++;
		return 0;
	}
	t->rules[t->n_rules] = *rule;
	n->slots[i] = ++t->n_rules;
	return t->n_rules - 1;
}

static void fill_pages(struct build *b, struct numbers *numbers)
{
	struct unwind_table *t = b->t;
	uint32_t now = 0;
	size_t k = 0;

	for (uint32_t i = 0; i < t->n_pages; i++) {
		const uint64_t page = t->lo_page + (uint64_t)i;
		const uint32_t first = t->n_rows;

		if (k >= b->n_rows || b->rows[k].pc != page << UNWIND_PAGE_BITS)
			t->rows[t->n_rows++] = UNWIND_ROW(0, now);
		for (; k < b->n_rows && b->rows[k].pc >> UNWIND_PAGE_BITS == page; k++) {
			now = rule_number(t, numbers, &b->rows[k].rule);
			t->rows[t->n_rows++] = UNWIND_ROW(b->rows[k].pc & (PAGE_SIZE - 1), now);
		}
		t->pages[i] = t->n_rows - first;
	}
}

static int make_table(struct build *b)
{
	struct unwind_table *t = b->t;
	struct numbers numbers = {.mask = UNWIND_RULES_MAX * 2 - 1};
	uint64_t lo, n;

	if (!b->n_rows)
		return -ENODATA;
	lo = b->rows[0].pc >> UNWIND_PAGE_BITS;
	n = (b->rows[b->n_rows - 1].pc >> UNWIND_PAGE_BITS) - lo + 1;
	if (n > UNWIND_PAGES_MAX || lo > UINT32_MAX - UNWIND_PAGES_MAX ||
	    b->n_rows + n > UNWIND_ROWS_MAX)
		return -E2BIG;
	t->lo_page = (uint32_t)lo;
	t->n_pages = (uint32_t)n;
	t->pages = calloc(n, sizeof(*t->pages));
	t->rows = calloc(b->n_rows + n, sizeof(*t->rows));
	t->rules = calloc(UNWIND_RULES_MAX, sizeof(*t->rules));
	numbers.slots = calloc(numbers.mask + 1, sizeof(*numbers.slots));
	if (!t->pages || !t->rows || !t->rules || !numbers.slots) {
		free(numbers.slots);
		return -ENOMEM;
	}
	(void)rule_number(t, &numbers, &(struct unwind_rule){.kind_reg = UNWIND_UNKNOWN});
	fill_pages(b, &numbers);
	free(numbers.slots);
	return 0;
}

/* What of the file is code. */
static int add_loads(struct unwind_table *t, Elf *elf)
{
	size_t n;

	if (elf_getphdrnum(elf, &n) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < n && i < 256; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
		    !(ph.p_flags & PF_X) || !ph.p_filesz)
			continue;
		if (t->n_loads == UNWIND_LOADS_MAX)
			return -E2BIG;
		t->loads[t->n_loads++] = (struct unwind_load){.off = ph.p_offset,
							      .vaddr = ph.p_vaddr,
							      .size = ph.p_filesz};
	}
	return t->n_loads ? 0 : -ENODATA;
}

int unwind_table_build(int fd, struct budget *budget, struct unwind_table *ret)
{
	_cleanup_(unwind_table_fini) struct unwind_table t = {0};
	_cleanup_(build_fini) struct build b = {.budget = budget, .t = &t};
	_cleanup_(elf_endp) Elf *elf = NULL;
	GElf_Ehdr eh;
	int r = elf_file_open(fd, &elf, &eh);

	if (r == 0)
		r = add_loads(&t, elf);
	if (r == 0)
		r = add_sections(&b, elf, &eh);
	if (r == 0)
		r = add_go(&b, elf);
	if (r == 0)
		mark_begins(&b, elf);
	if (r == 0)
		r = add_rows(&b);
	if (r == 0)
		r = make_table(&b);
	if (r < 0)
		return r;
	*ret = t;
	t = (struct unwind_table){0};
	return 0;
}

void unwind_table_fini(struct unwind_table *t)
{
	free(t->pages);
	free(t->rows);
	free(t->rules);
	*t = (struct unwind_table){0};
}

uint64_t unwind_table_bytes(const struct unwind_table *t)
{
	return sizeof(struct unwind_file) + t->n_loads * sizeof(t->loads[0]) +
	       t->n_pages * sizeof(*t->pages) + t->n_rows * sizeof(*t->rows) +
	       t->n_rules * sizeof(*t->rules);
}

int unwind_table_write(const struct unwind_table *t, int fd)
{
	const struct unwind_file head = {.magic = UNWIND_FILE_MAGIC,
					 .n_loads = t->n_loads,
					 .n_pages = t->n_pages,
					 .n_rows = t->n_rows,
					 .n_rules = t->n_rules,
					 .lo_page = t->lo_page};
	int r = io_write_all(fd, &head, sizeof(head));

	if (r == 0)
		r = io_write_all(fd, t->loads, t->n_loads * sizeof(t->loads[0]));
	if (r == 0)
		r = io_write_all(fd, t->pages, t->n_pages * sizeof(*t->pages));
	if (r == 0)
		r = io_write_all(fd, t->rows, t->n_rows * sizeof(*t->rows));
	if (r == 0)
		r = io_write_all(fd, t->rules, t->n_rules * sizeof(*t->rules));
	return r;
}
