/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of slots: the caller fills the one at `head`, finished slots leave at `tail` in order.
 * Both only count up; slot = number % n_slots.
 */
#include "config.h"

#include "decode/writer/pack.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>

#include "decode/base/workers.h"

struct slot {
	struct work work; /* first */
	struct pack *pack;
	uint8_t *raw;
	size_t raw_len;
	uint8_t *out; /* PACK_HEADROOM bytes, then the compressed piece */
	size_t out_len;
};

struct pack {
	struct workers *workers, *own;		 /* `own` if the caller has none */
	struct libdeflate_compressor **compressors; /* by worker */
	unsigned int n_compressors;
	struct slot *slots;
	size_t n_slots, out_size;
	uint64_t head, tail;
	pack_sink_fn sink;
	void *sink_arg;
	int error; /* the sink's first */
};

static void slot_compress(struct work *work, unsigned int worker)
{
	struct slot *s = (struct slot *)work;
	struct pack *p = s->pack;

	s->out_len = libdeflate_zlib_compress(p->compressors[worker], s->raw, s->raw_len,
					      s->out + PACK_HEADROOM, p->out_size - PACK_HEADROOM);
}

int pack_new(struct workers *workers, int level, struct pack **ret)
{
	_cleanup_(pack_freep) struct pack *p = calloc(1, sizeof(*p));
	unsigned int n;

	if (!p)
		return -ENOMEM;
	if (!workers) {
		int r = workers_new(0, &p->own);

		if (r < 0)
			return r;
	}
	p->workers = workers ? workers : p->own;
	if (level < 1 || level > 12)
		level = PACK_DEFAULT_LEVEL;
	n = workers_count(p->workers);
	p->n_slots = n > 1 ? n * 2 + 2 : 1;
	p->slots = calloc(p->n_slots, sizeof(*p->slots));
	p->compressors = calloc(n, sizeof(struct libdeflate_compressor *));
	if (!p->slots || !p->compressors)
		return -ENOMEM;
	for (; p->n_compressors < n; p->n_compressors++) {
		p->compressors[p->n_compressors] = libdeflate_alloc_compressor(level);
		if (!p->compressors[p->n_compressors])
			return -ENOMEM;
	}
	p->out_size =
		PACK_HEADROOM + libdeflate_zlib_compress_bound(p->compressors[0], PACK_PIECE_ROOM);
	for (size_t i = 0; i < p->n_slots; i++) {
		p->slots[i].work.run = slot_compress;
		p->slots[i].work.later = true;
		p->slots[i].pack = p;
		p->slots[i].raw = malloc(PACK_PIECE_ROOM);
		p->slots[i].out = malloc(p->out_size);
		if (!p->slots[i].raw || !p->slots[i].out)
			return -ENOMEM;
	}
	*ret = take_ptr(p);
	return 0;
}

struct pack *pack_free(struct pack *p)
{
	if (!p)
		return NULL;
	while (p->tail < p->head)
		workers_wait(p->workers, &p->slots[p->tail++ % p->n_slots].work);
	for (unsigned int i = 0; i < p->n_compressors; i++)
		libdeflate_free_compressor(p->compressors[i]);
	for (size_t i = 0; p->slots && i < p->n_slots; i++) {
		free(p->slots[i].raw);
		free(p->slots[i].out);
	}
	free(p->compressors);
	free(p->slots);
	workers_free(p->own);
	free(p);
	return NULL;
}

void pack_set_sink(struct pack *p, pack_sink_fn sink, void *arg)
{
	p->sink = sink;
	p->sink_arg = arg;
}

uint8_t *pack_buffer(struct pack *p)
{
	return p->slots[p->head % p->n_slots].raw;
}

/* Hands the oldest slot to the sink. */
static void take_oldest(struct pack *p)
{
	struct slot *s = &p->slots[p->tail++ % p->n_slots];
	int r = 0;

	workers_wait(p->workers, &s->work);
	if (p->error < 0)
		return;
	if (s->out_len == 0)
		r = -EOVERFLOW; /* cannot be: the bound was asked for */
	else if (p->sink)
		r = p->sink(p->sink_arg, s->out + PACK_HEADROOM, s->out_len, s->raw_len);
	if (r < 0)
		p->error = r;
}

int pack_submit(struct pack *p, size_t len)
{
	struct slot *s = &p->slots[p->head++ % p->n_slots];

	s->raw_len = len < PACK_PIECE_ROOM ? len : PACK_PIECE_ROOM;
	workers_submit(p->workers, &s->work);
	/* The slot that comes next must be free before the caller gets it. */
	while (p->head - p->tail >= p->n_slots)
		take_oldest(p);
	return p->error;
}

int pack_flush(struct pack *p)
{
	while (p->tail < p->head)
		take_oldest(p);
	return p->error;
}
