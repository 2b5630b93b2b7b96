// SPDX-License-Identifier: Apache-2.0
/* When each block begins: by its own stamp, unless that is damaged. */
#include "config.h"

#include <stdlib.h>

#include "decode/pt/pipeline_internal.h"

static int order_compare(const void *a, const void *b, void *arg)
{
	const struct pipeline *w = arg;
	const size_t x = *(const size_t *)a, y = *(const size_t *)b;

	if (w->blocks[x].ns != w->blocks[y].ns)
		return w->blocks[x].ns < w->blocks[y].ns ? -1 : 1;
	return x < y ? -1 : x > y;
}

/*
 * Whether the stamp of a block is damaged: it is later than what follows, and what was before fits
 * to that. `before`: of the last block that has one, 0: none.
 */
static bool is_outlier(const struct pipeline *w, size_t i, uint64_t before)
{
	const struct auxtrace_block *b = auxtrace_block(w->o.aux, i);
	unsigned int n = 0, lower = 0;

	for (size_t k = i + 1; k < w->n_blocks && n < 2; k++) {
		const struct auxtrace_block *next = auxtrace_block(w->o.aux, k);

		if (next->buffer != b->buffer)
			break;
		if (!next->tsc)
			continue;
		n++;
		lower += next->tsc < b->tsc;
		if (before && next->tsc < b->tsc && next->tsc >= before)
			return true;
	}
	return lower == 2;
}

/* When each block begins, at the earliest: in a buffer never before the one before it. */
static void date_blocks(struct pipeline *w, size_t from, size_t to)
{
	uint64_t tsc = 0;

	for (size_t i = from; i < to; i++) {
		const uint64_t own = w->blocks[i].b->tsc;

		if (own > tsc && !is_outlier(w, i, tsc))
			tsc = own;
		w->blocks[i].ns = auxtrace_ns(w->config, tsc);
	}
	for (size_t i = to; i > from; i--)
		if (w->blocks[i - 1].ns == 0 && i < to)
			w->blocks[i - 1].ns = w->blocks[i].ns;
}

void pipeline_make_blocks(struct pipeline *w)
{
	for (size_t i = 0; i < w->n_blocks; i++) {
		struct pipeline_block *b = &w->blocks[i];
		struct pipeline_stream *s;

		b->w = w;
		b->work.run = pipeline_follow;
		b->b = auxtrace_block(w->o.aux, i);
		s = &w->streams[b->b->buffer];
		if (s->end_at == 0)
			s->at = i;
		s->end_at = i + 1;
		w->order[i] = i;
	}
	for (size_t i = 0; i < auxtrace_n_buffers(w->o.aux); i++) {
		struct pipeline_stream *s = &w->streams[i];

		date_blocks(w, s->at, s->end_at);
		if (s->at < s->end_at)
			s->ns = w->blocks[s->at].ns;
	}
	qsort_r(w->order, w->n_blocks, sizeof(*w->order), order_compare, w);
}
