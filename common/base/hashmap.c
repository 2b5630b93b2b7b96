// SPDX-License-Identifier: Apache-2.0
#include "common/base/hashmap.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

#define FIRST_SLOTS 64u

uint64_t hash_seed(void)
{
	/* no system call: works sandboxed */
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint64_t seed = 0x2545f4914f6cdd1dull;

	if (random)
		memcpy(&seed, random, sizeof(seed));
	return seed;
}

void hashmap_fini(struct hashmap *m)
{
	free(m->slots);
	*m = (struct hashmap){.ordered = m->ordered};
}

static uint32_t home(const struct hashmap *m, uint64_t owner, uint64_t id)
{
	if (m->ordered)
		return ((uint32_t)(id ^ owner) * 0x9e3779b1u >> 4) & (m->size - 1);
	return (uint32_t)hash_mix(m->seed ^ owner, id) & (m->size - 1);
}

/* Where it is, or where it would go. */
static uint32_t find(const struct hashmap *m, uint64_t owner, uint64_t id)
{
	uint32_t at = home(m, owner, id);

	while (m->slots[at].value && (m->slots[at].id != id || m->slots[at].owner != owner))
		at = (at + 1) & (m->size - 1);
	return at;
}

uint64_t hashmap_get(const struct hashmap *m, uint64_t owner, uint64_t id)
{
	return m->size ? m->slots[find(m, owner, id)].value : 0;
}

static bool is_half_full(const struct hashmap *m)
{
	return m->n >= m->size / 2;
}

static uint32_t next_size(const struct hashmap *m)
{
	return m->size ? m->size * 2 : FIRST_SLOTS;
}

size_t hashmap_more_bytes(const struct hashmap *m)
{
	return is_half_full(m) ? (size_t)(next_size(m) - m->size) * sizeof(*m->slots) : 0;
}

static int grow(struct hashmap *m)
{
	struct hashmap bigger = *m;

	bigger.size = next_size(m);
	if (bigger.size > HASHMAP_MAX)
		return -ENOMEM;
	bigger.seed = hash_seed();
	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->size; i++)
		if (m->slots[i].value)
			bigger.slots[find(&bigger, m->slots[i].owner, m->slots[i].id)] =
				m->slots[i];
	free(m->slots);
	*m = bigger;
	return 0;
}

int hashmap_put(struct hashmap *m, uint64_t owner, uint64_t id, uint64_t value)
{
	uint32_t at;

	if (is_half_full(m)) {
		int r = grow(m);

		if (r < 0)
			return r;
	}
	at = find(m, owner, id);
	m->n += m->slots[at].value == 0;
	m->slots[at] = (struct hashmap_slot){.owner = owner, .id = id, .value = value};
	return 0;
}

void hashmap_drop(struct hashmap *m, uint64_t owner, uint64_t id)
{
	uint32_t mask = m->size - 1, hole, at;

	if (m->size == 0 || !m->slots[hole = find(m, owner, id)].value)
		return;
	/* Those after it move up if the hole is between their home and where they are. */
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

uint64_t hashmap_next(const struct hashmap *m, uint32_t *pos)
{
	while (*pos < m->size) {
		uint64_t value = m->slots[(*pos)++].value;

		if (value)
			return value;
	}
	return 0;
}
