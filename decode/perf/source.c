// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/perf/source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/io.h"

/*
 * Records are visited in the order of time, and each ring of a recording is one run of the file:
 * the cache has to hold one block for each ring. 64 sets of 8 serve several hundred CPUs; the
 * multiplication spreads rings of a power-of-two size over the sets.
 */
#define BLOCK_SIZE 65536u
#define N_SETS 64u
#define N_WAYS 8u

struct block {
	uint64_t no_plus_1; /* 0: empty */
	uint64_t used_at;
	size_t len;
	uint8_t *data;
};

struct perfsource {
	int fd; /* borrowed */
	uint64_t size;
	uint64_t clock;
	struct budget *budget; /* borrowed */
	struct block *last;
	struct block blocks[N_SETS][N_WAYS];
	uint8_t joint[PERFSOURCE_MAX_GET]; /* a record that lies in two blocks */
	uint8_t *arena;
	size_t arena_len;
	size_t arena_cap;
};

int perfsource_new(int fd, struct budget *budget, struct perfsource **ret)
{
	struct perfsource *src;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < 0)
		return -EINVAL;
	src = calloc(1, sizeof(*src));
	if (!src)
		return -ENOMEM;
	src->fd = fd;
	src->size = (uint64_t)st.st_size;
	src->budget = budget;
	*ret = src;
	return 0;
}

struct perfsource *perfsource_free(struct perfsource *src)
{
	if (!src)
		return NULL;
	for (unsigned s = 0; s < N_SETS; s++)
		for (unsigned w = 0; w < N_WAYS; w++)
			free(src->blocks[s][w].data);
	budget_give(src->budget, src->arena_cap);
	free(src->arena);
	free(src);
	return NULL;
}

uint64_t perfsource_size(const struct perfsource *src)
{
	return src->size;
}

uint64_t perfsource_arena_size(const struct perfsource *src)
{
	return src->arena_len;
}

static struct block *block_get(struct perfsource *src, uint64_t no)
{
	struct block *set, *victim;
	ssize_t n;

	if (src->last && src->last->no_plus_1 == no + 1)
		return src->last;
	set = src->blocks[((no * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % N_SETS];
	victim = &set[0];
	for (unsigned w = 0; w < N_WAYS; w++) {
		if (set[w].no_plus_1 == no + 1) {
			set[w].used_at = ++src->clock;
			return src->last = &set[w];
		}
		if (set[w].used_at < victim->used_at)
			victim = &set[w];
	}
	if (!victim->data) {
		victim->data = malloc(BLOCK_SIZE);
		if (!victim->data)
			return NULL;
	}
	victim->no_plus_1 = 0;
	src->last = NULL;
	n = io_pread_full(src->fd, victim->data, BLOCK_SIZE, (off_t)(no * BLOCK_SIZE));
	if (n < 0)
		return NULL;
	victim->len = (size_t)n;
	victim->no_plus_1 = no + 1;
	victim->used_at = ++src->clock;
	return src->last = victim;
}

const void *perfsource_get(struct perfsource *src, uint64_t off, size_t len)
{
	struct block *b;
	size_t at, done = 0;

	if (len > PERFSOURCE_MAX_GET)
		return NULL;
	if (off & PERFSOURCE_ARENA) {
		off &= ~PERFSOURCE_ARENA;
		if (off > src->arena_len || len > src->arena_len - off)
			return NULL;
		return src->arena + off;
	}
	if (off > src->size || len > src->size - off)
		return NULL;
	at = (size_t)(off % BLOCK_SIZE);
	b = block_get(src, off / BLOCK_SIZE);
	if (!b)
		return NULL;
	if (at + len <= b->len)
		return b->data + at;
	while (done < len) {
		size_t n = len - done;

		at = (size_t)((off + done) % BLOCK_SIZE);
		b = block_get(src, (off + done) / BLOCK_SIZE);
		if (!b || b->len <= at)
			return NULL;
		if (n > b->len - at)
			n = b->len - at;
		memcpy(src->joint + done, b->data + at, n);
		done += n;
	}
	return src->joint;
}

int perfsource_reserve(struct perfsource *src, size_t len, void **ret)
{
	if (len > src->arena_cap - src->arena_len) {
		size_t cap = src->arena_cap ? src->arena_cap : 1 << 20;
		uint8_t *p;

		while (cap - src->arena_len < len) {
			if (cap > SIZE_MAX / 4)
				return -ENOMEM;
			cap *= 2;
		}
		if (!budget_take(src->budget, cap - src->arena_cap))
			return -ENOMEM;
		p = realloc(src->arena, cap);
		if (!p) {
			budget_give(src->budget, cap - src->arena_cap);
			return -ENOMEM;
		}
		src->arena = p;
		src->arena_cap = cap;
	}
	*ret = src->arena + src->arena_len;
	return 0;
}

void perfsource_commit(struct perfsource *src, size_t len)
{
	src->arena_len += len;
}
