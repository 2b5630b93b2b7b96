/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/pt/block_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/object/address_space.h"
#include "decode/object/image.h"

#define FIRST_SLOTS 1024u

struct entry {
	struct block_place place; /* .map_bytes 0: none */
	struct codeblock block;
};

struct block_cache {
	struct entry *entries; /* open addressing by place; at most half full */
	size_t n, n_slots, max_slots;
};

int block_cache_new(size_t max_bytes, struct block_cache **ret)
{
	_cleanup_(block_cache_freep) struct block_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	for (c->max_slots = FIRST_SLOTS; c->max_slots * 2 <= max_bytes / sizeof(*c->entries);)
		c->max_slots *= 2;
	*ret = take_ptr(c);
	return 0;
}

struct block_cache *block_cache_free(struct block_cache *c)
{
	if (!c)
		return NULL;
	free(c->entries);
	free(c);
	return NULL;
}

bool block_place_at(const struct address_space *s, uint64_t ip, bool is64, struct block_place *ret)
{
	const struct mapping *m = address_space_find(s, ip);

	if (!m)
		return false;
	*ret = (struct block_place){.image = m->image->id,
		.is64 = is64,
		.offset = m->pgoff + (ip - m->start),
		.map_offset = m->pgoff,
		.map_bytes = m->end - m->start};
	return true;
}

static bool is_same(const struct block_place *a, const struct block_place *b)
{
	return a->offset == b->offset && a->image == b->image && a->is64 == b->is64 &&
	       a->map_offset == b->map_offset && a->map_bytes == b->map_bytes;
}

/* Its entry, or the free one where it belongs. */
static struct entry *entry_of(const struct block_cache *c, const struct block_place *p)
{
	size_t i = ((p->offset ^ (uint64_t)p->image << 40) * 0x9e3779b97f4a7c15ull) >> 32;

	while (c->entries[i & (c->n_slots - 1)].place.map_bytes &&
	       !is_same(&c->entries[i & (c->n_slots - 1)].place, p))
		i++;
	return &c->entries[i & (c->n_slots - 1)];
}

bool block_cache_find(const struct block_cache *c, const struct block_place *p, uint64_t ip,
		      struct codeblock *ret)
{
	const struct entry *e = c->n ? entry_of(c, p) : NULL;

	if (!e || e->place.map_bytes == 0)
		return false;
	*ret = e->block;
	ret->start = ip;
	return true;
}

/* Room for one more. */
static bool make_room(struct block_cache *c)
{
	struct block_cache more = {.n = c->n, .n_slots = c->n_slots ? c->n_slots * 2 : FIRST_SLOTS};

	if (c->n * 2 < c->n_slots)
		return true;
	if (more.n_slots > c->max_slots) {
		memset(c->entries, 0, c->n_slots * sizeof(*c->entries));
		c->n = 0;
		return true;
	}
	more.entries = calloc(more.n_slots, sizeof(*more.entries));
	if (!more.entries)
		return false;
	for (size_t i = 0; i < c->n_slots; i++)
		if (c->entries[i].place.map_bytes)
			*entry_of(&more, &c->entries[i].place) = c->entries[i];
	free(c->entries);
	c->entries = more.entries;
	c->n_slots = more.n_slots;
	return true;
}

void block_cache_add(struct block_cache *c, const struct block_place *p, const struct codeblock *b)
{
	const uint64_t into = p->offset - p->map_offset, end = into + b->to_last + b->last_bytes;
	const uint64_t to = end + (uint64_t)(int64_t)b->offset;
	struct entry *e;

	if (end > p->map_bytes ||
	    ((b->kind == INSN_COND || b->kind == INSN_JUMP) && to >= p->map_bytes) || !make_room(c))
		return;
	e = entry_of(c, p);
	c->n += e->place.map_bytes == 0;
	*e = (struct entry){.place = *p, .block = *b};
}
