// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void unwind_list_fini(struct unwind_list *list)
{
	free(list->areas);
	*list = (struct unwind_list){0};
}

/* Room for two more: one may be cut in two. */
static int make_room(struct unwind_list *list)
{
	size_t room = list->room ? list->room * 2 : 32;
	struct unwind_area *bigger;

	if (list->n + 2 <= list->room)
		return 0;
	bigger = reallocarray(list->areas, room, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	list->areas = bigger;
	list->room = room;
	return 0;
}

static void insert(struct unwind_list *list, size_t at, const struct unwind_area *area)
{
	memmove(&list->areas[at + 1], &list->areas[at], (list->n - at) * sizeof(*area));
	list->areas[at] = *area;
	list->n++;
}

/* Takes out what lies in [start, end). Returns where a new area goes. */
static size_t clear(struct unwind_list *list, uint64_t start, uint64_t end)
{
	size_t i = 0, first;

	while (i < list->n && list->areas[i].end <= start)
		i++;
	if (i < list->n && list->areas[i].start < start) {
		struct unwind_area upper = list->areas[i];

		list->areas[i++].end = start;
		if (upper.end > end) {
			upper.off += end - upper.start;
			upper.start = end;
			insert(list, i, &upper);
			return i;
		}
	}
	first = i;
	while (i < list->n && list->areas[i].end <= end)
		i++;
	if (i < list->n && list->areas[i].start < end) {
		list->areas[i].off += end - list->areas[i].start;
		list->areas[i].start = end;
	}
	memmove(&list->areas[first], &list->areas[i], (list->n - i) * sizeof(*list->areas));
	list->n -= i - first;
	return first;
}

int unwind_list_add(struct unwind_list *list, const struct unwind_area *area)
{
	size_t at;
	int r;

	if (area->start >= area->end)
		return -EINVAL;
	r = make_room(list);
	if (r < 0)
		return r;
	at = clear(list, area->start, area->end);
	if (list->n >= UNWIND_LIST_MAX) {
		list->full = true;
		return 0;
	}
	insert(list, at, area);
	return 0;
}

bool unwind_list_overlaps(const struct unwind_list *list, const struct unwind_area *area)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct unwind_area *a = &list->areas[i];

		if (a->start >= area->end || a->end <= area->start)
			continue;
		/* The same again, as when all of them are read again. */
		if (a->ino != area->ino || a->maj != area->maj || a->min != area->min ||
		    a->is_vdso != area->is_vdso || a->start - a->off != area->start - area->off)
			return true;
	}
	return false;
}

int unwind_list_copy(struct unwind_list *list, const struct unwind_list *from)
{
	struct unwind_area *areas = NULL;

	if (from->n) {
		areas = reallocarray(NULL, from->n, sizeof(*areas));
		if (!areas)
			return -ENOMEM;
		memcpy(areas, from->areas, from->n * sizeof(*areas));
	}
	unwind_list_fini(list);
	*list = (struct unwind_list){.areas = areas,
				     .n = from->n,
				     .room = from->n,
				     .full = from->full};
	return 0;
}
