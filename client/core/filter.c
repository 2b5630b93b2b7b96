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

/* The next of a list; commas within brackets are part of a name, as in "f(int, int)". NULL: there is none. */
static char *next_name(const char **p)
{
	const char *s = *p;
	int depth = 0;
	size_t n = 0;

	if (!s)
		return NULL;
	for (; s[n] && (s[n] != ',' || depth > 0); n++)
		depth += (strchr("([{<", s[n]) != NULL) - (strchr(")]}>", s[n]) != NULL);
	*p = s[n] ? s + n + 1 : NULL;
	return strndup(s, n);
}

/* Whether a path is what the user names: "libc.so.6", or all of it. */
static bool is_named(const struct proc_map *map, const char *name)
{
	const size_t n = strlen(name);

	return n > 0 && map->path_len >= n && memcmp(map->path + map->path_len - n, name, n) == 0 &&
	       (map->path_len == n || (name[0] != '/' && map->path[map->path_len - n - 1] == '/'));
}

/* All code of a file: its greatest piece, of which nearly all files have one. Size 0: no file has the name. */
static int find_object(pid_t pid, const char *name, struct place *ret)
{
	_cleanup_free_ char *text = NULL;
	struct proc_map map;
	size_t len, pos = 0;
	char path[32];
	int r;

	*ret = (struct place){0};
	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	r = io_read_file_at(AT_FDCWD, path, PROC_MAPS_BYTES_MAX, &text, &len);
	if (r < 0)
		return r;
	while ((r = proc_map_next(text, len, &pos, &map)) != 0)
		if (r > 0 && (map.prot & PROT_EXEC) && map.ino && is_named(&map, name) && map.end - map.start > ret->size)
			*ret = (struct place){
				.maj = map.maj, .min = map.min, .ino = map.ino, .offset = map.pgoff, .size = map.end - map.start};
	return 0;
}

static int find_function(struct ctl *ctl, pid_t pid, const char *name, struct place *ret)
{
	_cleanup_(places_fini) struct places places = {0};
	int r = place_find_one(ctl, pid, name, &places);

	if (r != EXIT_OK)
		return r;
	if (places.v[0].size == 0 || places.v[0].into)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"'%s' is not a whole function: its beginning and size are needed for an address filter", name);
	*ret = places.v[0];
	ret->path = ret->name = NULL; /* they go with the list */
	return EXIT_OK;
}

static int add_one(struct ctl *ctl, pid_t pid, const char *name, struct json_object *list)
{
	_cleanup_free_ char *text = NULL;
	struct place place;
	int r = find_object(pid, name, &place);

	if (r < 0)
		return ctl_report(ctl, r, "reading the memory map");
	if (place.size == 0 && name[0] == '/')
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found", "process %d has no code of %s mapped", (int)pid, name);
	if (place.size == 0) {
		r = find_function(ctl, pid, name, &place);
		if (r != EXIT_OK)
			return r;
	}
	text = human_format("%u:%u:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%s", place.maj, place.min, place.ino, place.offset, place.size, name);
	json_append_string(list, text);
	return EXIT_OK;
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
