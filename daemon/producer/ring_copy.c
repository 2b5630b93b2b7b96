// SPDX-License-Identifier: Apache-2.0
/*
 * The copy of a producer's event rings into a file (common/bundle/ringfile.h), on the copier
 * thread. Reads by pread into memory of its own and decides by nothing that it read but which rings
 * were ever used, and how much of a ring can have been: what the numbers mean is the decoder's
 * matter.
 *
 *	the rings, each:  head, slots, head again ─► file		first: they go on being written
 *	the shared part:  header, causes, names, directory ─► file	then: names that slots use are there by now
 *	our own header, with both moments				last
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/io.h"
#include "common/bundle/clocks.h"
#include "common/bundle/ringfile.h"
#include "daemon/producer/producer_internal.h"

#define SHARED_CHUNK (256u << 10)

struct copy {
	const struct producer *p;
	int fd;
	const atomic_bool *cancel;
	struct ringfile_header header;
	struct ringfile_ring *rings; /* n_rings of them */
	uint8_t *buf;
	size_t buf_bytes;
};

static void copy_fini(struct copy *c)
{
	if (c->buf)
		(void)munmap(c->buf, c->buf_bytes);
	free(c->rings);
}

static uint64_t ring_bytes(const struct copy *c)
{
	return (uint64_t)c->p->geometry.slots * RING_SLOT_BYTES;
}

/* Private memory of one ring, or one chunk; large pages save half of the time of its first use. */
static int make_buffer(struct copy *c)
{
	void *map;

	c->buf_bytes = ring_bytes(c) > SHARED_CHUNK ? ring_bytes(c) : SHARED_CHUNK;
	map = mmap(NULL, c->buf_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	(void)madvise(map, c->buf_bytes, MADV_HUGEPAGE);
	c->buf = map;
	return 0;
}

/* Nobody can make it shorter: what is missing is a failure of ours, not of the producer. */
static int read_memory(const struct copy *c, void *buf, size_t len, uint64_t offset)
{
	ssize_t n = io_pread_full(c->p->memory_fd, buf, len, (off_t)offset);

	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : -EIO;
}

static uint64_t entry_offset(const struct copy *c, uint32_t ring)
{
	return c->p->geometry.dir_offset + (uint64_t)ring * sizeof(struct ring_entry);
}

/* ---- threads in a pid namespace of their own */

static void map_threads(struct copy *c)
{
	_cleanup_(producer_threads_fini) struct producer_threads threads = {0};

	(void)!producer_threads_read(c->p, UINT64_MAX, &threads);
	for (uint32_t i = 0; i < c->header.n_rings; i++)
		c->rings[i].host_tid = producer_threads_find(&threads, c->rings[i].host_tid);
}

/* ---- the plan: which rings, and where in the file */

static int choose_rings(struct copy *c, uint64_t max_bytes, struct producer_copy_stats *stats)
{
	const struct ring_geometry *g = &c->p->geometry;
	_cleanup_free_ struct ring_entry *entries = NULL;
	size_t dir_bytes = g->rings * sizeof(*entries);
	uint64_t at, limit = max_bytes < INT64_MAX ? max_bytes : INT64_MAX;
	uint32_t n = 0;
	int r;

	entries = malloc(dir_bytes);
	c->rings = calloc(g->rings, sizeof(*c->rings));
	if (!entries || !c->rings)
		return -ENOMEM;
	r = read_memory(c, entries, dir_bytes, g->dir_offset);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < g->rings; i++)
		if (entries[i].tid != 0 || entries[i].head != 0)
			c->rings[n++] = (struct ringfile_ring){
				.ring = i,
				.host_tid = entries[i].tid < PID_LIMIT ? entries[i].tid : 0,
				.bytes = ring_bytes(c),
			};
	at = sizeof(c->header) + n * sizeof(*c->rings);
	c->header.shared_offset = at = (at + RING_PAGE - 1) / RING_PAGE * RING_PAGE;
	c->header.shared_bytes = g->data_offset;
	at += g->data_offset;
	if (at > limit)
		return -EFBIG;
	for (c->header.n_rings = 0; c->header.n_rings < n && at + ring_bytes(c) <= limit;
	     at += ring_bytes(c))
		c->rings[c->header.n_rings++].offset = at;
	stats->rings_left_out = n - c->header.n_rings;
	if (stats->rings_left_out)
		c->header.flags |= RINGFILE_CUT;
	/* What no slot was ever written to stays a hole. */
	return ftruncate(c->fd, (off_t)at) < 0 ? -errno : 0;
}

/* ---- the steps */

static int copy_ring(struct copy *c, struct ringfile_ring *ring)
{
	const struct ring_geometry *g = &c->p->geometry;
	uint64_t head_offset = entry_offset(c, ring->ring) + offsetof(struct ring_entry, head),
		 used;
	int r;

	r = read_memory(c, &ring->head_before, sizeof(ring->head_before), head_offset);
	if (r < 0)
		return r;
	/*
	 * Slots from head on were never written, or do not count: the producer's own word says so.
	 */
	used = ring->head_before < g->slots ? ring->head_before * RING_SLOT_BYTES : ring->bytes;
	r = read_memory(c, c->buf, used, g->data_offset + (uint64_t)ring->ring * ring->bytes);
	if (r == 0)
		r = read_memory(c, &ring->head_after, sizeof(ring->head_after), head_offset);
	return r < 0 ? r : io_pwrite_all(c->fd, c->buf, used, (off_t)ring->offset);
}

static int copy_shared(struct copy *c)
{
	for (uint64_t at = 0; at < c->header.shared_bytes; at += SHARED_CHUNK) {
		size_t n = c->header.shared_bytes - at < SHARED_CHUNK ? c->header.shared_bytes - at
								      : SHARED_CHUNK;
		int r;

		if (atomic_load(c->cancel))
			return -ECANCELED;
		r = read_memory(c, c->buf, n, at);
		if (r == 0)
			r = io_pwrite_all(c->fd, c->buf, n, (off_t)(c->header.shared_offset + at));
		if (r < 0)
			return r;
	}
	return 0;
}

static int write_head(struct copy *c)
{
	int r;

	r = io_pwrite_all(c->fd, c->rings, c->header.n_rings * sizeof(*c->rings),
			  sizeof(c->header));
	return r < 0 ? r : io_pwrite_all(c->fd, &c->header, sizeof(c->header), 0);
}

static void moment(const struct copy *c, uint64_t *ret_tsc, uint64_t *ret_raw)
{
	struct clocks_bracket b;

	clocks_read(c->p->tsc, &b);
	*ret_tsc = b.tsc;
	*ret_raw = b.raw;
}

int producer_copy(struct producer *p, int fd, uint64_t max_bytes, const atomic_bool *cancel,
		  struct producer_copy_stats *ret)
{
	_cleanup_(copy_fini) struct copy c = {.p = p, .fd = fd, .cancel = cancel};
	const struct ring_geometry *g = &p->geometry;
	struct producer_copy_stats stats = {.ended = p->state == PRODUCER_ENDED};
	uint64_t begin = io_now_ns();
	int r;

	c.header = (struct ringfile_header){
		.version = RINGFILE_VERSION,
		.flags = stats.ended ? RINGFILE_ENDED : 0,
		.pid = (uint32_t)p->pid,
		.nspid = (uint32_t)p->nspid,
		.start_time = p->start_time,
		.clock = p->clock,
		.rings = g->rings,
		.slots = g->slots,
		.names_max = g->names_max,
		.text_bytes = g->text_bytes,
	};
	memcpy(c.header.magic, RINGFILE_MAGIC, sizeof(c.header.magic));
	r = make_buffer(&c);
	if (r < 0)
		return r;
	moment(&c, &c.header.begin_tsc, &c.header.begin_raw_ns);
	r = choose_rings(&c, max_bytes, &stats);
	for (uint32_t i = 0; r == 0 && i < c.header.n_rings; i++)
		r = atomic_load(cancel) ? -ECANCELED : copy_ring(&c, &c.rings[i]);
	if (r == 0)
		r = copy_shared(&c);
	if (r < 0)
		return r;
	moment(&c, &c.header.end_tsc, &c.header.end_raw_ns);
	if (p->nspid != p->pid)
		map_threads(&c);
	r = write_head(&c);
	if (r < 0)
		return r;
	stats.rings = c.header.n_rings;
	stats.bytes = c.header.shared_offset + c.header.shared_bytes + stats.rings * ring_bytes(&c);
	stats.copy_ns = io_now_ns() - begin;
	*ret = stats;
	return 0;
}
