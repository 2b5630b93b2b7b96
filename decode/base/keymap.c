/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/base/keymap.h"

#include <errno.h>

#include "decode/base/strtab.h"

#define FIRST_SLOTS 64u
#define MAX_SLOTS (1u << 28)

void keymap_fini(struct keymap *m)
{
	free(m->slots);
	*m = (struct keymap){.slots = NULL};
}

static uint32_t home(const struct keymap *m, uint32_t owner, uint64_t id)
{
	return (uint32_t)hash_mix(m->seed ^ owner, id) & (m->size - 1);
}

/* Where it is, or where it would go. */
static uint32_t find(const struct keymap *m, uint32_t owner, uint64_t id)
{
	uint32_t at = home(m, owner, id);

	while (m->slots[at].value && (m->slots[at].id != id || m->slots[at].owner != owner))
		at = (at + 1) & (m->size - 1);
	return at;
}

uint32_t keymap_get(const struct keymap *m, uint32_t owner, uint64_t id)
{
	return m->size ? m->slots[find(m, owner, id)].value : 0;
}

static int grow(struct keymap *m)
{
	struct keymap bigger = {.size = m->size ? m->size * 2 : FIRST_SLOTS,
				.n = m->n,
				.seed = m->size ? m->seed : strtab_seed()};

	if (bigger.size > MAX_SLOTS)
		return -ENOMEM;
	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->size; i++)
		if (m->slots[i].value)
			bigger.slots[find(&bigger, m->slots[i].owner, m->slots[i].id)] = m->slots[i];
	free(m->slots);
	*m = bigger;
	return 0;
}

int keymap_put(struct keymap *m, uint32_t owner, uint64_t id, uint32_t value)
{
	uint32_t at;

	if (m->n >= m->size / 2) {
		int r = grow(m);

		if (r < 0)
			return r;
	}
	at = find(m, owner, id);
	m->n += m->slots[at].value == 0;
	m->slots[at] = (struct keymap_slot){.id = id, .owner = owner, .value = value};
	return 0;
}

void keymap_drop(struct keymap *m, uint32_t owner, uint64_t id)
{
	uint32_t mask = m->size - 1, hole, at;

	if (m->size == 0 || !m->slots[hole = find(m, owner, id)].value)
		return;
	/* Those behind it move up if the hole is between their home and where they are. */
	for (at = (hole + 1) & mask; m->slots[at].value; at = (at + 1) & mask) {
		uint32_t h = home(m, m->slots[at].owner, m->slots[at].id);

		if (((at - h) & mask) >= ((at - hole) & mask)) {
			m->slots[hole] = m->slots[at];
			hole = at;
		}
	}
	m->slots[hole].value = 0;
	m->n--;
}
