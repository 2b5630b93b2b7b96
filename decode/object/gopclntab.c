// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/gopclntab.h"

#include <errno.h>
#include <string.h>

#include "decode/base/bytes.h"
#include "decode/object/elf_file.h"

#define MAGIC_118 0xfffffff0u
#define MAGIC_120 0xfffffff1u
#define HEADER_SIZE 72u
#define FUNC_SIZE 44u /* of _func without what follows it */
#define MAX_STEPS 65536u /* of one table of values: more than any function has */
/* of the tables of values of a function: which inlined call an instruction is of */
#define PCDATA_INLINED 2u
#define FUNCDATA_INLINED 3u /* of its data: these calls */
#define CALL_SIZE 16u /* of runtime.inlinedCall */

/*
 * Of runtime.moduledata: its table, where the code begins and ends by it, its first and last
 * function, and the data of functions.
 */
#define MODULE_TABLE 0u
#define MODULE_MIN_PC 160u
#define MODULE_MAX_PC 168u
#define MODULE_TEXT 176u
#define MODULE_FUNC_DATA 320u /* since Go 1.20 */
/* since Go 1.27, and behind it the end of the table, in which they are */
#define MODULE_FUNC_DATA_127 344u
#define MODULE_SIZE 360u

/* ---- finding it */

/* Whether the program executes what is there. */
static bool is_code(Elf *elf, uint64_t addr)
{
	size_t n;

	if (elf_getphdrnum(elf, &n) < 0 || n > SYMBOLS_MAX_SECTIONS)
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_LOAD && (ph.p_flags & PF_X) &&
		    addr >= ph.p_vaddr && addr - ph.p_vaddr < ph.p_memsz)
			return true;
	}
	return false;
}

static uint32_t entry(const struct gopclntab *t, uint32_t i)
{
	return load_u32(t->data + t->functions + (uint64_t)i * 8);
}

/* The bytes of the section that has an address, from there on; NULL: no file has them. */
static const uint8_t *bytes_at(Elf *elf, uint64_t addr, uint64_t *ret_size)
{
	size_t n;

	if (elf_getshdrnum(elf, &n) < 0 || n > SYMBOLS_MAX_SECTIONS)
		return NULL;
	for (size_t i = 1; i < n; i++) {
		Elf_Scn *scn = elf_getscn(elf, i);
		const Elf_Data *data;
		GElf_Shdr sh;

		if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS ||
		    !(sh.sh_flags & SHF_ALLOC) || addr < sh.sh_addr)
			continue;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf || addr - sh.sh_addr >= data->d_size)
			continue;
		*ret_size = data->d_size - (addr - sh.sh_addr);
		return (const uint8_t *)data->d_buf + (addr - sh.sh_addr);
	}
	return NULL;
}

/*
 * What a module's data say of the functions must fit to the table; where the code begins, only they
 * say since Go 1.26.
 */
static bool is_module(const struct gopclntab *t, const uint8_t *m, uint64_t table)
{
	const uint64_t text = load_u64(m + MODULE_TEXT);

	return load_u64(m + MODULE_TABLE) == table && (!t->text || text == t->text) &&
	       load_u64(m + MODULE_MIN_PC) == text + entry(t, 0) &&
	       load_u64(m + MODULE_MAX_PC) == text + entry(t, t->n_functions);
}

/* Before Go 1.27 there is the length of a list or its room, which is below any address. */
static uint64_t func_data_by_module(const uint8_t *m, uint64_t table)
{
	const uint64_t data = load_u64(m + MODULE_FUNC_DATA_127),
		       end = load_u64(m + MODULE_FUNC_DATA_127 + 8);

	return data >= table && data < end ? data : load_u64(m + MODULE_FUNC_DATA);
}

/*
 * The module's data. They have a section of their own since Go 1.26, and are somewhere in the
 * others' before. NULL: there are none, or only the linker of the running program puts addresses
 * in.
 */
static const uint8_t *find_module(Elf *elf, const struct gopclntab *t, uint64_t table)
{
	size_t n;

	if (elf_getshdrnum(elf, &n) < 0 || n > SYMBOLS_MAX_SECTIONS)
		return NULL;
	for (size_t i = 1; i < n; i++) {
		Elf_Scn *scn = elf_getscn(elf, i);
		const Elf_Data *data;
		GElf_Shdr sh;

		if (!scn || !gelf_getshdr(scn, &sh) || sh.sh_type != SHT_PROGBITS ||
		    !(sh.sh_flags & SHF_WRITE) || !(sh.sh_flags & SHF_ALLOC))
			continue;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf)
			continue;
		for (size_t at = 0; data->d_size >= MODULE_SIZE && at <= data->d_size - MODULE_SIZE;
		     at += 8) {
			const uint8_t *m = (const uint8_t *)data->d_buf + at;

			if (load_u64(m) == table && is_module(t, m, table))
				return m;
		}
	}
	return NULL;
}

/* So many bytes are there. */
static bool has(const struct gopclntab *t, uint64_t at, uint64_t n)
{
	return at <= t->size && n <= t->size - at;
}

bool gopclntab_open(Elf *elf, struct gopclntab *ret)
{
	struct gopclntab t = {0};
	const Elf_Data *data;
	Elf_Scn *scn;
	const uint8_t *module;
	GElf_Ehdr eh;
	GElf_Shdr sh;
	uint64_t n;
	uint32_t magic;

	if (!gelf_getehdr(elf, &eh) || gelf_getclass(elf) != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB)
		return false;
	scn = elf_file_section(elf, ".gopclntab", &sh);
	if (!scn)
		scn = elf_file_section(elf, ".data.rel.ro.gopclntab", &sh);
	data = elf_file_bytes(scn);
	if (!data || data->d_size < HEADER_SIZE)
		return false;
	t.data = data->d_buf;
	t.size = data->d_size;
	magic = load_u32(t.data);
	t.quantum = t.data[6];
	n = load_u64(t.data + 8);
	if ((magic != MAGIC_118 && magic != MAGIC_120) || t.data[4] || t.data[5] ||
	    t.quantum == 0 || t.data[7] != 8 || n == 0 || n > GOPCLNTAB_MAX_FUNCTIONS)
		return false;
	t.has_lines = magic == MAGIC_120;
	t.n_functions = (uint32_t)n;
	t.text = load_u64(t.data + 24);
	t.names = load_u64(t.data + 32);
	t.units = load_u64(t.data + 40);
	t.files = load_u64(t.data + 48);
	t.values = load_u64(t.data + 56);
	t.functions = load_u64(t.data + 64);
	if (t.names >= t.size || t.units > t.size || t.files > t.size || t.values > t.size ||
	    !has(&t, t.functions, n * 8 + 4))
		return false;
	module = find_module(elf, &t, sh.sh_addr);
	if (module && !t.text)
		t.text = load_u64(module + MODULE_TEXT);
	/* what was inlined is told in another way before */
	if (module && t.has_lines)
		t.func_data =
			bytes_at(elf, func_data_by_module(module, sh.sh_addr), &t.func_data_size);
	if (!is_code(elf, t.text) || !is_code(elf, t.text + entry(&t, 0)) ||
	    entry(&t, t.n_functions) <= entry(&t, 0))
		return false;
	*ret = t;
	return true;
}

/* ---- functions */

/* A text that ends in the table; NULL: it does not. */
static const char *text_at(const struct gopclntab *t, uint64_t at, size_t *ret_len)
{
	const char *s = (const char *)t->data + at;
	const char *end;

	if (at >= t->size)
		return NULL;
	end = memchr(s, '\0', t->size - at);
	*ret_len = end ? (size_t)(end - s) : 0;
	return end ? s : NULL;
}

/* Its _func; NULL: it is outside of the table. */
static const uint8_t *func_of(const struct gopclntab *t, uint32_t i)
{
	const uint64_t at = t->functions + load_u32(t->data + t->functions + (uint64_t)i * 8 + 4);

	return has(t, at, FUNC_SIZE) ? t->data + at : NULL;
}

int gopclntab_add(const struct gopclntab *t, struct symbols *s)
{
	int n = 0;

	for (uint32_t i = 0; i < t->n_functions; i++) {
		const uint32_t begin = entry(t, i), end = entry(t, i + 1);
		const uint8_t *f = func_of(t, i);
		struct symbol sym = {.addr = t->text + begin, .sized = true, .rank = 0x60};
		size_t len = 0;
		int r;

		if (!f || end <= begin)
			continue;
		sym.size = end - begin;
		sym.name = text_at(t, t->names + load_u32(f + 4), &len);
		if (!sym.name || !len || len > UINT16_MAX)
			continue;
		sym.name_len = (uint32_t)len;
		r = symbols_add(s, &sym);
		if (r < 0)
			return r;
		n++;
	}
	return n;
}

/* ---- values at addresses */

/* A table of values of a function: steps of value and address. */
static bool steps_begin(const struct gopclntab *t, uint32_t table, struct gopclntab_steps *ret)
{
	if (!table || !has(t, t->values, table))
		return false;
	*ret = (struct gopclntab_steps){.b = bytes_of(t->data + t->values + table,
						      t->size - t->values - table),
					.value = -1,
					.quantum = t->quantum};
	return true;
}

/* The next value, from s->start to before s->end. */
static bool steps_next(struct gopclntab_steps *s)
{
	const uint64_t step = bytes_uleb(&s->b);
	uint64_t size;

	if (s->b.failed || (step == 0 && s->n > 0) || s->n >= MAX_STEPS)
		return false;
	s->n++;
	size = bytes_uleb(&s->b) * s->quantum;
	if (s->b.failed || size > UINT32_MAX || s->end + size > UINT32_MAX)
		return false;
	s->value = (int32_t)((uint32_t)s->value + ((uint32_t)(step >> 1) ^ -(uint32_t)(step & 1)));
	s->start = s->end;
	s->end += size;
	return true;
}

static bool value_at(const struct gopclntab *t, uint32_t table, uint64_t offset, int64_t *ret)
{
	struct gopclntab_steps s;

	if (!steps_begin(t, table, &s))
		return false;
	while (steps_next(&s)) {
		if (offset < s.end) {
			*ret = s.value;
			return true;
		}
	}
	return false;
}

/* ---- the stack */

bool gopclntab_function(const struct gopclntab *t, uint32_t i, struct gopclntab_function *ret)
{
	const uint8_t *f = i < t->n_functions && entry(t, i) < entry(t, i + 1) ? func_of(t, i)
									       : NULL;
	size_t len = 0;

	if (!f)
		return false;
	*ret = (struct gopclntab_function){.start = t->text + entry(t, i),
					   .end = t->text + entry(t, i + 1),
					   .stack = load_u32(f + 16),
					   .name = text_at(t, t->names + load_u32(f + 4), &len),
					   .flags = f[t->has_lines ? 41 : 37]};
	return ret->name && ret->stack && ret->end > ret->start;
}

bool gopclntab_stack_begin(const struct gopclntab *t, const struct gopclntab_function *f,
			   struct gopclntab_steps *ret)
{
	return steps_begin(t, f->stack, ret);
}

bool gopclntab_stack_next(struct gopclntab_steps *s)
{
	return steps_next(s);
}

/* ---- lines */

/* The function that has the address, + 1. */
static uint32_t find(const struct gopclntab *t, uint64_t offset)
{
	uint32_t lo = 0, hi = t->n_functions;

	while (lo < hi) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (entry(t, mid) <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && offset < entry(t, lo) ? lo : 0;
}

static const char *file_of(const struct gopclntab *t, uint32_t unit, int64_t number)
{
	const uint64_t at = t->units + ((uint64_t)unit + (uint64_t)number) * 4;
	size_t len;
	uint32_t file;

	if (number < 0 || number > UINT32_MAX || !has(t, at, 4))
		return NULL;
	file = load_u32(t->data + at);
	return file == UINT32_MAX ? NULL : text_at(t, t->files + file, &len);
}

bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_function *ret)
{
	const uint32_t i = t->data && vaddr >= t->text ? find(t, vaddr - t->text) : 0;

	return i && gopclntab_function(t, i - 1, ret);
}

bool gopclntab_line(const struct gopclntab *t, uint64_t vaddr, bool of_function,
		    const char **ret_file, uint32_t *ret_line)
{
	const uint64_t offset = vaddr - t->text;
	const uint32_t i = t->data && vaddr >= t->text ? find(t, offset) : 0;
	const uint8_t *f = i ? func_of(t, i - 1) : NULL;
	int64_t file, line;
	uint64_t within;

	if (!f)
		return false;
	within = of_function ? 0 : offset - entry(t, i - 1);
	if (!value_at(t, load_u32(f + 20), within, &file) ||
	    !value_at(t, load_u32(f + 24), within, &line))
		return false;
	if (of_function && t->has_lines)
		line = (int32_t)load_u32(f + 36);
	*ret_file = file_of(t, load_u32(f + 32), file);
	if (!*ret_file || line <= 0 || line > INT32_MAX)
		return false;
	*ret_line = (uint32_t)line;
	return true;
}

/* ---- inlined calls */

bool gopclntab_inlines(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_inlines *ret)
{
	const uint32_t i = t->func_data && vaddr >= t->text ? find(t, vaddr - t->text) : 0;
	const uint8_t *f = i ? func_of(t, i - 1) : NULL;
	uint64_t at;
	uint32_t n_pcdata, data;
	uint8_t n_funcdata;

	if (!f)
		return false;
	*ret = (struct gopclntab_inlines){.t = t,
					  .start = t->text + entry(t, i - 1),
					  .end = t->text + entry(t, i)};
	/* what follows the function: its tables of values, and its data */
	n_pcdata = load_u32(f + 28);
	n_funcdata = f[43];
	at = (uint64_t)(f - t->data) + FUNC_SIZE;
	if (n_pcdata <= PCDATA_INLINED || n_funcdata <= FUNCDATA_INLINED ||
	    !has(t, at, ((uint64_t)n_pcdata + n_funcdata) * 4))
		return true;
	data = load_u32(t->data + at + ((uint64_t)n_pcdata + FUNCDATA_INLINED) * 4);
	if (data == UINT32_MAX || data >= t->func_data_size)
		return true;
	ret->calls = t->func_data + data;
	ret->n_calls = (uint32_t)((t->func_data_size - data) / CALL_SIZE < UINT32_MAX
					  ? (t->func_data_size - data) / CALL_SIZE
					  : UINT32_MAX);
	ret->table = load_u32(t->data + at + PCDATA_INLINED * 4);
	return true;
}

bool gopclntab_inlines_begin(const struct gopclntab_inlines *in, struct gopclntab_steps *ret)
{
	return in->calls && steps_begin(in->t, in->table, ret);
}

bool gopclntab_inlines_next(struct gopclntab_steps *s)
{
	return steps_next(s);
}

bool gopclntab_inlined_call(const struct gopclntab_inlines *in, uint32_t number,
			    struct gopclntab_call *ret)
{
	const uint8_t *c;
	size_t len;

	if (number >= in->n_calls)
		return false;
	c = in->calls + (size_t)number * CALL_SIZE;
	ret->name = text_at(in->t, in->t->names + load_u32(c + 4), &len);
	ret->called_at = load_u32(c + 8);
	ret->line = load_u32(c + 12);
	return ret->name && len && ret->called_at < in->end - in->start;
}
