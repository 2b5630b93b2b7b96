// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/address_space.h"

#include <errno.h>
#include <string.h>

#include "common/base/address.h"

struct address_space {
	uint32_t refs;
	uint32_t n, cap;
	struct budget *budget;  /* borrowed */
	struct mapping *maps; /* by start, without overlap */
	const struct address_space *kernel; /* borrowed; NULL: not known */
};

int address_space_new(struct budget *budget, struct address_space **ret)
{
	struct address_space *s;

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

struct address_space *address_space_ref(struct address_space *s)
{
	s->refs++;
	return s;
}

struct address_space *address_space_unref(struct address_space *s)
{
	if (!s || --s->refs > 0)
		return NULL;
	budget_give(s->budget, sizeof(*s) + s->cap * sizeof(*s->maps));
	free(s->maps);
	free(s);
	return NULL;
}

static int space_reserve(struct address_space *s, uint32_t n)
{
	uint32_t cap = s->cap ? s->cap : 16;
	struct mapping *maps;

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

uint32_t address_space_from(const struct address_space *s, uint64_t addr)
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

static int address_space_own(struct address_space **ps)
{
	_cleanup_(address_space_unrefp) struct address_space *copy = NULL;
	struct address_space *s = *ps;
	int r;

	if (s->refs == 1)
		return 0;
	r = address_space_new(s->budget, &copy);
	if (r < 0)
		return r;
	r = space_reserve(copy, s->n);
	if (r < 0)
		return r;
	if (s->n)
		memcpy(copy->maps, s->maps, s->n * sizeof(*s->maps));
	copy->n = s->n;
	copy->kernel = s->kernel;
	address_space_unref(s);
	*ps = take_ptr(copy);
	return 0;
}

int address_space_set(struct address_space **ps, const struct mapping *map)
{
	struct mapping put[3];
	struct address_space *s = *ps;
	uint32_t first, last, n_put = 0;
	int r;

	if (map->start >= map->end)
		return 0;
	first = last = address_space_from(s, map->start);
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
	if (s->n - (last - first) + n_put > ADDRESS_SPACE_MAX_MAPS)
		return ADDRESS_SPACE_E_FULL;
	r = address_space_own(ps);
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

void address_space_set_kernel(struct address_space *s, const struct address_space *kernel)
{
	s->kernel = kernel;
}

const struct mapping *address_space_find(const struct address_space *s, uint64_t addr)
{
	uint32_t i;

	if (s && s->kernel && addr >= KERNEL_HALF)
		s = s->kernel;
	i = s ? address_space_from(s, addr) : 0;

	return s && i < s->n && s->maps[i].start <= addr ? &s->maps[i] : NULL;
}

uint32_t address_space_count(const struct address_space *s)
{
	return s->n;
}

const struct mapping *address_space_at(const struct address_space *s, uint32_t i)
{
	return i < s->n ? &s->maps[i] : NULL;
}
