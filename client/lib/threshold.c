// SPDX-License-Identifier: Apache-2.0
#include "client/lib/threshold.h"

#include <errno.h>
#include <string.h>

#include "client/lib/name.h"
#include "client/lib/stamp.h"

#define TRIES 8

/* What a name is bound to. */
enum { UNBOUND, BOUND_NONE, BOUND_SLOT };

uint64_t thresholds_not[RING_MAX_NAMES];
static uint8_t bound[RING_MAX_NAMES]; /* BOUND_SLOT + number of the entry */

static struct {
	uint32_t sequence; /* odd while it is written */
	uint32_t n;	   /* entries in use are below */
	struct threshold entries[RING_THRESHOLDS];
} table;

static bool table_begin(uint32_t *ret)
{
	*ret = __atomic_load_n(&table.sequence, __ATOMIC_ACQUIRE);
	return *ret % 2 == 0;
}

static bool table_unchanged(uint32_t sequence)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&table.sequence, __ATOMIC_RELAXED) == sequence;
}

/*
 * Returns the entry with that name, or RING_THRESHOLDS. The result is valid only if the table has
 * not changed meanwhile.
 */
static uint32_t entry_find(const struct name *name)
{
	uint32_t n = table.n < RING_THRESHOLDS ? table.n : RING_THRESHOLDS;

	for (uint32_t i = 0; i < n; i++) {
		const struct threshold *t = &table.entries[i];

		if (t->id && t->hash == name->hash && t->length == name->length &&
		    name->length <= RING_CONTROL_NAME &&
		    !memcmp(t->name, name_bytes(name), name->length))
			return i;
	}
	return RING_THRESHOLDS;
}

static void bind_name(tracerd_name id)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t over = UINT64_MAX;
		uint32_t sequence, slot;

		/* The writer binds all names afterwards. */
		if (!table_begin(&sequence))
			return;
		slot = entry_find(name_get(id));
		if (slot < RING_THRESHOLDS)
			over = table.entries[slot].over;
		if (!table_unchanged(sequence))
			continue;
		__atomic_store_n(&bound[id - 1],
				 (uint8_t)(slot < RING_THRESHOLDS ? BOUND_SLOT + slot : BOUND_NONE),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&thresholds_not[id - 1], ~over, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (table_unchanged(sequence))
			return;
	}
}

void threshold_bind_new(tracerd_name name)
{
	if (__atomic_load_n(&bound[name - 1], __ATOMIC_RELAXED) == UNBOUND)
		bind_name(name);
}

static void bind_one(tracerd_name name, void *arg)
{
	(void)arg;
	bind_name(name);
}

static uint64_t ns_to_ticks(uint64_t ns, uint64_t per_second)
{
	unsigned __int128 ticks = ((unsigned __int128)ns * per_second + 999999999U) / 1000000000U;

	return ticks < UINT64_MAX ? (uint64_t)ticks : UINT64_MAX;
}

static void table_write(const struct ring_control *page)
{
	uint64_t per_second = 0;

	if (page)
		per_second = stamp_clock() == RING_CLOCK_TSC ? page->ticks_per_second
							     : 1000000000ULL;
	table.n = 0;
	/* The rate of the TSC is not known: nothing can be compared. */
	if (per_second == 0)
		return;
	for (uint32_t i = 0; i < RING_THRESHOLDS; i++) {
		const struct ring_threshold *from = &page->thresholds[i];
		struct threshold *to = &table.entries[i];

		to->id = 0;
		if (from->id == 0 || from->length == 0 || from->length > RING_CONTROL_NAME)
			continue;
		to->length = from->length;
		to->hash = ring_hash(from->name, from->length);
		to->over = ns_to_ticks(from->threshold_ns, per_second);
		to->cooldown = ns_to_ticks(from->cooldown_ns, per_second);
		memcpy(to->name, from->name, from->length);
		to->id = from->id;
		table.n = i + 1;
	}
}

void thresholds_bind(const struct ring_control *page)
{
	/* The sequence is odd while the table changes. */
	__atomic_store_n(&table.sequence, (table.sequence + 1) | 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	table_write(page);
	__atomic_store_n(&table.sequence, table.sequence + 1, __ATOMIC_RELEASE);
	/* New names see the table from here on; this binds the others. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	names_each(bind_one, NULL);
}

void thresholds_forget(void)
{
	/* The parent may have been in the middle of thresholds_bind(). */
	__atomic_store_n(&table.sequence, (table.sequence + 1) | 1, __ATOMIC_RELAXED);
	table.n = 0;
	__atomic_store_n(&table.sequence, table.sequence + 1, __ATOMIC_RELEASE);
}

bool threshold_get(uint32_t slot, struct threshold *ret)
{
	struct threshold t;
	uint32_t sequence;

	if (slot >= RING_THRESHOLDS || !table_begin(&sequence) || slot >= table.n)
		return false;
	t = table.entries[slot];
	if (!table_unchanged(sequence) || t.id == 0)
		return false;
	*ret = t;
	return true;
}

void threshold_crossed(tracerd_name name, uint64_t begin, uint64_t end)
{
	uint32_t how = __atomic_load_n(&bound[name - 1], __ATOMIC_RELAXED);
	int saved = errno;
	struct threshold t;

	if (how < BOUND_SLOT || !threshold_get(how - BOUND_SLOT, &t))
		return;
	/*
	 * The table may have changed since: the entry may have another name or a higher threshold.
	 * And `begin` comes from the program.
	 */
	if (t.hash != name_get(name)->hash || end < begin || end - begin < t.over)
		return;
	cause_region(name, how - BOUND_SLOT, begin, end);
	errno = saved;
}
