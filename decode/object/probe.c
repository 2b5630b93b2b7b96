// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/probe.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/base/bytes.h"
#include "decode/object/elf_file.h"
#include "decode/object/gopclntab.h"
#include "decode/object/symbols.h"

#define MIN_SIZE 48u      /* shorter ones are leaves and thunks */
#define LOOK_AT 64u       /* shrink-wrapping moves the prologue after an early test */
#define MAX_JUDGED 20000u /* enough for any verdict */
#define MAX_TEXT (512u << 20)

struct text {
	uint64_t addr;
	const uint8_t *p;
	size_t len;
};

static bool has_call(const uint8_t *code, size_t len)
{
	for (size_t i = 0; i + 5 <= len; i++) {
		int32_t rel;

		if (code[i] == 0xff && (code[i + 1] & 0x38) == 0x10)
			return true;
		if (code[i] != 0xe8)
			continue;
		/* a call leads out of the function but not to the other end of memory */
		rel = (int32_t)load_u32(code + i + 1);
		if (rel > -(1 << 28) && rel < 1 << 28)
			return true;
	}
	return false;
}

int probe_function(const uint8_t *code, size_t len)
{
	size_t look = len < LOOK_AT ? len : LOOK_AT;
	bool pushed = false;

	if (len < MIN_SIZE || !has_call(code, len))
		return -1;
	for (size_t i = 0; i + 5 <= look; i++) {
		const uint8_t *p = code + i;

		if (p[0] == 0x55) /* push %rbp */
			pushed = true;
		/* mov %rsp,%rbp in both of its encodings, or enter */
		if (pushed && p[0] == 0x48 &&
			((p[1] == 0x89 && p[2] == 0xe5) || (p[1] == 0x8b && p[2] == 0xec)))
			return 1;
		if (i <= 4 && p[0] == 0xc8 && p[3] == 0)
			return 1;
		/* lea off(%rsp),%rbp after saving it: gcc with an aligned frame, older Go */
		if (p[0] == 0x48 && p[1] == 0x8d && (p[2] == 0x6c || p[2] == 0xac) && p[3] == 0x24)
			return 1;
	}
	return 0;
}

static void judge(const struct text *t, uint64_t addr, uint64_t size, struct probe_answer *a)
{
	int r;

	if (addr < t->addr || addr - t->addr >= t->len || a->functions >= MAX_JUDGED)
		return;
	if (size > t->len - (addr - t->addr))
		size = t->len - (addr - t->addr);
	if (size > 65536)
		size = 65536;
	r = probe_function(t->p + (addr - t->addr), (size_t)size);
	if (r < 0)
		return;
	a->functions++;
	a->with += (uint64_t)r;
}

/* Extents of functions by .eh_frame: there also without a symbol table. */
static void judge_by_fdes(Elf *elf, const struct text *t, struct probe_answer *a)
{
	GElf_Ehdr eh;
	GElf_Shdr sh;
	Elf_Data *data = elf_file_bytes(elf_file_section(elf, ".eh_frame", &sh));
	Dwarf_Off off = 0, next;
	Dwarf_CFI_Entry e;

	if (!data || !gelf_getehdr(elf, &eh))
		return;
	for (unsigned i = 0; i < 1000000 && a->functions < MAX_JUDGED; i++, off = next) {
		const uint8_t *p;
		uint64_t field, start, size;

		if (dwarf_next_cfi(eh.e_ident, data, true, off, &next, &e) != 0 || next <= off)
			break;
		if (dwarf_cfi_cie_p(&e))
			continue;
		/* the usual encoding: two 32-bit numbers, the first relative to its own place */
		p = e.fde.start;
		if (e.fde.end - p < 8)
			continue;
		field = sh.sh_addr + (uint64_t)(p - (const uint8_t *)data->d_buf);
		start = field + (uint64_t)(int64_t)(int32_t)load_u32(p);
		size = load_u32(p + 4);
		judge(t, start, size, a);
	}
}

static int add_symbols(struct symbols *s, Elf *elf)
{
	int r = symbols_add_elf(s, elf, SHT_SYMTAB);

	return r == 0 ? symbols_add_elf(s, elf, SHT_DYNSYM) : r;
}

/*
 * What Go's own table has is Go's: it is there in stripped programs, and in those with C in them
 * (cgo) it says more than the FDEs, which are the C code's only.
 */
static int add_go(struct symbols *s, Elf *elf)
{
	struct gopclntab go;

	return gopclntab_open(elf, &go) ? gopclntab_add(&go, s) : 0;
}

static void judge_by_symbols(int (*add)(struct symbols *s, Elf *elf), Elf *elf,
			     const struct text *t, struct budget *budget, struct probe_answer *a)
{
	struct symbols s;

	symbols_init(&s, budget);
	(void)add(&s, elf);
	symbols_finish(&s);
	for (size_t i = 0; i < s.n; i++)
		judge(t, s.v[i].addr, s.v[i].size, a);
	symbols_fini(&s);
}

int probe_file(int fd, struct budget *budget, struct probe_answer *ret)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	struct probe_answer a = {0};
	const Elf_Data *data;
	struct text t;
	Elf_Scn *scn;
	GElf_Ehdr eh;
	GElf_Shdr sh;
	int r = elf_file_open(fd, &elf, &eh);

	if (r < 0)
		return r;
	scn = elf_file_section(elf, ".text", &sh);
	if (!scn || sh.sh_size > MAX_TEXT || sh.sh_size > budget->max - budget->used)
		return -EBADMSG;
	data = elf_file_bytes(scn);
	if (!data)
		return -EBADMSG;
	t = (struct text){.addr = sh.sh_addr, .p = data->d_buf, .len = data->d_size};
	judge_by_symbols(add_go, elf, &t, budget, &a);
	a.go = a.functions >= PROBE_MIN_FUNCTIONS;
	if (a.functions < PROBE_MIN_FUNCTIONS)
		judge_by_fdes(elf, &t, &a);
	if (a.functions < PROBE_MIN_FUNCTIONS)
		judge_by_symbols(add_symbols, elf, &t, budget, &a);
	a.known = a.functions >= PROBE_MIN_FUNCTIONS;
	a.frame_pointers = a.known && a.with * 100 >= a.functions * PROBE_PERCENT;
	*ret = a;
	return 0;
}
