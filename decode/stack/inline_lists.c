// SPDX-License-Identifier: Apache-2.0
#include "decode/stack/inline_lists.h"

#include <stdlib.h>

#include "decode/dwarf/source.h"

/* Room for a count and `n` frames: its number, or 0. */
static uint32_t make_room(struct inline_lists *l, uint32_t n)
{
	const uint32_t number = l->n ? l->n : 1, need = number + 1 + n;
	uint32_t room = l->room ? l->room : 1024, *bigger;
	size_t more;

	while (room < need)
		room *= 2;
	if (room > INLINE_LISTS_MAX)
		return 0;
	if (room > l->room) {
		more = (size_t)(room - l->room) * sizeof(*bigger);
		if (!budget_take(l->budget, more))
			return 0;
		bigger = reallocarray(l->v, room, sizeof(*bigger));
		if (!bigger) {
			budget_give(l->budget, more);
			return 0;
		}
		l->v = bigger;
		l->room = room;
	}
	l->n = need;
	return number;
}

uint32_t inline_lists_add(struct inline_lists *l, struct source *source, struct stacktab *st,
			  struct image *img, uint64_t vaddr)
{
	const struct dwarf_scope *scopes[DWARF_MAX_INLINED], *s;
	uint32_t n = 0, number;
	uint64_t end;

	for (s = source_inlined(source, img, vaddr, &end); s && s->outer && n < DWARF_MAX_INLINED;
	     s = s->outer)
		scopes[n++] = s;
	if (!n)
		return 0;
	number = make_room(l, n);
	if (!number) {
		l->left_out++;
		return 0;
	}
	l->v[number] = n;
	for (uint32_t i = 0; i < n; i++)
		l->v[number + 1 + i] = source_inlined_frame(source, st, img, scopes[n - 1 - i]);
	return number;
}

const uint32_t *inline_lists_get(const struct inline_lists *l, uint32_t number, uint32_t *ret_n)
{
	*ret_n = number ? l->v[number] : 0;
	return number ? l->v + number + 1 : NULL;
}

void inline_lists_fini(struct inline_lists *l)
{
	free(l->v);
	*l = (struct inline_lists){.budget = l->budget};
}
