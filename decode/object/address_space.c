// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/address_space.h"

#include <errno.h>
#include <string.h>

struct space {
	uint32_t refs;
	uint32_t n, cap;
	struct budget *budget;  /* borrowed */
	struct space_map *maps; /* by start, without overlap */
};

int space_new(struct budget *budget, struct space **ret)
{
	struct space *s;

	if (!budget_take(budget, sizeof(*s)))
		return -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s) {
		budget_give(budget, sizeof(*s));
		return -ENOMEM;
	}
	s->refs = 1;
	s->budget = budget;
	*ret = s;
	return 0;
}

struct space *space_ref(struct space *s)
{
	s->refs++;
	return s;
}

struct space *space_unref(struct space *s)
{
	if (!s || --s->refs > 0)
		return NULL;
	budget_give(s->budget, sizeof(*s) + s->cap * sizeof(*s->maps));
	free(s->maps);
	free(s);
	return NULL;
}

static int space_reserve(struct space *s, uint32_t n)
{
	uint32_t cap = s->cap ? s->cap : 16;
	struct space_map *maps;

	if (n <= s->cap)
		return 0;
	while (cap < n)
		cap *= 2;
	if (!budget_take(s->budget, (cap - s->cap) * sizeof(*maps)))
		return -ENOMEM;
	maps = reallocarray(s->maps, cap, sizeof(*maps));
	if (!maps) {
		budget_give(s->budget, (cap - s->cap) * sizeof(*maps));
		return -ENOMEM;
	}
	s->maps = maps;
	s->cap = cap;
	return 0;
}

uint32_t space_from(const struct space *s, uint64_t addr)
{
	uint32_t lo = 0, hi = s->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->maps[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int space_own(struct space **ps)
{
	_cleanup_(space_unrefp) struct space *copy = NULL;
	struct space *s = *ps;
	int r;

	if (s->refs == 1)
		return 0;
	r = space_new(s->budget, &copy);
	if (r < 0)
		return r;
	r = space_reserve(copy, s->n);
	if (r < 0)
		return r;
	if (s->n)
		memcpy(copy->maps, s->maps, s->n * sizeof(*s->maps));
	copy->n = s->n;
	space_unref(s);
	*ps = take_ptr(copy);
	return 0;
}

int space_set(struct space **ps, const struct space_map *map)
{
	struct space_map put[3];
	struct space *s = *ps;
	uint32_t first, last, n_put = 0;
	int r;

	if (map->start >= map->end)
		return 0;
	first = last = space_from(s, map->start);
	while (last < s->n && s->maps[last].start < map->end)
		last++;
	if (!map->image && first == last)
		return 0;
	/* what stays of the mappings at both ends */
	if (first < last && s->maps[first].start < map->start) {
		put[n_put] = s->maps[first];
		put[n_put++].end = map->start;
	}
	if (map->image)
		put[n_put++] = *map;
	if (first < last && s->maps[last - 1].end > map->end) {
		put[n_put] = s->maps[last - 1];
		put[n_put].pgoff += map->end - put[n_put].start;
		put[n_put++].start = map->end;
	}
	if (s->n - (last - first) + n_put > SPACE_MAX_MAPS)
		return SPACE_E_FULL;
	r = space_own(ps);
	if (r < 0)
		return r;
	s = *ps;
	r = space_reserve(s, s->n - (last - first) + n_put);
	if (r < 0)
		return r;
	if (s->n > last)
		memmove(s->maps + first + n_put, s->maps + last, (s->n - last) * sizeof(*s->maps));
	if (n_put)
		memcpy(s->maps + first, put, n_put * sizeof(*put));
	s->n = s->n - (last - first) + n_put;
	return 0;
}

const struct space_map *space_find(const struct space *s, uint64_t addr)
{
	uint32_t i = space_from(s, addr);

	return i < s->n && s->maps[i].start <= addr ? &s->maps[i] : NULL;
}

uint32_t space_count(const struct space *s)
{
	return s->n;
}

const struct space_map *space_at(const struct space *s, uint32_t i)
{
	return i < s->n ? &s->maps[i] : NULL;
}
