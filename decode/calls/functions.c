// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/calls/functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/object/extents.h"
#include "decode/object/lsda.h"

struct range { /* sorted, apart from each other */
	uint64_t start, end;
	struct callfunc *f;
	bool sized; /* its end is known */
};

#define MAX_STUBS 8u

struct functions { /* of one image */
	const struct image *image;
	/*
	 * sections of stubs, some of which have no name: those of functions that are chosen at run
	 * time
	 */
	struct {
		uint64_t start, end;
	} stubs[MAX_STUBS];
	size_t n_stubs;
	struct callfunc stub;
	struct range *ranges;
	size_t n, cap;
	struct callfunc *funcs, *unnamed;
	struct lsda *lsda; /* NULL: none */
	struct callfunc unknown;
};

struct callfuncs {
	struct budget *budget;
	uint64_t charged;
	struct functions **images; /* by id; NULL: none */
	size_t n_images;
	uint32_t next_id;
	struct callfunc unknown;
};

int callfuncs_new(struct budget *budget, struct callfuncs **ret)
{
	struct callfuncs *cf = calloc(1, sizeof(*cf));

	if (!cf)
		return -ENOMEM;
	cf->budget = budget;
	*ret = cf;
	return 0;
}

struct callfuncs *callfuncs_free(struct callfuncs *cf)
{
	if (!cf)
		return NULL;
	for (size_t i = 0; i < cf->n_images; i++) {
		if (!cf->images[i])
			continue;
		free(cf->images[i]->ranges);
		free(cf->images[i]->funcs);
		free(cf->images[i]->unnamed);
		lsda_free(cf->images[i]->lsda);
		free(cf->images[i]);
	}
	budget_give(cf->budget, cf->charged);
	free(cf->images);
	free(cf);
	return NULL;
}

/*
 * How long a symbol's name is without what the compiler appends to a part of a function; 0: it is
 * whole.
 */
static size_t parent_length(const struct symbol *sym)
{
	static const char *const parts[] = {".cold", ".part."};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		const char *at = memmem(sym->name, sym->name_len, parts[i], strlen(parts[i]));

		if (at && at != sym->name)
			return (size_t)(at - sym->name);
	}
	return 0;
}

static bool is_one_of(const struct symbol *sym, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(names[i]) == sym->name_len &&
		    memcmp(sym->name, names[i], sym->name_len) == 0)
			return true;
	return false;
}

static bool is_setjmp(const struct symbol *sym)
{
	static const char *const names[] = {"setjmp",       "_setjmp",     "__setjmp",
					    "sigsetjmp",    "__sigsetjmp", "getcontext",
					    "__getcontext", "vfork",       "__vfork"};

	return is_one_of(sym, names, ARRAY_SIZE(names));
}

static bool is_switch(const struct symbol *sym)
{
	static const char *const names[] = {"swapcontext", "__swapcontext", "jump_fcontext",
					    "ontop_fcontext"};

	return is_one_of(sym, names, ARRAY_SIZE(names));
}

/*
 * By its name without that of its calling convention. "gogo" is the second half of runtime.gogo,
 * and has no package in its name.
 */
static enum callfunc_go go_of(const struct symbol *sym)
{
	static const struct {
		const char *name;
		enum callfunc_go go;
	} names[] = {
		{"runtime.mcall", CALLFUNC_GO_MCALL},
		{"runtime.gogo", CALLFUNC_GO_GOGO},
		{"gogo", CALLFUNC_GO_GOGO},
		{"runtime.newstack", CALLFUNC_GO_SAME},
		{"runtime.recovery", CALLFUNC_GO_SAME},
		{"runtime.goschedguarded_m", CALLFUNC_GO_SAME},
		{"runtime.gopreempt_m", CALLFUNC_GO_YIELD},
		{"runtime.goschedImpl", CALLFUNC_GO_YIELD},
		{"runtime.preemptPark", CALLFUNC_GO_YIELD},
		{"runtime.goexit0", CALLFUNC_GO_END},
		{"runtime.goexit", CALLFUNC_GO_BOTTOM},
		{"runtime.sysmon", CALLFUNC_GO_NEVER},
		{"runtime.asyncPreempt", CALLFUNC_GO_INJECTED},
		{"runtime.sigpanic", CALLFUNC_GO_INJECTED},
		{"runtime.sigpanic0", CALLFUNC_GO_INJECTED},
		{"runtime.mstart", CALLFUNC_GO_THREAD},
		{"runtime.mstart0", CALLFUNC_GO_THREAD},
	};
	static const char abi[] = ".abi0", runtime[] = "runtime.";
	size_t n = sym->name_len;

	if (n > strlen(abi) && memcmp(sym->name + n - strlen(abi), abi, strlen(abi)) == 0)
		n -= strlen(abi);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i].name) == n && memcmp(sym->name, names[i].name, n) == 0)
			return names[i].go;
	return n > strlen(runtime) && memcmp(sym->name, runtime, strlen(runtime)) == 0
		       ? CALLFUNC_GO_STAYS
		       : CALLFUNC_GO_NONE;
}

/*
 * The dynamic linker's, which a stub goes to when its function was not called before: it goes on to
 * the function.
 */
static bool is_binder(const struct symbol *sym)
{
	static const char name[] = "_dl_runtime_resolve";

	return sym->name_len >= sizeof(name) - 1 && memcmp(sym->name, name, sizeof(name) - 1) == 0;
}

/*
 * What compilers call instead of an indirect branch or a return (-mindirect-branch=thunk,
 * -mfunction-return=thunk, -mretpoline).
 */
static bool is_thunk(const struct symbol *sym)
{
	static const char *const names[] = {"__x86_indirect_thunk", "__x86_return_thunk",
					    "__llvm_retpoline_"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (sym->name_len >= strlen(names[i]) &&
		    memcmp(sym->name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static int name_compare(const void *a, const void *b)
{
	const struct symbol *const *x = a, *const *y = b;
	const size_t n = (*x)->name_len < (*y)->name_len ? (*x)->name_len : (*y)->name_len;
	const int r = memcmp((*x)->name, (*y)->name, n);

	return r ? r : ((*x)->name_len > (*y)->name_len) - ((*x)->name_len < (*y)->name_len);
}

static const struct symbol *by_name(const struct symbol *const *sorted, size_t n, const char *name,
				    size_t len)
{
	const struct symbol key = {.name = name, .name_len = (uint32_t)len}, *k = &key;
	const struct symbol *const *found = bsearch(&k, sorted, n, sizeof(*sorted), name_compare);

	return found ? *found : NULL;
}

/*
 * A cold part is its parent: a jump into it and back is no call. (A ".part." may be called like a
 * function of its own; it is joined only if the parent lies in the same image, too.)
 */
static int join_parts(const struct symbols *s, struct functions *fs)
{
	_cleanup_free_ const struct symbol **sorted = NULL;

	if (s->n == 0)
		return 0;
	sorted = malloc(s->n * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++)
		sorted[i] = &s->v[i];
	qsort(sorted, s->n, sizeof(*sorted), name_compare);
	for (size_t i = 0; i < s->n; i++) {
		const size_t len = s->v[i].plt ? 0 : parent_length(&s->v[i]);
		const struct symbol *parent = len ? by_name(sorted, s->n, s->v[i].name, len) : NULL;

		if (parent && !parent->plt && memmem(s->v[i].name, s->v[i].name_len, ".cold", 5))
			fs->ranges[i].f = &fs->funcs[parent - s->v];
	}
	return 0;
}

static int range_compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static bool in_stubs(const struct functions *fs, uint64_t vaddr)
{
	for (size_t i = 0; i < fs->n_stubs; i++)
		if (vaddr >= fs->stubs[i].start && vaddr < fs->stubs[i].end)
			return true;
	return false;
}

static int add_symbols(struct callfuncs *cf, struct functions *fs, const struct image *image)
{
	const struct symbols *s = &image->symbols;
	bool has_mcall = false;

	if (!budget_take(cf->budget, s->n * (sizeof(*fs->funcs) + sizeof(*fs->ranges))))
		return -ENOMEM;
	cf->charged += s->n * (sizeof(*fs->funcs) + sizeof(*fs->ranges));
	fs->funcs = calloc(s->n ? s->n : 1, sizeof(*fs->funcs));
	fs->ranges = calloc(s->n ? s->n : 1, sizeof(*fs->ranges));
	if (!fs->funcs || !fs->ranges)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++) {
		const struct symbol *sym = &s->v[i];
		const uint64_t next = i + 1 < s->n ? s->v[i + 1].addr : UINT64_MAX;
		uint64_t end = sym->addr + sym->size;

		if (end < sym->addr || end > next)
			end = next;
		fs->funcs[i] = (struct callfunc){.start = sym->addr,
						 .id = ++cf->next_id,
						 .is_plt = sym->plt || is_binder(sym) ||
							   is_thunk(sym) || in_stubs(fs, sym->addr),
						 .is_thunk = is_thunk(sym),
						 .is_setjmp = is_setjmp(sym),
						 .is_switch = is_switch(sym),
						 .go = (uint8_t)go_of(sym),
						 .known = true};
		has_mcall |= fs->funcs[i].go == CALLFUNC_GO_MCALL;
		fs->ranges[i] = (struct range){.start = sym->addr,
					       .end = end,
					       .f = &fs->funcs[i],
					       .sized = sym->sized};
	}
	/* in a program without Go these are names as any other */
	for (size_t i = 0; i < s->n && !has_mcall; i++)
		fs->funcs[i].go = CALLFUNC_GO_NONE;
	fs->n = s->n;
	return join_parts(s, fs);
}

static struct range *range_at(const struct functions *fs, size_t n, uint64_t vaddr)
{
	size_t low = 0, high = n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (fs->ranges[mid].end <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && fs->ranges[low].start <= vaddr ? &fs->ranges[low] : NULL;
}

/*
 * Functions that only the unwind table knows, as in a stripped library. A symbol whose size was
 * guessed ends where the next of them begins.
 */
static int add_unnamed(struct callfuncs *cf, struct functions *fs, const struct image *image)
{
	const size_t named = fs->n, n = image->extents ? extents_count(image->extents) : 0;
	const uint64_t bytes = n * (sizeof(*fs->unnamed) + sizeof(*fs->ranges));
	struct range *v;

	if (n == 0)
		return 0;
	if (!budget_take(cf->budget, bytes))
		return -ENOMEM;
	cf->charged += bytes;
	fs->unnamed = calloc(n, sizeof(*fs->unnamed));
	v = reallocarray(fs->ranges, named + n, sizeof(*v));
	if (v)
		fs->ranges = v;
	if (!v || !fs->unnamed)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct extent *x = extents_at(image->extents, i);
		struct range *r = range_at(fs, named, x->start);

		if (r && (r->start == x->start || r->sized))
			continue;
		if (r)
			r->end = x->start;
		/* linkers describe a section of stubs like one function */
		fs->unnamed[i] = (struct callfunc){.start = x->start,
			.id = ++cf->next_id,
			.is_plt = in_stubs(fs, x->start),
			.is_part = x->framed && !in_stubs(fs, x->start),
			.is_unnamed = true,
			.known = true};
		v[fs->n++] = (struct range){.start = x->start,
					    .end = x->end,
					    .f = &fs->unnamed[i],
					    .sized = true};
	}
	qsort(fs->ranges, fs->n, sizeof(*fs->ranges), range_compare);
	/* What reaches into the next one ends there. */
	for (size_t i = 0; i + 1 < fs->n; i++)
		if (fs->ranges[i].end > fs->ranges[i + 1].start)
			fs->ranges[i].end = fs->ranges[i + 1].start;
	return 0;
}

static void find_stubs(struct functions *fs, Elf *elf)
{
	static const char *const names[] = {".plt", ".plt.sec", ".plt.got", ".iplt"};
	Elf_Scn *scn = NULL;
	size_t strings;

	if (!elf || elf_getshdrstrndx(elf, &strings) < 0)
		return;
	while (fs->n_stubs < MAX_STUBS && (scn = elf_nextscn(elf, scn)) != NULL) {
		GElf_Shdr sh;
		const char *name = gelf_getshdr(scn, &sh) ? elf_strptr(elf, strings, sh.sh_name)
							  : NULL;

		for (size_t i = 0; name && i < ARRAY_SIZE(names); i++) {
			if (strcmp(name, names[i]) != 0 || sh.sh_addr + sh.sh_size < sh.sh_addr)
				continue;
			fs->stubs[fs->n_stubs].start = sh.sh_addr;
			fs->stubs[fs->n_stubs++].end = sh.sh_addr + sh.sh_size;
			break;
		}
	}
}

int callfuncs_add(struct callfuncs *cf, struct image *image)
{
	struct functions *fs;
	int r;

	if (image->id >= cf->n_images) {
		const size_t n = (size_t)image->id + 64;
		struct functions **v = reallocarray(cf->images, n, sizeof(*v));

		if (!v)
			return -ENOMEM;
		memset(v + cf->n_images, 0, (n - cf->n_images) * sizeof(*v));
		cf->images = v;
		cf->n_images = n;
	}
	if (cf->images[image->id])
		return 0;
	fs = calloc(1, sizeof(*fs));
	if (!fs)
		return -ENOMEM;
	cf->images[image->id] = fs;
	fs->image = image;
	fs->unknown.id = ++cf->next_id;
	fs->stub = (struct callfunc){.id = ++cf->next_id, .is_plt = true};
	find_stubs(fs, image->elf);
	r = add_symbols(cf, fs, image);
	if (r < 0)
		return r;
	qsort(fs->ranges, fs->n, sizeof(*fs->ranges), range_compare);
	if (!image->extents && extents_new(cf->budget, &image->extents) == 0)
		extents_add_elf(image->extents, image->elf);
	r = lsda_new(image->elf, image->extents, cf->budget, &fs->lsda);
	return r < 0 ? r : add_unnamed(cf, fs, image);
}

const struct callfunc *callfuncs_find(const struct callfuncs *cf, const struct image *image,
				      uint64_t vaddr)
{
	const struct functions *fs = image->id < cf->n_images ? cf->images[image->id] : NULL;
	const struct range *r = fs ? range_at(fs, fs->n, vaddr) : NULL;

	if (!fs)
		return &cf->unknown;
	if (r)
		return r->f;
	return in_stubs(fs, vaddr) ? &fs->stub : &fs->unknown;
}

bool callfuncs_begin(const struct callfuncs *cf, const struct image *image, uint64_t vaddr,
		     uint64_t *ret)
{
	const struct functions *fs = image->id < cf->n_images ? cf->images[image->id] : NULL;
	const struct range *r = fs ? range_at(fs, fs->n, vaddr) : NULL;

	if (!r)
		return false;
	*ret = r->start;
	return true;
}

const struct callfunc *callfuncs_unknown(const struct callfuncs *cf)
{
	return &cf->unknown;
}

bool callfuncs_lands(const struct callfuncs *cf, const struct image *image, uint64_t call,
		     uint64_t pad)
{
	const struct functions *fs = image->id < cf->n_images ? cf->images[image->id] : NULL;

	return fs && fs->lsda && lsda_has(fs->lsda, call, pad);
}
