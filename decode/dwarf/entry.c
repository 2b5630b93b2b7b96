// SPDX-License-Identifier: Apache-2.0
/* One entry of a unit: the values of its attributes, and the addresses that it covers. */
#include "config.h"

#include <dwarf.h>
#include <string.h>

#include "decode/dwarf/dwarf.h"
#include "decode/dwarf/dwarf_internal.h"

/* ---- values */

static const void *skip_block(struct bytes *b, uint64_t n)
{
	return bytes_take(b, n);
}

static uint64_t unsigned_of(struct bytes *b, unsigned int size)
{
	const uint8_t *p = bytes_take(b, size);
	uint64_t v = 0;

	for (unsigned int i = size; p && i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

/* The string or address that an index means, by the unit's tables. */
static void indexed_string(const struct dwarf_unit *u, uint64_t index, struct dwarf_value *ret)
{
	struct bytes t = u->dwarf->sections[DWARF_STR_OFFSETS];
	uint64_t at;

	if (__builtin_mul_overflow(index, u->offset_size, &at) ||
	    __builtin_add_overflow(at, u->str_base, &at))
		return;
	(void)bytes_take(&t, at);
	at = dwarf_offset(u, &t);
	if (!t.failed)
		*ret = (struct dwarf_value){.kind = DWARF_TEXT,
					    .text = dwarf_string(u->dwarf, DWARF_STR, at)};
}

static void indexed_address(const struct dwarf_unit *u, uint64_t index, struct dwarf_value *ret)
{
	struct bytes t = u->dwarf->sections[DWARF_ADDR];
	uint64_t at;

	if (__builtin_mul_overflow(index, u->addr_size, &at) ||
	    __builtin_add_overflow(at, u->addr_base, &at))
		return;
	(void)bytes_take(&t, at);
	at = unsigned_of(&t, u->addr_size);
	if (!t.failed)
		*ret = (struct dwarf_value){.kind = DWARF_ADDRESS, .number = at};
}

static void set(struct dwarf_value *ret, unsigned int kind, uint64_t number)
{
	ret->kind = kind;
	ret->number = number;
}

static void set_text(const struct dwarf *d, enum dwarf_section section, uint64_t off,
		     struct dwarf_value *ret)
{
	ret->kind = DWARF_TEXT;
	ret->text = d ? dwarf_string(d, section, off) : NULL;
}

/* A reference within the unit, as an offset in the section. */
static void set_ref(const struct dwarf_unit *u, uint64_t off, struct dwarf_value *ret)
{
	if (off < u->end - u->off)
		set(ret, DWARF_REF, u->off + off);
}

bool dwarf_value_read(const struct dwarf_unit *u, struct bytes *b, uint16_t form, int64_t implicit,
		      struct dwarf_value *ret)
{
	size_t n;

	*ret = (struct dwarf_value){.kind = DWARF_NOTHING};
	if (form == DW_FORM_indirect) {
		const uint64_t real = bytes_uleb(b);

		/* once, and to something that says what it is by itself */
		form = real > UINT16_MAX || real == DW_FORM_indirect ||
				       real == DW_FORM_implicit_const
			       ? 0
			       : (uint16_t)real;
	}
	switch (form) {
	case DW_FORM_addr:
		set(ret, DWARF_ADDRESS, unsigned_of(b, u->addr_size));
		break;
	case DW_FORM_data1:
	case DW_FORM_flag:
		set(ret, DWARF_NUMBER, bytes_u8(b));
		break;
	case DW_FORM_data2:
		set(ret, DWARF_NUMBER, bytes_u16(b));
		break;
	case DW_FORM_data4:
		set(ret, DWARF_NUMBER, bytes_u32(b));
		break;
	case DW_FORM_data8:
		set(ret, DWARF_NUMBER, bytes_u64(b));
		break;
	case DW_FORM_udata:
		set(ret, DWARF_NUMBER, bytes_uleb(b));
		break;
	case DW_FORM_sdata:
		set(ret, DWARF_NUMBER, (uint64_t)bytes_sleb(b));
		break;
	case DW_FORM_implicit_const:
		set(ret, DWARF_NUMBER, (uint64_t)implicit);
		break;
	case DW_FORM_flag_present:
		set(ret, DWARF_NUMBER, 1);
		break;
	case DW_FORM_string:
		ret->text = bytes_str(b, &n);
		ret->kind = DWARF_TEXT;
		break;
	case DW_FORM_strp:
		set_text(u->dwarf, DWARF_STR, dwarf_offset(u, b), ret);
		break;
	case DW_FORM_line_strp:
		set_text(u->dwarf, DWARF_LINE_STR, dwarf_offset(u, b), ret);
		break;
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		set_text(u->dwarf->sup, DWARF_STR, dwarf_offset(u, b), ret);
		break;
	case DW_FORM_strx:
	case DW_FORM_GNU_str_index:
		indexed_string(u, bytes_uleb(b), ret);
		break;
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
		indexed_string(u, unsigned_of(b, form - DW_FORM_strx1 + 1u), ret);
		break;
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
		indexed_address(u, bytes_uleb(b), ret);
		break;
	case DW_FORM_addrx1:
	case DW_FORM_addrx2:
	case DW_FORM_addrx3:
	case DW_FORM_addrx4:
		indexed_address(u, unsigned_of(b, form - DW_FORM_addrx1 + 1u), ret);
		break;
	case DW_FORM_ref1:
		set_ref(u, bytes_u8(b), ret);
		break;
	case DW_FORM_ref2:
		set_ref(u, bytes_u16(b), ret);
		break;
	case DW_FORM_ref4:
		set_ref(u, bytes_u32(b), ret);
		break;
	case DW_FORM_ref8:
		set_ref(u, bytes_u64(b), ret);
		break;
	case DW_FORM_ref_udata:
		set_ref(u, bytes_uleb(b), ret);
		break;
	case DW_FORM_ref_addr:
		/* as wide as an address in DWARF 2 */
		set(ret, DWARF_REF,
		    u->version == 2 ? unsigned_of(b, u->addr_size) : dwarf_offset(u, b));
		break;
	case DW_FORM_GNU_ref_alt:
		set(ret, DWARF_SUP_REF, dwarf_offset(u, b));
		break;
	case DW_FORM_ref_sup4:
		set(ret, DWARF_SUP_REF, bytes_u32(b));
		break;
	case DW_FORM_ref_sup8:
		set(ret, DWARF_SUP_REF, bytes_u64(b));
		break;
	case DW_FORM_ref_sig8:
		(void)bytes_u64(b);
		break;
	case DW_FORM_sec_offset:
		set(ret, DWARF_OFFSET, dwarf_offset(u, b));
		break;
	case DW_FORM_rnglistx:
		set(ret, DWARF_INDEX, bytes_uleb(b));
		break;
	case DW_FORM_loclistx:
		(void)bytes_uleb(b);
		break;
	case DW_FORM_data16:
		(void)bytes_take(b, 16);
		break;
	case DW_FORM_block1:
		(void)skip_block(b, bytes_u8(b));
		break;
	case DW_FORM_block2:
		(void)skip_block(b, bytes_u16(b));
		break;
	case DW_FORM_block4:
		(void)skip_block(b, bytes_u32(b));
		break;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		(void)skip_block(b, bytes_uleb(b));
		break;
	default:
		b->failed = true;
		b->left = 0;
		break;
	}
	return !b->failed;
}

/* ---- entries */

/* Constants of units before DWARF 4 stand for offsets, too. */
static bool is_offset(const struct dwarf_value *v)
{
	return v->kind == DWARF_OFFSET || v->kind == DWARF_NUMBER;
}

static uint32_t small(const struct dwarf_value *v)
{
	return v->kind == DWARF_NUMBER && v->number <= UINT32_MAX ? (uint32_t)v->number : 0;
}

static void take_ref(const struct dwarf_unit *u, const struct dwarf_value *v, bool abstract,
		     struct dwarf_ref *ret)
{
	struct dwarf *d = v->kind == DWARF_REF       ? u->dwarf
			  : v->kind == DWARF_SUP_REF ? u->dwarf->sup
						     : NULL;

	if (d && (abstract || !ret->dwarf))
		*ret = (struct dwarf_ref){.dwarf = d, .off = v->number};
}

static void take_attr(const struct dwarf_unit *u, uint16_t name, const struct dwarf_value *v,
		      struct dwarf_entry *e)
{
	switch (name) {
	case DW_AT_low_pc:
		e->has_low = v->kind == DWARF_ADDRESS;
		e->low = v->number;
		break;
	case DW_AT_high_pc:
		e->has_high = v->kind == DWARF_ADDRESS || v->kind == DWARF_NUMBER;
		e->high_is_size = v->kind == DWARF_NUMBER;
		e->high = v->number;
		break;
	case DW_AT_ranges:
		e->has_ranges = is_offset(v) || v->kind == DWARF_INDEX;
		e->ranges_is_index = v->kind == DWARF_INDEX;
		e->ranges = v->number;
		break;
	case DW_AT_entry_pc:
		e->has_entry = v->kind == DWARF_ADDRESS || v->kind == DWARF_NUMBER;
		e->entry_is_offset = v->kind == DWARF_NUMBER;
		e->entry_pc = v->number;
		break;
	case DW_AT_name:
		e->name = v->text;
		break;
	case DW_AT_linkage_name:
	case DW_AT_MIPS_linkage_name:
		e->linkage_name = v->text;
		break;
	case DW_AT_comp_dir:
		e->dir = v->text;
		break;
	case DW_AT_abstract_origin:
		take_ref(u, v, true, &e->origin);
		break;
	case DW_AT_specification:
		take_ref(u, v, false, &e->origin);
		break;
	case DW_AT_decl_file:
		e->has_decl_file = v->kind == DWARF_NUMBER;
		e->decl_file = small(v);
		break;
	case DW_AT_decl_line:
		e->decl_line = small(v);
		break;
	case DW_AT_call_file:
		e->call_file = small(v);
		break;
	case DW_AT_call_line:
		e->call_line = small(v);
		break;
	case DW_AT_stmt_list:
		e->has_stmt = is_offset(v);
		e->stmt = v->number;
		break;
	case DW_AT_addr_base:
	case DW_AT_GNU_addr_base:
		e->addr_base = is_offset(v) ? v->number : 0;
		break;
	case DW_AT_str_offsets_base:
		e->str_base = is_offset(v) ? v->number : 0;
		break;
	case DW_AT_rnglists_base:
		e->rnglists_base = is_offset(v) ? v->number : 0;
		break;
	default:
		break;
	}
}

bool dwarf_entry_read(struct dwarf_unit *u, uint64_t off, struct dwarf_entry *ret,
		      uint64_t *ret_next)
{
	const struct bytes *info = &u->dwarf->sections[DWARF_INFO];
	const struct dwarf_abbrev *a;
	const struct dwarf_attr *attrs;
	struct dwarf_entry e = {.tag = 0};
	struct dwarf_value v;
	struct bytes b;
	uint64_t code;

	if (off < u->die || off >= u->end)
		return false;
	b = bytes_of(info->p + off, (size_t)(u->end - off));
	code = bytes_uleb(&b);
	if (b.failed)
		return false;
	if (code) {
		a = dwarf_abbrev_find(u->abbrevs, code, &attrs);
		if (!a)
			return false;
		e.tag = a->tag;
		e.children = a->children;
		for (unsigned int i = 0; i < a->n; i++) {
			if (!dwarf_value_read(u, &b, attrs[i].form, attrs[i].implicit, &v))
				return false;
			take_attr(u, attrs[i].name, &v, &e);
		}
		if (e.tag == 0)
			return false;
	}
	*ret_next = u->end - b.left;
	*ret = e;
	return true;
}

/* ---- ranges */

static uint64_t index_of(const struct dwarf_unit *u, const struct dwarf_entry *e)
{
	struct bytes t = u->dwarf->sections[DWARF_RNGLISTS];
	uint64_t at;

	if (!e->ranges_is_index)
		return e->ranges;
	if (__builtin_mul_overflow(e->ranges, u->offset_size, &at) ||
	    __builtin_add_overflow(at, u->rnglists_base, &at))
		return UINT64_MAX;
	(void)bytes_take(&t, at);
	at = dwarf_offset(u, &t);
	if (t.failed || __builtin_add_overflow(at, u->rnglists_base, &at))
		return UINT64_MAX;
	return at;
}

/* Before DWARF 5: pairs, and a new base where the first of them is the greatest number. */
static bool next_old(const struct dwarf_unit *u, struct dwarf_walk *w, struct dwarf_range *ret)
{
	const uint64_t max = u->addr_size == 8 ? UINT64_MAX : UINT32_MAX;

	while (!w->list.failed) {
		const uint64_t start = unsigned_of(&w->list, u->addr_size),
			       end = unsigned_of(&w->list, u->addr_size);

		if (w->list.failed || (start == 0 && end == 0))
			return false;
		if (start == max) {
			w->base = end;
			continue;
		}
		*ret = (struct dwarf_range){w->base + start, w->base + end};
		return true;
	}
	return false;
}

static uint64_t address_by_index(const struct dwarf_unit *u, struct bytes *b)
{
	struct dwarf_value v = {.kind = DWARF_NOTHING};

	indexed_address(u, bytes_uleb(b), &v);
	if (v.kind != DWARF_ADDRESS)
		b->failed = true;
	return v.number;
}

static bool next_new(const struct dwarf_unit *u, struct dwarf_walk *w, struct dwarf_range *ret)
{
	struct bytes *b = &w->list;

	while (!b->failed) {
		const uint8_t kind = bytes_u8(b);

		switch (kind) {
		case DW_RLE_base_addressx:
			w->base = address_by_index(u, b);
			continue;
		case DW_RLE_base_address:
			w->base = unsigned_of(b, u->addr_size);
			continue;
		case DW_RLE_startx_endx:
			ret->start = address_by_index(u, b);
			ret->end = address_by_index(u, b);
			break;
		case DW_RLE_startx_length:
			ret->start = address_by_index(u, b);
			ret->end = ret->start + bytes_uleb(b);
			break;
		case DW_RLE_offset_pair:
			ret->start = w->base + bytes_uleb(b);
			ret->end = w->base + bytes_uleb(b);
			break;
		case DW_RLE_start_end:
			ret->start = unsigned_of(b, u->addr_size);
			ret->end = unsigned_of(b, u->addr_size);
			break;
		case DW_RLE_start_length:
			ret->start = unsigned_of(b, u->addr_size);
			ret->end = ret->start + bytes_uleb(b);
			break;
		default: /* the end, or nothing that is known */
			return false;
		}
		return !b->failed;
	}
	return false;
}

bool dwarf_range_next(struct dwarf_unit *u, const struct dwarf_entry *e, struct dwarf_walk *w,
		      struct dwarf_range *ret)
{
	struct dwarf_credit *credit = &u->dwarf->credit;
	uint64_t left;
	bool more;

	do {
		if (!e->has_ranges) {
			more = e->has_low && e->has_high && !w->begun;
			ret->start = e->low;
			ret->end = e->high_is_size ? e->low + e->high : e->high;
		} else {
			if (!w->begun) {
				w->list = u->dwarf->sections[u->version >= 5 ? DWARF_RNGLISTS
									     : DWARF_RANGES];
				w->base = u->low_pc;
				(void)bytes_take(&w->list, index_of(u, e));
			}
			left = w->list.left;
			more = u->version >= 5 ? next_new(u, w, ret) : next_old(u, w, ret);
			left -= w->list.left;
			if (left > credit->ranges) {
				u->dwarf->stats.cut++;
				return false;
			}
			credit->ranges -= left;
		}
		w->begun = true;
		/* Code that the linker has thrown away is at 0, or nowhere. */
	} while (more && (ret->end <= ret->start || !dwarf_is_code(u->dwarf, ret->start)));
	return more;
}
