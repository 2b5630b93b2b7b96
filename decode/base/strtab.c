/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "decode/base/strtab.h"

#include <errno.h>
#include <string.h>

#include "common/base/hashmap.h"

#define CHUNK_BYTES (256u * 1024u)
#define FIRST_SLOTS 1024u
#define FIRST_ENTRIES 512u

/*
 * Own tables and not common/base/hashmap.h: a key is a text, which the entry holds, and a map's
 * slot is six times as large.
 */
struct entry {
	const char *text;
	uint32_t len;
	uint32_t hash; /* its upper half: enough to skip most comparisons and to grow the table */
};

struct chunk {
	struct chunk *next;
	size_t used, size;
	char data[];
};

struct strtab {
	struct entry *entries; /* by number */
	uint32_t n_entries, max_entries;
	uint32_t *slots; /* open addressing; 0 = free */
	uint32_t n_slots;
	struct chunk *chunks;
	size_t bytes, max_bytes;
	uint64_t seed;
	uint64_t dropped;
};

static uint64_t hash_bytes(uint64_t seed, const char *s, size_t len)
{
	uint64_t h = hash_mix(seed, len), a, b;

	while (len > 16) {
		memcpy(&a, s, 8);
		memcpy(&b, s + 8, 8);
		h = hash_mix(h ^ a, seed ^ b);
		s += 16;
		len -= 16;
	}
	a = b = 0;
	if (len >= 8) {
		memcpy(&a, s, 8);
		memcpy(&b, s + len - 8, 8);
	} else {
		memcpy(&a, s, len);
	}
	return hash_mix(h ^ a, seed ^ b);
}

/* Grows by doubling, within the limit; false if it cannot. */
static bool grow_entries(struct strtab *t)
{
	uint32_t n = t->max_entries * 2;
	size_t more = (size_t)t->max_entries * sizeof(*t->entries);
	struct entry *entries;

	if (n < t->max_entries || t->bytes + more > t->max_bytes)
		return false;
	entries = reallocarray(t->entries, n, sizeof(*entries));
	if (!entries)
		return false;
	t->entries = entries;
	t->max_entries = n;
	t->bytes += more;
	return true;
}

static bool grow_slots(struct strtab *t)
{
	uint32_t n = t->n_slots * 2;
	size_t more = (size_t)t->n_slots * sizeof(*t->slots);
	uint32_t *slots;

	if (n < t->n_slots || t->bytes + more > t->max_bytes)
		return false;
	slots = calloc(n, sizeof(*slots));
	if (!slots)
		return false;
	for (uint32_t id = 1; id < t->n_entries; id++) {
		uint32_t at = t->entries[id].hash & (n - 1);

		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = id;
	}
	free(t->slots);
	t->slots = slots;
	t->n_slots = n;
	t->bytes += more;
	return true;
}

static char *arena_copy(struct strtab *t, const char *s, size_t len)
{
	struct chunk *c = t->chunks;
	char *p;

	if (!c || c->size - c->used < len + 1) {
		size_t size = len + 1 > CHUNK_BYTES / 8 ? len + 1 : CHUNK_BYTES;

		if (t->bytes + size > t->max_bytes)
			return NULL;
		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		c->used = 0;
		c->size = size;
		t->bytes += size;
		if (t->chunks && size != CHUNK_BYTES) {
			/* A long one gets its own chunk, the open one stays in front. */
			c->next = t->chunks->next;
			t->chunks->next = c;
		} else {
			c->next = t->chunks;
			t->chunks = c;
		}
	}
	p = c->data + c->used;
	memcpy(p, s, len);
	p[len] = '\0';
	c->used += len + 1;
	return p;
}

uint32_t strtab_add(struct strtab *t, const char *s, size_t len, bool *ret_new)
{
	uint32_t hash, at, id;
	char *text;

	if (ret_new)
		*ret_new = false;
	if (len == 0)
		return STRTAB_EMPTY;
	hash = (uint32_t)(hash_bytes(t->seed, s, len) >> 32);
	for (at = hash & (t->n_slots - 1); (id = t->slots[at]) != 0;
	     at = (at + 1) & (t->n_slots - 1)) {
		const struct entry *e = &t->entries[id];

		if (e->hash == hash && e->len == len && memcmp(e->text, s, len) == 0)
			return id;
	}
	if (len > UINT32_MAX - 1 || t->n_entries == UINT32_MAX ||
	    (t->n_entries == t->max_entries && !grow_entries(t)) ||
	    (t->n_entries >= t->n_slots / 2 && !grow_slots(t) &&
	     t->n_entries >= t->n_slots / 8 * 7) ||
	    !(text = arena_copy(t, s, len))) {
		t->dropped++;
		return STRTAB_FULL;
	}
	/* The table may have moved. */
	for (at = hash & (t->n_slots - 1); t->slots[at]; at = (at + 1) & (t->n_slots - 1))
		;
	id = t->n_entries++;
	t->entries[id] = (struct entry){.text = text, .len = (uint32_t)len, .hash = hash};
	t->slots[at] = id;
	if (ret_new)
		*ret_new = true;
	return id;
}

int strtab_new(size_t max_bytes, const char *full_text, struct strtab **ret)
{
	_cleanup_(strtab_freep) struct strtab *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->seed = hash_seed();
	t->max_bytes = SIZE_MAX; /* the first steps are not refused */
	t->max_entries = FIRST_ENTRIES;
	t->n_slots = FIRST_SLOTS;
	t->entries = calloc(t->max_entries, sizeof(*t->entries));
	t->slots = calloc(t->n_slots, sizeof(*t->slots));
	if (!t->entries || !t->slots)
		return -ENOMEM;
	t->entries[0] = (struct entry){.text = ""};
	t->n_entries = 1;
	t->bytes = t->max_entries * sizeof(*t->entries) + t->n_slots * sizeof(*t->slots);
	if (strtab_add(t, full_text, strlen(full_text), NULL) != STRTAB_FULL || t->dropped)
		return -ENOMEM;
	t->max_bytes = max_bytes;
	*ret = take_ptr(t);
	return 0;
}

struct strtab *strtab_free(struct strtab *t)
{
	if (!t)
		return NULL;
	while (t->chunks) {
		struct chunk *c = t->chunks;

		t->chunks = c->next;
		free(c);
	}
	free(t->entries);
	free(t->slots);
	free(t);
	return NULL;
}

const char *strtab_text(const struct strtab *t, uint32_t id)
{
	return id < t->n_entries ? t->entries[id].text : "";
}

size_t strtab_len(const struct strtab *t, uint32_t id)
{
	return id < t->n_entries ? t->entries[id].len : 0;
}

uint32_t strtab_count(const struct strtab *t)
{
	return t->n_entries;
}

size_t strtab_bytes(const struct strtab *t)
{
	return t->bytes;
}

uint64_t strtab_dropped(const struct strtab *t)
{
	return t->dropped;
}
