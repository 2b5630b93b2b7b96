// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/base/idmap.h"

#include <errno.h>

#define START_SIZE 64u

void idmap_fini(struct idmap *m)
{
	free(m->slots);
	*m = (struct idmap){0};
}

static struct idmap_slot *slot_of(struct idmap_slot *slots, uint32_t size, uint32_t id)
{
	uint32_t h = (id * 0x9e3779b1u) >> 4;

	while (slots[h % size].value && slots[h % size].id != id)
		h++;
	return &slots[h % size];
}

void *idmap_get(const struct idmap *m, uint32_t id)
{
	return m->size ? slot_of(m->slots, m->size, id)->value : NULL;
}

static int idmap_grow(struct idmap *m)
{
	uint32_t size = m->size ? m->size * 2 : START_SIZE;
	struct idmap_slot *slots;

	if (size < m->size)
		return -ENOMEM;
	slots = calloc(size, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->size; i++)
		if (m->slots[i].value)
			*slot_of(slots, size, m->slots[i].id) = m->slots[i];
	free(m->slots);
	m->slots = slots;
	m->size = size;
	return 0;
}

int idmap_put(struct idmap *m, uint32_t id, void *value)
{
	struct idmap_slot *s;

	if (m->n >= m->size / 2) {
		int r = idmap_grow(m);

		if (r < 0)
			return r;
	}
	s = slot_of(m->slots, m->size, id);
	if (!s->value)
		m->n++;
	s->id = id;
	s->value = value;
	return 0;
}

void *idmap_next(const struct idmap *m, uint32_t *pos)
{
	while (*pos < m->size) {
		void *v = m->slots[(*pos)++].value;

		if (v)
			return v;
	}
	return NULL;
}
