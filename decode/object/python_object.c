// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/python_object.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/bundle/python_layout.h"
#include "decode/object/elf_file.h"

#define SECTIONS_MAX 4096u
#define SEGMENTS_MAX 256u
#define PUBLISHED_WORDS 96u
#define OLDEST 11u
#define NEWEST 14u

/* What the search for symbols is after. */
enum wanted { THE_RUNTIME, THE_VERSION, THE_DEBUG_BUILD, WANTED };

static const char *const names[WANTED] = {
	[THE_RUNTIME] = "_PyRuntime",
	[THE_VERSION] = "Py_Version", /* 3.11 on */
	[THE_DEBUG_BUILD] = "_Py_NegativeRefcount", /* a debug build, whose structures are others */
};

struct found {
	uint64_t addr[WANTED]; /* 0: it is not there */
};

/* Structures of a version that does not publish them, which all releases of it have. */
static const struct python_layout known[] = {
	[11 - OLDEST] = {.interpreters = 40,
			 .next_interpreter = 0,
			 .threads = 16,
			 .prev = 0,
			 .next = 8,
			 .interpreter = 16,
			 .native_id = 160,
			 .frame = 56,
			 .frame_within = 8,
			 .code = 32,
			 .previous = 48,
			 .owner = 69,
			 .is_entry = 68,
			 .top = 64,
			 .file = 112,
			 .name = 128,
			 .line = 72,
			 .version = PYTHON_NONE,
			 .ascii = 48,
			 .other = 72},
	[12 - OLDEST] = {.interpreters = 40,
			 .next_interpreter = 0,
			 .threads = 72,
			 .prev = 0,
			 .next = 8,
			 .interpreter = 16,
			 .native_id = 144,
			 .frame = 56,
			 .frame_within = 0,
			 .code = 0,
			 .previous = 8,
			 .owner = 70,
			 .is_entry = PYTHON_NONE,
			 .top = 64,
			 .file = 112,
			 .name = 128,
			 .line = 68,
			 .version = 92,
			 .ascii = 40,
			 .other = 56},
};

/* Where the words are that 3.13 and 3.14 publish: struct _Py_DebugOffsets. */
enum { COOKIE, HEXVERSION, FREE_THREADED };
static const struct published {
	uint8_t runtime_size, interpreters, next_interpreter, threads, prev, next, interpreter,
		frame, native_id, previous, code, owner, file, name, line, state, length, ascii;
} published[] = {
	[13 - 13] = {3, 5, 8, 9, 20, 21, 22, 23, 25, 29, 30, 33, 35, 37, 39, 68, 69, 70},
	[14 - 13] = {3, 5, 8, 9, 23, 24, 25, 26, 28, 32, 33, 36, 40, 42, 44, 78, 79, 80},
};

static void look_at(const GElf_Sym *sym, const char *name, struct found *found)
{
	if (sym->st_shndx == SHN_UNDEF || !sym->st_value)
		return;
	for (size_t i = 0; i < WANTED; i++)
		if (strcmp(name, names[i]) == 0)
			found->addr[i] = sym->st_value;
}

static void search_table(Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh, const struct budget *budget,
			 struct found *found)
{
	Elf_Data *data;
	size_t n;

	if (sh->sh_entsize == 0 || sh->sh_size > budget->max - budget->used)
		return;
	data = elf_getdata(scn, NULL);
	n = data ? data->d_size / sizeof(Elf64_Sym) : 0;
	for (size_t i = 0; i < n && i <= INT32_MAX; i++) {
		const char *name;
		GElf_Sym sym;

		if (!gelf_getsym(data, (int)i, &sym))
			return;
		name = elf_strptr(elf, sh->sh_link, sym.st_name);
		if (name)
			look_at(&sym, name, found);
	}
}

static void search(Elf *elf, const struct budget *budget, struct found *found)
{
	Elf_Scn *scn = NULL;

	for (size_t i = 0; i < SECTIONS_MAX && (scn = elf_nextscn(elf, scn)) != NULL; i++) {
		GElf_Shdr sh;

		/*
		 * The interpreter exports them all: a program that embeds it uses those of its
		 * library.
		 */
		if (gelf_getshdr(scn, &sh) && sh.sh_type == SHT_DYNSYM)
			search_table(elf, scn, &sh, budget, found);
	}
}

/* What the file has for an address. */
static int read_at(Elf *elf, int fd, uint64_t addr, void *buf, size_t size)
{
	size_t n = 0;

	if (elf_getphdrnum(elf, &n) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < n && i < SEGMENTS_MAX; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD || addr < ph.p_vaddr ||
		    addr - ph.p_vaddr > ph.p_filesz || size > ph.p_filesz - (addr - ph.p_vaddr) ||
		    ph.p_offset > INT64_MAX - ph.p_filesz)
			continue;
		return io_pread_full(fd, buf, size, (off_t)(ph.p_offset + (addr - ph.p_vaddr))) ==
				       (ssize_t)size
			       ? 0
			       : -EBADMSG;
	}
	return -ENODATA;
}

static const char *take_published(Elf *elf, int fd, struct python_object *o)
{
	const struct published *p = &published[o->minor - 13];
	struct python_layout *l = &o->layout;
	uint64_t w[PUBLISHED_WORDS];

	if (read_at(elf, fd, o->runtime, w, sizeof(w)) < 0 ||
	    memcmp(&w[COOKIE], "xdebugpy", 8) != 0 || (w[HEXVERSION] >> 16) != (3u << 8 | o->minor))
		return "it does not say where it keeps its frames";
	if (w[FREE_THREADED])
		return "it is a free-threaded build";
	for (size_t i = p->interpreters; i < PUBLISHED_WORDS; i++)
		if (w[i] >= UINT32_MAX)
			w[i] = UINT32_MAX;
	l->interpreters = (uint32_t)w[p->interpreters];
	l->next_interpreter = (uint32_t)w[p->next_interpreter];
	l->threads = (uint32_t)w[p->threads];
#define TAKE(field, word) (l->field = (uint16_t)(w[word] < PYTHON_NONE ? w[word] : PYTHON_NONE))
	TAKE(prev, p->prev);
	TAKE(next, p->next);
	TAKE(interpreter, p->interpreter);
	TAKE(frame, p->frame);
	TAKE(native_id, p->native_id);
	TAKE(previous, p->previous);
	TAKE(code, p->code);
	TAKE(owner, p->owner);
	/*
	 * 3.13 has it where 3.12 does. From 3.14 on a frame has its caller from the begin, and its
	 * stack's top may be there while it runs.
	 */
	l->top = o->minor == 13 ? known[12 - OLDEST].top : PYTHON_NONE;
	TAKE(file, p->file);
	TAKE(name, p->name);
	TAKE(line, p->line);
	TAKE(ascii, p->ascii);
#undef TAKE
	l->other = (uint16_t)(l->ascii + 2 * sizeof(uint64_t));
	l->frame_within = PYTHON_NONE;
	l->is_entry = PYTHON_NONE;
	l->version = (uint16_t)(l->line + 24);
	/* The program knows these itself. */
	if (w[p->state] != 32 || w[p->length] != 16 || !python_layout_ok(l))
		return "it keeps its frames where no release does";
	return NULL;
}

static const char *take_layout(Elf *elf, int fd, const struct found *found, struct python_object *o)
{
	uint64_t version = 0;

	if (!found->addr[THE_VERSION])
		return "it is older than 3.11";
	if (read_at(elf, fd, found->addr[THE_VERSION], &version, sizeof(version)) < 0 ||
	    version >> 24 != 3)
		return "it does not say its version";
	o->minor = version >> 16 & 0xff;
	o->runtime = found->addr[THE_RUNTIME];
	if (o->minor < OLDEST || o->minor > NEWEST)
		return "this version is not known";
	/* Alphas and betas have what their release then changed. */
	if ((version >> 4 & 0xf) < 0xc)
		return "it is no release";
	if (o->minor >= 13)
		return take_published(elf, fd, o);
	if (found->addr[THE_DEBUG_BUILD])
		return "it is a debug build";
	o->layout = known[o->minor - OLDEST];
	return NULL;
}

int python_object_look(int fd, struct budget *budget, struct python_object *ret)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	struct python_object o = {.minor = 0};
	struct found found = {0};
	GElf_Ehdr eh;
	int r = elf_file_open(fd, &elf, &eh);

	if (r < 0)
		return r;
	search(elf, budget, &found);
	if (!found.addr[THE_RUNTIME])
		return -ENODATA;
	o.refused = take_layout(elf, fd, &found, &o);
	*ret = o;
	return 0;
}
