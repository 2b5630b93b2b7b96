// SPDX-License-Identifier: Apache-2.0
#include "client/core/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/core/place.h"
#include "client/ui/human.h"
#include "common/base/io.h"
#include "common/base/procfs.h"

/*
 * How long "operator<" and its like are, whose brackets enclose nothing; 0: it is none. Longer ones
 * first.
 */
static size_t operator_length(const char *s)
{
	static const char *const names[] = {"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=",
					    ">=",  "->",  "()",  "[]",  "<",  ">",  ","};
	const size_t n = strlen("operator");

	for (size_t i = 0; strncmp(s, "operator", n) == 0 && i < ARRAY_SIZE(names); i++)
		if (strncmp(s + n, names[i], strlen(names[i])) == 0)
			return n + strlen(names[i]);
	return 0;
}

/*
 * The next of a list; commas within brackets are part of a name, as in "f(int, int)". NULL: there
 * is none.
 */
static char *next_name(const char **p)
{
	const char *s = *p;
	int depth = 0;
	size_t n = 0;

	if (!s)
		return NULL;
	while (s[n] && (s[n] != ',' || depth > 0)) {
		const size_t op = operator_length(s + n);

		depth += op ? 0 : (strchr("([{<", s[n]) != NULL) - (strchr(")]}>", s[n]) != NULL);
		n += op ? op : 1;
	}
	*p = s[n] ? s + n + 1 : NULL;
	return strndup(s, n);
}

#define MAX_PIECES 8u /* of the code of a file; linkers make one or two */

/* All code of a file: each piece that is mapped. */
struct object {
	struct place pieces[MAX_PIECES];
	uint32_t n;
	char *path; /* of the first, to be freed */
	char *other; /* of another file that has the name, too; NULL: there is none */
};

static void object_fini(struct object *o)
{
	free(o->path);
	free(o->other);
}

/*
 * Pieces that follow each other in the file are one: the kernel maps by segment, and splits where
 * the protection was changed.
 */
static int add_piece(struct object *o, const struct proc_map *map)
{
	const struct place piece = {.maj = map->maj,
				    .min = map->min,
				    .ino = map->ino,
				    .offset = map->pgoff,
				    .size = map->end - map->start};
	struct place *last = o->n ? &o->pieces[o->n - 1] : NULL;

	for (uint32_t i = 0; i < o->n; i++)
		if (o->pieces[i].offset == piece.offset && o->pieces[i].size == piece.size)
			return 0; /* mapped twice */
	if (last && last->offset + last->size == piece.offset) {
		last->size += piece.size;
		return 0;
	}
	if (o->n == MAX_PIECES)
		return -E2BIG;
	o->pieces[o->n++] = piece;
	return 0;
}

/* No pieces: no file has the name. */
static int find_object(pid_t pid, const char *name, struct object *ret)
{
	_cleanup_free_ char *text = NULL;
	struct proc_map map;
	size_t len, pos = 0;
	char path[32];
	int r;

	*ret = (struct object){.n = 0};
	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	r = io_read_file_at(AT_FDCWD, path, PROC_MAPS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	while ((r = proc_map_next(text, len, &pos, &map)) != 0) {
		const struct place *first = &ret->pieces[0];

		if (r < 0 || !(map.prot & PROT_EXEC) || !map.ino || !place_is_named(&map, name))
			continue;
		if (ret->n &&
		    (first->maj != map.maj || first->min != map.min || first->ino != map.ino)) {
			if (!ret->other)
				ret->other = strndup(map.path, map.path_len);
			continue;
		}
		if (!ret->path)
			ret->path = strndup(map.path, map.path_len);
		r = add_piece(ret, &map);
		if (r < 0)
			return r;
	}
	return 0;
}

static int find_function(struct ctl *ctl, pid_t pid, const char *name, struct place *ret)
{
	_cleanup_(places_fini) struct places places = {0};
	int r = place_find_one(ctl, pid, name, &places);

	if (r != EXIT_OK)
		return r;
	if (places.v[0].size == 0 || places.v[0].into)
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"'%s' is not a whole function: its beginning and size are needed for an address filter",
			name);
	place_note_others(ctl, &places, name, "not in the filter");
	*ret = places.v[0];
	ret->path = ret->name = NULL; /* they go with the list */
	return EXIT_OK;
}

static void append(struct json_object *list, const struct place *p, const char *name)
{
	_cleanup_free_ char *text = human_format("%u:%u:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%s",
						 p->maj, p->min, p->ino, p->offset, p->size, name);

	json_append_string(list, text);
}

static int add_one(struct ctl *ctl, pid_t pid, const char *name, struct json_object *list)
{
	_cleanup_(object_fini) struct object object;
	struct place function = {0};
	int r = find_object(pid, name, &object);

	if (r == -E2BIG)
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"the code of %s is mapped in more than %u pieces: name functions of it",
			name, MAX_PIECES);
	if (r < 0)
		return ctl_report(ctl, r, "reading the memory map");
	if (object.other)
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"two files are named %s: %s and %s; give the whole path of the one that you mean",
			name, object.path, object.other);
	for (uint32_t i = 0; i < object.n; i++)
		append(list, &object.pieces[i], name);
	if (object.n)
		return EXIT_OK;
	if (name[0] == '/')
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found",
				"process %d has no code of %s mapped", (int)pid, name);
	r = find_function(ctl, pid, name, &function);
	if (r == EXIT_OK)
		append(list, &function, name);
	return r;
}

int filter_add(struct ctl *ctl, pid_t pid, const char *text, struct json_object *params)
{
	struct json_object *list = json_add_new_array(params, "filters");
	const char *rest = text;
	char *name;
	int r = proc_thread_group(pid, &pid);

	if (r != 0)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "gone", "no such process: %d", (int)pid);
	while (r == EXIT_OK && (name = next_name(&rest))) {
		r = add_one(ctl, pid, name, list);
		free(name);
	}
	return r;
}
