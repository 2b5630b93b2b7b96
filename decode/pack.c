/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of slots: the caller fills the one at `head`, workers take from `work` on, finished
 * slots leave at `tail` in order. All three only count up; slot = number % n_slots.
 */
#include "config.h"

#include "decode/pack.h"

#include <errno.h>
#include <libdeflate.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct slot {
	uint8_t *raw;
	size_t raw_len;
	uint8_t *out; /* PACK_HEADROOM bytes, then the compressed piece */
	size_t out_len;
	bool done;
};

struct worker {
	struct pack *pack;
	struct libdeflate_compressor *compressor;
	pthread_t thread;
	bool running;
};

struct pack {
	struct worker workers[PACK_MAX_THREADS];
	unsigned int n_workers;
	struct libdeflate_compressor *own; /* the caller's, who helps where it would wait */
	struct slot *slots;
	size_t n_slots, out_size;
	pthread_mutex_t lock;
	pthread_cond_t filled, finished;
	uint64_t head, work, tail; /* under the lock, but for `tail`, which is the caller's */
	bool stop;
	pack_sink_fn sink;
	void *sink_arg;
	int error; /* the sink's first */
};

static void slot_compress(struct pack *p, struct slot *s, struct libdeflate_compressor *c)
{
	s->out_len = libdeflate_zlib_compress(c, s->raw, s->raw_len, s->out + PACK_HEADROOM,
					      p->out_size - PACK_HEADROOM);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pack *p = w->pack;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct slot *s;

		while (!p->stop && p->work == p->head)
			pthread_cond_wait(&p->filled, &p->lock);
		if (p->stop)
			break;
		s = &p->slots[p->work++ % p->n_slots];
		pthread_mutex_unlock(&p->lock);
		slot_compress(p, s, w->compressor);
		pthread_mutex_lock(&p->lock);
		s->done = true;
		pthread_cond_signal(&p->finished);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int worker_start(struct worker *w)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	/* the sandbox answers denied calls by this one; where it is blocked they would kill */
	(void)sigdelset(&all, SIGSYS);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	r = pthread_create(&w->thread, NULL, worker_main, w);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return -r;
	w->running = true;
	return 0;
}

int pack_new(unsigned int threads, int level, struct pack **ret)
{
	_cleanup_(pack_freep) struct pack *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->filled, NULL);
	(void)pthread_cond_init(&p->finished, NULL);
	if (threads > PACK_MAX_THREADS)
		threads = PACK_MAX_THREADS;
	if (level < 1 || level > 12)
		level = PACK_DEFAULT_LEVEL;
	p->n_slots = threads ? threads * 2 + 2 : 1;
	p->slots = calloc(p->n_slots, sizeof(*p->slots));
	if (!p->slots)
		return -ENOMEM;
	p->own = libdeflate_alloc_compressor(level);
	if (!p->own)
		return -ENOMEM;
	for (unsigned int i = 0; i < threads; i++) {
		p->workers[i].pack = p;
		p->workers[i].compressor = libdeflate_alloc_compressor(level);
		if (!p->workers[i].compressor)
			return -ENOMEM;
		p->n_workers = i + 1;
	}
	p->out_size = PACK_HEADROOM + libdeflate_zlib_compress_bound(p->own, PACK_PIECE_ROOM);
	for (size_t i = 0; i < p->n_slots; i++) {
		p->slots[i].raw = malloc(PACK_PIECE_ROOM);
		p->slots[i].out = malloc(p->out_size);
		if (!p->slots[i].raw || !p->slots[i].out)
			return -ENOMEM;
	}
	for (unsigned int i = 0; i < threads; i++) {
		int r = worker_start(&p->workers[i]);

		if (r < 0)
			return r;
	}
	*ret = take_ptr(p);
	return 0;
}

struct pack *pack_free(struct pack *p)
{
	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->filled);
	pthread_mutex_unlock(&p->lock);
	for (unsigned int i = 0; i < p->n_workers; i++) {
		if (p->workers[i].running)
			(void)pthread_join(p->workers[i].thread, NULL);
		libdeflate_free_compressor(p->workers[i].compressor);
	}
	libdeflate_free_compressor(p->own);
	for (size_t i = 0; p->slots && i < p->n_slots; i++) {
		free(p->slots[i].raw);
		free(p->slots[i].out);
	}
	free(p->slots);
	(void)pthread_cond_destroy(&p->finished);
	(void)pthread_cond_destroy(&p->filled);
	(void)pthread_mutex_destroy(&p->lock);
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

/* Compresses one slot that no worker has begun, if there is one; called with the lock held. */
static bool help(struct pack *p)
{
	struct slot *s;

	if (p->work == p->head)
		return false;
	s = &p->slots[p->work++ % p->n_slots];
	pthread_mutex_unlock(&p->lock);
	slot_compress(p, s, p->own);
	pthread_mutex_lock(&p->lock);
	s->done = true;
	return true;
}

/* Hands the oldest slot to the sink; helps or waits for its worker if it must. */
static void take_oldest(struct pack *p)
{
	struct slot *s = &p->slots[p->tail % p->n_slots];
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (!s->done)
		if (!help(p))
			pthread_cond_wait(&p->finished, &p->lock);
	s->done = false;
	pthread_mutex_unlock(&p->lock);
	p->tail++;
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
	struct slot *s = &p->slots[p->head % p->n_slots];

	s->raw_len = len < PACK_PIECE_ROOM ? len : PACK_PIECE_ROOM;
	pthread_mutex_lock(&p->lock);
	p->head++;
	pthread_cond_signal(&p->filled);
	pthread_mutex_unlock(&p->lock);
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
