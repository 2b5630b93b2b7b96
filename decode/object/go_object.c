// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/go_object.h"

#include <errno.h>
#include <string.h>

#include "common/bundle/go_layout.h"
#include "decode/base/bytes.h"
#include "decode/object/elf_file.h"
#include "decode/object/gopclntab.h"
#include "decode/object/symbols.h"

#define OLDEST 18u
#define NEWEST 27u
#define INFO_MAGIC "\xff Go buildinf:"
#define INFO_FLAGS 15u
#define INFO_INLINE 2u /* the version is text behind the head (Go 1.18) */
#define INFO_HEAD 32u
#define VERSION_MAX 64u
#define SITES_ENOUGH 64u
#define CODE_MAX (1u << 20) /* of one function: more than any of the runtime's has */

/* Structures by version: those of its first release, which no later one of it has changed. */
static const struct known {
	unsigned int from;
	struct go_layout layout;
} known[] = {
	{18, {.m = 48, .status = 144, .goid = 152, .procid = 72, .curg = 192}},
	{23, {.m = 48, .status = 152, .goid = 160, .procid = 72, .curg = 192}},
	{25, {.m = 48, .status = 144, .goid = 152, .procid = 64, .curg = 184}},
};

/* ---- the version */

/*
 * "go1.26.8", "go1.27rc1", "go1.26.8 X:experiment"; false: it is of no release ("devel
 * go1.28-..."), or there is none.
 */
static bool take_version(const char *text, size_t len, unsigned int *ret_minor, bool *ret_release)
{
	unsigned int minor = 0;
	size_t i = 4;

	if (len < 5 || memcmp(text, "go1.", 4) != 0)
		return false;
	while (i < len && i < 8 && text[i] >= '0' && text[i] <= '9')
		minor = minor * 10 + (unsigned int)(text[i++] - '0');
	/* Betas and candidates have what the release then changed. */
	*ret_release = i == len || text[i] == '.' || text[i] == ' ' || text[i] == '-';
	*ret_minor = minor;
	return i > 4;
}

static const char *take_info(Elf *elf, struct go_object *o)
{
	GElf_Shdr sh;
	const Elf_Data *data = elf_file_bytes(elf_file_section(elf, ".go.buildinfo", &sh));
	const uint8_t *p = data ? data->d_buf : NULL;
	struct bytes b;
	bool release = false;
	uint64_t len;

	if (!data || data->d_size < INFO_HEAD + 1 ||
	    memcmp(p, INFO_MAGIC, sizeof(INFO_MAGIC) - 1) != 0)
		return "it does not say its version";
	if (!(p[INFO_FLAGS] & INFO_INLINE))
		return "it is older than Go 1.18";
	b = bytes_of(p + INFO_HEAD, data->d_size - INFO_HEAD);
	len = bytes_uleb(&b);
	if (b.failed || len > VERSION_MAX || len > b.left ||
	    !take_version((const char *)b.p, len, &o->minor, &release))
		return "it does not say its version";
	if (o->minor < OLDEST || o->minor > NEWEST)
		return "this version is not known";
	if (!release)
		return "it is no release";
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (o->minor >= known[i].from)
			o->layout = known[i].layout;
	return NULL;
}

/* ---- where a thread has its g */

/*
 * Two ways in which code of the runtime loads it into its register: the offset is in the
 * instruction, or in the one before it.
 */
static bool site_at(const uint8_t *p, size_t left, int32_t *ret)
{
	static const uint8_t absolute[] = {0x64, 0x4c, 0x8b, 0x34, 0x25}; /* mov %fs:offset,%r14 */
	static const uint8_t offset[] = {0x49, 0xc7, 0xc6};		  /* mov $offset,%r14 */
	static const uint8_t relative[] = {0x64, 0x4d, 0x8b, 0x36};	  /* mov %fs:(%r14),%r14 */

	if (left >= sizeof(absolute) + 4 && memcmp(p, absolute, sizeof(absolute)) == 0) {
		*ret = (int32_t)load_u32(p + sizeof(absolute));
		return true;
	}
	if (left >= sizeof(offset) + 4 + sizeof(relative) &&
	    memcmp(p, offset, sizeof(offset)) == 0 &&
	    memcmp(p + sizeof(offset) + 4, relative, sizeof(relative)) == 0) {
		*ret = (int32_t)load_u32(p + sizeof(offset));
		return true;
	}
	return false;
}

struct sites {
	unsigned int n;
	int32_t offset;
	bool differ;
};

static void look_at(const Elf_Data *text, uint64_t at, uint64_t size, struct sites *s)
{
	const uint8_t *p = (const uint8_t *)text->d_buf + at;
	int32_t offset;

	for (uint64_t i = 0; i < size; i++) {
		if (!site_at(p + i, size - i, &offset))
			continue;
		s->differ |= s->n && offset != s->offset;
		s->offset = offset;
		s->n++;
	}
}

static const char *take_place(Elf *elf, const struct gopclntab *t, struct budget *budget,
			      struct go_object *o)
{
	GElf_Shdr sh;
	const Elf_Data *text = elf_file_bytes(elf_file_section(elf, ".text", &sh));
	struct sites sites = {.n = 0};
	struct symbols all;

	if (!text)
		return "it has no code";
	symbols_init(&all, budget);
	(void)gopclntab_add(t, &all);
	for (size_t i = 0; i < all.n && sites.n < SITES_ENOUGH; i++) {
		const struct symbol *f = &all.v[i];

		if (f->name_len > 8 && memcmp(f->name, "runtime.", 8) == 0 && f->size <= CODE_MAX &&
		    f->addr >= sh.sh_addr && f->addr - sh.sh_addr < text->d_size &&
		    f->size <= text->d_size - (f->addr - sh.sh_addr))
			look_at(text, f->addr - sh.sh_addr, f->size, &sites);
	}
	symbols_fini(&all);
	/* A library is told where at run time. */
	if (!sites.n || sites.differ || sites.offset >= 0)
		return "it does not say where threads have their goroutine: it is a library, or no program of Go's own linker";
	o->layout.below = (uint32_t)-(int64_t)sites.offset;
	return go_layout_ok(&o->layout) ? NULL
					: "threads have their goroutine where no release has it";
}

int go_object_look(int fd, struct budget *budget, struct go_object *ret)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	struct go_object o = {.minor = 0};
	struct gopclntab t;
	GElf_Ehdr eh;
	int r = elf_file_open(fd, &elf, &eh);

	if (r < 0)
		return r;
	if (!gopclntab_open(elf, &t))
		return -ENODATA;
	o.refused = take_info(elf, &o);
	if (!o.refused)
		o.refused = take_place(elf, &t, budget, &o);
	*ret = o;
	return 0;
}
