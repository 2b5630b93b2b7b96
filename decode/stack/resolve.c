// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/resolve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/escape.h"
#include "common/base/hashmap.h"
#include "decode/base/path.h"
#include "decode/dwarf/source.h"
#include "decode/object/demangle.h"
#include "decode/object/extents.h"
#include "decode/object/interpreter.h"
#include "decode/object/kallsyms.h"
#include "decode/stack/inline_lists.h"
#include "decode/stack/return_check.h"

#define NAME_SIZE (DEMANGLE_MAX_OUT * 4 + 8)

/* A third kind of key beside enum resolve_how: the address is that of a symbol. */
#define OF_SYMBOL 2

enum unknown { KNOWN, NO_MAP, NO_IMAGE, NO_SYMBOL, NO_JIT, WRONG, SEVERAL_NAMES };

struct entry {
	uint64_t where; /* (image id | process serial << 32) + 1 */
	uint64_t addr;
	uint32_t frame;
	uint8_t how;
	uint8_t unknown;
	uint32_t inlined; /* for resolver_inlines() */
};

#define INTERPRETERS_MAX 16
#define ANONYMOUS_MAX 16

struct resolver {
	struct stacktab *st;   /* borrowed */
	struct images *images; /* borrowed */
	struct budget *budget; /* borrowed */
	struct file_requester files;
	const struct kallsyms *kallsyms; /* borrowed; NULL: there are none */
	struct source *source; /* borrowed; NULL: where functions are declared is not wanted */
	bool names, want_inlines;
	struct inline_lists inlines;
	uint32_t inlined; /* of the last address */
	/* frames of CPython's loop; of several of them one each */
	uint32_t interpreters[INTERPRETERS_MAX];
	uint32_t n_interpreters;
	/* frames that stand for generated code without names, by where it is */
	uint32_t anonymous[ANONYMOUS_MAX];
	uint32_t n_anonymous;
	/* by entry_owner() and address: frame, unknown << 32, inlined << 36, ENTRY_KNOWN */
	struct hashmap entries;
	uint32_t kernel, cut, gap;
	uint32_t asked_entry; /* the last question of resolver_is_entry(), and its answer */
	bool last_is_entry;
	int error;
	struct resolve_stats stats;
	char name[NAME_SIZE];
};

static uint32_t fixed_frame(struct resolver *r, const char *name, enum frame_kind kind)
{
	const struct frame_info info = {.name = name, .object = name, .kind = (uint8_t)kind};

	return stacktab_frame(r->st, &info);
}

int resolver_new(struct stacktab *st, struct images *images, const struct file_requester *files,
		 bool names, struct budget *budget, struct resolver **ret)
{
	_cleanup_(resolver_freep) struct resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->st = st;
	r->images = images;
	r->files = *files;
	r->names = names;
	r->budget = budget;
	r->inlines.budget = budget;
	r->kernel = fixed_frame(r, "[kernel]", FRAME_KIND_KERNEL);
	r->cut = fixed_frame(r, "[callers unknown]", FRAME_KIND_MISSING);
	r->gap = fixed_frame(r, "[caller not recorded]", FRAME_KIND_MISSING);
	*ret = take_ptr(r);
	return 0;
}

struct resolver *resolver_free(struct resolver *r)
{
	if (!r)
		return NULL;
	hashmap_fini(&r->entries);
	inline_lists_fini(&r->inlines);
	free(r);
	return NULL;
}

void resolver_set_source(struct resolver *r, struct source *source)
{
	r->source = source;
}

void resolver_set_inlines(struct resolver *r)
{
	r->want_inlines = r->source;
}

uint32_t resolver_inlined(const struct resolver *r)
{
	return r->inlined;
}

const uint32_t *resolver_inlines(const struct resolver *r, uint32_t number, uint32_t *ret_n)
{
	return inline_lists_get(&r->inlines, number, ret_n);
}

void resolver_set_kallsyms(struct resolver *r, const struct kallsyms *kallsyms)
{
	r->kallsyms = kallsyms;
}

uint32_t resolver_kernel(struct resolver *r)
{
	return r->kernel;
}

uint32_t resolver_cut(struct resolver *r)
{
	return r->cut;
}

uint32_t resolver_gap(struct resolver *r)
{
	return r->gap;
}

const struct stacktab *resolver_stacktab(const struct resolver *r)
{
	return r->st;
}

int resolver_error(const struct resolver *r)
{
	return r->error;
}

const struct resolve_stats *resolver_stats(const struct resolver *r)
{
	return &r->stats;
}

uint64_t resolver_inlines_left_out(const struct resolver *r)
{
	return r->inlines.left_out;
}

bool resolver_begins_stack(const struct resolver *r, uint32_t frame)
{
	static const char name[] = "greenlet::UserGreenlet::g_initialstub";
	struct frame_info info;

	stacktab_info(r->st, frame, &info);
	return info.name && (strncmp(info.name, name, sizeof(name) - 1) == 0 ||
			     strcmp(info.name, "__start_context") == 0);
}

bool resolver_is_entry(struct resolver *r, uint32_t frame)
{
	static const char *const names[] = {
		/* glibc, musl, the linker's start */
		"_start",
		"__libc_start_call_main",
		"__libc_start_main",
		"__libc_start_main_impl",
		"libc_start_main_stage2",
		"start_thread",
		"clone",
		"__clone",
		"clone3",
		"__clone3",
		"start",
		"_dl_start_user",
		/* Go */
		"runtime.goexit",
		"runtime.goexit.abi0",
		"runtime.mstart",
		"runtime.mstart.abi0",
		"runtime.rt0_go.abi0",
		"runtime.mcall",
	};
	struct frame_info info;

	if (frame == r->asked_entry)
		return r->last_is_entry;
	stacktab_info(r->st, frame, &info);
	r->asked_entry = frame;
	r->last_is_entry = resolver_begins_stack(r, frame);
	for (size_t i = 0; i < ARRAY_SIZE(names) && !r->last_is_entry; i++)
		r->last_is_entry = info.name && strcmp(info.name, names[i]) == 0;
	return r->last_is_entry;
}

void code_fini(struct code *code)
{
	code->perfmap = perfmap_free(code->perfmap);
}

#define ENTRY_KNOWN (UINT64_C(1) << 63)
#define KERNEL_WHERE (UINT64_C(1) << 61) /* no process has it */

/* Serials of processes are far below 2^30: each has cost memory. */
static uint64_t entry_owner(const struct entry *e)
{
	return e->where << 2 | e->how;
}

/* Fills what is known of its address. */
static bool entry_find(const struct resolver *r, struct entry *e)
{
	const uint64_t value = hashmap_get(&r->entries, entry_owner(e), e->addr);

	if (!value)
		return false;
	e->frame = (uint32_t)value;
	e->unknown = (value >> 32) & 0xf;
	e->inlined = (value >> 36) & (INLINE_LISTS_MAX - 1);
	return true;
}

/* Without memory for more, what is there stays and the rest is worked out each time anew. */
static void entry_add(struct resolver *r, const struct entry *e)
{
	const size_t more = hashmap_more_bytes(&r->entries);

	if (!budget_take(r->budget, more))
		return;
	if (hashmap_put(&r->entries, entry_owner(e), e->addr,
			ENTRY_KNOWN | (uint64_t)e->inlined << 36 | (uint64_t)e->unknown << 32 |
				e->frame) < 0) {
		budget_give(r->budget, more);
		return;
	}
	r->stats.addresses += e->how != OF_SYMBOL;
}

bool resolver_has_kallsyms(const struct resolver *r)
{
	return r->kallsyms;
}

uint32_t resolver_kernel_function(struct resolver *r, uint64_t addr, enum resolve_how how)
{
	struct entry e = {.where = KERNEL_WHERE, .addr = addr, .how = (uint8_t)how};
	char module[128] = "[kernel]";
	struct kallsyms_function f;

	if (!r->kallsyms || entry_find(r, &e))
		return e.frame;
	if (kallsyms_find(r->kallsyms, how == RESOLVE_RETURN ? addr - 1 : addr, &f)) {
		escape_text(r->name, sizeof(r->name), f.name, f.name_len);
		if (f.module)
			escape_text(module, sizeof(module), f.module, f.module_len);
		e.frame = stacktab_frame(r->st, &(struct frame_info){.name = r->name,
								     .object = module,
								     .kind = FRAME_KIND_KERNEL});
	}
	entry_add(r, &e);
	return e.frame;
}

bool resolver_is_scheduler(const struct resolver *r, uint64_t addr)
{
	return r->kallsyms && kallsyms_is_scheduler(r->kallsyms, addr);
}

static int image_make_ready(struct resolver *r, struct image *img)
{
	int e = image_open(r->images, img);

	if (e < 0 && !r->error)
		r->error = e;
	return e;
}

struct image *resolver_image(
	struct resolver *r, const struct code *code, uint64_t addr, uint64_t *ret_vaddr)
{
	const struct mapping *map = address_space_find(code->space, addr);
	struct image *img;

	if (!map)
		return NULL;
	img = map->image;
	if (image_make_ready(r, img) < 0 || img->state != IMAGE_READY)
		return NULL;
	return image_vaddr(img, addr - map->start + map->pgoff, ret_vaddr) ? img : NULL;
}

static uint32_t symbol_frame(struct resolver *r, struct image *img, const struct symbol *sym)
{
	const char *file = NULL;
	uint32_t line = 0;
	size_t len;

	if (r->source && !sym->plt) {
		file = source_function(r->source, img, sym->addr, &line);
		if (source_error(r->source) < 0 && !r->error)
			r->error = source_error(r->source);
	}
	len = demangle_name(sym->name, sym->name_len, r->name, sizeof(r->name) - 8);
	if (sym->plt)
		memcpy(r->name + len, "@plt", 5);
	return stacktab_frame(
		r->st, &(struct frame_info){
			       .name = r->name,
			       .object = img->text,
			       .file = file,
			       .line = line,
			       .offset = sym->addr,
			       .kind = img->kind == IMAGE_VDSO ? FRAME_KIND_VDSO : FRAME_KIND_USER,
		       });
}

static uint32_t object_frame(struct resolver *r, const struct image *img)
{
	if (img->text[0] == '[')
		(void)snprintf(r->name, sizeof(r->name), "%s", img->text);
	else
		(void)snprintf(r->name, sizeof(r->name), "[%.512s]", base_name(img->text));
	return stacktab_frame(
		r->st, &(struct frame_info){
			       .name = r->name, .object = img->text, .kind = FRAME_KIND_UNKNOWN});
}

/* A function without a name is distinguished from others by where it begins; the number is what
 * objdump and addr2line show for the file. */
static uint32_t unnamed_frame(struct resolver *r, struct image *img, uint64_t vaddr, bool *known)
{
	const struct symbol *whole;
	const struct extent *x;

	if (!img->extents && !img->flat && extents_new(r->budget, &img->extents) == 0)
		extents_add_elf(img->extents, img->elf);
	x = img->extents ? extents_find(img->extents, vaddr) : NULL;
	if (!x)
		return object_frame(r, img);
	whole = interpreter_of_part(img, x);
	if (whole) {
		*known = true;
		return resolver_symbol(r, img, whole);
	}
	(void)snprintf(r->name, sizeof(r->name), "[%.512s+0x%" PRIx64 "]", base_name(img->text),
		x->start);
	return stacktab_frame(r->st, &(struct frame_info){.name = r->name,
					     .object = img->text,
					     .offset = x->start,
					     .kind = FRAME_KIND_UNKNOWN});
}

/* What a file's opener says of one that is not there. */
#define ABSENT "no such file"

static void perfmap_refused(struct code *code, const char *why)
{
	(void)snprintf(code->perfmap_refused, sizeof(code->perfmap_refused), "%.90s", why);
}

static const struct perfmap *perfmap_of(struct resolver *r, struct code *code)
{
	/* without a number in a namespace of its own it has the outer one */
	struct file_request request = {.kind = FILE_REQUEST_PERFMAP,
		.pid = (pid_t)code->pid,
		.nspid = (pid_t)(code->nspid ? code->nspid : code->pid)};
	struct file_answer file = {0};
	_cleanup_close_ int fd = -1;
	int e;

	if (code->perfmap_tried || r->error)
		return code->perfmap;
	code->perfmap_tried = true;
	e = r->files.ask(r->files.arg, &request, &file, &fd);
	if (e < 0)
		r->error = e;
	if (e == 0 && strcmp(file.why, ABSENT) != 0)
		perfmap_refused(code, file.why);
	if (e <= 0)
		return NULL;
	e = perfmap_read(fd, r->budget, &code->perfmap);
	if (e == 0)
		r->stats.perfmaps++;
	else
		perfmap_refused(code, e == -EBADMSG  ? "its lines are not those of a map"
				      : e == -EFBIG  ? "it is too large"
				      : e == -ENOMEM ? "there is no memory for it"
						     : strerror(-e));
	e = file_requester_judge(&r->files, &file, code->perfmap != NULL);
	if (e < 0)
		r->error = e;
	return code->perfmap;
}

/* A perf map's entry for the address, or 0. *unknown says whether it has another one, too. */
static uint32_t jit_frame(struct resolver *r, struct code *code, uint64_t addr, uint8_t *unknown)
{
	const struct perfmap *m = perfmap_of(r, code);
	const char *name;
	uint64_t start;
	size_t len;

	name = m ? perfmap_find(m, addr, &len, &start) : NULL;
	if (!name)
		return 0;
	*unknown = perfmap_has_another(m, addr) ? SEVERAL_NAMES : KNOWN;
	escape_text(r->name, sizeof(r->name), name, len);
	return stacktab_frame(r->st, &(struct frame_info){.name = r->name,
					     .object = "[jit]",
					     .offset = start,
					     .kind = FRAME_KIND_JIT});
}

/*
 * Return addresses that no call put there and that are right all the same: the way back from a
 * signal handler, and where coroutines and goroutines begin.
 */
static bool return_is_special(const struct image *img, uint64_t vaddr, const uint8_t *at, size_t n)
{
	const struct symbol *sym;

	if (return_check_is_sigreturn(at, n))
		return true;
	sym = symbols_find(&img->symbols, vaddr);
	if (!sym || vaddr - sym->addr > 1)
		return false;
	return (sym->name_len >= 14 && memcmp(sym->name, "runtime.goexit", 14) == 0) ||
	       (sym->name_len == 15 && memcmp(sym->name, "__start_context", 15) == 0);
}

enum return_kind { RETURN_WRONG, RETURN_AFTER_CALL, RETURN_SPECIAL };

static enum return_kind return_kind_of(const struct image *img, uint64_t vaddr)
{
	uint8_t buf[RETURN_CHECK_BEFORE + RETURN_CHECK_AFTER];
	size_t n = 0, before = RETURN_CHECK_BEFORE;

	if (!img->x86_64)
		return RETURN_AFTER_CALL;
	/* at the very front of a segment there are fewer bytes */
	for (; before >= 2; before--) {
		if (vaddr < before)
			continue;
		n = image_read(img, vaddr - before, buf, before + RETURN_CHECK_AFTER);
		if (n >= before)
			break;
	}
	if (before < 2)
		return RETURN_WRONG;
	if (return_check_follows_call(buf, before))
		return RETURN_AFTER_CALL;
	return return_is_special(img, vaddr, buf + before, n - before) ? RETURN_SPECIAL
								       : RETURN_WRONG;
}

uint32_t resolver_symbol(struct resolver *r, struct image *img, const struct symbol *sym)
{
	struct entry e = {.where = (uint64_t)img->id + 1, .addr = sym->addr, .how = OF_SYMBOL};

	if (entry_find(r, &e))
		return e.frame;
	e.frame = symbol_frame(r, img, sym);
	entry_add(r, &e);
	return e.frame;
}

bool resolver_load_symbols(struct resolver *r, struct image *img)
{
	int err = image_load_symbols(r->images, img);

	if (err < 0 && !r->error)
		r->error = err;
	return err >= 0;
}

bool resolver_is_interpreter(const struct resolver *r, uint32_t frame)
{
	for (uint32_t i = 0; i < r->n_interpreters; i++)
		if (r->interpreters[i] == frame)
			return true;
	return false;
}

static void add_interpreter(struct resolver *r, uint32_t frame)
{
	if (!resolver_is_interpreter(r, frame) && r->n_interpreters < INTERPRETERS_MAX)
		r->interpreters[r->n_interpreters++] = frame;
}

static bool is_anonymous(const struct resolver *r, uint32_t frame)
{
	for (uint32_t i = 0; i < r->n_anonymous; i++)
		if (r->anonymous[i] == frame)
			return true;
	return false;
}

static void add_anonymous(struct resolver *r, uint32_t frame)
{
	if (!is_anonymous(r, frame) && r->n_anonymous < ANONYMOUS_MAX)
		r->anonymous[r->n_anonymous++] = frame;
}

bool resolver_is_generated(const struct resolver *r, uint32_t frame)
{
	struct frame_info info;

	stacktab_info(r->st, frame, &info);
	return info.kind == FRAME_KIND_JIT || is_anonymous(r, frame);
}

static void resolve_image(struct resolver *r, struct code *code, struct image *img, uint64_t addr,
	uint64_t off, enum resolve_how how, struct entry *e)
{
	const struct symbol *sym = NULL;
	bool known = false;
	uint64_t vaddr;

	if (image_make_ready(r, img) < 0) {
		e->frame = object_frame(r, img);
		return;
	}
	if (img->state != IMAGE_READY || !image_vaddr(img, off, &vaddr)) {
		e->frame = jit_frame(r, code, addr, &e->unknown);
		if (e->frame)
			return;
		e->frame = object_frame(r, img);
		e->unknown = img->kind == IMAGE_FILE || img->kind == IMAGE_VDSO ? NO_IMAGE : NO_JIT;
		if (e->unknown == NO_JIT)
			add_anonymous(r, e->frame);
		img->hits++;
		return;
	}
	if (r->names || how == RESOLVE_RETURN)
		(void)resolver_load_symbols(r, img);
	if (how == RESOLVE_RETURN) {
		enum return_kind kind = return_kind_of(img, vaddr);

		if (kind == RETURN_WRONG) {
			e->unknown = WRONG;
			return;
		}
		/* a special one is the begin of its own function, others follow their call */
		if (kind != RETURN_SPECIAL)
			vaddr--;
	}
	sym = symbols_find(&img->symbols, vaddr);
	if (sym && r->names) {
		e->frame = resolver_symbol(r, img, sym);
		if (interpreter_is(sym))
			add_interpreter(r, e->frame);
		if (r->want_inlines) {
			e->inlined = inline_lists_add(&r->inlines, r->source, r->st, img, vaddr);
			if (source_error(r->source) < 0 && !r->error)
				r->error = source_error(r->source);
		}
		return;
	}
	/*
	 * Pages that a stepper saved (STEPABI_CODE_PATH, or beside a recording): the names are a
	 * perf map's.
	 */
	e->frame = r->names && !sym && img->ino == 0 ? jit_frame(r, code, addr, &e->unknown) : 0;
	if (e->frame)
		return;
	e->frame = r->names ? unnamed_frame(r, img, vaddr, &known) : object_frame(r, img);
	if (known)
		add_interpreter(r, e->frame);
	e->unknown = r->names && !known ? NO_SYMBOL : KNOWN;
}

uint32_t resolver_frame(struct resolver *r, struct code *code, uint64_t addr, enum resolve_how how)
{
	const struct mapping *map;
	struct entry e = {.how = (uint8_t)how};
	struct image *img = NULL;
	uint64_t off = 0;

	/* the call may be the last instruction of its mapping */
	map = address_space_find(code->space, how == RESOLVE_RETURN && addr ? addr - 1 : addr);
	if (map)
		img = map->image;
	if ((img && img->kind == IMAGE_KERNEL) ||
	    (!img && addr >= KERNEL_HALF && how == RESOLVE_EXACT)) {
		const uint32_t frame = resolver_kernel_function(r, addr, how);

		return frame ? frame : r->kernel;
	}
	if (img && (img->kind == IMAGE_FILE || img->kind == IMAGE_VDSO) &&
		img->state != IMAGE_MISSING) {
		off = addr - map->start + map->pgoff;
		e.where = (uint64_t)img->id + 1;
		e.addr = off;
	} else {
		e.where = ((uint64_t)code->serial << 32) + (img ? (uint64_t)img->id : 0) + 1;
		e.addr = addr;
	}
	if (!entry_find(r, &e)) {
		if (!img) {
			/* A JIT may have unmapped it since; else a return address that leads
			 * nowhere is none. */
			e.frame = jit_frame(r, code, addr, &e.unknown);
			if (!e.frame && how == RESOLVE_RETURN) {
				e.unknown = WRONG;
			} else if (!e.frame) {
				e.frame = fixed_frame(r, "[unknown]", FRAME_KIND_UNKNOWN);
				e.unknown = NO_MAP;
			}
		} else {
			resolve_image(r, code, img, addr, addr - map->start + map->pgoff, how, &e);
		}
		if (r->error)
			return e.frame;
		entry_add(r, &e);
	}
	r->inlined = e.inlined;
	if (resolver_is_interpreter(r, e.frame))
		code->interpreted++;
	switch ((enum unknown)e.unknown) {
	case KNOWN:
		break;
	case NO_MAP:
		r->stats.unknown_no_map++;
		break;
	case NO_IMAGE:
		r->stats.unknown_no_image++;
		break;
	case NO_SYMBOL:
		r->stats.unknown_no_symbol++;
		break;
	case NO_JIT:
		r->stats.unknown_jit++;
		if (code->unnamed++ == 0)
			code->unnamed_frame = e.frame;
		break;
	case SEVERAL_NAMES:
		r->stats.several_names++;
		code->several_names++;
		break;
	case WRONG:
		r->stats.wrong++;
		break;
	}
	return e.frame;
}
