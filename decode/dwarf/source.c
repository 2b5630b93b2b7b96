// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/dwarf/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/hashmap.h"
#include "common/control/json.h"
#include "decode/base/strtab.h"
#include "decode/dwarf/dwarf.h"
#include "decode/dwarf/go_scopes.h"
#include "decode/dwarf/line.h"
#include "decode/object/demangle.h"

#define MAX_TEXT_BYTES (64u << 20)
#define PATH_TEXT (DWARF_PATH_MAX * 4)

struct source {
	struct images *images; /* borrowed */
	struct budget *budget; /* borrowed */
	struct strtab *texts;
	/*
	 * what was asked for once, by the image and an address, or by a scope: a text or a frame +
	 * 1 (1: nothing is known)
	 */
	struct hashmap places, frames;
	struct hashmap go; /* struct go_scopes, owned, by the image and where the function begins */
	uint64_t lines_found, lines_not_found; /* places that were asked for */
	/* inlined calls of Go programs; functions for which there was no memory */
	uint64_t go_broken, go_left_out;
	int error;
	char path[DWARF_PATH_MAX], text[PATH_TEXT], name[DEMANGLE_MAX_OUT * 4 + 8];
};

int source_new(struct images *images, struct budget *budget, struct source **ret)
{
	_cleanup_(source_freep) struct source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->images = images;
	s->budget = budget;
	r = strtab_new(MAX_TEXT_BYTES, "[too many names]", &s->texts);
	if (r < 0)
		return r;
	*ret = take_ptr(s);
	return 0;
}

struct source *source_free(struct source *s)
{
	struct go_scopes *go;

	if (!s)
		return NULL;
	for (uint32_t pos = 0; (go = (struct go_scopes *)(uintptr_t)hashmap_next(&s->go, &pos));)
		go_scopes_free(go);
	hashmap_fini(&s->go);
	strtab_free(s->texts);
	hashmap_fini(&s->places);
	hashmap_fini(&s->frames);
	free(s);
	return NULL;
}

int source_error(const struct source *s)
{
	return s->error;
}

/* ---- what was asked for before */

static bool known(const struct hashmap *m, const void *key, uint64_t addr, uint32_t *ret)
{
	const uint64_t value = hashmap_get(m, (uintptr_t)key, addr);

	if (value)
		*ret = (uint32_t)(value - 1);
	return value != 0;
}

/* Without memory for more it is worked out again each time. */
static void remember(struct source *s, struct hashmap *m, const void *key, uint64_t addr,
		     uint32_t answer)
{
	const size_t more = hashmap_more_bytes(m);

	if (!budget_take(s->budget, more))
		return;
	if (hashmap_put(m, (uintptr_t)key, addr, (uint64_t)answer + 1) < 0)
		budget_give(s->budget, more);
}

/* ---- debug information */

static struct dwarf *dwarf_of(struct source *s, struct image *img)
{
	int r;

	if (img->state != IMAGE_READY || s->error)
		return NULL;
	r = image_load_dwarf(s->images, img);
	if (r < 0)
		s->error = r;
	return img->dwarf;
}

/* A file of a unit as text, in s->text. */
static bool file_text(struct source *s, struct dwarf_unit *unit, uint32_t file)
{
	if (!unit || !dwarf_file_path(unit, file, s->path, sizeof(s->path)))
		return false;
	(void)escape_text(s->text, sizeof(s->text), s->path, strlen(s->path));
	return true;
}

/*
 * A Go program has a table of its own, also where DWARF was stripped: the file's name is in
 * s->text.
 */
static bool go_line(struct source *s, struct image *img, uint64_t vaddr, bool of_function,
		    uint32_t *ret_line)
{
	const char *file;

	if (!gopclntab_line(image_go(img), vaddr, of_function, &file, ret_line))
		return false;
	(void)escape_text(s->text, sizeof(s->text), file, strlen(file));
	return true;
}

/* "job/main.c:40", as the number of a text: the file's name is in s->text. */
static uint32_t line_text(struct source *s, uint32_t line)
{
	const char *base;
	int n;

	base = strrchr(s->text, '/');
	base = base && base[1] ? base + 1 : s->text;
	n = snprintf(s->name, sizeof(s->name), "%.512s:%" PRIu32, base, line);
	return strtab_add(s->texts, s->name, (size_t)n, NULL);
}

static uint32_t place_text(struct source *s, struct dwarf_unit *unit, uint32_t file, uint32_t line)
{
	return line && file_text(s, unit, file) ? line_text(s, line) : 0;
}

const char *source_function(struct source *s, struct image *img, uint64_t vaddr, uint32_t *ret_line)
{
	struct dwarf *d = dwarf_of(s, img);
	struct dwarf_unit *unit = d ? dwarf_unit_of(d, vaddr) : NULL;
	const struct dwarf_scope *scope;
	struct dwarf_name name = {.unit = NULL};
	uint64_t end;

	if (!unit)
		return go_line(s, img, vaddr, true, ret_line)
			       ? strtab_text(s->texts,
					     strtab_add(s->texts, s->text, strlen(s->text), NULL))
			       : NULL;
	scope = dwarf_scope_at(d, vaddr, &end);
	while (scope && scope->outer)
		scope = scope->outer;
	if (scope)
		dwarf_scope_name(scope, &name);
	if (!name.line || !file_text(s, name.unit, name.file)) {
		/* nobody says where it is declared: then where its first instruction comes from */
		name.line = dwarf_line_at(unit, vaddr, &name.file);
		if (!name.line || !file_text(s, unit, name.file))
			return NULL;
	}
	*ret_line = name.line;
	return strtab_text(s->texts, strtab_add(s->texts, s->text, strlen(s->text), NULL));
}

const char *source_place(struct source *s, struct image *img, uint64_t vaddr)
{
	uint32_t text;

	if (!known(&s->places, img, vaddr, &text)) {
		struct dwarf *d = dwarf_of(s, img);
		struct dwarf_unit *unit = d ? dwarf_unit_of(d, vaddr) : NULL;
		uint32_t file, line = unit ? dwarf_line_at(unit, vaddr, &file) : 0;

		text = line ? place_text(s, unit, file, line) : 0;
		if (!unit && go_line(s, img, vaddr, false, &line))
			text = line_text(s, line);
		s->lines_found += text != 0;
		s->lines_not_found += text == 0;
		remember(s, &s->places, img, vaddr, text);
	}
	return text ? strtab_text(s->texts, text) : NULL;
}

/* ---- inlined calls */

/* The functions of a Go program are kept, since a scope is known by where it is. */
static const struct go_scopes *go_scopes_of(struct source *s, struct image *img, uint64_t vaddr)
{
	_cleanup_(go_scopes_freep) struct go_scopes *made = NULL;
	struct gopclntab_inlines in;
	struct go_scopes *go;
	size_t more;

	if (img->state != IMAGE_READY || !gopclntab_inlines(image_go(img), vaddr, &in))
		return NULL;
	go = (struct go_scopes *)(uintptr_t)hashmap_get(&s->go, (uintptr_t)img, in.start);
	if (go)
		return go;
	more = hashmap_more_bytes(&s->go);
	if (go_scopes_new(&in, s->budget, &made) < 0 || !budget_take(s->budget, more)) {
		s->go_left_out++;
		return NULL;
	}
	if (hashmap_put(&s->go, (uintptr_t)img, in.start, (uintptr_t)made) < 0) {
		budget_give(s->budget, more);
		s->go_left_out++;
		return NULL;
	}
	s->go_broken += go_scopes_broken(made);
	return take_ptr(made);
}

static const struct dwarf_scope *go_inlined(struct source *s, struct image *img, uint64_t vaddr,
					    uint64_t *ret_end)
{
	const struct go_scopes *go = go_scopes_of(s, img, vaddr);

	return go ? go_scopes_at(go, vaddr, ret_end) : NULL;
}

const struct dwarf_scope *source_inlined(struct source *s, struct image *img, uint64_t vaddr,
					 uint64_t *ret_end)
{
	struct dwarf *d = dwarf_of(s, img);
	const struct dwarf_scope *scope = NULL;

	*ret_end = UINT64_MAX;
	if (!d || !dwarf_unit_of(d, vaddr))
		return go_inlined(s, img, vaddr, ret_end);
	scope = dwarf_scope_at(d, vaddr, ret_end);
	return scope && scope->outer ? scope : NULL;
}

static uint32_t go_frame(struct source *s, struct stacktab *st, struct image *img,
			 const struct go_scope *g)
{
	struct frame_info info = {.object = img->text, .kind = FRAME_KIND_INLINED};
	uint32_t line;

	(void)escape_text(s->name, sizeof(s->name), g->name, strlen(g->name));
	info.name = s->name;
	if (g->line && g->at && go_line(s, img, g->at, false, &line)) {
		info.file = s->text;
		info.line = g->line;
	}
	return stacktab_frame(st, &info);
}

uint32_t source_inlined_frame(struct source *s, struct stacktab *st, struct image *img,
			      const struct dwarf_scope *scope)
{
	const struct go_scope *go = go_scope_of(scope);
	struct frame_info info = {.object = img->text, .kind = FRAME_KIND_INLINED};
	struct dwarf_name name;
	uint32_t frame;

	if (known(&s->frames, scope, 0, &frame))
		return frame;
	if (go) {
		frame = go_frame(s, st, img, go);
		remember(s, &s->frames, scope, 0, frame);
		return frame;
	}
	dwarf_scope_name(scope, &name);
	/* as the function is called elsewhere, where it is not inlined */
	if (name.linkage_name)
		(void)demangle_name(name.linkage_name, strlen(name.linkage_name), s->name,
				    sizeof(s->name));
	else if (name.name)
		(void)escape_text(s->name, sizeof(s->name), name.name, strlen(name.name));
	else
		(void)snprintf(s->name, sizeof(s->name), "[inlined]");
	info.name = s->name;
	if (name.line && file_text(s, name.unit, name.file)) {
		info.file = s->text;
		info.line = name.line;
	}
	frame = stacktab_frame(st, &info);
	remember(s, &s->frames, scope, 0, frame);
	return frame;
}

const char *source_inlined_place(struct source *s, struct image *img,
				 const struct dwarf_scope *scope)
{
	const struct go_scope *go = go_scope_of(scope);
	uint32_t text, line;

	if (!known(&s->places, scope, 0, &text)) {
		if (go)
			text = go_line(s, img, go->called_at, false, &line) ? line_text(s, line)
									    : 0;
		else
			text = place_text(s, scope->unit, scope->call_file, scope->call_line);
		remember(s, &s->places, scope, 0, text);
	}
	return text ? strtab_text(s->texts, text) : NULL;
}

void source_report(const struct source *s, struct json_object *stats, struct json_object *losses)
{
	images_report_dwarf(s->images, stats, losses);
	json_add_uint(stats, "source_lines", s->lines_found);
	if (s->lines_not_found)
		json_add_uint(losses, "source_lines_missing", s->lines_not_found);
	if (s->go_broken)
		json_add_uint(losses, "go_inlined_calls_broken", s->go_broken);
	if (s->go_left_out)
		json_add_uint(losses, "go_inlined_calls_over_memory", s->go_left_out);
	if (strtab_dropped(s->texts))
		json_add_uint(losses, "source_names_over_memory", strtab_dropped(s->texts));
}
