// SPDX-License-Identifier: Apache-2.0
/*
 * A block begins with the place of the stream's next one and the bytes that are used; a record with
 * its length. A block's place is known when it is begun, and so is that of each record in it.
 * Blocks of streams that have little to say stay mostly holes.
 */
#include "config.h"

#include "decode/pt/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"

#define MEMORY_BYTES (16u << 20) /* of all streams together */
#define FIRST_ROOM (4u << 10)

struct block_head {
	uint64_t next;
	uint32_t used;
	uint32_t zero;
};

struct spool {
	int fd;
	uint64_t end; /* of the blocks that are given away */
	uint64_t bytes;
	size_t memory;
	struct spool_stream *first;
};

int spool_new(int fd, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->fd = fd;
	s->end = SPOOL_BLOCK_BYTES; /* no place is 0 */
	*ret = s;
	return 0;
}

static void forget(struct spool *s, struct spool_stream *st)
{
	s->memory -= st->room;
	free(st->bytes);
	st->bytes = NULL;
	st->room = 0;
}

struct spool *spool_free(struct spool *s)
{
	if (!s)
		return NULL;
	for (struct spool_stream *st = s->first; st; st = st->next)
		forget(s, st);
	free(s);
	return NULL;
}

uint64_t spool_bytes(const struct spool *s)
{
	return s->bytes;
}

/* What of the block is not in the file goes there. Its memory is kept: the next block needs it. */
static int flush(struct spool *s, struct spool_stream *st)
{
	int r = 0;

	if (st->used > st->held)
		r = io_pwrite_all(s->fd, st->bytes, st->used - st->held,
				  (off_t)(st->block + st->held));
	if (r < 0)
		return r;
	st->held = st->used;
	return 0;
}

static int close_block(struct spool *s, struct spool_stream *st, uint64_t next)
{
	const struct block_head head = {.next = next, .used = st->used};
	int r = flush(s, st);

	return r < 0 ? r : io_pwrite_all(s->fd, &head, sizeof(head), (off_t)st->block);
}

static int begin_block(struct spool *s, struct spool_stream *st)
{
	const uint64_t place = s->end;
	int r;

	if (st->block) {
		r = close_block(s, st, place);
		if (r < 0)
			return r;
	} else {
		st->first = place;
	}
	st->block = place;
	/* the head is written last */
	st->used = st->held = sizeof(struct block_head);
	s->end += SPOOL_BLOCK_BYTES;
	return 0;
}

static int reserve(struct spool *s, struct spool_stream *st, uint32_t n)
{
	const uint32_t want = st->used - st->held + n;
	uint32_t room = st->room ? st->room : FIRST_ROOM;
	uint8_t *v;

	while (room < want)
		room *= 2;
	if (room <= st->room)
		return 0;
	v = realloc(st->bytes, room);
	if (!v)
		return -ENOMEM;
	s->memory += room - st->room;
	st->bytes = v;
	st->room = room;
	return 0;
}

int spool_append(struct spool *s, struct spool_stream *st, const void *record, uint32_t n,
		 uint64_t *ret)
{
	const uint32_t all = (uint32_t)sizeof(n) + n;
	int r = 0;

	if (n > SPOOL_RECORD_MAX)
		return -EINVAL;
	if (!st->known) {
		st->known = true;
		st->next = s->first;
		s->first = st;
	}
	if (!st->block || SPOOL_BLOCK_BYTES - st->used < all)
		r = begin_block(s, st);
	if (r == 0)
		r = reserve(s, st, all);
	if (r < 0)
		return r;
	memcpy(st->bytes + (st->used - st->held), &n, sizeof(n));
	memcpy(st->bytes + (st->used - st->held) + sizeof(n), record, n);
	*ret = st->block + st->used + sizeof(n);
	st->used += all;
	s->bytes += all;
	if (s->memory > MEMORY_BYTES)
		for (struct spool_stream *each = s->first; each && r == 0; each = each->next) {
			r = flush(s, each);
			forget(s, each);
		}
	return r;
}

/* A record is whole in memory or in the file. NULL: in the file. */
static uint8_t *in_memory(const struct spool_stream *st, uint64_t at)
{
	return st->bytes && at >= st->block + st->held && at < st->block + st->used
		       ? st->bytes + (at - st->block - st->held)
		       : NULL;
}

int spool_patch(struct spool *s, struct spool_stream *st, uint64_t at, const void *bytes,
		uint32_t n)
{
	uint8_t *m = in_memory(st, at);

	if (!m)
		return io_pwrite_all(s->fd, bytes, n, (off_t)at);
	memcpy(m, bytes, n);
	return 0;
}

int spool_read(struct spool *s, uint64_t at, void *ret, size_t room, uint32_t *ret_n)
{
	uint32_t n;
	ssize_t got = io_pread_full(s->fd, &n, sizeof(n), (off_t)(at - sizeof(n)));

	if (got == sizeof(n) && n <= room)
		got = io_pread_full(s->fd, ret, n, (off_t)at);
	else if (got >= 0)
		return -EIO;
	if (got < 0 || (size_t)got != n)
		return got < 0 ? (int)got : -EIO;
	*ret_n = n;
	return 0;
}

static int load(struct spool *s, struct spool_reader *r, uint64_t place)
{
	struct block_head head;
	ssize_t got = io_pread_full(s->fd, r->block, SPOOL_BLOCK_BYTES, (off_t)place);

	if (got < 0)
		return (int)got;
	if ((size_t)got < sizeof(head))
		return -EIO;
	memcpy(&head, r->block, sizeof(head));
	if (head.used > (size_t)got)
		return -EIO;
	r->used = head.used;
	r->at = sizeof(head);
	return 0;
}

int spool_reader_init(struct spool *s, struct spool_stream *st, struct spool_reader *ret)
{
	int r = 0;

	*ret = (struct spool_reader){.used = 0};
	if (!st->block)
		return 0;
	r = close_block(s, st, 0);
	if (r < 0)
		return r;
	ret->block = malloc(SPOOL_BLOCK_BYTES);
	if (!ret->block)
		return -ENOMEM;
	r = load(s, ret, st->first);
	if (r < 0)
		spool_reader_fini(ret);
	return r;
}

void spool_reader_fini(struct spool_reader *r)
{
	free(r->block);
	r->block = NULL;
}

int spool_next(struct spool *s, struct spool_reader *r, const uint8_t **ret, uint32_t *ret_n)
{
	uint32_t n;

	if (!r->block)
		return 0;
	if (r->used - r->at < sizeof(n)) {
		struct block_head head;
		int e;

		memcpy(&head, r->block, sizeof(head));
		if (!head.next)
			return 0;
		e = load(s, r, head.next);
		if (e < 0)
			return e;
	}
	if (r->used - r->at < sizeof(n))
		return -EIO;
	memcpy(&n, r->block + r->at, sizeof(n));
	r->at += sizeof(n);
	if (n > r->used - r->at)
		return -EIO;
	*ret = r->block + r->at;
	*ret_n = n;
	r->at += n;
	return 1;
}
