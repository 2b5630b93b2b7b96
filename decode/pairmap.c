// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pairmap.h"

#include <errno.h>

#include "decode/strtab.h"

#define START_SIZE 64u

void pairmap_init(struct pairmap *m, struct budget *budget)
{
	*m = (struct pairmap){.seed = strtab_seed(), .budget = budget};
}

void pairmap_fini(struct pairmap *m)
{
	if (m->budget)
		budget_give(m->budget, m->size * sizeof(*m->slots));
	free(m->slots);
	*m = (struct pairmap){0};
}

static struct pairmap_slot *slot_of(
	const struct pairmap *m, struct pairmap_slot *slots, size_t size, uint32_t group, uint64_t id)
{
	size_t at = hash_mix(id ^ m->seed, group) & (size - 1);

	while (slots[at].value && (slots[at].id != id || slots[at].group != group))
		at = (at + 1) & (size - 1);
	return &slots[at];
}

uint32_t pairmap_get(const struct pairmap *m, uint32_t group, uint64_t id, uint32_t fallback)
{
	const struct pairmap_slot *s;

	if (m->size == 0)
		return fallback;
	s = slot_of(m, m->slots, m->size, group, id);
	return s->value ? s->value - 1 : fallback;
}

static int grow(struct pairmap *m)
{
	size_t size = m->size ? m->size * 2 : START_SIZE, bytes = size * sizeof(*m->slots);
	struct pairmap_slot *slots;

	if (size < m->size || !budget_take(m->budget, bytes))
		return -ENOMEM;
	slots = calloc(size, sizeof(*slots));
	if (!slots) {
		budget_give(m->budget, bytes);
		return -ENOMEM;
	}
	for (size_t i = 0; i < m->size; i++) {
		const struct pairmap_slot *s = &m->slots[i];

		if (s->value)
			*slot_of(m, slots, size, s->group, s->id) = *s;
	}
	budget_give(m->budget, m->size * sizeof(*m->slots));
	free(m->slots);
	m->slots = slots;
	m->size = size;
	return 0;
}

int pairmap_put(struct pairmap *m, uint32_t group, uint64_t id, uint32_t value)
{
	struct pairmap_slot *s;

	if (m->n >= m->size / 2) {
		int r = grow(m);

		if (r < 0)
			return r;
	}
	s = slot_of(m, m->slots, m->size, group, id);
	if (!s->value)
		m->n++;
	*s = (struct pairmap_slot){.id = id, .group = group, .value = value + 1};
	return 0;
}
