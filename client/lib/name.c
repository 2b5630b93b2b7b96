// SPDX-License-Identifier: Apache-2.0
#include "client/lib/name.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/ringmem.h"
#include "client/lib/state.h"
#include "client/lib/threshold.h"

/* Never more than half full, so that each search ends at a free place soon. */
#define INDEX_SIZE (2 * RING_MAX_NAMES)
#define LOST_BITS 65536u

/*
 * All in .bss: what is not used costs addresses only. The index is no hashmap of
 * common/base/hashmap.h: that allocates and moves its slots when it grows, while these are searched
 * without a lock, in signal handlers and after fork().
 */
struct name name_store[RING_MAX_NAMES];
uint8_t name_store_text[RING_MAX_TEXT];
static uint32_t name_index[INDEX_SIZE];
static uint32_t given;	    /* numbers */
static uint32_t text_given; /* bytes */
static uint32_t in_index;
static uint64_t lost;
static uint64_t lost_seen[LOST_BITS / 64]; /* by hash: a lost name counts once */

static void store_max(uint32_t *at, uint32_t value)
{
	uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);

	while (old < value && !__atomic_compare_exchange_n(
				      at, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void count_lost(uint64_t hash, const struct ringmem *mem)
{
	uint64_t bit = 1ULL << hash % 64;
	uint64_t *word = &lost_seen[hash / 64 % (LOST_BITS / 64)];

	if (__atomic_load_n(word, __ATOMIC_RELAXED) & bit ||
		__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit)
		return;
	mem_count(&lost);
	if (mem)
		mem_count(&mem_header(mem)->lost_names);
}

/* Several threads may copy the same name: they write the same bytes, and the length last. */
static void copy_into(const struct ringmem *mem, tracerd_name id)
{
	const struct name *name = name_get(id);
	struct ring_header *h = mem_header(mem);
	struct ring_name *to;

	if (id > mem->geometry.names_max || name->length > mem->geometry.text_bytes ||
		name->offset > mem->geometry.text_bytes - name->length) {
		count_lost(name->hash, mem);
		return;
	}
	to = mem_name(mem, id);
	memcpy(mem->base + mem->geometry.text_offset + name->offset, name_bytes(name),
	       name->length);
	to->offset = name->offset;
	to->hash = name->hash;
	store_max(&h->n_names, id);
	store_max(&h->text_used, name->offset + name->length);
	__atomic_store_n(&to->length, name->length, __ATOMIC_RELEASE);
}

/*
 * Another thread may have put the name into the index and gone no further yet, so the finder does
 * the rest, too. The fence pairs with names_copy(): either this function sees the memory, or
 * names_copy() sees the name.
 */
static tracerd_name name_ready(tracerd_name id)
{
	const struct ringmem *mem = state_mem();

	if (mem && id <= mem->geometry.names_max &&
		__atomic_load_n(&mem_name(mem, id)->length, __ATOMIC_RELAXED) == 0)
		copy_into(mem, id);
	threshold_bind_new(id);
	return id;
}

/* Takes `n` units; false if fewer are left. */
static bool take(uint32_t *from, uint32_t n, uint32_t limit, uint32_t *ret)
{
	uint32_t old = __atomic_load_n(from, __ATOMIC_RELAXED);

	do {
		if (old > limit || n > limit - old)
			return false;
	} while (!__atomic_compare_exchange_n(from, &old, old + n, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	*ret = old;
	return true;
}

static bool name_is(tracerd_name id, uint64_t hash, const void *bytes, uint32_t length)
{
	const struct name *name = name_get(id);

	return name->hash == hash && name->length == length &&
	       !memcmp(name_bytes(name), bytes, length);
}

/* Makes a name that no other thread knows yet and returns its number; 0: no room. */
static tracerd_name name_make(uint64_t hash, const void *bytes, uint32_t length)
{
	const struct ringmem *mem = state_mem();
	uint32_t names_max = mem ? mem->geometry.names_max : RING_MAX_NAMES;
	uint32_t text_max = mem ? mem->geometry.text_bytes : RING_MAX_TEXT;
	uint32_t number, offset;
	struct name *name;

	if (__atomic_load_n(&given, __ATOMIC_RELAXED) >= names_max ||
	    !take(&text_given, length, text_max, &offset) || !take(&given, 1, names_max, &number)) {
		count_lost(hash, mem);
		return 0;
	}
	name = &name_store[number];
	name->hash = hash;
	name->offset = offset;
	name->length = length;
	memcpy(name_store_text + offset, bytes, length);
	return number + 1;
}

tracerd_name tracerd_intern_bytes(const void *bytes, size_t length)
{
	uint32_t n = length < RING_MAX_NAME ? (uint32_t)length : RING_MAX_NAME;
	tracerd_name mine = 0;
	uint64_t hash;

	if (n == 0 || !bytes)
		return 0;
	hash = ring_hash(bytes, n);
	for (uint64_t i = hash ^ hash >> 32;; i++) {
		uint32_t *place = &name_index[i % INDEX_SIZE];
		tracerd_name id = __atomic_load_n(place, __ATOMIC_ACQUIRE);

		if (id == 0) {
			if (mine == 0)
				mine = name_make(hash, bytes, n);
			if (mine == 0)
				return 0;
			if (__atomic_compare_exchange_n(
				    place, &id, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)) {
				(void)__atomic_fetch_add(&in_index, 1, __ATOMIC_RELAXED);
				__atomic_thread_fence(__ATOMIC_SEQ_CST);
				return name_ready(mine);
			}
		}
		if (name_is(id, hash, bytes, n))
			return name_ready(id);
	}
}

tracerd_name tracerd_intern(const char *name)
{
	return name ? tracerd_intern_bytes(name, strnlen(name, RING_MAX_NAME)) : 0;
}

tracerd_name tracerd_name_slow(tracerd_name *here, const char *name)
{
	tracerd_name id = tracerd_intern(name);

	__atomic_store_n(here, id, __ATOMIC_RELAXED);
	return id;
}

void names_each(void (*fn)(tracerd_name name, void *arg), void *arg)
{
	for (size_t i = 0; i < INDEX_SIZE; i++) {
		tracerd_name id = __atomic_load_n(&name_index[i], __ATOMIC_ACQUIRE);

		if (id)
			fn(id, arg);
	}
}

static void copy_one(tracerd_name id, void *arg)
{
	copy_into(arg, id);
}

void names_copy(struct ringmem *mem)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	names_each(copy_one, mem);
}

void names_prepare(void)
{
#ifdef MADV_NOHUGEPAGE
	/* With transparent huge pages a few names would take megabytes. */
	long page = sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)name_store_text, end = begin + sizeof(name_store_text);

	if (page > 0) {
		begin = (begin + (uintptr_t)page - 1) / (uintptr_t)page * (uintptr_t)page;
		end = end / (uintptr_t)page * (uintptr_t)page;
		(void)madvise((void *)begin, end - begin, MADV_NOHUGEPAGE); // NOLINT
	}
#endif
}

uint32_t names_count(void)
{
	return __atomic_load_n(&in_index, __ATOMIC_RELAXED);
}

uint64_t names_lost(void)
{
	return __atomic_load_n(&lost, __ATOMIC_RELAXED);
}
