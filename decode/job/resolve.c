// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/resolve.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/insn.h"
#include "common/control/json.h"
#include "decode/dwarf/dwarf.h"
#include "decode/dwarf/line.h"
#include "decode/dwarf/scope.h"
#include "decode/job/function_name.h"
#include "decode/object/demangle.h"
#include "decode/object/image.h"

/*
 * Of a place's function, as text. Escaped once more in JSON, RESOLVE_MAX_PLACES of them fit a
 * packet.
 */
#define NAME_MAX_TEXT 513u
/* How far from a function's beginning instructions are counted. */
#define WALK_MAX (1u << 20)
/* So much of a file's debug information is read to count them: a matter of a second or two. */
#define INLINED_MAX_BYTES (256u << 20)

struct place {
	uint32_t object;
	uint64_t vaddr, offset;
	uint64_t function; /* where it begins; of a line, one place is enough for each */
	bool chooser;	   /* of code, not the code that the name stands for */
};

struct resolve {
	struct images *images;
	struct budget *budget;
	struct image **objects;
	size_t n_objects;
	/* what is looked for: one of three */
	struct function_name name; /* text NULL: not that */
	const char *file;
	uint32_t line;
	uint64_t object, offset;
	/* what was found */
	enum match best;
	struct place places[RESOLVE_MAX_PLACES];
	size_t n_places;
	bool more;
	bool incomplete; /* not all could be searched */
	uint64_t inlined; /* calls of it, which no symbol has */
	uint64_t inlined_max_bytes;
	/* of it, by the compiler; borrowed from the images' tables */
	struct symbol copies[RESOLVE_MAX_COPIES];
	enum match copies_match; /* what all of these are */
	size_t n_copies;
	char near[RESOLVE_MAX_NEAR][FUNCTION_NAME_NEAR_MAX + 1];
	size_t n_near;
	uint32_t next_line;
	bool file_known;
	struct json_object *unread, *stripped, *without_lines, *inlined_cut; /* borrowed */
};

/* ---- places */

static bool file_offset(const struct image *img, uint64_t vaddr, uint64_t *ret)
{
	for (uint32_t i = 0; i < img->n_loads; i++) {
		const struct image_load *l = &img->loads[i];

		if (l->exec && vaddr >= l->vaddr && vaddr - l->vaddr < l->size) {
			*ret = l->off + (vaddr - l->vaddr);
			return true;
		}
	}
	return false;
}

static void place_add(struct resolve *r, uint32_t object, uint64_t vaddr, uint64_t function,
		      bool chooser)
{
	struct place p = {.object = object,
			  .vaddr = vaddr,
			  .function = function,
			  .chooser = chooser};

	if (!file_offset(r->objects[object], vaddr, &p.offset))
		return;
	for (size_t i = 0; i < r->n_places; i++) {
		struct place *q = &r->places[i];

		if (q->object != object || q->function != function)
			continue;
		/* It may have another name, as what chooses. */
		p.chooser |= p.vaddr == q->vaddr && q->chooser;
		if (p.vaddr < q->vaddr || p.chooser)
			*q = p;
		return;
	}
	if (r->n_places == RESOLVE_MAX_PLACES)
		r->more = true;
	else
		r->places[r->n_places++] = p;
}

/* ---- names */

static void near_add(struct resolve *r, const struct symbol *s)
{
	char text[FUNCTION_NAME_NEAR_MAX + 1];

	if (r->n_near == RESOLVE_MAX_NEAR || !function_name_is_near(&r->name, s->name, s->name_len))
		return;
	(void)demangle_name(s->name, s->name_len, text, sizeof(text));
	for (size_t i = 0; i < r->n_near; i++)
		if (strcmp(r->near[i], text) == 0)
			return;
	memcpy(r->near[r->n_near++], text, sizeof(text));
}

/* Beside the function there are these. */
static void copy_add(struct resolve *r, const struct symbol *s, enum match m)
{
	if (m > r->copies_match) {
		r->copies_match = m;
		r->n_copies = 0;
	}
	for (size_t i = 0; i < r->n_copies; i++)
		if (r->copies[i].name_len == s->name_len &&
		    memcmp(r->copies[i].name, s->name, s->name_len) == 0)
			return;
	if (r->n_copies < RESOLVE_MAX_COPIES)
		r->copies[r->n_copies++] = *s;
}

/* All names, also those that share an address, of which an image keeps one. */
static int find_symbol_in(struct resolve *r, uint32_t object, Elf *elf, uint32_t type)
{
	_cleanup_(symbols_fini) struct symbols all;
	int n;

	symbols_init(&all, r->budget);
	n = elf ? symbols_add_elf(&all, elf, type) : 0;
	for (size_t i = 0; n > 0 && i < all.n; i++) {
		const enum match m =
			function_name_match(&r->name, all.v[i].name, all.v[i].name_len);

		if (m > r->best) {
			r->best = m;
			r->n_places = r->n_near = 0;
			r->more = false;
		}
		if ((m == MATCH_FULL_COPY || m == MATCH_SUFFIX_COPY) && m >= r->copies_match)
			copy_add(r, &all.v[i], m);
		if (m != MATCH_NONE && m == r->best)
			place_add(r, object, all.v[i].addr, all.v[i].addr, all.v[i].chooser);
		if (r->best == MATCH_NONE)
			near_add(r, &all.v[i]);
	}
	r->incomplete |= all.cut;
	return n;
}

static int find_symbol(struct resolve *r, uint32_t object)
{
	const struct image *img = r->objects[object];
	Elf *const elves[] = {img->elf, img->debug_elf, img->mini_elf};
	int n, found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(elves); i++) {
		n = find_symbol_in(r, object, elves[i], SHT_SYMTAB);
		if (n < 0)
			return n;
		found += n;
	}
	n = find_symbol_in(r, object, img->elf, SHT_DYNSYM);
	if (found == 0)
		json_append(r->stripped, json_object_new_int64(object));
	return n < 0 ? n : 0;
}

/*
 * Implementations have the name of what chooses them within their own: "__memcpy_avx_unaligned",
 * but not "__wmemcpy"; "f.avx2" of what the compiler makes for some processors.
 */
static bool is_chosen(const struct resolve *r, const struct symbol *s)
{
	const size_t n = strlen(r->name.text);
	const char *p = memmem(s->name, s->name_len, r->name.text, n),
		   *dot = memrchr(s->name, '.', s->name_len);

	if (s->chooser ||
	    (dot && s->name + s->name_len - dot == 9 && memcmp(dot, ".resolver", 9) == 0))
		return false;
	if (dot &&
	    function_name_match_plain(&r->name, s->name, (size_t)(dot - s->name)) != MATCH_NONE)
		return true;
	return p && (p == s->name || p[-1] == '_') && p + n < s->name + s->name_len && p[n] == '_';
}

static void chosen_add(struct resolve *r, const struct symbol *s)
{
	char text[DEMANGLE_MAX_OUT + 1];

	if (r->n_near == RESOLVE_MAX_NEAR ||
	    demangle_signature(s->name, s->name_len, text, sizeof(text)) > FUNCTION_NAME_NEAR_MAX)
		return;
	for (size_t i = 0; i < r->n_near; i++)
		if (strcmp(r->near[i], text) == 0)
			return;
	memcpy(r->near[r->n_near++], text, strlen(text) + 1);
}

static void find_chosen(struct resolve *r)
{
	for (size_t i = 0; i < r->n_places; i++) {
		const struct symbols *all = &r->objects[r->places[i].object]->symbols;

		for (size_t k = 0; r->places[i].chooser && k < all->n; k++)
			if (is_chosen(r, &all->v[k]))
				chosen_add(r, &all->v[k]);
	}
}

/* ---- calls of it that were inlined */

static bool is_wanted(const void *arg, const struct dwarf_name *name)
{
	const struct resolve *r = arg;
	const char *text = name->linkage_name ? name->linkage_name : name->name;

	return text && function_name_match(&r->name, text, strnlen(text, UINT32_MAX)) >=
			       (r->best >= MATCH_FULL_COPY ? MATCH_FULL : MATCH_SUFFIX);
}

static int find_inlined_in(struct resolve *r, uint32_t object)
{
	struct image *img = r->objects[object];
	uint64_t bytes = 0;
	size_t i;
	int e;

	if (img->state != IMAGE_READY)
		return 0;
	e = image_load_dwarf(r->images, img);
	if (e < 0 || !img->dwarf)
		return e;
	for (i = 0; i < img->dwarf->n_units && bytes < r->inlined_max_bytes; i++) {
		struct dwarf_unit *u = &img->dwarf->units[i];

		bytes += u->end - u->off;
		if (dwarf_unit_open(u))
			r->inlined += dwarf_inlined_calls(u, is_wanted, r);
		dwarf_unit_close(u);
	}
	if (i < img->dwarf->n_units || img->dwarf->stats.cut)
		json_append(r->inlined_cut, json_object_new_int64(object));
	return 0;
}

static int find_inlined(struct resolve *r)
{
	int e = 0;

	for (uint32_t i = 0; i < r->n_objects && e == 0; i++) {
		bool has = r->n_places == 0;

		for (size_t k = 0; k < r->n_places; k++)
			has |= r->places[k].object == i;
		if (has)
			e = find_inlined_in(r, i);
	}
	return e;
}

/* ---- lines */

/* Whether a path is the one that was asked for, or ends in it: "a.c", "src/a.c". */
static bool is_file(const struct resolve *r, struct dwarf_unit *u, uint32_t file)
{
	char path[DWARF_PATH_MAX];
	const char *name = r->file;
	size_t n, m = strlen(name);

	if (!dwarf_file_path(u, file, path, sizeof(path)))
		return false;
	n = strlen(path);
	return n >= m && memcmp(path + n - m, name, m) == 0 && (n == m || path[n - m - 1] == '/');
}

static void find_line_in(struct resolve *r, uint32_t object, struct dwarf_unit *u)
{
	const struct image *img = r->objects[object];
	uint32_t last = UINT32_MAX;
	struct dwarf_row row;
	bool wanted = false;
	size_t pos = 0;

	while (dwarf_row_next(u, &pos, &row)) {
		const struct symbol *s;

		if (row.file != last) {
			last = row.file;
			wanted = is_file(r, u, row.file);
		}
		if (!wanted)
			continue;
		r->file_known = true;
		if (row.line > r->line && (!r->next_line || row.line < r->next_line))
			r->next_line = row.line;
		if (row.line != r->line)
			continue;
		s = symbols_find(&img->symbols, row.addr);
		place_add(r, object, row.addr, s ? s->addr : UINT64_MAX, false);
	}
}

static int find_line(struct resolve *r, uint32_t object)
{
	struct image *img = r->objects[object];
	const char *slash = strrchr(r->file, '/');
	int e = image_load_dwarf(r->images, img);

	if (e < 0)
		return e;
	if (!img->dwarf) {
		json_append(r->without_lines, json_object_new_int64(object));
		return 0;
	}
	for (size_t i = 0; i < img->dwarf->n_units; i++) {
		struct dwarf_unit *u = &img->dwarf->units[i];

		if (dwarf_has_file(u, slash ? slash + 1 : r->file))
			find_line_in(r, object, u);
		dwarf_unit_close(u);
	}
	r->incomplete |= img->dwarf->stats.cut > 0;
	return 0;
}

/* ---- an offset */

static int find_offset(struct resolve *r)
{
	const uint32_t object = (uint32_t)r->object;
	uint64_t vaddr;

	if (r->objects[object]->state == IMAGE_READY &&
	    image_vaddr(r->objects[object], r->offset, &vaddr))
		place_add(r, object, vaddr, vaddr, false);
	return 0;
}

/* ---- the answer */

enum boundary { BOUNDARY_UNKNOWN, BOUNDARY_NO, BOUNDARY_YES };

/*
 * Code is read from a function's beginning on: nowhere else is it known where instructions begin.
 */
static enum boundary boundary_at(const struct image *img, uint64_t function, uint64_t vaddr)
{
	uint8_t code[4096];
	uint64_t at = function;

	if (vaddr != function && (!img->x86_64 || vaddr - function > WALK_MAX))
		return BOUNDARY_UNKNOWN;
	while (at < vaddr) {
		const size_t n = image_read(img, at, code, sizeof(code));
		size_t pos = 0;
		struct insn insn;

		while (at + pos < vaddr && pos < n && insn_decode(code + pos, n - pos, true, &insn))
			pos += insn.length;
		if (pos == 0)
			return BOUNDARY_UNKNOWN;
		at += pos;
	}
	return at == vaddr ? BOUNDARY_YES : BOUNDARY_NO;
}

static void add_place(const struct resolve *r, struct json_object *list, const struct place *p)
{
	const struct image *img = r->objects[p->object];
	const struct symbol *s = symbols_find(&img->symbols, p->vaddr);
	struct json_object *o = json_object_new_object();
	char name[NAME_MAX_TEXT] = "", hex[2 * FILE_REQUEST_MAX_BUILD_ID + 1] = "";
	const void *id = NULL;
	const enum boundary boundary = s ? boundary_at(img, s->addr, p->vaddr) : BOUNDARY_UNKNOWN;
	const ssize_t n = img->elf ? dwelf_elf_gnu_build_id(img->elf, &id) : 0;

	if (s)
		function_name_show(s->name, s->name_len, name, sizeof(name));
	for (ssize_t i = 0; i < n && i < FILE_REQUEST_MAX_BUILD_ID; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)id)[i]);
	json_add_uint(o, "object", p->object);
	json_add_uint(o, "offset", p->offset);
	json_add_uint(o, "address", p->vaddr);
	json_add_uint(o, "size", s && s->sized && s->addr == p->vaddr ? s->size : 0);
	json_add_uint(o, "into", s ? p->vaddr - s->addr : 0);
	json_add_string(o, "name", name);
	json_add_string(o, "build_id", hex);
	json_add_bool(o, "boundary", boundary == BOUNDARY_YES);
	json_add_bool(o, "boundary_known", boundary != BOUNDARY_UNKNOWN);
	json_add_bool(o, "chooser", p->chooser);
	json_append(list, o);
}

static void answer(const struct resolve *r, struct json_object *stats)
{
	struct json_object *list = json_add_new_array(stats, "places");

	for (size_t i = 0; i < r->n_places; i++)
		add_place(r, list, &r->places[i]);
	json_add_bool(stats, "more", r->more);
	json_add_bool(stats, "incomplete", r->incomplete);
	json_add_uint(stats, "inlined", r->inlined);
	if (r->file) {
		json_add_bool(stats, "file_known", r->file_known);
		json_add_uint(stats, "next_line", r->n_places ? 0 : r->next_line);
	}
	list = json_add_new_array(stats, "copies");
	for (size_t i = 0; i < r->n_copies && r->copies_match + 1 == r->best; i++) {
		char name[NAME_MAX_TEXT];

		function_name_show(r->copies[i].name, r->copies[i].name_len, name, sizeof(name));
		json_append_string(list, name);
	}
	list = json_add_new_array(stats, "near");
	for (size_t i = 0; i < r->n_near; i++)
		json_append_string(list, r->near[i]);
}

/* ---- the question */

static int take_find(struct resolve *r, struct json_object *find)
{
	const char *symbol;
	uint64_t line;

	if (!find)
		return -EINVAL;
	symbol = json_get_string(find, "symbol");
	r->file = json_get_string(find, "file");
	if (symbol)
		return function_name_set(&r->name, symbol) && strlen(symbol) <= RESOLVE_MAX_QUERY
			       ? 0
			       : -EINVAL;
	if (r->file) {
		const char *slash = strrchr(r->file, '/');

		if (!json_get_uint(find, "line", &line) || line == 0 || line > INT32_MAX ||
		    !*r->file || (slash && !slash[1]) || strlen(r->file) > RESOLVE_MAX_QUERY)
			return -EINVAL;
		r->line = (uint32_t)line;
		return 0;
	}
	return json_get_uint(find, "object", &r->object) &&
			       json_get_uint(find, "offset", &r->offset)
		       ? 0
		       : -EINVAL;
}

static int take_object(struct resolve *r, struct json_object *o, uint64_t pid)
{
	const char *path = json_get_string(o, "path");
	struct image_key key = {.path = path, .pid = (uint32_t)pid};
	uint64_t maj, min;

	if (!path || !json_get_uint(o, "major", &maj) || !json_get_uint(o, "minor", &min) ||
	    !json_get_uint(o, "inode", &key.ino) || maj > UINT32_MAX || min > UINT32_MAX)
		return -EINVAL;
	key.path_len = strlen(path);
	key.maj = (uint32_t)maj;
	key.min = (uint32_t)min;
	r->objects[r->n_objects] = images_get(r->images, &key);
	return r->objects[r->n_objects++] ? 0 : -ENOMEM;
}

static int take_objects(struct resolve *r, struct json_object *list, uint64_t pid)
{
	const size_t n = list ? json_object_array_length(list) : 0;

	if (n == 0 || n > RESOLVE_MAX_OBJECTS)
		return -EINVAL;
	r->objects = calloc(n, sizeof(struct image *));
	if (!r->objects)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int e = take_object(r, json_object_array_get_idx(list, i), pid);

		if (e < 0)
			return e;
	}
	return !r->name.text && !r->file && r->object >= n ? -EINVAL : 0;
}

static int look(struct resolve *r, uint32_t object)
{
	struct image *img = r->objects[object];
	int e;

	if (!r->name.text && !r->file && object != r->object)
		return 0;
	e = image_open(r->images, img);
	if (e < 0)
		return e;
	if (img->state != IMAGE_READY) {
		json_append(r->unread, json_object_new_int64(object));
		return 0;
	}
	e = image_load_symbols(r->images, img);
	if (e < 0)
		return e;
	if (r->name.text)
		return find_symbol(r, object);
	return r->file ? find_line(r, object) : find_offset(r);
}

static void resolve_fini(struct resolve *r)
{
	(void)images_free(r->images);
	free(r->objects);
}

int resolve_run(struct json_object *body, const struct file_requester *files, struct budget *budget,
		struct json_object *stats)
{
	_cleanup_(resolve_fini) struct resolve r = {.budget = budget,
						    .inlined_max_bytes = INLINED_MAX_BYTES};
	uint64_t pid = 0;
	int e;

	(void)json_get_uint(body, "pid", &pid);
	(void)json_get_uint(body, "inlined_max_bytes", &r.inlined_max_bytes);
	e = take_find(&r, json_get_object(body, "find"));
	if (e == 0 && pid > INT32_MAX)
		e = -EINVAL;
	if (e == 0)
		e = images_new(files, budget, &r.images);
	if (e == 0)
		e = take_objects(&r, json_get_array(body, "objects"), pid);
	if (e < 0)
		return e;
	r.unread = json_add_new_array(stats, "unread");
	r.stripped = json_add_new_array(stats, "stripped");
	r.without_lines = json_add_new_array(stats, "without_lines");
	r.inlined_cut = json_add_new_array(stats, "inlined_cut");
	for (uint32_t i = 0; i < r.n_objects; i++) {
		e = look(&r, i);
		if (e < 0)
			return e;
	}
	find_chosen(&r);
	e = r.name.text ? find_inlined(&r) : 0;
	if (e < 0)
		return e;
	answer(&r, stats);
	return 0;
}
