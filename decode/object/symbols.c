// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/symbols.h"

#include <errno.h>
#include <string.h>

#include "decode/base/bytes.h"

#define MAX_NAME 65535u
/* How many symbols before an address are looked at for one that encloses it. */
#define MAX_LOOK_BACK 32u

void symbols_init(struct symbols *s, struct budget *budget)
{
	*s = (struct symbols){.budget = budget};
}

void symbols_fini(struct symbols *s)
{
	if (s->budget)
		budget_give(s->budget, s->cap * sizeof(*s->v));
	free(s->v);
	*s = (struct symbols){0};
}

int symbols_add(struct symbols *s, const struct symbol *sym)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct symbol *v;

		if (!budget_take(s->budget, (cap - s->cap) * sizeof(*v))) {
			s->cut = true;
			return -ENOMEM;
		}
		v = reallocarray(s->v, cap, sizeof(*v));
		if (!v) {
			budget_give(s->budget, (cap - s->cap) * sizeof(*v));
			s->cut = true;
			return -ENOMEM;
		}
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = *sym;
	return 0;
}

/* A section's bytes as they are in the file, never more than the budget has room for. */
static Elf_Data *section_data(struct symbols *s, Elf_Scn *scn, const GElf_Shdr *sh)
{
	if (sh->sh_type == SHT_NOBITS || sh->sh_size == 0 ||
		sh->sh_size > s->budget->max - s->budget->used)
		return NULL;
	return elf_rawdata(scn, NULL);
}

static uint8_t symbol_rank(unsigned type, unsigned bind, bool sized, const char *name)
{
	uint8_t rank = 0;

	if (sized)
		rank |= 0x40;
	if (type != STT_NOTYPE)
		rank |= 0x20;
	if (bind != STB_WEAK)
		rank |= 0x10;
	if (bind == STB_GLOBAL)
		rank |= 0x08;
	/* fewer underscores in front: "write" rather than "__write" */
	for (unsigned i = 0; i < 3 && name[i] == '_'; i++)
		rank |= (uint8_t)(1u << i);
	/* the C library's second names for its own use */
	if (!strncmp(name, "__GI_", 5))
		rank |= 0x07;
	return rank ^ 0x07;
}

/* Section headers are asked for once per section, not once per symbol. */
struct sections {
	struct section_range {
		uint64_t addr, end;
		bool exec;
	} * v;
	size_t n;
};

static void sections_freep(struct sections *t)
{
	free(t->v);
}

static int sections_read(Elf *elf, struct sections *ret)
{
	size_t n;

	if (elf_getshdrnum(elf, &n) < 0)
		return -EBADMSG;
	if (n > SYMBOLS_MAX_SECTIONS)
		n = SYMBOLS_MAX_SECTIONS;
	ret->v = calloc(n + 1, sizeof(*ret->v));
	if (!ret->v)
		return -ENOMEM;
	ret->n = n;
	for (size_t i = 0; i < n; i++) {
		GElf_Shdr sh;

		if (!gelf_getshdr(elf_getscn(elf, i), &sh) || !(sh.sh_flags & SHF_ALLOC))
			continue;
		ret->v[i].addr = sh.sh_addr;
		if (__builtin_add_overflow(sh.sh_addr, sh.sh_size, &ret->v[i].end))
			ret->v[i].end = sh.sh_addr;
		ret->v[i].exec = sh.sh_flags & SHF_EXECINSTR;
	}
	return 0;
}

static bool name_is_mapping_symbol(const char *name, size_t len)
{
	/* assembler's local labels and the marks of other architectures */
	return len == 0 || name[0] == '$' || (len > 1 && name[0] == '.' && name[1] == 'L');
}

static int add_table(
	struct symbols *s, Elf *elf, const struct sections *t, Elf_Scn *scn, const GElf_Shdr *sh)
{
	Elf_Data *data, *str;
	Elf_Scn *str_scn = elf_getscn(elf, sh->sh_link);
	GElf_Shdr str_sh;
	size_t n;

	if (!str_scn || !gelf_getshdr(str_scn, &str_sh) || str_sh.sh_type != SHT_STRTAB)
		return 0;
	if (sh->sh_size > s->budget->max - s->budget->used)
		return 0;
	data = elf_getdata(scn, NULL);
	str = section_data(s, str_scn, &str_sh);
	if (!data || !data->d_buf || !str || !str->d_buf)
		return 0;
	n = data->d_size /
	    (gelf_getclass(elf) == ELFCLASS32 ? sizeof(Elf32_Sym) : sizeof(Elf64_Sym));
	if (n > INT32_MAX)
		n = INT32_MAX;
	for (size_t i = 1; i < n; i++) {
		const struct section_range *range;
		struct symbol sym = {0};
		const char *at, *name;
		unsigned type, bind;
		GElf_Sym raw;
		size_t len;

		if (!gelf_getsym(data, (int)i, &raw))
			break;
		type = GELF_ST_TYPE(raw.st_info);
		bind = GELF_ST_BIND(raw.st_info);
		if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
			continue;
		if (raw.st_shndx == SHN_UNDEF || raw.st_shndx >= t->n || raw.st_name >= str->d_size)
			continue;
		range = &t->v[raw.st_shndx];
		if (!range->exec || raw.st_value < range->addr || raw.st_value >= range->end)
			continue;
		name = (const char *)str->d_buf + raw.st_name;
		len = strnlen(name, str->d_size - raw.st_name);
		if (len == str->d_size - raw.st_name || len > MAX_NAME ||
			name_is_mapping_symbol(name, len))
			continue;
		/* name@VERSION and name@@VERSION */
		at = memchr(name + 1, '@', len - 1);
		if (at)
			len = (size_t)(at - name);
		sym.addr = raw.st_value;
		sym.sized = raw.st_size != 0;
		sym.size = sym.sized && raw.st_size <= range->end - raw.st_value
				   ? raw.st_size
				   : range->end - raw.st_value;
		sym.chooser = type == STT_GNU_IFUNC;
		sym.label = type == STT_NOTYPE && !sym.sized;
		sym.name = name;
		sym.name_len = (uint32_t)len;
		sym.rank = symbol_rank(type, bind, sym.sized, name);
		if (symbols_add(s, &sym) < 0)
			return -ENOMEM;
	}
	return 1;
}

int symbols_add_elf(struct symbols *s, Elf *elf, uint32_t sh_type)
{
	_cleanup_(sections_freep) struct sections t = {0};
	int found = 0;

	if (sections_read(elf, &t) < 0)
		return 0;
	for (size_t i = 0; i < t.n; i++) {
		Elf_Scn *scn = elf_getscn(elf, i);
		GElf_Shdr sh;
		int r;

		if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type != sh_type)
			continue;
		r = add_table(s, elf, &t, scn, &sh);
		if (r < 0)
			return r;
		found += r;
		if (found >= 4) /* one is usual; a thousand are an attack */
			break;
	}
	return found;
}

struct plt_slot {
	uint64_t got;
	const char *name;
	uint32_t len;
};

static int slot_compare(const void *a, const void *b)
{
	const struct plt_slot *x = a, *y = b;

	return x->got < y->got ? -1 : x->got > y->got;
}

/* Which function each GOT slot is for, by the relocations that fill it. */
static struct plt_slot *read_slots(
	struct symbols *s, Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh, size_t *ret_n)
{
	_cleanup_free_ struct plt_slot *slots = NULL;
	Elf_Scn *sym_scn = elf_getscn(elf, sh->sh_link), *str_scn;
	GElf_Shdr sym_sh, str_sh;
	Elf_Data *rel, *sym, *str;
	size_t n, used = 0;

	if (!sym_scn || !gelf_getshdr(sym_scn, &sym_sh) || sym_sh.sh_type != SHT_DYNSYM)
		return NULL;
	str_scn = elf_getscn(elf, sym_sh.sh_link);
	if (!str_scn || !gelf_getshdr(str_scn, &str_sh) || str_sh.sh_type != SHT_STRTAB)
		return NULL;
	if (!section_data(s, scn, sh) || !section_data(s, sym_scn, &sym_sh))
		return NULL;
	rel = elf_getdata(scn, NULL);
	sym = elf_getdata(sym_scn, NULL);
	str = section_data(s, str_scn, &str_sh);
	if (!rel || !sym || !str || !str->d_buf)
		return NULL;
	n = rel->d_size / sizeof(Elf64_Rela);
	if (n == 0 || n > 1000000)
		return NULL;
	slots = calloc(n, sizeof(*slots));
	if (!slots)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		GElf_Rela r;
		GElf_Sym target;
		const char *name;
		size_t len;
		uint64_t type;

		if (!gelf_getrela(rel, (int)i, &r))
			break;
		type = GELF_R_TYPE(r.r_info);
		if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)
			continue;
		if (GELF_R_SYM(r.r_info) > INT32_MAX ||
			!gelf_getsym(sym, (int)GELF_R_SYM(r.r_info), &target) ||
			target.st_name >= str->d_size)
			continue;
		name = (const char *)str->d_buf + target.st_name;
		len = strnlen(name, str->d_size - target.st_name);
		if (len == 0 || len == str->d_size - target.st_name || len > MAX_NAME)
			continue;
		slots[used++] =
			(struct plt_slot){.got = r.r_offset, .name = name, .len = (uint32_t)len};
	}
	qsort(slots, used, sizeof(*slots), slot_compare);
	*ret_n = used;
	return take_ptr(slots);
}

static const struct plt_slot *slot_find(const struct plt_slot *slots, size_t n, uint64_t got)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (slots[mid].got < got)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && slots[lo].got == got ? &slots[lo] : NULL;
}

/*
 * Layouts differ (lazy, -z now, IBT, lld), but each entry jumps through its own GOT slot by
 * ff 25 rel32: that is what is looked for, in steps of an entry.
 */
static void add_plt_section(struct symbols *s, const GElf_Shdr *sh, const uint8_t *p, size_t len,
	const struct plt_slot *slots, size_t n_slots)
{
	size_t step = sh->sh_entsize == 8 ? 8 : 16;

	for (size_t at = 0; at + 8 <= len; at += step) {
		size_t end = at + step < len ? at + step : len;

		for (size_t i = at; i + 6 <= end; i++) {
			const struct plt_slot *slot;
			struct symbol sym = {0};
			uint64_t got;

			if (p[i] != 0xff || p[i + 1] != 0x25)
				continue;
			got = sh->sh_addr + i + 6 + (uint64_t)(int64_t)(int32_t)load_u32(p + i + 2);
			slot = slot_find(slots, n_slots, got);
			if (!slot)
				continue;
			sym.addr = sh->sh_addr + at;
			sym.size = step;
			sym.sized = true;
			sym.plt = true;
			sym.name = slot->name;
			sym.name_len = slot->len;
			sym.rank = 0x80;
			if (symbols_add(s, &sym) < 0)
				return;
			break;
		}
	}
}

void symbols_add_plt(struct symbols *s, Elf *elf)
{
	GElf_Ehdr eh;
	size_t n_sections, shstr;

	if (!gelf_getehdr(elf, &eh) || eh.e_machine != EM_X86_64 ||
		gelf_getclass(elf) != ELFCLASS64 || elf_getshdrnum(elf, &n_sections) < 0 ||
		elf_getshdrstrndx(elf, &shstr) < 0)
		return;
	if (n_sections > SYMBOLS_MAX_SECTIONS)
		return;
	for (size_t r = 0, tables = 0; r < n_sections && tables < 4; r++) {
		_cleanup_free_ struct plt_slot *slots = NULL;
		Elf_Scn *scn = elf_getscn(elf, r);
		size_t n_slots = 0;
		GElf_Shdr sh;

		if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type != SHT_RELA ||
			!(sh.sh_flags & SHF_ALLOC))
			continue;
		slots = read_slots(s, elf, scn, &sh, &n_slots);
		if (!slots || !n_slots)
			continue;
		tables++;
		for (size_t i = 0, plts = 0; i < n_sections && plts < 4; i++) {
			Elf_Scn *plt = elf_getscn(elf, i);
			const char *name;
			GElf_Shdr plt_sh;
			Elf_Data *data;

			if (!plt || !gelf_getshdr(plt, &plt_sh) ||
				!(plt_sh.sh_flags & SHF_EXECINSTR))
				continue;
			name = elf_strptr(elf, shstr, plt_sh.sh_name);
			if (!name || strncmp(name, ".plt", 4) != 0)
				continue;
			plts++;
			data = section_data(s, plt, &plt_sh);
			if (data && data->d_buf)
				add_plt_section(
					s, &plt_sh, data->d_buf, data->d_size, slots, n_slots);
		}
	}
}

static int symbol_compare(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;
	int r;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (x->name_len != y->name_len)
		return x->name_len > y->name_len ? -1 : 1;
	r = memcmp(x->name, y->name, x->name_len);
	return r ? r : (x->size < y->size) - (x->size > y->size);
}

void symbols_finish(struct symbols *s)
{
	uint64_t end = 0; /* of the functions so far that say it */
	size_t n = 0;

	if (s->finished)
		return;
	s->finished = true;
	if (s->n == 0)
		return;
	qsort(s->v, s->n, sizeof(*s->v), symbol_compare);
	for (size_t i = 0; i < s->n; i++) {
		const struct symbol *sym = &s->v[i];

		/* the places in a function of assembly are the function */
		if ((n && s->v[n - 1].addr == sym->addr) || (sym->label && sym->addr < end))
			continue;
		if (sym->sized && sym->addr + sym->size > end)
			end = sym->addr + sym->size;
		s->v[n++] = *sym;
	}
	s->n = n;
	/* A label without a size reaches to the next symbol; to its section's end it already does.
	 */
	for (size_t i = 0; i + 1 < n; i++)
		if (!s->v[i].sized && s->v[i].size > s->v[i + 1].addr - s->v[i].addr)
			s->v[i].size = s->v[i + 1].addr - s->v[i].addr;
}

const struct symbol *symbols_find(const struct symbols *s, uint64_t addr)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->v[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t back = 0; lo > 0 && back < MAX_LOOK_BACK; back++) {
		const struct symbol *sym = &s->v[--lo];

		if (addr - sym->addr < sym->size)
			return sym;
	}
	return NULL;
}
