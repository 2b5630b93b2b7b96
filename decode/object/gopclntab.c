// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/gopclntab.h"

#include <errno.h>
#include <string.h>

#include "decode/base/bytes.h"

#define MAGIC_118 0xfffffff0u
#define MAGIC_120 0xfffffff1u
#define HEADER_SIZE 72u
#define FUNC_SIZE 44u /* of _func without what follows it */
#define MAX_STEPS 65536u /* of one table of values: more than any function has */

/* Of runtime.moduledata: where the code begins and ends by it, and its first and last function. */
#define MODULE_MIN_PC 160u
#define MODULE_MAX_PC 168u
#define MODULE_TEXT 176u
#define MODULE_SIZE 192u

/* ---- finding it */

/* A section's bytes as they are in the file; NULL: there is none of that name. */
static const uint8_t *section(Elf *elf, const char *name, const char *other, uint64_t least, GElf_Shdr *ret)
{
	size_t n, shstr;

	if (elf_getshdrnum(elf, &n) < 0 || elf_getshdrstrndx(elf, &shstr) < 0 || n > SYMBOLS_MAX_SECTIONS)
		return NULL;
	for (size_t i = 1; i < n; i++) {
		Elf_Scn *scn = elf_getscn(elf, i);
		const Elf_Data *data;
		const char *own;

		if (!scn || !gelf_getshdr(scn, ret) || ret->sh_type == SHT_NOBITS)
			continue;
		own = elf_strptr(elf, shstr, ret->sh_name);
		if (!own || (strcmp(own, name) != 0 && (!other || strcmp(own, other) != 0)))
			continue;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf || data->d_size < least)
			return NULL;
		ret->sh_size = data->d_size;
		return data->d_buf;
	}
	return NULL;
}

/* Whether the program executes what is there. */
static bool is_code(Elf *elf, uint64_t addr)
{
	size_t n;

	if (elf_getphdrnum(elf, &n) < 0 || n > SYMBOLS_MAX_SECTIONS)
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_LOAD && (ph.p_flags & PF_X) && addr >= ph.p_vaddr &&
		    addr - ph.p_vaddr < ph.p_memsz)
			return true;
	}
	return false;
}

static uint32_t entry(const struct gopclntab *t, uint32_t i)
{
	return load_u32(t->data + t->functions + (uint64_t)i * 8);
}

/* Since Go 1.26 only the module's data say where the code begins; what they say of the functions must fit to the table. */
static uint64_t text_by_module(Elf *elf, const struct gopclntab *t)
{
	GElf_Shdr sh;
	const uint8_t *m = section(elf, ".go.module", NULL, MODULE_SIZE, &sh);
	uint64_t text;

	if (!m)
		return 0;
	text = load_u64(m + MODULE_TEXT);
	return load_u64(m + MODULE_MIN_PC) == text + entry(t, 0) && load_u64(m + MODULE_MAX_PC) == text + entry(t, t->n_functions) ? text : 0;
}

/* So many bytes are there. */
static bool has(const struct gopclntab *t, uint64_t at, uint64_t n)
{
	return at <= t->size && n <= t->size - at;
}

bool gopclntab_open(Elf *elf, struct gopclntab *ret)
{
	struct gopclntab t = {0};
	GElf_Ehdr eh;
	GElf_Shdr sh;
	uint64_t n;
	uint32_t magic;

	if (!gelf_getehdr(elf, &eh) || gelf_getclass(elf) != ELFCLASS64 || eh.e_ident[EI_DATA] != ELFDATA2LSB)
		return false;
	t.data = section(elf, ".gopclntab", ".data.rel.ro.gopclntab", HEADER_SIZE, &sh);
	if (!t.data)
		return false;
	t.size = sh.sh_size;
	magic = load_u32(t.data);
	t.quantum = t.data[6];
	n = load_u64(t.data + 8);
	if ((magic != MAGIC_118 && magic != MAGIC_120) || t.data[4] || t.data[5] || t.quantum == 0 || t.data[7] != 8 || n == 0 ||
	    n > GOPCLNTAB_MAX_FUNCTIONS)
		return false;
	t.has_lines = magic == MAGIC_120;
	t.n_functions = (uint32_t)n;
	t.text = load_u64(t.data + 24);
	t.names = load_u64(t.data + 32);
	t.units = load_u64(t.data + 40);
	t.files = load_u64(t.data + 48);
	t.values = load_u64(t.data + 56);
	t.functions = load_u64(t.data + 64);
	if (t.names >= t.size || t.units > t.size || t.files > t.size || t.values > t.size || !has(&t, t.functions, n * 8 + 4))
		return false;
	if (!t.text)
		t.text = text_by_module(elf, &t);
	if (!is_code(elf, t.text) || !is_code(elf, t.text + entry(&t, 0)) || entry(&t, t.n_functions) <= entry(&t, 0))
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

/* ---- lines */

/* What a table of values says at an address: steps of value and address, until the address is reached. */
static bool value_at(const struct gopclntab *t, uint32_t table, uint64_t offset, int64_t *ret)
{
	struct bytes b;
	int64_t value = -1;
	uint64_t pc = 0;

	if (!table || !has(t, t->values, table))
		return false;
	b = bytes_of(t->data + t->values + table, t->size - t->values - table);
	for (unsigned int i = 0; i < MAX_STEPS; i++) {
		const uint64_t step = bytes_uleb(&b);

		if (b.failed || (step == 0 && i > 0))
			return false;
		value += (int64_t)(step >> 1) ^ -(int64_t)(step & 1);
		pc += bytes_uleb(&b) * t->quantum;
		if (b.failed)
			return false;
		if (offset < pc) {
			*ret = value;
			return true;
		}
	}
	return false;
}

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

bool gopclntab_line(const struct gopclntab *t, uint64_t vaddr, bool of_function, const char **ret_file, uint32_t *ret_line)
{
	const uint64_t offset = vaddr - t->text;
	const uint32_t i = t->data && vaddr >= t->text ? find(t, offset) : 0;
	const uint8_t *f = i ? func_of(t, i - 1) : NULL;
	int64_t file, line;
	uint64_t within;

	if (!f)
		return false;
	within = of_function ? 0 : offset - entry(t, i - 1);
	if (!value_at(t, load_u32(f + 20), within, &file) || !value_at(t, load_u32(f + 24), within, &line))
		return false;
	if (of_function && t->has_lines)
		line = (int32_t)load_u32(f + 36);
	*ret_file = file_of(t, load_u32(f + 32), file);
	if (!*ret_file || line <= 0 || line > INT32_MAX)
		return false;
	*ret_line = (uint32_t)line;
	return true;
}
