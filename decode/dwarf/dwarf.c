// SPDX-License-Identifier: Apache-2.0
/* Sections, units and their abbreviations. */
#include "config.h"

#include "decode/dwarf/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/dwarf/dwarf_internal.h"
#include "decode/object/symbols.h"

#define MAX_UNITS (1u << 20)
#define MAX_SUP_LINK 8192u

bool dwarf_take(struct dwarf *d, uint64_t bytes)
{
	if (!budget_take(d->budget, bytes))
		return false;
	d->taken += bytes;
	return true;
}

/* ---- sections */

static const char *const section_names[_DWARF_SECTIONS] = {
	[DWARF_INFO] = ".debug_info",
	[DWARF_ABBREV] = ".debug_abbrev",
	[DWARF_STR] = ".debug_str",
	[DWARF_LINE] = ".debug_line",
	[DWARF_LINE_STR] = ".debug_line_str",
	[DWARF_RANGES] = ".debug_ranges",
	[DWARF_RNGLISTS] = ".debug_rnglists",
	[DWARF_ADDR] = ".debug_addr",
	[DWARF_STR_OFFSETS] = ".debug_str_offsets",
};

/* Its bytes, uncompressed. libelf keeps what it reads: all of it is paid for before. */
static int load_section(struct dwarf *d, Elf_Scn *scn, const GElf_Shdr *sh, struct bytes *ret)
{
	uint64_t size = sh->sh_size;
	Elf_Data *data;
	GElf_Chdr ch;

	if (sh->sh_flags & SHF_COMPRESSED) {
		if (!gelf_getchdr(scn, &ch) || __builtin_add_overflow(size, ch.ch_size, &size))
			return -EBADMSG;
	}
	if (!dwarf_take(d, size))
		return -EFBIG;
	if ((sh->sh_flags & SHF_COMPRESSED) && elf_compress(scn, 0, 0) < 0)
		return -EBADMSG;
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf)
		return -EBADMSG;
	*ret = bytes_of(data->d_buf, data->d_size);
	return 0;
}

static int load_sections(struct dwarf *d, Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t shstr;

	if (elf_getshdrstrndx(elf, &shstr) < 0)
		return -ENODATA;
	for (unsigned int i = 0; i < SYMBOLS_MAX_SECTIONS && (scn = elf_nextscn(elf, scn)); i++) {
		const char *name;
		GElf_Shdr sh;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(elf, shstr, sh.sh_name);
		if (name && strcmp(name, ".gnu_debugaltlink") == 0 && sh.sh_size <= MAX_SUP_LINK)
			(void)load_section(d, scn, &sh, &d->sup_link);
		for (unsigned int s = 0; name && s < _DWARF_SECTIONS; s++) {
			int r;

			if (strcmp(name, section_names[s]) != 0 || d->sections[s].p)
				continue;
			r = load_section(d, scn, &sh, &d->sections[s]);
			if (r == -EFBIG)
				return r;
		}
	}
	return d->sections[DWARF_INFO].left && d->sections[DWARF_ABBREV].left ? 0 : -ENODATA;
}

const char *dwarf_string(const struct dwarf *d, enum dwarf_section section, uint64_t off)
{
	const struct bytes *s = &d->sections[section];

	if (off >= s->left || !memchr(s->p + off, 0, s->left - (size_t)off))
		return NULL;
	return (const char *)s->p + off;
}

void dwarf_add_code(struct dwarf *d, uint64_t start, uint64_t end)
{
	if (d->n_code < DWARF_MAX_CODE && end > start)
		d->code[d->n_code++] = (struct dwarf_range){start, end};
}

bool dwarf_is_code(const struct dwarf *d, uint64_t addr)
{
	for (uint32_t i = 0; i < d->n_code; i++)
		if (addr >= d->code[i].start && addr < d->code[i].end)
			return true;
	return false;
}

/* ---- units */

uint64_t dwarf_offset(const struct dwarf_unit *u, struct bytes *b)
{
	return u->offset_size == 8 ? bytes_u64(b) : bytes_u32(b);
}

/* A unit's header; false where what follows cannot be units either. */
static bool read_header(struct dwarf *d, struct bytes *info, struct dwarf_unit *ret,
			bool *ret_known)
{
	const uint8_t *begin = d->sections[DWARF_INFO].p;
	uint8_t type = DW_UT_compile;
	uint16_t version;
	uint64_t length;
	struct bytes b;
	const void *p;

	*ret = (struct dwarf_unit){.dwarf = d,
				   .off = (uint64_t)(info->p - begin),
				   .offset_size = 4};
	length = bytes_u32(info);
	if (length == UINT32_MAX) {
		ret->offset_size = 8;
		length = bytes_u64(info);
	}
	p = bytes_take(info, length);
	if (!p)
		return false;
	b = bytes_of(p, (size_t)length);
	ret->end = (uint64_t)(info->p - begin);
	version = bytes_u16(&b);
	if (version >= 5) {
		type = bytes_u8(&b);
		ret->addr_size = bytes_u8(&b);
		ret->abbrev_off = dwarf_offset(ret, &b);
		if (type == DW_UT_skeleton || type == DW_UT_split_compile)
			(void)bytes_u64(&b);
		if (type == DW_UT_type || type == DW_UT_split_type) {
			(void)bytes_u64(&b);
			(void)dwarf_offset(ret, &b);
			ret->is_type = true;
		}
	} else {
		ret->abbrev_off = dwarf_offset(ret, &b);
		ret->addr_size = bytes_u8(&b);
	}
	ret->die = ret->end - b.left;
	ret->version = (uint8_t)version;
	*ret_known = !b.failed && version >= 2 && version <= 5 &&
		     (ret->addr_size == 4 || ret->addr_size == 8);
	return true;
}

static int find_units(struct dwarf *d)
{
	struct bytes info = d->sections[DWARF_INFO];
	size_t room = 0;

	while (info.left && d->n_units < MAX_UNITS) {
		struct dwarf_unit u;
		bool known;

		if (!read_header(d, &info, &u, &known)) {
			d->stats.broken++;
			break;
		}
		if (!known) {
			d->stats.broken++;
			continue;
		}
		if (d->n_units == room) {
			const size_t more = room ? room : 64;
			struct dwarf_unit *v;

			if (!dwarf_take(d, more * sizeof(*v)))
				return -EFBIG;
			v = reallocarray(d->units, room + more, sizeof(*v));
			if (!v)
				return -ENOMEM;
			d->units = v;
			room += more;
		}
		d->units[d->n_units++] = u;
	}
	return 0;
}

struct dwarf_unit *dwarf_unit_at(const struct dwarf *d, uint64_t off)
{
	size_t low = 0, high = d->n_units;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (d->units[mid].end <= off)
			low = mid + 1;
		else
			high = mid;
	}
	return low < d->n_units && off >= d->units[low].die ? &d->units[low] : NULL;
}

int dwarf_new(Elf *elf, struct budget *budget, struct dwarf **ret)
{
	_cleanup_(dwarf_freep) struct dwarf *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->budget = budget;
	r = load_sections(d, elf);
	if (r == 0)
		r = find_units(d);
	if (r < 0)
		return r;
	/*
	 * Each is asked for a few times by honest files: units that share it, and one look at each
	 * unit first.
	 */
	d->credit = (struct dwarf_credit){
		.abbrev = d->sections[DWARF_ABBREV].left * 8 + 4096,
		.line = d->sections[DWARF_LINE].left * 8 + 4096,
		.ranges = (d->sections[DWARF_RANGES].left + d->sections[DWARF_RNGLISTS].left) * 8 +
			  4096,
	};
	*ret = take_ptr(d);
	return 0;
}

static struct dwarf_abbrevs *abbrevs_unref(struct dwarf *d, struct dwarf_abbrevs *a);

struct dwarf *dwarf_free(struct dwarf *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_units; i++) {
		abbrevs_unref(d, d->units[i].abbrevs);
		dwarf_lines_free(d->units[i].lines);
		dwarf_scopes_free(d->units[i].scopes);
	}
	for (size_t i = 0; i < DWARF_TABLES; i++)
		abbrevs_unref(d, d->tables[i]);
	free(d->units);
	free(d->places);
	budget_give(d->budget, d->taken);
	free(d);
	return NULL;
}

/* ---- abbreviations */

struct dwarf_abbrevs {
	struct dwarf_abbrev *v;
	struct dwarf_attr *attrs;
	size_t n, room, n_attrs, room_attrs;
	uint64_t off;
	unsigned int refs; /* units, and the table of tables */
};

static struct dwarf_abbrevs *dwarf_abbrevs_free(struct dwarf_abbrevs *a)
{
	if (!a)
		return NULL;
	free(a->v);
	free(a->attrs);
	free(a);
	return NULL;
}
DEFINE_CLEANUP(struct dwarf_abbrevs *, dwarf_abbrevs_free)

static struct dwarf_abbrevs *abbrevs_unref(struct dwarf *d, struct dwarf_abbrevs *a)
{
	uint64_t bytes;

	if (!a || --a->refs)
		return NULL;
	bytes = a->room * sizeof(*a->v) + a->room_attrs * sizeof(*a->attrs);
	budget_give(d->budget, bytes);
	d->taken -= bytes;
	return dwarf_abbrevs_free(a);
}

static bool add_attr(struct dwarf *d, struct dwarf_abbrevs *a, const struct dwarf_attr *attr)
{
	if (a->n_attrs == a->room_attrs) {
		const size_t more = a->room_attrs ? a->room_attrs : 32;
		struct dwarf_attr *v;

		if (!dwarf_take(d, more * sizeof(*v)))
			return false;
		v = reallocarray(a->attrs, a->room_attrs + more, sizeof(*v));
		if (!v)
			return false;
		a->attrs = v;
		a->room_attrs += more;
	}
	a->attrs[a->n_attrs++] = *attr;
	return true;
}

static struct dwarf_abbrev *add_abbrev(struct dwarf *d, struct dwarf_abbrevs *a)
{
	if (a->n == a->room) {
		const size_t more = a->room ? a->room : 16;
		struct dwarf_abbrev *v;

		if (!dwarf_take(d, more * sizeof(*v)))
			return NULL;
		v = reallocarray(a->v, a->room + more, sizeof(*v));
		if (!v)
			return NULL;
		a->v = v;
		a->room += more;
	}
	return &a->v[a->n++];
}

static int compare_codes(const void *a, const void *b)
{
	const struct dwarf_abbrev *x = a, *y = b;

	return x->code < y->code ? -1 : x->code > y->code;
}

/* One attribute of an abbreviation; false after the last, or where the cursor has failed. */
static bool read_attr(struct bytes *b, struct dwarf_attr *ret)
{
	const uint64_t name = bytes_uleb(b), form = bytes_uleb(b);

	ret->name = name > UINT16_MAX ? 0 : (uint16_t)name;
	ret->form = form > UINT16_MAX ? 0 : (uint16_t)form;
	ret->implicit = form == DW_FORM_implicit_const ? bytes_sleb(b) : 0;
	return !b->failed && (name || form);
}

/* All of a unit's table. */
static int read_abbrevs(struct dwarf_unit *u, struct dwarf_abbrevs **ret)
{
	_cleanup_(dwarf_abbrevs_freep) struct dwarf_abbrevs *a = calloc(1, sizeof(*a));
	struct bytes b = u->dwarf->sections[DWARF_ABBREV];
	bool sorted = true;

	if (!a)
		return -ENOMEM;
	(void)bytes_take(&b, u->abbrev_off);
	while (!b.failed) {
		const size_t left = b.left;
		struct dwarf_abbrev *v;
		struct dwarf_attr attr;
		uint64_t code;

		code = bytes_uleb(&b);
		if (code == 0)
			break;
		v = add_abbrev(u->dwarf, a);
		if (!v)
			return -ENOMEM;
		*v = (struct dwarf_abbrev){.code = code, .first = (uint32_t)a->n_attrs};
		v->tag = (uint16_t)bytes_uleb(&b);
		v->children = bytes_u8(&b) == DW_CHILDREN_yes;
		while (read_attr(&b, &attr)) {
			if (v->n == DWARF_MAX_ATTRS)
				return -EBADMSG;
			if (!add_attr(u->dwarf, a, &attr))
				return -ENOMEM;
			v->n++;
		}
		if (a->n > 1 && v[-1].code >= code)
			sorted = false;
		if (left - b.left > u->dwarf->credit.abbrev)
			return -EFBIG;
		u->dwarf->credit.abbrev -= left - b.left;
	}
	if (b.failed)
		return -EBADMSG;
	if (!sorted)
		qsort(a->v, a->n, sizeof(*a->v), compare_codes);
	*ret = take_ptr(a);
	return 0;
}

const struct dwarf_abbrev *dwarf_abbrev_find(const struct dwarf_abbrevs *a, uint64_t code,
					     const struct dwarf_attr **ret_attrs)
{
	const struct dwarf_abbrev key = {.code = code}, *found;

	/* numbered from 1, as every producer does */
	if (code && code <= a->n && a->v[code - 1].code == code)
		found = &a->v[code - 1];
	else
		found = a->n ? bsearch(&key, a->v, a->n, sizeof(*a->v), compare_codes) : NULL;
	/* a table of entries without attributes has none at all */
	if (found)
		*ret_attrs = a->attrs ? a->attrs + found->first : NULL;
	return found;
}

/* ---- a unit's own entry */

void dwarf_unit_close(struct dwarf_unit *u)
{
	if (!u->usable || u->lines_tried || u->scopes_tried)
		return;
	u->abbrevs = abbrevs_unref(u->dwarf, u->abbrevs);
	u->opened = u->usable = false;
}

static void unit_take(struct dwarf_unit *u, const struct dwarf_entry *e)
{
	u->low_pc = e->has_low ? e->low : 0;
	u->stmt = e->has_stmt ? e->stmt : UINT64_MAX;
	u->name = e->name;
	u->dir = e->dir;
}

/* The table of a unit: read, or that of another unit that was asked for lately. */
static int find_abbrevs(struct dwarf_unit *u)
{
	struct dwarf_abbrevs **kept =
		&u->dwarf->tables[(u->abbrev_off ^ u->abbrev_off >> 6) % DWARF_TABLES];
	struct dwarf_abbrevs *a;
	int r;

	if (!*kept || (*kept)->off != u->abbrev_off) {
		r = read_abbrevs(u, &a);
		if (r < 0)
			return r;
		(void)abbrevs_unref(u->dwarf, *kept);
		a->off = u->abbrev_off;
		a->refs = 1;
		*kept = a;
	}
	(*kept)->refs++;
	u->abbrevs = *kept;
	return 0;
}

bool dwarf_unit_open(struct dwarf_unit *u)
{
	struct dwarf_entry e;
	uint64_t next;
	int r;

	if (u->opened)
		return u->usable;
	u->opened = true;
	r = u->is_type ? -ENODATA : find_abbrevs(u);
	if (r < 0) {
		if (r == -EBADMSG)
			u->dwarf->stats.broken++;
		else if (r != -ENODATA)
			u->dwarf->stats.cut++;
		return false;
	}
	/* After the headers of these tables, where nobody says so. */
	u->addr_base = u->str_base = 8;
	u->rnglists_base = 12;
	/* First where its tables begin: other attributes may precede that one. */
	if (!dwarf_entry_read(u, u->die, &e, &next)) {
		u->dwarf->stats.broken++;
		return false;
	}
	u->addr_base = e.addr_base ? e.addr_base : u->addr_base;
	u->str_base = e.str_base ? e.str_base : u->str_base;
	u->rnglists_base = e.rnglists_base ? e.rnglists_base : u->rnglists_base;
	if (!dwarf_entry_read(u, u->die, &e, &next)) {
		u->dwarf->stats.broken++;
		return false;
	}
	unit_take(u, &e);
	u->usable = true;
	return true;
}
