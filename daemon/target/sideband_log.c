// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/sideband_log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "common/bundle/perfabi.h"

#define CHUNK_MIN 4096u
#define CHUNK_MAX (256u << 10)

struct sideband_log_chunk {
	atomic_uint refs; /* a view may be freed on another thread */
	struct sideband_log_chunk *next; /* of the log; not owned by views */
	size_t used, size;
	uint8_t data[];
};

static void chunk_put(struct sideband_log_chunk *chunk)
{
	if (atomic_fetch_sub(&chunk->refs, 1) == 1)
		free(chunk);
}

void sideband_log_init(struct sideband_log *log, size_t limit)
{
	*log = (struct sideband_log){.limit = limit};
}

void sideband_log_fini(struct sideband_log *log)
{
	struct sideband_log_chunk *chunk = log->first, *next;

	for (; chunk; chunk = next) {
		next = chunk->next;
		chunk_put(chunk);
	}
	*log = (struct sideband_log){.limit = log->limit};
}

/* The ids of the trailer; records of a log have one. */
static struct perfabi_sample_id *trailer(const struct perf_event_header *record)
{
	return (struct perfabi_sample_id *)((uintptr_t)record + record->size -
					    sizeof(struct perfabi_sample_id));
}

uint64_t sideband_log_time(const struct perf_event_header *record)
{
	return trailer(record)->time;
}

static int append(struct sideband_log *log, const struct perf_event_header *record)
{
	struct sideband_log_chunk *chunk = log->last;
	struct perf_event_header *copy;

	if (!chunk || chunk->size - chunk->used < record->size) {
		/* Most targets need a page; those that need much get it in few pieces. */
		size_t size = log->bytes < CHUNK_MIN   ? CHUNK_MIN
			      : log->bytes < CHUNK_MAX ? log->bytes
						       : CHUNK_MAX;

		if (size < record->size)
			size = record->size;
		chunk = malloc(sizeof(*chunk) + size);
		if (!chunk)
			return -ENOMEM;
		atomic_init(&chunk->refs, 1);
		chunk->next = NULL;
		chunk->used = 0;
		chunk->size = size;
		if (log->last)
			log->last->next = chunk;
		else
			log->first = chunk;
		log->last = chunk;
	}
	copy = (struct perf_event_header *)(chunk->data + chunk->used);
	memcpy(copy, record, record->size);
	trailer(copy)->id = SIDEBAND_LOG_ID;
	chunk->used += record->size;
	log->bytes += record->size;
	log->records++;
	return 0;
}

int sideband_log_append(struct sideband_log *log, const struct perf_event_header *record)
{
	if (record->size < sizeof(*record) + sizeof(struct perfabi_sample_id) ||
	    log->bytes + record->size > log->limit) {
		log->dropped++;
		return 0;
	}
	return append(log, record);
}

int sideband_log_is_full(const struct sideband_log *log)
{
	/* Not again for each record when nothing more can be forgotten. */
	return log->bytes > log->limit - log->limit / 8 &&
	       log->bytes - log->compacted_at > log->limit / 16;
}

/* ---- compaction */

/* The values are records of the view. */
struct compaction {
	struct hashmap exits; /* tid: its end, if that is older than the oldest data */
	struct hashmap last;  /* process: its newest record */
	struct hashmap maps;  /* process and address: the newest old mapping */
	uint64_t oldest;
};

static void compaction_fini(struct compaction *c)
{
	hashmap_fini(&c->exits);
	hashmap_fini(&c->last);
	hashmap_fini(&c->maps);
}

static const struct perf_event_header *record_at(const struct hashmap *m, uint64_t owner,
						 uint64_t id)
{
	return (const void *)(uintptr_t)hashmap_get(m, owner, id);
}

/* The newest wins. Records made from /proc come after those that the kernel wrote meanwhile. */
static int put_newest(struct hashmap *m, uint64_t owner, uint64_t id,
		      const struct perf_event_header *h)
{
	const struct perf_event_header *old = record_at(m, owner, id);

	if (old && sideband_log_time(old) > sideband_log_time(h))
		return 0;
	return hashmap_put(m, owner, id, (uintptr_t)h);
}

static int note(struct compaction *c, const struct perf_event_header *h)
{
	const struct perfabi_task *task = (const void *)h;
	const struct perfabi_mmap2 *map = (const void *)h;
	/* pid is the first field of all of them. */
	int r = put_newest(&c->last, 0, task->pid, h);

	if (r < 0 || sideband_log_time(h) >= c->oldest)
		return r;
	if (h->type == PERF_RECORD_EXIT && task->tid)
		return hashmap_put(&c->exits, 0, task->tid, (uintptr_t)h);
	if (h->type == PERF_RECORD_MMAP2)
		return put_newest(&c->maps, map->pid, map->addr, h);
	return 0;
}

/* Whether the thread `tid` ended after `time`, and before the oldest data. */
static bool thread_ended(const struct compaction *c, uint32_t tid, uint64_t time)
{
	const struct perf_event_header *end = record_at(&c->exits, 0, tid);

	return end && time <= sideband_log_time(end);
}

static bool process_ended(const struct compaction *c, uint32_t pid, uint64_t time)
{
	/* A record after the leader's end: other threads lived on, or the number was reused. */
	return thread_ended(c, pid, time) &&
	       sideband_log_time(record_at(&c->last, 0, pid)) <=
		       sideband_log_time(record_at(&c->exits, 0, pid));
}

static bool needed(const struct compaction *c, const struct perf_event_header *h)
{
	const struct perfabi_task *task = (const void *)h;
	const struct perfabi_comm *comm = (const void *)h;
	const struct perfabi_mmap2 *map = (const void *)h;
	const struct perfabi_mmap2 *newer;
	uint64_t time = sideband_log_time(h);
	uint32_t tid;

	if (time >= c->oldest)
		return true;
	if (process_ended(c, task->pid, time))
		return false;
	switch (h->type) {
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		tid = task->tid;
		break;
	case PERF_RECORD_COMM:
		tid = comm->tid;
		break;
	case PERF_RECORD_MMAP2:
		newer = (const void *)record_at(&c->maps, map->pid, map->addr);
		return !newer || newer == map || newer->len < map->len;
	default:
		return true;
	}
	return tid == task->pid || !thread_ended(c, tid, time);
}

static int append_needed(const struct compaction *c, const struct sideband_log_block *block,
			 struct sideband_log *fresh)
{
	for (size_t at = 0; at < block->used;) {
		const struct perf_event_header *h = (const void *)(block->chunk->data + at);

		at += h->size;
		if (needed(c, h)) {
			int r = append(fresh, h);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

int sideband_log_compact(const struct sideband_log_view *view, uint64_t oldest_ns,
			 struct sideband_log *ret)
{
	_cleanup_(compaction_fini) struct compaction c = {.oldest = oldest_ns};
	struct sideband_log fresh;
	int r;

	for (size_t i = 0; i < view->n_blocks; i++)
		for (size_t at = 0; at < view->blocks[i].used;) {
			const struct perf_event_header *h =
				(const void *)(view->blocks[i].chunk->data + at);

			r = note(&c, h);
			if (r < 0)
				return r;
			at += h->size;
		}
	sideband_log_init(&fresh, 0);
	for (size_t i = 0; i < view->n_blocks; i++) {
		r = append_needed(&c, &view->blocks[i], &fresh);
		if (r < 0) {
			sideband_log_fini(&fresh);
			return r;
		}
	}
	*ret = fresh;
	return 0;
}

int sideband_log_replace(struct sideband_log *log, const struct sideband_log_view *view,
			 struct sideband_log *compact)
{
	const struct sideband_log_chunk *chunk = log->first;
	size_t at = 0;

	/* What came after the view: in its last chunk, and in later ones. */
	if (view->n_blocks > 0) {
		chunk = view->blocks[view->n_blocks - 1].chunk;
		at = view->blocks[view->n_blocks - 1].used;
	}
	for (; chunk; chunk = chunk->next, at = 0)
		while (at < chunk->used) {
			const struct perf_event_header *h = (const void *)(chunk->data + at);
			int r = append(compact, h);

			if (r < 0)
				return r;
			at += h->size;
		}
	compact->limit = log->limit;
	compact->dropped = log->dropped;
	compact->compacted_at = compact->bytes;
	sideband_log_fini(log);
	*log = *compact;
	*compact = (struct sideband_log){0};
	return 0;
}

/* ---- views */

int sideband_log_freeze(const struct sideband_log *log, struct sideband_log_view *ret)
{
	struct sideband_log_view view = {.dropped = log->dropped, .records = log->records};
	struct sideband_log_chunk *chunk;
	size_t n = 0;

	for (chunk = log->first; chunk; chunk = chunk->next)
		n++;
	view.blocks = calloc(n ? n : 1, sizeof(*view.blocks));
	if (!view.blocks)
		return -ENOMEM;
	for (chunk = log->first; chunk; chunk = chunk->next) {
		atomic_fetch_add(&chunk->refs, 1);
		view.blocks[view.n_blocks++] =
			(struct sideband_log_block){.chunk = chunk, .used = chunk->used};
	}
	*ret = view;
	return 0;
}

int sideband_log_view_join(struct sideband_log_view *view, struct sideband_log_view *from)
{
	struct sideband_log_block *bigger =
		reallocarray(view->blocks, view->n_blocks + from->n_blocks + 1, sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	view->blocks = bigger;
	if (from->n_blocks)
		memcpy(view->blocks + view->n_blocks, from->blocks,
		       from->n_blocks * sizeof(*bigger));
	view->n_blocks += from->n_blocks;
	view->records += from->records;
	view->dropped += from->dropped;
	free(from->blocks);
	*from = (struct sideband_log_view){0};
	return 0;
}

void sideband_log_view_fini(struct sideband_log_view *view)
{
	for (size_t i = 0; i < view->n_blocks; i++)
		chunk_put(view->blocks[i].chunk);
	free(view->blocks);
	*view = (struct sideband_log_view){0};
}

const void *sideband_log_view_block(const struct sideband_log_view *view, size_t n, size_t *ret_len)
{
	if (n >= view->n_blocks)
		return NULL;
	*ret_len = view->blocks[n].used;
	return view->blocks[n].chunk->data;
}
